package health

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe in the place of the file of results is neither read nor written, and reported.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "health.txt")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := find(path, key{}); ok {
		t.Error("a pipe has a record")
	}
	_, err := Records(path)
	for what, err := range map[string]error{"read": err, "kept": keep(path, record{})} {
		if err == nil || !strings.Contains(err.Error(), path+": expected a regular file, found a pipe") {
			t.Errorf("a pipe is %s: %v", what, err)
		}
	}
}
