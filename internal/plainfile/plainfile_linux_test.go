package plainfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("text"), 0o600), os.Symlink(at("file"), at("link")),
		os.Mkdir(at("folder"), 0o700),
		syscall.Mkfifo(at("pipe"), 0o600), os.Symlink(at("pipe"), at("to pipe"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "link"} {
		if data, err := Read(at(name)); err != nil || string(data) != "text" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for path, want := range map[string]string{at("folder"): "a folder", at("pipe"): "a pipe", at("to pipe"): "a pipe",
		"/dev/zero": "a device"} {
		var no *Irregular
		if _, err := Read(path); !errors.As(err, &no) || !strings.Contains(err.Error(),
			path+": expected a regular file, found "+want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Read(at("nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
