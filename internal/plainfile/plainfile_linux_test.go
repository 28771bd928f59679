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

// TestCreate: a pipe is written to where a program reads it, and not waited for otherwise.
func TestCreate(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(pipe); err == nil || !strings.Contains(err.Error(), pipe+": a pipe that no program reads") {
		t.Fatalf("without a reader: %v", err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	f, err := Create(pipe)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	if n, err := reader.Read(buf); err != nil || string(buf[:n]) != "text" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}
