package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const sha = "0123456789abcdef0123456789abcdef01234567"

// server is a hub that may misbehave.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	files  map[string][]byte
	blob   answer
	seen   []string // METHOD path range
	tokens []string
	names  func(name string) string // what the list calls a file
	sums   func(sum string) string  // what the list says of a hash
	sizes  func(size int) int
	count  int
}

// answer is asked before a file is sent; true says that it answered.
type answer func(w http.ResponseWriter, r *http.Request, n int) bool

// answers has f asked from now on. A request that its client gave up may still be under way.
func (s *server) answers(f answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blob = f
}

// authorizations are what the requests so far brought.
func (s *server) authorizations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens)
}

func newServer(t *testing.T, files map[string][]byte) *server {
	t.Helper()
	s := &server{files: files, names: same, sums: same, sizes: func(n int) int { return n }}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func same(s string) string { return s }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Range"))
	s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	s.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/api/models/org/name/revision/") {
		s.list(w)
		return
	}
	_, name, ok := strings.Cut(r.URL.Path, "/resolve/"+sha+"/")
	if !ok {
		name = strings.TrimPrefix(r.URL.Path, "/")
	}
	data, ok := s.files[name]
	if !ok {
		http.Error(w, `{"error": "Repository not found"}`, http.StatusNotFound)
		return
	}
	s.mu.Lock()
	s.count++
	n, blob := s.count, s.blob
	s.mu.Unlock()
	if blob != nil && blob(w, r, n) {
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func (s *server) list(w http.ResponseWriter) {
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	var all []map[string]any
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range s.files {
			yield(n)
		}
	}) {
		data := s.files[name]
		git := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data))
		f := map[string]any{"rfilename": s.names(name), "size": s.sizes(len(data)),
			"blobId": s.sums(hex.EncodeToString(git[:]))}
		if len(data) > 1000 {
			sum := sha256.Sum256(data)
			f["lfs"] = lfs{s.sums(hex.EncodeToString(sum[:])), s.sizes(len(data))}
		}
		all = append(all, f)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"sha": sha, "siblings": all})
}

func (s *server) requests(part string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.seen {
		if strings.Contains(q, part) {
			all = append(all, q)
		}
	}
	return all
}

// noise makes bytes that repeat nowhere.
func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

func testHub(t *testing.T, s *server) *Hub {
	t.Helper()
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE",
		"HF_ENDPOINT", "HF_TOKEN_PATH", "OLLAMA_MODELS"} {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, ".cache"))
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if s != nil {
		h.Endpoint, h.Registry = s.URL, s.URL
	}
	h.Part, h.Wait, h.Stall, h.Token = 20000, time.Millisecond, 2*time.Second, "hf_secret"
	return h
}

const gguf = "hf:org/name:Q4_0"

func model() map[string][]byte {
	return map[string][]byte{"m-Q4_0.gguf": noise(100_001), "m-Q8_0.gguf": noise(3000), "config.json": []byte("{}")}
}

// pulled checks that a model came whole and nothing unfinished lies beside it.
func pulled(t *testing.T, h *Hub, s *server) {
	t.Helper()
	path, err := h.Pull(t.Context(), gguf)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(data, s.files["m-Q4_0.gguf"]) {
		t.Fatalf("%s has %d bytes, %v", path, len(data), err)
	}
	if left, _ := filepath.Glob(filepath.Join(h.HFCache, "models--org--name", "blobs",
		"*"+unfinished+"*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestLayout is that of the Python library.
func TestLayout(t *testing.T) {
	s := newServer(t, model())
	h := testHub(t, s)
	pulled(t, h, s)
	repo := filepath.Join(h.HFCache, "models--org--name")
	if ref, err := os.ReadFile(filepath.Join(repo, "refs", "main")); err != nil || string(ref) != sha {
		t.Errorf("ref %q, %v", ref, err)
	}
	sum := sha256.Sum256(s.files["m-Q4_0.gguf"])
	link, err := os.Readlink(filepath.Join(repo, "snapshots", sha, "m-Q4_0.gguf"))
	if err != nil || link != "../../blobs/"+hex.EncodeToString(sum[:]) {
		t.Errorf("link %q, %v", link, err)
	}
	if n := len(s.requests("resolve")); n != 6 {
		t.Errorf("%d requests for 6 parts", n)
	}
	pulled(t, h, s)
	if n := len(s.requests("resolve")); n != 6 {
		t.Errorf("what is here was asked for again: %d requests", n)
	}
	for _, token := range s.authorizations() {
		if token != "Bearer hf_secret" {
			t.Errorf("token %q", token)
		}
	}
}

// TestFolder gets a model in safetensors without what does not belong to it.
func TestFolder(t *testing.T) {
	s := newServer(t, map[string][]byte{"config.json": []byte("{}"), "model.safetensors": noise(5000),
		"README.md":           []byte("x"),
		"chat_template.jinja": []byte("t"), "onnx/model.onnx": noise(2000), "pytorch_model.bin": noise(2000)})
	h := testHub(t, s)
	path, err := h.Pull(t.Context(), "hf:org/name")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries(path) {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "chat_template.jinja config.json model.safetensors" {
		t.Errorf("got %s", got)
	}
	h.Offline = true
	if again, err := h.Pull(t.Context(), "hf:org/name"); err != nil || again != path {
		t.Errorf("offline: %s, %v", again, err)
	}
	if _, err := h.Pull(t.Context(), "hf:org/other"); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Errorf("offline, not here: %v", err)
	}
}

// TestBadServers breaks off, throttles and fails; the model comes all the same.
func TestBadServers(t *testing.T) {
	half := func(w http.ResponseWriter, r *http.Request, data []byte) {
		// sends the half of what it promises, and closes
		from, to := 0, len(data)
		if q := r.Header.Get("Range"); q != "" {
			_, _ = fmt.Sscanf(q, "bytes=%d-%d", &from, &to)
			to++
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(data)))
		}
		w.Header().Set("Content-Length", strconv.Itoa(to-from))
		if r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(data[from : from+(to-from+1)/2])
	}
	files := model()
	data := files["m-Q4_0.gguf"]
	for name, blob := range map[string]func(w http.ResponseWriter, r *http.Request, n int) bool{
		"breaks off": func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n > 12 {
				return false
			}
			half(w, r, data)
			return true
		},
		"429 and 503": func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n%2 == 0 {
				return false
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(map[bool]int{true: 429, false: 503}[n%4 == 1])
			return true
		},
		"hangs": func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n != 2 {
				return false
			}
			w.Header().Set("Content-Length", "20000")
			from, to := 0, 0
			_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(data)))
			w.Header().Set("Content-Length", strconv.Itoa(to-from+1))
			w.WriteHeader(http.StatusPartialContent)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		},
		"no parts": func(w http.ResponseWriter, r *http.Request, n int) bool {
			_, _ = w.Write(data)
			return true
		},
		"closes at once": func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n > 5 {
				return false
			}
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, files)
			s.answers(blob)
			h := testHub(t, s)
			h.Stall = 300 * time.Millisecond
			pulled(t, h, s)
		})
	}
}

// TestLies refuses what is not what was said, and keeps nothing of it.
func TestLies(t *testing.T) {
	answer := func(change func(w http.ResponseWriter, r *http.Request, data []byte)) func(s *server) {
		return func(s *server) {
			s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool {
				change(w, r, s.files["m-Q4_0.gguf"])
				return true
			})
		}
	}
	for name, c := range map[string]struct {
		set  func(s *server)
		want string
	}{
		"other bytes": {answer(func(w http.ResponseWriter, r *http.Request, data []byte) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(noise(len(data) + 7)[:len(data)]))
		}), "has the hash"},
		"another range": {answer(func(w http.ResponseWriter, r *http.Request, data []byte) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 5-20004/%d", len(data)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data[5:20005])
		}), "was asked for"},
		"a longer file": {answer(func(w http.ResponseWriter, r *http.Request, data []byte) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(append(slices.Clone(data), 'x')))
		}), "was asked for"},
		"another length":       {func(s *server) { s.sizes = func(n int) int { return n + 1 } }, "was asked for"},
		"a shorter length":     {func(s *server) { s.sizes = func(n int) int { return n - 1 } }, "was asked for"},
		"a hash that is none":  {func(s *server) { s.sums = func(string) string { return "../../x" } }, "no hash"},
		"a path outwards":      {func(s *server) { s.names = func(n string) string { return "../" + n } }, "leads out"},
		"a path from the root": {func(s *server) { s.names = func(n string) string { return "/etc/" + n } }, "leads out"},
		"a path of Windows":    {func(s *server) { s.names = func(n string) string { return `..\` + n } }, "leads out"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, model())
			c.set(s)
			h := testHub(t, s)
			_, err := h.Pull(t.Context(), gguf)
			var lied *Lied
			if !errors.As(err, &lied) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(h.HFCache, "models--org--name", "snapshots", "*", "*")); len(left) > 0 {
				t.Errorf("kept %v", left)
			}
			blobs, _ := filepath.Glob(filepath.Join(h.HFCache, "models--org--name", "blobs", "*"))
			for _, b := range blobs {
				if !strings.Contains(b, unfinished) {
					t.Errorf("kept %s", b)
				}
			}
		})
	}
}

// TestRefusals end at once, with words.
func TestRefusals(t *testing.T) {
	s := newServer(t, model())
	h := testHub(t, s)
	s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool {
		http.Error(w, "gated", http.StatusForbidden)
		return true
	})
	_, err := h.Pull(t.Context(), gguf)
	var refused *Refused
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "HF_TOKEN") || len(s.requests("resolve")) > 4 {
		t.Errorf("got %v behind %d requests", err, len(s.requests("resolve")))
	}
	s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool { w.WriteHeader(500); return true })
	if _, err := h.Pull(t.Context(), gguf); err == nil || !strings.Contains(err.Error(), "given up behind 6 tries") {
		t.Errorf("got %v", err)
	}
	if _, err := h.Pull(t.Context(), "hf:org/other"); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("got %v", err)
	}
	s.answers(nil)
	h.free = func(string) (int64, bool) { return 1000, true }
	if _, err := h.Pull(t.Context(), gguf); err == nil || !strings.Contains(err.Error(), "only 1000 are free") {
		t.Errorf("a full disk: %v", err)
	}
	h.free = freeBytes
	for name, want := range map[string]string{"hf:org/name": "m-Q4_0.gguf", "hf:org/name:Q5_0": "m-Q8_0.gguf"} {
		delete(s.files, "x")
		if _, err := h.Pull(t.Context(), name); name != "hf:org/name" && (err == nil || !strings.Contains(err.Error(),
			want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRedirected: the token stays with the endpoint; another port of the same host is another server.
func TestRedirected(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost"} {
		cdn := newServer(t, model())
		s := newServer(t, cdn.files)
		s.answers(func(w http.ResponseWriter, r *http.Request, _ int) bool {
			other := strings.Replace(cdn.URL, "127.0.0.1", host, 1)
			http.Redirect(w, r, other+"/m-Q4_0.gguf?sig=1", http.StatusFound)
			return true
		})
		h := testHub(t, s)
		pulled(t, h, s)
		if len(cdn.authorizations()) == 0 {
			t.Errorf("%s: nothing was redirected", host)
		}
		for _, token := range cdn.authorizations() {
			if token != "" {
				t.Errorf("%s got the token %q", host, token)
			}
		}
	}
}

// TestResume goes on where an earlier pull was stopped.
func TestResume(t *testing.T) {
	s := newServer(t, model())
	h := testHub(t, s)
	h.Parallel = 1
	ctx, stop := context.WithCancel(t.Context())
	s.answers(func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n == 4 {
			stop()
			<-r.Context().Done()
			return true
		}
		return false
	})
	if _, err := h.Pull(ctx, gguf); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	before := len(s.requests("resolve"))
	pulled(t, h, s)
	again := s.requests("resolve")[before:]
	if len(again) != 3 || !strings.Contains(again[0], "bytes=60000-79999") {
		t.Errorf("behind three parts of six it asked for %v", again)
	}
}

// TestTwoAtOnce: the second waits, and finds it there.
func TestTwoAtOnce(t *testing.T) {
	s := newServer(t, model())
	h := testHub(t, s)
	other := *h
	var notes []string
	other.Notify = func(n string) { notes = append(notes, n) }
	begun, goOn := make(chan bool, 10), make(chan bool)
	s.answers(func(http.ResponseWriter, *http.Request, int) bool { begun <- true; <-goOn; return false })
	errs := make(chan error, 2)
	pull := func(h *Hub) { _, err := h.Pull(t.Context(), gguf); errs <- err }
	go pull(h)
	<-begun
	go pull(&other)
	time.Sleep(400 * time.Millisecond)
	close(goOn)
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := len(s.requests("resolve")); n != 6 {
		t.Errorf("%d requests for 6 parts", n)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "another process") {
		t.Errorf("notes %q", notes)
	}
}

func TestOllama(t *testing.T) {
	data := noise(50_000)
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	files := map[string][]byte{"v2/library/tiny/blobs/sha256:" + sum: data}
	list := func(digest string) []byte {
		return fmt.Appendf(nil, `{"layers": [
			{"mediaType": "application/vnd.ollama.image.template", "digest": "x", "size": 1},
			{"mediaType": "application/vnd.ollama.image.model", "digest": "%s", "size": %d}]}`, digest, len(data))
	}
	files["v2/library/tiny/manifests/latest"] = list("sha256:" + sum)
	files["v2/library/tiny/manifests/bad"] = list("sha256:../../etc/passwd")
	s := newServer(t, files)
	h := testHub(t, s)
	path, err := h.Pull(t.Context(), "ollama:tiny")
	if err != nil || path != filepath.Join(h.OllamaDir, "blobs", "sha256-"+sum) {
		t.Fatalf("%s, %v", path, err)
	}
	var lied *Lied
	if _, err := h.Pull(t.Context(), "ollama:tiny:bad"); !errors.As(err, &lied) {
		t.Errorf("a digest that leads out: %v", err)
	}
	h.Offline = true
	if again, err := h.Pull(t.Context(), "ollama:tiny"); err != nil || again != path {
		t.Errorf("offline: %s, %v", again, err)
	}
	for _, token := range s.authorizations()[:1] {
		if token == "" {
			t.Log("the registry is the endpoint here, so that it gets the token")
		}
	}
}

func TestAddress(t *testing.T) {
	s := newServer(t, map[string][]byte{"some/m.gguf": noise(50_000)})
	h := testHub(t, s)
	sum := fmt.Sprintf("%x", sha256.Sum256(s.files["some/m.gguf"]))
	path, err := h.Pull(t.Context(), s.URL+"/some/m.gguf#sha256="+sum)
	if err != nil || filepath.Base(path) != "m.gguf" {
		t.Fatalf("%s, %v", path, err)
	}
	if data, _ := os.ReadFile(path); !bytes.Equal(data, s.files["some/m.gguf"]) {
		t.Error("other bytes came")
	}
	var lied *Lied
	if _, err := h.Pull(t.Context(), s.URL+"/some/m.gguf?x=1#sha256="+strings.Repeat("0", 64)); !errors.As(err,
		&lied) {
		t.Errorf("a wrong hash: %v", err)
	}
}

// TestStore lists, copies and removes.
func TestStore(t *testing.T) {
	files := model()
	files["s-00001-of-00002.gguf"], files["s-00002-of-00002.gguf"] = noise(2001), noise(2002)
	s := newServer(t, files)
	h := testHub(t, s)
	pulled(t, h, s)
	for _, name := range []string{"hf:org/name:Q8_0", "hf:org/name:s", s.URL + "/config.json"} {
		if _, err := h.Pull(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (all []string) {
		list, err := h.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			all = append(all, fmt.Sprint(strings.TrimPrefix(m.Name, s.URL), " ", m.Bytes))
		}
		return all
	}
	want := "[hf:org/name:m-Q4_0 100001 hf:org/name:m-Q8_0 3000 hf:org/name:s 4003 /config.json 2]"
	if got := fmt.Sprint(names()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	to := t.TempDir()
	if err := h.Copy(t.Context(), gguf, filepath.Join(to, "a.gguf")); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(filepath.Join(to, "a.gguf")); !bytes.Equal(data, files["m-Q4_0.gguf"]) {
		t.Error("the copy has other bytes")
	}
	if err := h.Copy(t.Context(), gguf, filepath.Join(to, "a.gguf")); err == nil {
		t.Error("a file was overwritten")
	}
	if err := h.Copy(t.Context(), "hf:org/name:s", to+"/shards/"); err != nil || len(entries(to+"/shards")) != 2 {
		t.Errorf("shards: %v, %v", err, entries(to+"/shards"))
	}
	if _, err := h.Remove("hf:org/name"); err == nil || !strings.Contains(err.Error(), "each of") {
		t.Errorf("several were meant: %v", err)
	}
	for _, name := range []string{gguf, "hf:org/name:s", s.URL + "/config.json"} {
		if _, err := h.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(names()); got != "[hf:org/name:m-Q8_0 3000]" {
		t.Errorf("left %s", got)
	}
	if blobs := entries(filepath.Join(h.HFCache, "models--org--name", "blobs")); len(blobs) != 1 {
		t.Errorf("%d blobs are left", len(blobs))
	}
	if _, err := h.Remove(gguf); err == nil || !strings.Contains(err.Error(), "greta list") {
		t.Errorf("what is not here: %v", err)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"hf:org/name", "hf:org/name:Q4_K_M", "hf:org/name:Q4_0@v1.0", "ollama:tiny:1b",
		"ollama:me/tiny:latest"} {
		if r, err := Parse(name); err != nil || r.String() != name {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	for _, name := range []string{"hf:", "hf:name", "hf:../x", "hf:org/..", "hf:a/b/c", "hf:org/na me",
		"hf:org/name:../x",
		"hf:org/name@..",
		"hf:org/name@/etc", "hf:.hidden/x", "ollama:a/b/c", "ollama:..:x", "https://", "https://x/y#sha256=1",
		"file:///etc",
		"x"} {
		if r, err := Parse(name); err == nil {
			t.Errorf("%s is accepted as %+v", name, r)
		}
	}
}

// TestEnvironment takes what Python's library takes.
func TestEnvironment(t *testing.T) {
	h := testHub(t, nil)
	home := os.Getenv("HOME")
	if h.HFCache != filepath.Join(home, ".cache", "huggingface", "hub") {
		t.Errorf("cache %s", h.HFCache)
	}
	hf := filepath.Join(home, "hf")
	t.Setenv("HF_HOME", hf)
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("HF_ENDPOINT", "https://mirror/")
	if err := os.MkdirAll(hf, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hf, "token"), []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := New()
	if err != nil || h.Token != "hf_file" || !h.Offline || h.Endpoint != "https://mirror" || h.HFCache != filepath.Join(hf,
		"hub") {
		t.Errorf("%+v, %v", h, err)
	}
	t.Setenv("HF_TOKEN", "hf_env")
	t.Setenv("HF_HUB_CACHE", "/elsewhere")
	if h, err = New(); err != nil || h.Token != "hf_env" || h.HFCache != "/elsewhere" {
		t.Errorf("%+v, %v", h, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("hf:org/name:Q4_0@main")
	f.Fuzz(func(t *testing.T, name string) {
		r, err := Parse(name)
		if err != nil || r.Source == URL {
			return
		}
		h := &Hub{HFCache: "/cache", OllamaDir: "/ollama"}
		for _, p := range []string{h.repoDir(r.Repo), h.manifestPath(r), filepath.Join("/cache", "refs", r.Revision)} {
			if !strings.HasPrefix(p, "/cache/") && !strings.HasPrefix(p, "/ollama/") {
				t.Errorf("%q leads to %s", name, p)
			}
		}
	})
}
