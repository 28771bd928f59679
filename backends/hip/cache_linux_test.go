package hip

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe in the place of a kept kernel is as good as none, and is not written to.
func TestPipeInCache(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	path := filepath.Join(c.Dir, "key"+cacheExt)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.load("key"); code != nil {
		t.Errorf("a pipe holds code %q", code)
	}
	if _, err := c.List(); err != nil {
		t.Error(err)
	}
	if err := c.store("key", "p", []byte("code")); err == nil || !strings.Contains(err.Error(), "found a pipe") {
		t.Errorf("code is kept in a pipe: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
