package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hubServer serves a folder as the repository org/tiny, and the environment points to it.
func hubServer(t *testing.T, dir string) *httptest.Server {
	t.Helper()
	const sha = "0123456789abcdef0123456789abcdef01234567"
	mux := http.NewServeMux()
	mux.HandleFunc("/api/models/org/tiny/revision/main", func(w http.ResponseWriter, _ *http.Request) {
		var all []map[string]any
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			all = append(all, map[string]any{"rfilename": filepath.Base(f), "size": len(data),
				"blobId": strings.Repeat("0", 40),
				"lfs":    map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256(data)), "size": len(data)}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": sha, "siblings": all})
	})
	mux.HandleFunc("/org/tiny/resolve/"+sha+"/", func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(filepath.Join(dir, filepath.Base(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_CACHE", "")
	t.Setenv("HF_HUB_OFFLINE", "")
	t.Setenv("OLLAMA_MODELS", t.TempDir())
	return s
}

// TestHubVerbs gets a model, runs it by its name, lists, copies and removes it.
func TestHubVerbs(t *testing.T) {
	s := hubServer(t, trained(t))
	const name = "hf:org/tiny"
	r := greta(t, "pull", name, "--parallel", "2")
	path := strings.TrimSpace(r.out)
	if r.code != 0 || !exists(filepath.Join(path, "config.json")) || !strings.Contains(r.err, "getting") {
		t.Fatalf("exit %d, %q\n%s", r.code, r.out, r.err)
	}
	if again := greta(t, "pull", name, "--json"); again.code != 0 || !strings.Contains(again.out, path) ||
		strings.Contains(again.err, "getting") {
		t.Errorf("exit %d, %q, %s", again.code, again.out, again.err)
	}
	s.Close()
	t.Setenv("HF_HUB_OFFLINE", "1")
	want := greta(t, "run", trained(t), "-p", "The prince", "-n", "6")
	if got := greta(t, "run", name, "-p", "The prince", "-n", "6"); got.code != 0 || got.out != want.out {
		t.Errorf("by its name: exit %d, %q, want %q\n%s", got.code, got.out, want.out, got.err)
	}
	if got := greta(t, "run", name, "-p", "The prince", "-n", "6", "--draft", name); got.code != 0 || got.out != want.out {
		t.Errorf("guesses by a name: exit %d, %q, want %q\n%s", got.code, got.out, want.out, got.err)
	}
	for _, args := range [][]string{{"show", name}, {"tokenize", name, "Hello"}, {"dump", name, "--stage", "spec"},
		{"template", name, "--list", "--chat-template", "chatml"}} {
		if r := greta(t, args...); r.code != 0 || r.out == "" {
			t.Errorf("%v: exit %d, %s", args, r.code, r.err)
		}
	}
	if r := greta(t, "list"); r.code != 0 || !strings.Contains(r.out, name+" ") {
		t.Errorf("exit %d, %s", r.code, r.out)
	}
	var all []struct{ Name, Path string }
	if r := greta(t, "list",
		"--json"); json.Unmarshal([]byte(r.out), &all) != nil || len(all) != 1 || all[0].Path != path {
		t.Errorf("%s", r.out)
	}
	to := filepath.Join(t.TempDir(), "copy")
	if r := greta(t, "cp", name, to); r.code != 0 || !exists(filepath.Join(to, "config.json")) {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
	if r := greta(t, "cp", name, to, "--json"); r.code != exitUsage || !strings.Contains(r.err, "is there already") {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
	if r := greta(t, "rm", name, "--json"); r.code != 0 || !strings.Contains(r.out, path) || exists(path) {
		t.Errorf("exit %d, %s%s", r.code, r.out, r.err)
	}
	if r := greta(t, "list", "--json"); strings.TrimSpace(r.out) != "[]" {
		t.Errorf("left %s", r.out)
	}
}

func TestHubRefuses(t *testing.T) {
	s := hubServer(t, trained(t))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"pull", "org/tiny"}, exitUsage, "hf:ORG/NAME"}, {[]string{"pull", "hf:../x"}, exitUsage, "is no name"},
		{[]string{"pull", "hf:org/none"}, exitUsage, "is the name right?"}, {[]string{"pull", "hf:org/tiny",
			"--parallel", "0"}, exitUsage,
			"--parallel 0"},
		{[]string{"run", "hf:org/none", "-p", "x"}, exitUsage, "404"}, {[]string{"rm", "hf:org/none"}, exitUsage,
			"greta list"},
		{[]string{"pull", "ollama:none", "--registry", s.URL}, exitUsage, "404"}, {[]string{"cp", "x", "y"}, exitUsage,
			"hf:ORG/NAME"},
		{[]string{"rm"}, exitUsage, "greta list"},
	} {
		if r := greta(t, c.args...); r.code != c.code || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: exit %d, %s; want exit %d and %q", c.args, r.code, r.err, c.code, c.want)
		}
	}
}
