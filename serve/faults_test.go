package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
)

// Bad requests by the thousands: never a 5xx, never a crash, and the server answers afterwards.
func TestRandomRequests(t *testing.T) {
	_, h := testServer(t, newFake(), func(o *Options) { o.MaxBody, o.MaxTokens = 1<<16, 200 })
	n := 10000
	if testing.Short() {
		n = 1000
	}
	rng := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
		"/v1/messages/count_tokens", "/tokenize", "/detokenize",
		"/v1/embeddings", "/rerank"}
	seeds := []string{ask("say hi",
		`"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "auto", "n": 2,
			"stop": ["a"], "logprobs": true`),
		`{"model": "fake", "prompt": [1, 2, 3], "max_tokens": 5, "logit_bias": {"5": 1}, "stream": true,
			"stream_options": {"include_usage": true}}`,
		`{"model": "fake", "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
			{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}], "text": {"format": {"type": "text"}}}`,
		claude("say hi",
			`"tools": [{"name": "f", "input_schema": {}}], "thinking": {"type": "disabled"}, "system": [{"type": "text",
				"text": "x"}]`)}
	words := []string{"null", "true", "-1", "1e999", `""`, "[]", "{}", "[[[", `"\ud800"`, "9223372036854775808", "0.5",
		`{"type": "x"}`, "\x00", `"user"`}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	jobs := make(chan [2]string)
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for j := range jobs {
				resp, err := client.Post(h.URL+j[0], "application/json", strings.NewReader(j[1]))
				if err != nil {
					t.Errorf("%s %q: %v", j[0], j[1], err)
					continue
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode >= 500 {
					t.Errorf("%s %q: %d %s", j[0], j[1], resp.StatusCode, body)
				}
			}
		})
	}
	for range n {
		b := []byte(seeds[rng.IntN(len(seeds))])
		for range rng.IntN(3) + 1 {
			switch at := rng.IntN(len(b)); rng.IntN(4) {
			case 0:
				b[at] = byte(rng.IntN(256))
			case 1:
				b = b[:at+1]
			case 2: // another value
				if i := strings.IndexByte(string(b[at:]), ':'); i >= 0 {
					w := words[rng.IntN(len(words))]
					end := at + i + 1
					stop := end + strings.IndexAny(string(b[end:])+",", ",}]")
					b = append(append(append([]byte{}, b[:end]...), w...), b[min(stop, len(b)):]...)
				}
			case 3:
				b = append(append(append([]byte{}, b[:at]...), words[rng.IntN(len(words))]...), b[at:]...)
			}
		}
		jobs <- [2]string{paths[rng.IntN(len(paths))], string(b)}
	}
	close(jobs)
	g.Wait()
	if status, _, body := post(t, h.URL+"/v1/chat/completions", ask("say hello", "")); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

// zeros is a body of any length that costs nothing.
type zeros struct{ left int64 }

func (z *zeros) Read(b []byte) (int, error) {
	if z.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), z.left)
	clear(b[:n])
	z.left -= n
	return int(n), nil
}

// A gigabyte is refused by its length, or when it has become too much, and takes no memory.
func TestGigabyte(t *testing.T) {
	_, h := testServer(t, newFake())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, length := range []int64{1 << 30, -1} {
		req, _ := http.NewRequest("POST", h.URL+"/v1/completions", &zeros{1 << 30})
		req.ContentLength = length
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // the server closed while it was sent, which is well too
		}
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("length %d: %d", length, resp.StatusCode)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 256<<20 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	}
}

// Ten thousand connections that say nothing or half a request do not keep others from being answered.
func TestManyConnections(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 300
	}
	if testfiles.Exhaustive() {
		n = 10000
	}
	n = min(n, (mostFiles()-300)/2) // both ends are ours
	_, h := testServer(t, newFake())
	addr := strings.TrimPrefix(h.URL, "http://")
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		switch i % 3 {
		case 1:
			io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
		case 2:
			io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"mod")
		}
	}
	status, _, body := post(t, h.URL+"/v1/chat/completions", ask("say hello", ""))
	if status != 200 {
		t.Errorf("%d %s", status, body)
	}
	t.Logf("%d connections", n)
}

// A body that never comes whole is waited for so long and no longer, whoever was to read it.
func TestHalfBodies(t *testing.T) {
	fake := newFake()
	fake.delay = 30 * time.Millisecond
	s, h := testServer(t, fake, func(o *Options) { o.Keys, _ = NewKeys([]*Key{PlainKey("a", "secret")}) })
	s.bodyWait = 100 * time.Millisecond
	for _, c := range []struct {
		head string
		want int
	}{
		{"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer secret\r\n", 408},
		{"POST /v1/chat/completions HTTP/1.1\r\n", 401}, // refused before it is read
		{"POST /nowhere HTTP/1.1\r\n", 404},
		{"PUT /v1/models HTTP/1.1\r\n", 405},
		{"GET /health HTTP/1.1\r\n", 200},
	} {
		for _, half := range []string{"Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			io.WriteString(conn, c.head+"Host: x\r\n"+half)
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Errorf("%q %q: %v", c.head, half, err)
			} else if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != c.want {
				t.Errorf("%q %q: %d, not %d, %v", c.head, half, resp.StatusCode, c.want, err)
			}
			if _, err := r.ReadByte(); err != io.EOF {
				t.Errorf("%q %q: the connection stays: %v", c.head, half, err)
			}
			conn.Close()
		}
	}
	// Who has sent everything may wait for longer than that.
	req, _ := http.NewRequest("POST", h.URL+"/v1/chat/completions", strings.NewReader(ask("say hello", "")))
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("an answer that takes longer: %d", resp.StatusCode)
	}
}

// A reader who does not read is left, and what it held is free; one who goes away too.
func TestReadersWhoLeave(t *testing.T) {
	fake := newFake()
	_, h := testServer(t, fake, func(o *Options) { o.WriteWait = 100 * time.Millisecond })
	addr := strings.TrimPrefix(h.URL, "http://")
	body := ask("say "+strings.Repeat("much ", 2000),
		`"stream": true, "ignore_eos": true, "max_tokens": 80000, "logprobs": true, "top_logprobs": 20`)
	for _, leave := range []bool{false, true} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.(*net.TCPConn).SetReadBuffer(1024)
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		bufio.NewReader(c).ReadString('\n')
		wait(t, "the answer does not begin", func() bool { return fake.made.Load() > 0 })
		if leave {
			c.Close()
		}
		wait(t, "the model goes on though nobody reads", func() bool { return fake.running.Load() == 0 })
		c.Close()
	}
	if made := fake.made.Load(); made > 100000 {
		t.Errorf("%d tokens were made for nobody", made)
	}
	// A client that waits for its whole answer and leaves.
	fake.delay = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/chat/completions",
		strings.NewReader(ask("x", `"ignore_eos": true, "max_tokens": 80000`)))
	go http.DefaultClient.Do(req)
	wait(t, "the answer does not begin", func() bool { return fake.running.Load() == 1 })
	cancel()
	wait(t, "the model goes on though the client left", func() bool { return fake.running.Load() == 0 })
}

// When the server ends, answers under way go on, new ones are refused, and what takes too long is cut off.
func TestDrain(t *testing.T) {
	for _, patient := range []bool{true, false} {
		fake := newFake()
		fake.delay, fake.plain = 10*time.Millisecond, true
		s, _ := testServer(t, fake)
		l, err := Listen(ListenOptions{Host: "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		addr, ended := make(chan string, 1), make(chan error, 1)
		o := ListenOptions{Drain: 30 * time.Second, Ready: func(a string) { addr <- a }}
		more := ""
		if !patient {
			o.Drain, more = 100*time.Millisecond, `"ignore_eos": true, "max_tokens": 90000`
		}
		go func() { ended <- s.Serve(ctx, l, o) }()
		url := <-addr
		type answer struct {
			status int
			body   string
		}
		got := make(chan answer, 1)
		go func() {
			status, _, body := post(t, url+"/v1/chat/completions", ask("say something that takes a while", more))
			got <- answer{status, body}
		}()
		wait(t, "the answer does not begin", func() bool { return fake.running.Load() == 1 })
		cancel()
		wait(t, "the server does not drain", s.draining.Load)
		if patient {
			if status, _, _ := get(t, url+"/ready"); status != 503 {
				t.Errorf("ready: %d", status)
			}
			if status, _, _ := get(t, url+"/live"); status != 200 {
				t.Errorf("live: %d", status)
			}
			if status, _, _ := post(t, url+"/v1/chat/completions", ask("x", "")); status != 503 {
				t.Errorf("a new request: %d", status)
			}
		}
		a := <-got
		if want := map[bool]int{true: 200, false: 503}[patient]; a.status != want {
			t.Errorf("patient %v: %d %s", patient, a.status, a.body)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A page of another origin lets no model work, unless its origin is listed or keys keep it out; programs do.
func TestPagesFromElsewhere(t *testing.T) {
	keys, err := NewKeys([]*Key{PlainKey("a", "secret")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, origin, site string
		opt                func(*Options)
		want               int
	}{
		{"a program", "", "", nil, 200},
		{"another page", "https://b.example", "cross-site", nil, 403},
		{"another page, of an old browser", "https://b.example", "", nil, 403},
		{"a file", "null", "", nil, 403},
		{"its own page behind a proxy", "https://a.example", "same-origin", nil, 200},
		{"a listed one", "https://b.example", "cross-site",
			func(o *Options) { o.Origins = []string{"https://b.example"} }, 200},
		{"any", "https://b.example", "cross-site", func(o *Options) { o.Origins = []string{"*"} }, 200},
		{"with a key", "https://b.example", "cross-site", func(o *Options) { o.Keys = keys }, 200},
	} {
		_, h := testServer(t, newFake(), func(o *Options) {
			if c.opt != nil {
				c.opt(o)
			}
		})
		req := newRequest(t, "POST", h.URL+"/v1/completions")
		req.Body = io.NopCloser(strings.NewReader(`{"model": "fake", "prompt": "a", "max_tokens": 1}`))
		for name, value := range map[string]string{"Content-Type": "text/plain", "Origin": c.origin, "Sec-Fetch-Site": c.site,
			"Authorization": "Bearer secret"} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		status, _, body := do(t, req)
		if status != c.want || c.want == 403 && !strings.Contains(body, "--allowed-origin "+c.origin) {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
	}
}

// A name that is made to lead to a server of this machine alone is refused: pages of it would be of the same origin.
func TestNamesOfOthers(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys([]*Key{PlainKey("a", "secret")})
	if err != nil {
		t.Fatal(err)
	}
	with := func(hosts ...string) func(*Options) { return func(o *Options) { o.Hosts = hosts } }
	for _, c := range []struct {
		address string // of the listener
		opt     func(*Options)
		host    string
		want    int
	}{
		{"127.0.0.1", nil, "rebound.example:8000", 403},
		{"[::1]", nil, "rebound.example", 403},
		{"127.0.0.1", nil, "localhost.rebound.example", 403},
		{"127.0.0.1", nil, "127.0.0.1.rebound.example:8000", 403},
		{"127.0.0.1", nil, "localhost", 200},
		{"127.0.0.1", nil, "LOCALHOST.:8000", 200},
		{"127.0.0.1", nil, "greta.localhost:8000", 200},
		{"127.0.0.1", nil, "host.docker.internal:8000", 200},
		{"127.0.0.1", nil, "127.0.0.1:8000", 200},
		{"127.0.0.1", nil, "[::1]:8000", 200},
		{"127.0.0.1", nil, "[::1]", 200},
		{"127.0.0.1", nil, own + ":8000", 200},
		{"127.0.0.1", with("models.example", ".a.example"), "Models.Example:443", 200},
		{"127.0.0.1", with("models.example", ".a.example"), "x.a.example", 200},
		{"127.0.0.1", with("models.example", ".a.example"), "b.example", 403},
		{"127.0.0.1", with("*"), "b.example", 200},
		{"127.0.0.1", func(o *Options) { o.Origins = []string{"*"} }, "b.example", 200},
		{"127.0.0.1", func(o *Options) { o.Origins = []string{"https://a.example"} }, "b.example", 403},
		{"127.0.0.1", func(o *Options) { o.Keys = keys }, "b.example", 200},
		{"0.0.0.0", nil, "greta.svc.cluster.local", 200},
		{"0.0.0.0", with("a.example"), "b.example", 403},
		{"unix", nil, "b.example", 200},
	} {
		s, _ := testServer(t, newFake(), func(o *Options) {
			if c.opt != nil {
				c.opt(o)
			}
		})
		o := ListenOptions{Host: strings.Trim(c.address, "[]")}
		if c.address == "unix" {
			o.Socket = filepath.Join(t.TempDir(), "s")
		}
		l, err := Listen(o)
		if err != nil {
			t.Skip(err) // no IPv6
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, l, o) }()
		for method, path := range map[string]string{"POST": "/v1/completions", "GET": "/v1/models"} {
			status, body := askBy(t, l.Addr(), method, "http://"+c.host, path)
			if status != c.want || c.want == 403 && !strings.Contains(body, "--allowed-host ") {
				t.Errorf("%s at %s %s: %d %s", c.host, c.address, path, status, body)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// askBy asks the server at an address as its own page does, by a name.
func askBy(t *testing.T, a net.Addr, method, origin, path string) (int, string) {
	req := newRequest(t, method, origin+path)
	req.Body = io.NopCloser(strings.NewReader(`{"model": "fake", "prompt": "a", "max_tokens": 1}`))
	req.Header.Set("Origin", origin)
	req.Header.Set("Authorization", "Bearer secret")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, a.Network(), a.String())
		}}}
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(origin, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(origin, err)
	}
	return r.StatusCode, string(body)
}

// CORS: a listed origin may read, another may not.
func TestOrigins(t *testing.T) {
	_, h := testServer(t, newFake(), func(o *Options) { o.Origins = []string{"https://a.example"} })
	for origin, want := range map[string]string{"https://a.example": "https://a.example", "https://b.example": ""} {
		req := newRequest(t, "OPTIONS", h.URL+"/v1/chat/completions")
		req.Header.Set("Origin", origin)
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "authorization,x-stainless-os")
		_, header, _ := do(t, req)
		if header.Get("Access-Control-Allow-Origin") != want || want != "" &&
			header.Get("Access-Control-Allow-Headers") != "authorization,x-stainless-os" {
			t.Errorf("%s: %v", origin, header)
		}
	}
}
