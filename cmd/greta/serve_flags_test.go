package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/serve"
)

// answer asks and gives status, headers and body.
func answerOf(t *testing.T, c *http.Client, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	method := "POST"
	if body == "" {
		method = "GET"
	}
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// Requests that begin alike share their beginning, unless that is off; what memory the caches have is told.
func TestServePrefixes(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	prompt := strings.Repeat("Prince Andrew and Natasha. ", 12)
	dir := t.TempDir()
	text := ""
	for _, c := range []struct {
		args   []string
		first  bool // the first request finds something: a server before has kept it
		second bool
	}{
		{[]string{"--prefix-cache", dir, "--prefix-cache-limit", "1GB"}, false, true},
		{[]string{"--prefix-cache", dir, "--draft", "ngram"}, true, true},
		{[]string{"--no-prefix-cache"}, false, false},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			url := served(t, append([]string{model, "--cache-memory", "2MB", "--parallel", "4"}, c.args...)...)
			for _, known := range []bool{c.first, c.second} {
				var a struct {
					Choices []struct{ Text string }
					Usage   struct {
						Details struct {
							Cached int `json:"cached_tokens"`
						} `json:"prompt_tokens_details"`
					}
				}
				body := fmt.Sprintf(`{"prompt": %q, "max_tokens": 20, "temperature": 0}`, prompt)
				if code := postJSON(t, url+"/v1/completions", body, &a); code != 200 || (a.Usage.Details.Cached > 0) != known {
					t.Errorf("%d: %d tokens were known, want some: %v", code, a.Usage.Details.Cached, known)
				}
				if text == "" {
					text = a.Choices[0].Text
				} else if text != a.Choices[0].Text {
					t.Errorf("%q, before it was %q", a.Choices[0].Text, text)
				}
			}
		})
	}
	for _, args := range [][]string{{"--prefix-cache", write(t, "file", "x")}, {"--draft", "x"},
		{"--no-prefix-cache", "--prefix-cache", dir},
		{"--prefix-cache-limit", "1GB"}, {"--max-num-batched-tokens", "-1"}, {"--max-num-batched-tokens", "63"},
		{"--timeout", "-1s"}, {"--write-timeout", "-1s"}, {"--drain", "-1s"}, {"--idle", "-1s"}, {"--most-loaded", "-1"}} {
		if r := greta(t, append([]string{"serve", model, "--port", "0"}, args...)...); r.code != exitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := greta(t, "serve", model, "--cache-memory", "much"); r.code != exitUsage ||
		!strings.Contains(r.err, "--cache-memory much") {
		t.Errorf("%+v", r)
	}
}

// Each bound of serve bounds.
func TestServeLimits(t *testing.T) {
	url := served(t, testfiles.Repo(t, "testdata", "tolstoy-2.7m"), "--served-model-name", "war", "--served-model-name",
		"peace",
		"--api-key", "secret", "--allowed-origin", "https://a.example", "--max-body", "2000", "--max-messages", "2",
		"--max-tokens", "5", "--chat-template", "texts", "--timeout", "1h", "--write-timeout", "1m", "--drain", "5s")
	c := http.DefaultClient
	auth := []string{"Authorization", "Bearer secret"}
	for _, x := range []struct {
		path, body string
		header     []string
		status     int
		want       string
	}{
		{"/v1/models", "", nil, 401, "missing_api_key"},
		{"/v1/models", "", []string{"X-Api-Key", "wrong"}, 401, "invalid_api_key"},
		{"/v1/models", "", auth, 200, `"peace"`},
		{"/v1/completions", `{"model": "peace", "prompt": "a", "max_tokens": 5}`, auth, 200, `"completion_tokens":5`},
		{"/v1/completions", `{"model": "tolstoy-2.7m", "prompt": "a"}`, auth, 404, "model_not_found"},
		{"/v1/completions", `{"prompt": "a", "max_tokens": 6}`, auth, 400, "may be 5"},
		{"/v1/completions", `{"prompt": "` + strings.Repeat("a", 2000) + `"}`, auth, 413, "larger than 2000"},
		{"/v1/chat/completions",
			`{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "a"}, {"role": "user",
				"content": "a"}]}`, auth, 400, "may have 2"},
	} {
		if status, _, body := answerOf(t, c, url+x.path, x.body, x.header...); status != x.status ||
			!strings.Contains(body, x.want) {
			t.Errorf("%s %.60s: %d %s", x.path, x.body, status, body)
		}
	}
	_, header, _ := answerOf(t, c, url+"/v1/models", "", append(auth, "Origin", "https://a.example")...)
	if header.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Errorf("%v", header)
	}
}

// --timeout ends a request, --max-num-seqs and --max-queue bound how many there are, --log-prompts shows them.
func TestServeBusy(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	url := served(t, model, "--timeout", "1ns")
	if status, _, body := answerOf(t, http.DefaultClient, url+"/v1/completions", `{"prompt": "a"}`); status != 408 {
		t.Errorf("%d %s", status, body)
	}
	if status, _, body := answerOf(t, http.DefaultClient, url+"/", ""); status != 200 ||
		!strings.Contains(body, "<title>greta") {
		t.Errorf("the page: %d %s", status, body)
	}
	url = served(t, model, "--max-num-seqs", "1", "--max-queue", "1", "--no-page", "--allowed-host", "a.example")
	for host, want := range map[string]int{"a.example": 200, "b.example": 403} {
		r, err := http.NewRequest(http.MethodGet, url+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("%s: %d", host, answer.StatusCode)
		}
	}
	if status, _, _ := answerOf(t, http.DefaultClient, url+"/", ""); status != 404 {
		t.Errorf("--no-page: %d", status)
	}
	var g sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]int{}
	for range 16 {
		g.Go(func() {
			status, header, _ := answerOf(t, http.DefaultClient, url+"/v1/completions",
				`{"prompt": "a", "max_tokens": 400, "ignore_eos": true}`)
			mu.Lock()
			defer mu.Unlock()
			if seen[status]++; status == 429 && header.Get("Retry-After") == "" {
				t.Error("429 without Retry-After")
			}
		})
	}
	g.Wait()
	if seen[200] == 0 || seen[429] == 0 || seen[200]+seen[429] != 16 {
		t.Errorf("%v", seen)
	}
}

func TestServeLogs(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	for _, args := range [][]string{nil, {"--log-prompts"}} {
		ctx, cancel := context.WithCancel(context.Background())
		out := &lines{lines: make(chan string, 100)}
		errs := &lines{lines: make(chan string, 1000)}
		done := make(chan int, 1)
		go func() {
			done <- execute(ctx, append([]string{"serve", model, "--port", "0", "--json", "--log-format", "json"}, args...),
				strings.NewReader(""), out, errs)
		}()
		text := ""
		for !strings.Contains(text, "http://") {
			text += <-out.lines
		}
		url := "http://" + strings.Split(strings.SplitN(text, "http://", 2)[1], `"`)[0]
		answerOf(t, http.DefaultClient, url+"/v1/completions", `{"prompt": "Rostopchin", "max_tokens": 1}`)
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("exit code %d", code)
		}
		log := ""
		for len(errs.lines) > 0 {
			log += <-errs.lines
		}
		if !strings.Contains(log, `"msg":"answered"`) || strings.Contains(log, "Rostopchin") != (args != nil) {
			t.Errorf("%v: %s", args, log)
		}
	}
}

// keyPair writes a certificate for 127.0.0.1 and its key.
func keyPair(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TLS is on, and a new certificate is used without a restart; a socket of the file system works too.
func TestServeListens(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	keyPair(t, cert, key, 1)
	url := served(t, model, "--ssl-certfile", cert, "--ssl-keyfile", key)
	serial := func() int64 {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true}}
		resp, err := c.Get(url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if !strings.HasPrefix(url, "https://") || serial() != 1 {
		t.Fatal(url, serial())
	}
	keyPair(t, cert, key, 2)
	for i := 0; serial() != 2; i++ {
		if i == 200 {
			t.Fatal("the new certificate is not used")
		}
		time.Sleep(50 * time.Millisecond)
	}
	socket := filepath.Join(dir, "s")
	if at := served(t, model, "--uds", socket); at != "unix:"+socket {
		t.Fatal(at)
	}
	c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	if status, _, body := answerOf(t, c, "http://x/v1/models", ""); status != 200 || !strings.Contains(body, "tolstoy") {
		t.Errorf("%d %s", status, body)
	}
	if r := greta(t, "serve", model, "--uds", socket); r.code != exitUsage || !strings.Contains(r.err, "another server") {
		t.Errorf("%+v", r)
	}
}

// --most-loaded makes a model give way.
func TestServeMostLoaded(t *testing.T) {
	path := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	file := write(t, "models.yaml", fmt.Sprintf("models:\n- {name: a, path: %s}\n- {name: b, path: %s}\n", path, path))
	kept := t.TempDir()
	url := served(t, "--models", file, "--most-loaded", "1", "--chat-template", "texts", "--store", kept)
	if status, _, body := answerOf(t, http.DefaultClient, url+"/v1/responses",
		`{"input": "a", "max_output_tokens": 2}`); status != 200 {
		t.Fatal(status, body)
	}
	if files, _ := filepath.Glob(filepath.Join(kept, "*", "resp_*.json")); len(files) != 1 {
		t.Errorf("--store: %v", files)
	}
	for _, name := range []string{"a", "b"} {
		if status, _, body := answerOf(t, http.DefaultClient, url+"/v1/completions",
			`{"model": "`+name+`", "prompt": "a", "max_tokens": 1}`); status != 200 {
			t.Fatal(status, body)
		}
	}
	if _, _, body := answerOf(t, http.DefaultClient, url+"/v1/models", ""); strings.Count(body, `"loaded":true`) != 1 {
		t.Errorf("%s", body)
	}
}

// TestServeShare: as many models share a device's memory as may be loaded there.
func TestServeShare(t *testing.T) {
	gpu := serve.Spec{Name: "b", Backend: "hip"}
	for _, c := range []struct {
		specs []serve.Spec
		most  int
		want  int // of those on the card
	}{
		{[]serve.Spec{gpu}, 0, 1},
		{[]serve.Spec{gpu}, 5, 1},
		{[]serve.Spec{gpu, {Name: "on the CPU"}}, 0, 1},
		{[]serve.Spec{gpu, {Name: "on another", Backend: "hip", Device: "1"}}, 0, 1},
		{[]serve.Spec{gpu, gpu, gpu}, 0, 3},
		{[]serve.Spec{gpu, gpu, gpu}, 2, 2},
		{[]serve.Spec{gpu, gpu, gpu}, 1, 2}, // one that is used stays beside it
	} {
		f := &serveFlags{all: c.specs, mostLoaded: c.most}
		m := f.flagsOf(gpu)
		if got := f.share(&m); got != c.want {
			t.Errorf("%d models, %d loaded at most: %d share, wanted are %d", len(c.specs), c.most, got, c.want)
		}
	}
}

// What bench serve sends is what its flags say.
func TestBenchServeSends(t *testing.T) {
	var mu sync.Mutex
	var paths, bodies, keys []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		paths, bodies, keys = append(paths, r.URL.Path), append(bodies, string(body)),
			append(keys, r.Header.Get("Authorization"))
		mu.Unlock()
		switch {
		case r.URL.Path == "/tokenize":
			http.NotFound(w, r)
		case !bytes.Contains(body, []byte(`"stream":true`)):
			fmt.Fprintf(w, `{"usage": {"prompt_tokens": %d}}`, bytes.Count(body, []byte(" ")))
		default:
			fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": {\"content\": \"%d\"}}]}\n\n", len(bodies))
			fmt.Fprint(w, "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, \"completion_tokens\": 1}}\n\ndata: "+
				"[DONE]\n\n")
		}
	}))
	defer h.Close()
	out := filepath.Join(t.TempDir(), "out.json")
	r := greta(t, "bench", "serve", h.URL, "--rate", "500", "--burstiness", "2", "--chat", "--served-model-name", "mine",
		"--api-key", "k",
		"--natural-end", "--extra-body", `{"top_k": 3}`, "--timeout", "1m", "--requests", "8", "--output", "1", "--seed", "3",
		"--out", out)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	last := bodies[len(bodies)-1]
	if paths[len(paths)-1] != "/v1/chat/completions" || keys[0] != "Bearer k" ||
		!strings.Contains(last, `"model":"mine"`) ||
		!strings.Contains(last, `"top_k":3`) || strings.Contains(last, "ignore_eos") {
		t.Errorf("%s %s %s", paths, keys[0], last)
	}
	if data, err := os.ReadFile(out); err != nil || !bytes.Contains(data, []byte(`"burstiness": 2`)) {
		t.Errorf("%v %s", err, data)
	}
	r = greta(t, "bench", "serve", h.URL, "--users", "1", "--requests", "2", "--timeout", "1ns", "--served-model-name",
		"x")
	if r.code == 0 {
		t.Error("--timeout 1ns lets requests pass")
	}
}
