package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// lines hands on what a verb prints on standard output, line by line.
type lines struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	lines chan string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(b)
	for {
		i := bytes.IndexByte(l.buf.Bytes(), '\n')
		if i < 0 {
			return len(b), nil
		}
		line := string(l.buf.Next(i + 1))
		l.lines <- line
	}
}

// served starts greta serve and gives its address. It ends with the test, which fails where it ended badly.
func served(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &lines{lines: make(chan string, 100)}
	var errs bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- execute(ctx, append([]string{"serve", "--port", "0", "--json"}, args...), strings.NewReader(""), out, &errs)
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 0 && !t.Failed() {
			t.Errorf("greta serve ended with exit code %d\n%s", code, errs.String())
		}
	})
	text := ""
	for {
		select {
		case line := <-out.lines:
			text += line
			var at struct{ Address string }
			if json.Unmarshal([]byte(text), &at) == nil {
				return at.Address
			}
		case code := <-done:
			done <- code
			t.Fatalf("greta serve ended with exit code %d\n%s", code, errs.String())
		}
	}
}

func postJSON(t *testing.T, url, body string, into any) int {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return resp.StatusCode
}

// What is served is what run prints, at any number of requests at once.
func TestServeIsRun(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	want := greta(t, "run", model, "--prompt", "Prince Andrew", "--gen", "24")
	url := served(t, model, "--chat-template", "texts", "--parallel", "3")
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			var a struct {
				Choices []struct {
					Text    string
					Message struct{ Content string }
				}
			}
			path, body := "/v1/completions", `"prompt": "Prince Andrew"`
			if i%2 == 1 {
				path, body = "/v1/chat/completions", `"messages": [{"role": "user", "content": "Prince Andrew"}]`
			}
			code := postJSON(t, url+path, fmt.Sprintf(`{%s, "max_tokens": 24, "temperature": 0}`, body), &a)
			if code != 200 || a.Choices[0].Text+a.Choices[0].Message.Content != strings.TrimSuffix(want.out, "\n") {
				t.Errorf("%s: %d %+v, run printed %q", path, code, a, want.out)
			}
		})
	}
	g.Wait()
}

// Sampling does what it says: a seed repeats, a bias forbids, a penalty changes, logprobs are the model's.
func TestServeSampling(t *testing.T) {
	url := served(t, testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	type answer struct {
		Choices []struct {
			Text     string
			Logprobs struct {
				Values []float64            `json:"token_logprobs"`
				Top    []map[string]float64 `json:"top_logprobs"`
				Tokens []string
			}
		}
		Error struct{ Message string }
	}
	ask := func(more string) (a answer) {
		postJSON(t, url+"/v1/completions", `{"prompt": "Prince Andrew", "max_tokens": 16, "logprobs": 3`+more+`}`, &a)
		if len(a.Choices) != 1 {
			t.Fatalf("%s: %s", more, a.Error.Message)
		}
		return a
	}
	greedy := ask(`, "temperature": 0`)
	first, second := ask(`, "seed": 7`), ask(`, "seed": 7`)
	if first.Choices[0].Text != second.Choices[0].Text {
		t.Errorf("one seed, two texts: %q and %q", first.Choices[0].Text, second.Choices[0].Text)
	}
	if other := ask(`, "seed": 8`); other.Choices[0].Text == first.Choices[0].Text {
		t.Errorf("two seeds, one text: %q", other.Choices[0].Text)
	}
	l := greedy.Choices[0].Logprobs
	for i, token := range l.Tokens {
		for other, p := range l.Top[i] {
			if p > l.Values[i] {
				t.Errorf("token %d is %q at %v though %q has %v", i, token, l.Values[i], other, p)
			}
		}
	}
	var ids struct{ Tokens []int32 }
	postJSON(t, url+"/tokenize", fmt.Sprintf(`{"prompt": %q, "add_special_tokens": false}`,
		strings.TrimSpace(l.Tokens[0])), &ids)
	banned := ask(fmt.Sprintf(`, "temperature": 0, "logit_bias": {"%d": -100}`, ids.Tokens[0]))
	if banned.Choices[0].Logprobs.Tokens[0] == l.Tokens[0] {
		t.Errorf("%q came though it was biased away", l.Tokens[0])
	}
	for _, more := range []string{`"frequency_penalty": 2`, `"presence_penalty": 2`, `"repetition_penalty": 1.9`} {
		if a := ask(`, "temperature": 0, ` + more); a.Choices[0].Text == greedy.Choices[0].Text {
			t.Errorf("%s changes nothing: %q", more, a.Choices[0].Text)
		}
	}
}

func TestServeModels(t *testing.T) {
	file := write(t, "models.yaml", fmt.Sprintf("models:\n- {name: war, path: %s, aliases: [peace], chat-template: "+
		"chatml}\n",
		testfiles.Repo(t, "testdata", "tolstoy-2.7m")))
	url := served(t, "--models", file, "--idle", "1h")
	var list struct {
		Data []struct {
			ID     string
			Loaded bool
		}
	}
	resp, err := http.Get(url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Data) != 2 || list.Data[0].Loaded {
		t.Errorf("%v %+v", err, list)
	}
	var a struct{ Model string }
	if code := postJSON(t, url+"/v1/completions", `{"model": "peace", "prompt": "a", "max_tokens": 1}`, &a); code != 200 ||
		a.Model != "peace" {
		t.Errorf("%d %+v", code, a)
	}
}

func TestServeRefuses(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "takes a model"},
		{[]string{model, "--port", "70000"}, "--port 70000"},
		{[]string{model, "--port", "0", "--log-level", "loud"}, "--log-level loud"},
		{[]string{model, "--port", "0", "--api-keys", "/nowhere"}, "/nowhere"},
		{[]string{model, "--port", "0", "--models", write(t, "m.yaml", "models: [{nam: x}]")}, "nam"},
		{[]string{model, "--port", "0", "--ssl-certfile", "x"}, "one of them is missing"},
		{[]string{model, "--port", "0", "--chat-template", "none"}, "no chat template is named"},
		{[]string{model, model, "--port", "0"}, "two models are called tolstoy-2.7m"},
		{[]string{filepath.Join(model, "nothing"), "--port", "0"}, "no such file"},
		{[]string{"llama2_block", "--port", "0"}, "block"},
		{[]string{model, "--port", "0", "--otlp-traces-endpoint", "collector"}, "http://HOST:4318"},
		{[]string{model, "--host", "256.1.1.1"}, "256.1.1.1"},
	} {
		r := greta(t, append([]string{"serve"}, c.args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("greta serve %v: exit code %d, %s", c.args, r.code, r.err)
		}
	}
	r := greta(t, "serve", "--new-key", "alice")
	if r.code != 0 || !strings.Contains(r.out, "sha256:") || !strings.Contains(r.err, "sk-greta-") {
		t.Errorf("%+v", r)
	}
}

// A model is measured over HTTP, and what came is counted.
func TestBenchServe(t *testing.T) {
	model := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	html := filepath.Join(t.TempDir(), "out.html")
	r := greta(t, "bench", "serve", model, "--users", "2", "--input", "12", "--output", "6", "--requests", "20", "--json",
		"--html", html, "--goodput", "e2el:60000")
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.err)
	}
	var got struct {
		Levels []struct {
			Requests int
			Input    int      `json:"input_tokens"`
			Output   int      `json:"output_tokens"`
			Rate     float64  `json:"requests_per_second"`
			Goodput  *float64 `json:"goodput"`
		}
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err, r.out)
	}
	l := got.Levels[0]
	if l.Requests != 20 || l.Output != 120 || l.Input < 20*8 || l.Input > 20*16 || *l.Goodput != l.Rate ||
		*l.Goodput <= 0 {
		t.Errorf("%s", r.out)
	}
	for _, args := range [][]string{{"http://127.0.0.1:1", "--users", "x"}, {"http://127.0.0.1:1", "--goodput", "ttft"},
		{"/nowhere/at/all"}, {"http://127.0.0.1:1", "--dataset", "/nowhere"}} {
		if r := greta(t, append([]string{"bench", "serve"}, args...)...); r.code != exitUsage {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
	if r := greta(t, "bench", "serve", "http://127.0.0.1:1"); r.code != exitFailed {
		t.Errorf("nobody listens: exit code %d, %s", r.code, r.err)
	}
}
