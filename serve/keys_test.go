//go:build !windows

package serve

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReloadKeepsRunning: requests that run when the file of keys is read again still count, and leave as they came.
func TestReloadKeepsRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	line := PlainKey("ann", "secret")
	text := "- {name: ann, sha256: " + line.Hash + ", parallel: 1}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	one := func() *Key {
		for _, k := range keys.byHash {
			return k
		}
		return nil
	}
	before := one()
	if err := keys.enter(before); err != nil {
		t.Fatal(err)
	}
	if err := keys.Reload(); err != nil {
		t.Fatal(err)
	}
	if err := keys.enter(one()); err == nil {
		t.Error("a second request at once was let in behind a reload")
	}
	keys.leave(before)
	if err := keys.enter(one()); err != nil {
		t.Errorf("the first has left: %v", err)
	}
	keys.leave(one())
}

// TestPipesForFiles: files of keys and of models are regular ones; a pipe is not waited for.
func TestPipesForFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := ReadKeys(path); err == nil || !strings.Contains(err.Error(), "a pipe") {
		t.Errorf("keys: %v", err)
	}
	if _, _, err := ReadSpecs(path); err == nil || !strings.Contains(err.Error(), "a pipe") {
		t.Errorf("models: %v", err)
	}
}
