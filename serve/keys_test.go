//go:build !windows

package serve

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What a key may not use it is not told of, and a request that names no model means the first that it may.
func TestModelsOfKeys(t *testing.T) {
	load := func(context.Context, Spec) (Model, error) { return newFake(), nil }
	log := slog.New(slog.DiscardHandler)
	m, err := NewManager([]Spec{{Name: "first", Path: "a"}, {Name: "second", Path: "b"}}, load, 0, 0, log)
	if err != nil {
		t.Fatal(err)
	}
	one, none := PlainKey("one", "k1"), PlainKey("none", "k2")
	one.Models, none.Models = []string{"second"}, []string{"third"}
	_, h := testServer(t, newFake(), func(o *Options) {
		o.Models = m
		o.Keys, _ = NewKeys([]*Key{one, none})
	})
	for _, c := range []struct {
		key, model, want string
		status           int
	}{
		{"k1", "", `"model":"second"`, 200}, {"k1", `"model": "first",`, "there are second\"", 404},
		{"k1", `"model": "other",`, "there are second\"", 404}, {"k2", "", "this key may use", 404},
		{"k2", `"model": "first",`, "this key may use", 404},
	} {
		body := "{" + c.model + `"prompt": "x", "max_tokens": 2}`
		req, _ := http.NewRequest("POST", h.URL+"/v1/completions", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+c.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(got), c.want) {
			t.Errorf("%s %s: %d %s %v", c.key, c.model, resp.StatusCode, got, err)
		}
	}
}

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
