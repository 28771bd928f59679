package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The definitions, on requests whose times are known.
func TestDefinitions(t *testing.T) {
	const msec = time.Millisecond
	out := []outcome{
		{sent: 10 * msec, first: 30 * msec, last: 70 * msec, gaps: []time.Duration{10 * msec, 30 * msec}, prompt: 5,
			tokens: 5, chunks: 3},
		{sent: 0, first: 100 * msec, last: 100 * msec, prompt: 7, tokens: 1, chunks: 1},
		{err: context.Canceled},
		{prompt: 3, tokens: 4}, // no text came
	}
	l := summarise(out, []int{5, 1, 1, 1}, 2*time.Second, Options{Bounds: map[string]time.Duration{"ttft": 50 * msec,
		"tpot": 20 * msec}})
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("TTFT", l.TTFT.Mean, 60)
	near("TPOT", l.TPOT.Mean, 10) // (60 − 20)/4, and none of a single token
	near("ITL", l.ITL.Mean, 20)
	near("E2EL", l.E2EL.Mean, 80)
	near("requests/s", l.RequestsS, 1)
	near("tokens/s", l.OutputS, 3)
	near("all tokens/s", l.TotalS, 9)
	near("goodput", *l.Goodput, .5)
	if l.TPOT.N != 1 || l.ITL.N != 2 || l.Failed != 2 || len(l.Wrong) != 2 {
		t.Errorf("%+v", l)
	}
	if l.TTFT.P50 == nil || l.TTFT.P99 != nil || l.TTFT.P90 != nil {
		t.Error("two samples bear a median and nothing above")
	}
	many := make([]time.Duration, 101)
	for i := range many {
		many[i] = time.Duration(i) * msec
	}
	near("p99", *times(many).P99, 99)
}

func TestGapsHaveTheirMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []float64{.3, 1, 4} {
		sum, squares, n := 0.0, 0.0, 40000
		for range n {
			x := gamma(rng, k)
			sum += x
			squares += x * x
		}
		mean := sum / float64(n)
		spread := squares/float64(n) - mean*mean
		if math.Abs(mean-k) > .05*k || math.Abs(spread-k) > .1*k {
			t.Errorf("gamma(%v): mean %v, variance %v, both must be %v", k, mean, spread, k)
		}
	}
}

// fake is a server whose answers a test says.
type fake struct {
	claim  func(asked int) int // tokens by usage
	pieces func(asked int) []string
	count  bool // it has /tokenize
	broken bool // no [DONE]
}

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Prompt   string
		Messages []struct{ Content string }
		Max      int `json:"max_tokens"`
		Stream   bool
	}
	json.NewDecoder(r.Body).Decode(&q)
	if len(q.Messages) > 0 {
		q.Prompt = q.Messages[0].Content
	}
	tokens := 2 * len(strings.Fields(q.Prompt))
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"data": [{"id": "m"}]}`)
	case "/tokenize":
		if !f.count {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"count": %d}`, max(1, tokens/2))
	case "/v1/completions", "/v1/chat/completions":
		if !q.Stream {
			fmt.Fprintf(w, `{"usage": {"prompt_tokens": %d, "completion_tokens": 1}}`, tokens+1)
			return
		}
		for _, p := range f.pieces(q.Max) {
			fmt.Fprintf(w, "data: {\"choices\": [{\"text\": %q}]}\n\n", p+q.Prompt[:1])
		}
		fmt.Fprintf(w, "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": %d, \"completion_tokens\": %d}}\n\n", tokens+1,
			f.claim(q.Max))
		if !f.broken {
			fmt.Fprint(w, "data: [DONE]\n\n")
		}
	}
}

func repeat(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("w%d ", i)
	}
	return out
}

func same(n int) int { return n }

// A server that says the truth is measured; one that lies is found out.
func TestTokensWereMade(t *testing.T) {
	for _, c := range []struct {
		name string
		f    fake
		want string // of what is wrong
	}{
		{"honest", fake{claim: same, pieces: repeat, count: true}, ""},
		{"honest without /tokenize", fake{claim: same, pieces: repeat}, ""},
		{"claims more", fake{claim: func(n int) int {
			return n
		}, pieces: func(int) []string { return []string{"x"} }, count: true}, "is said to have"},
		{"claims more, without /tokenize", fake{claim: func(n int) int {
			return n
		}, pieces: func(int) []string { return []string{""} }}, "is said to have"},
		{"stops early", fake{claim: func(n int) int { return n - 3 }, pieces: repeat}, "have not the tokens"},
		{"no usage", fake{claim: func(int) int { return 0 }, pieces: repeat}, "0 tokens by its usage"},
		{"breaks off", fake{claim: same, pieces: repeat, broken: true}, "without [DONE]"},
	} {
		h := httptest.NewServer(c.f)
		r, err := Run(context.Background(), Options{URL: h.URL + "/v1", Users: []int{3}, Burst: 1, Input: 41, Output: 12,
			N: 20})
		h.Close()
		text := fmt.Sprint(err)
		if err == nil {
			text = strings.Join(r.Levels[0].Wrong, "; ")
		}
		if (c.want == "") != (err == nil && r.OK()) || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %q", c.name, text, c.want)
		}
		if c.want == "" && (r.Levels[0].Input != 20*41 || r.Levels[0].Output != 20*12) {
			t.Errorf("%s: %d tokens in, %d out", c.name, r.Levels[0].Input, r.Levels[0].Output)
		}
	}
}

// A server that has no room for answers of that length: the error says which length was asked for.
func TestNoRoomForAnswers(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Prompt string
			Stream bool
		}
		_ = json.NewDecoder(r.Body).Decode(&q)
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"data": [{"id": "m"}]}`)
		case q.Stream:
			http.Error(w, "more than the context", http.StatusBadRequest)
		default:
			fmt.Fprintf(w, `{"usage": {"prompt_tokens": %d}}`, len(strings.Fields(q.Prompt)))
		}
	}))
	defer h.Close()
	_, err := Run(context.Background(), Options{URL: h.URL, Users: []int{1}, Burst: 1, Input: 1, Output: 77, N: 2})
	if err == nil || !strings.Contains(err.Error(), "--output 77 tokens each: ") ||
		!strings.Contains(err.Error(), "more than the context") {
		t.Error(err)
	}
}

func TestRateAndFiles(t *testing.T) {
	h := httptest.NewServer(fake{claim: same, pieces: repeat})
	defer h.Close()
	path := filepath.Join(t.TempDir(), "p.jsonl")
	if err := os.WriteFile(path, []byte("{\"prompt\": \"a b\", \"max_tokens\": 3}\n\n{\"text\": \"c\"}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	data, err := ReadPrompts(path)
	if err != nil || len(data) != 2 || data[1].Text != "c" || data[0].Max != 3 {
		t.Fatal(data, err)
	}
	r, err := Run(context.Background(), Options{URL: h.URL, Chat: true, Rates: []float64{2000}, Burst: .5, Input: 1,
		Output: 5, N: 30, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	l := r.Levels[0]
	if l.Requests != 30 || l.Output != 15*3+15*5 || l.Rate != 2000 || len(l.Wrong) > 0 {
		t.Errorf("%+v", l)
	}
	var b strings.Builder
	if err := r.HTML(&b); err != nil || !strings.Contains(b.String(), "2000/s") {
		t.Errorf("%v %s", err, b.String())
	}
	for _, o := range []Options{{Users: []int{0}, Burst: 1, Input: 1, Output: 1}, {Burst: 1, Input: 1, Output: 1},
		{Rates: []float64{-1}, Burst: 1, Input: 1, Output: 1},
		{Users: []int{1}, Burst: 0, Input: 1, Output: 1}, {Users: []int{1}, Burst: 1, Input: 1, Output: 1,
			Bounds: map[string]time.Duration{"x": 1}}} {
		if o.Check() == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	for _, text := range []string{"", "{", `{"max_tokens": 1}`, "[]", "[{"} {
		os.WriteFile(path, []byte(text), 0o644)
		if _, err := ReadPrompts(path); err == nil {
			t.Errorf("prompts of %q", text)
		}
	}
}
