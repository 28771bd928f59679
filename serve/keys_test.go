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

// TestBadBounds: a bound below nothing is told; it does not mean that there is none.
func TestBadBounds(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, "file.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hash := strings.Repeat("0f", 32)
	for _, line := range []string{"requests-per-minute: -1", "tokens-per-minute: -1", "tokens-per-day: -1",
		"parallel: -1"} {
		if _, err := ReadKeys(file("- {name: a, sha256: " + hash + ", " + line + "}")); err == nil ||
			!strings.Contains(err.Error(), "0 or more") {
			t.Errorf("keys, %s: %v", line, err)
		}
	}
	if _, err := ReadKeys(file("- {name: a, sha256: " + hash + "}\n- {name: b, sha256: " + hash + "}")); err == nil ||
		!strings.Contains(err.Error(), "same as that of a") {
		t.Errorf("one key twice: %v", err)
	}
	for text, want := range map[string]string{"": "no models", "models: [{name: a, path: b, idle: -1s}]": "0 or more",
		"models: [{name: a, path: b, context: -1}]": "0 or more", "models: [{name: a, path: b, parallel: -1}]": "0 or more",
		"{most-loaded: -1, models: [{name: a, path: b}]}": "most-loaded -1"} {
		if _, _, err := ReadSpecs(file(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("models, %q: %v", text, err)
		}
	}
}
