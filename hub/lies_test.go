package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAddressLater checks a file that is here already when a hash is named.
func TestAddressLater(t *testing.T) {
	s := newServer(t, map[string][]byte{"m.gguf": noise(5000)})
	h := testHub(t, s)
	if _, err := h.Pull(t.Context(), s.URL+"/m.gguf"); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(s.files["m.gguf"]))
	path, err := h.Pull(t.Context(), s.URL+"/m.gguf#sha256="+sum)
	if err != nil {
		t.Errorf("the right hash: %v", err)
	}
	var lied *Lied
	_, err = h.Pull(t.Context(), s.URL+"/m.gguf#sha256="+strings.Repeat("0", 64))
	if !errors.As(err, &lied) || !strings.Contains(err.Error(), sum) {
		t.Errorf("a wrong hash of what is here: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("what was here is gone: %v", err)
	}
}

// TestChanged: a file without a hash that is another one now is got anew, not half and half, and not never.
func TestChanged(t *testing.T) {
	s := newServer(t, map[string][]byte{"m.gguf": noise(100_001)})
	h := testHub(t, s)
	h.Parallel = 1
	tag := func(from int) answer {
		return func(w http.ResponseWriter, _ *http.Request, n int) bool {
			w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(max(from, n))))
			return false
		}
	}
	s.answers(tag(3)) // from the fourth on each answer is of another file
	if _, err := h.Pull(t.Context(), s.URL+"/m.gguf"); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Fatalf("it changed meanwhile: %v", err)
	}
	s.answers(tag(1000))
	after := noise(100_001 + 512)[:100_001]
	s.mu.Lock()
	s.files["m.gguf"] = after
	s.mu.Unlock()
	path, err := h.Pull(t.Context(), s.URL+"/m.gguf")
	if err != nil {
		t.Fatalf("got again: %v", err)
	}
	if data, _ := os.ReadFile(path); !bytes.Equal(data, after) {
		t.Error("the bytes are not those of the new file")
	}
	// what an earlier pull left is of a file that is another one now
	ctx, stop := context.WithCancel(t.Context())
	begun := len(s.requests("/m.gguf"))
	s.answers(func(w http.ResponseWriter, r *http.Request, n int) bool {
		w.Header().Set("ETag", `"old"`)
		if n == begun+4 {
			stop()
			<-r.Context().Done()
		}
		return false
	})
	if _, err := h.Pull(ctx, s.URL+"/m.gguf?2"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	s.answers(tag(2000))
	if _, err := h.Pull(t.Context(), s.URL+"/m.gguf?2"); err != nil {
		t.Fatalf("gone on with: %v", err)
	}
	if n := len(s.requests("/m.gguf")); n < begun+4+1+1+6 {
		t.Errorf("%d requests: the parts of the old file were kept", n-begun)
	}
}

// TestSigned gets what is for GET alone, as signed addresses are, and refuses a page in the place of a file.
func TestSigned(t *testing.T) {
	s := newServer(t, map[string][]byte{"m.gguf": noise(50_000), "page.gguf": []byte("<html>log in</html>")})
	h := testHub(t, s)
	s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusForbidden)
		}
		return r.Method == http.MethodHead
	})
	path, err := h.Pull(t.Context(), s.URL+"/m.gguf?signature=1")
	if err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(path); !bytes.Equal(data, s.files["m.gguf"]) {
		t.Error("other bytes came")
	}
	s.answers(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		return false
	})
	if path, err := h.Pull(t.Context(), s.URL+"/page.gguf"); err == nil || !strings.Contains(err.Error(), "a page") {
		t.Errorf("a page: %s, %v", path, err)
	}
}

// TestPacked: what comes packed is not the file, and no length tells.
func TestPacked(t *testing.T) {
	s := newServer(t, map[string][]byte{"m.gguf": noise(50_000)})
	h := testHub(t, s)
	s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", "50000")
		if r.Method == http.MethodGet {
			w.Write(s.files["m.gguf"])
		}
		return true
	})
	if path, err := h.Pull(t.Context(), s.URL+"/m.gguf"); err == nil || !strings.Contains(err.Error(), "packed") {
		t.Errorf("%s, %v", path, err)
	}
}

// TestStalledWords: neither the list of a model nor the words of a refusal may hang.
func TestStalledWords(t *testing.T) {
	for _, status := range []int{200, 403} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "500")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"sha": `))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		t.Cleanup(s.Close)
		h := testHub(t, nil)
		h.Endpoint, h.Stall, h.Tries = s.URL, 20*time.Millisecond, 2
		want := map[int]string{200: "nothing came", 403: "HF_TOKEN"}[status]
		if _, err := h.Pull(t.Context(), gguf); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// TestShardsToFile: several files have no room under the name of one.
func TestShardsToFile(t *testing.T) {
	s := newServer(t, map[string][]byte{"s-00001-of-00002.gguf": noise(2001), "s-00002-of-00002.gguf": noise(2002)})
	h := testHub(t, s)
	if _, err := h.Pull(t.Context(), "hf:org/name:s"); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "one.gguf")
	if err := h.Copy(t.Context(), "hf:org/name:s", to); err == nil || !strings.Contains(err.Error(), "slash") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("a folder was made of the name of a file")
	}
}

// TestLengths refuses lengths that nobody has, and ranges of unknown wholes that are not those asked for.
func TestLengths(t *testing.T) {
	for _, size := range []int{-5, 1 << 62, 1<<63 - 1} {
		s := newServer(t, model())
		s.sizes = func(int) int { return size }
		h := testHub(t, s)
		if _, err := h.Pull(t.Context(), gguf); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%d bytes in the list: %v", size, err)
		}
	}
	for length, want := range map[string]string{"9223372036854775807": "bytes", "0": "0 bytes"} {
		s := newServer(t, map[string][]byte{"m.gguf": noise(5000)})
		s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("Content-Length", length)
			return r.Method == http.MethodHead
		})
		h := testHub(t, s)
		if path, err := h.Pull(t.Context(), s.URL+"/m.gguf"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a Content-Length of %s: %s, %v", length, path, err)
		}
	}
	s := newServer(t, map[string][]byte{"m.gguf": noise(100_001)})
	s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodHead {
			return false
		}
		w.Header().Set("Content-Range", "bytes 5-20004/*")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(noise(20_000))
		return true
	})
	var lied *Lied
	if _, err := testHub(t, s).Pull(t.Context(), s.URL+"/m.gguf"); !errors.As(err, &lied) {
		t.Errorf("another range of an unknown whole: %v", err)
	}
}

// TestRedirectedNowhere is told at once: trying again changes nothing.
func TestRedirectedNowhere(t *testing.T) {
	for to, want := range map[string]string{"/m-Q4_0.gguf": "redirect", "file:///etc/passwd": "scheme"} {
		s := newServer(t, model())
		s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
			return true
		})
		h := testHub(t, s)
		h.Wait = time.Hour
		if _, err := h.Pull(t.Context(), gguf); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("redirected to %s: %v", to, err)
		}
	}
}

// TestToldOfWaiting: who waits for a server is told why.
func TestToldOfWaiting(t *testing.T) {
	s := newServer(t, model())
	s.answers(func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return n == 1
	})
	h := testHub(t, s)
	h.Parallel = 1
	var notes []string
	h.Notify = func(text string) { notes = append(notes, text) }
	pulled(t, h, s)
	if len(notes) != 1 || !strings.Contains(notes[0], "503") || !strings.Contains(notes[0], "again in") {
		t.Errorf("notes %q", notes)
	}
}

// TestNamesOfControls: a server's names do not reach the terminal's controls, nor an address the file of addresses.
func TestNamesOfControls(t *testing.T) {
	s := newServer(t, model())
	s.names = func(n string) string { return "\x1b[2J" + n }
	var lied *Lied
	if _, err := testHub(t, s).Pull(t.Context(), gguf); !errors.As(err, &lied) || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %v", err)
	}
	s = newServer(t, map[string][]byte{addressFile: noise(5000), "\x1b[2J.gguf": noise(300)})
	h := testHub(t, s)
	for name, size := range map[string]int64{addressFile: 5000, "%1b%5b2J.gguf": 300} {
		path, err := h.Pull(t.Context(), s.URL+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Size() != size || strings.Contains(path, "\x1b") {
			t.Errorf("%s is %v, %v", path, st, err)
		}
	}
}

// TestRevisions: what one revision shares with another stays where the other stays.
func TestRevisions(t *testing.T) {
	files := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": noise(5000), "m-Q4_0.gguf": noise(3000)}
	s := newServer(t, files)
	h := testHub(t, s)
	for _, name := range []string{"hf:org/name", gguf} {
		if _, err := h.Pull(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	// a second revision, of its own configuration and the same weights
	repo := h.repoDir("org/name")
	other := strings.Repeat("a", 40)
	var links []string
	for name, data := range files {
		sum := sha256.Sum256(data)
		to := hex.EncodeToString(sum[:])
		if name == "config.json" {
			to = strings.Repeat("b", 40)
			if err := os.WriteFile(filepath.Join(repo, "blobs", to), []byte("{ }"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		links = append(links, filepath.Join(repo, "snapshots", other, name))
		if err := os.MkdirAll(filepath.Join(repo, "snapshots", other), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../blobs/"+to, links[len(links)-1]); err != nil {
			t.Fatal(err)
		}
	}
	names := func() string {
		all, err := h.List()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range all {
			names = append(names, strings.TrimPrefix(m.Name, "hf:org/name"))
		}
		return strings.Join(names, " ")
	}
	if got, want := names(), " :m-Q4_0 :m-Q4_0@"+other+" @"+other; got != want {
		t.Fatalf("list has %q, want %q", got, want)
	}
	for _, name := range []string{gguf, "hf:org/name"} {
		if _, err := h.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range links {
		if _, err := os.Stat(link); err != nil {
			t.Errorf("the other revision lost a file: %v", err)
		}
	}
	if got, want := names(), ":m-Q4_0@"+other+" @"+other; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
	if n := len(entries(filepath.Join(repo, "blobs"))); n != 3 {
		t.Errorf("%d blobs are left, want those of the other revision, 3", n)
	}
	for _, name := range []string{"hf:org/name@" + other, gguf + "@" + other} {
		if _, err := h.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(repo); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing is left of the repository, but its folder: %v", err)
	}
}

// TestBranches lists revisions whose names have a slash.
func TestBranches(t *testing.T) {
	s := newServer(t, model())
	h := testHub(t, s)
	if _, err := h.Pull(t.Context(), gguf+"@refs/pr/1"); err != nil {
		t.Fatal(err)
	}
	all, err := h.List()
	if err != nil || len(all) != 1 || all[0].Name != "hf:org/name:m-Q4_0@refs/pr/1" {
		t.Errorf("%+v, %v", all, err)
	}
}
