// A mixed load over some time: what people and programs do to a server at once, and whether it stays as it was.

package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// mixed is one kind of request of a load.
type mixed struct {
	name, path, body string
	stream           bool
	leave            int           // events behind which the client goes away; 0: none
	pause            time.Duration // between reads
	bad              bool          // the answer is an error of the client's
	maybe            bool          // or so, where the model cannot
}

// mixes are the kinds; %M is a model, %V one of vectors, %W words that no other request has.
var mixes = []mixed{
	{name: "chat", path: "/v1/chat/completions",
		body: `{"model": "%M", "messages": [{"role": "user", "content": "say %W"}], "max_tokens": 24}`},
	{name: "stream", path: "/v1/chat/completions", stream: true,
		body: `{"model": "%M", "messages": [{"role": "user", "content": "say %W"}], "max_tokens": 32, "stream": true,
			"stream_options": {"include_usage": true}}`},
	{name: "completion", path: "/v1/completions",
		body: `{"model": "%M", "prompt": ["He %W", "She %W"], "max_tokens": 16, "n": 2, "logprobs": 2}`},
	{name: "responses", path: "/v1/responses", stream: true,
		body: `{"model": "%M", "input": "say %W", "max_output_tokens": 16, "stream": true}`},
	{name: "messages", path: "/v1/messages", stream: true,
		body: `{"model": "%M", "messages": [{"role": "user", "content": "say %W"}], "max_tokens": 16, "stream": true}`},
	{name: "schema", path: "/v1/chat/completions",
		body: `{"model": "%M", "messages": [{"role": "user", "content": "%W"}], "max_tokens": 64, "response_format":
			{"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties":
			{"%W": {"enum": ["a", "b"]}}, "required": ["%W"], "additionalProperties": false}}}}`},
	{name: "vectors", path: "/v1/embeddings", body: `{"model": "%V", "input": ["%W", "two %W"]}`, maybe: true},
	{name: "tokens", path: "/tokenize", body: `{"model": "%M", "prompt": "%W"}`},
	{name: "leaves", path: "/v1/completions", stream: true, leave: 2,
		body: `{"model": "%M", "prompt": "He %W", "max_tokens": 200, "ignore_eos": true, "stream": true}`},
	{name: "slow", path: "/v1/completions", stream: true, pause: 20 * time.Millisecond,
		body: `{"model": "%M", "prompt": "He %W", "max_tokens": 48, "ignore_eos": true, "stream": true}`},
	{name: "no JSON", path: "/v1/chat/completions", body: `{"model": "%M", "messages": [`, bad: true},
	{name: "no model", path: "/v1/completions", body: `{"model": "nobody", "prompt": "%W"}`, bad: true},
	{name: "too long", path: "/v1/completions", body: `{"model": "%M", "prompt": "%W", "max_tokens": 100000000}`,
		bad: true},
	{name: "no schema", path: "/v1/chat/completions",
		body: `{"model": "%M", "messages": [{"role": "user", "content": "%W"}], "response_format": {"type": "json_schema",
			"json_schema": {"name": "x", "schema": {"type": 7, "unsupportedKeyword": 1}}}}`, bad: true},
}

// ask sends one request, and says what was wrong with its answer.
func (m *mixed) ask(client *http.Client, url, body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", url+m.path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if refused := resp.StatusCode >= 400 && resp.StatusCode < 500; refused != m.bad && !(refused && m.maybe) ||
		resp.StatusCode >= 500 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 400))
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	lines, events, last := bufio.NewScanner(resp.Body), 0, ""
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events, last = events+1, lines.Text()
			if events == m.leave {
				return nil // the context ends, and the connection with it
			}
			time.Sleep(m.pause)
		} else if !m.stream && lines.Text() != "" {
			last = lines.Text()
		}
	}
	switch {
	case lines.Err() != nil:
		return lines.Err()
	case m.stream && m.leave > 0:
		return fmt.Errorf("the stream ended behind %d events", events)
	case m.stream && !strings.Contains(last, "[DONE]") && !strings.Contains(last, "response.completed") &&
		!strings.Contains(last, "response.incomplete") && !strings.Contains(last, "message_stop"):
		return fmt.Errorf("the stream ended with %.200s", last)
	case !m.stream && !json.Valid([]byte(last)):
		return fmt.Errorf("no JSON: %.200s", last)
	}
	return nil
}

// gauge reads one number of /metrics, summed over its labels.
func gauge(t *testing.T, url, name string) (sum float64) {
	_, _, body := get(t, url+"/metrics")
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			fields := strings.Fields(line)
			v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// loadRow is what an interval of a load had.
type loadRow struct {
	memory, heap, goroutines, files float64
	took                            []float64 // ms, of answers that nobody paused or left
}

// percentile is of at least one number.
func percentile(x []float64, p float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[min(len(x)-1, int(p*float64(len(x))))]
}

// A mixed load leaves nothing behind: GRETA_LOAD=1h is how long it lasts, GRETA_LOAD_RATE how many requests a second
// it has (default 8), GRETA_LOAD_URL a server of another process, whose memory is then measured alone. Without them a
// few hundred requests go to a model that answers by rules.
func TestMixedLoad(t *testing.T) {
	url, long := os.Getenv("GRETA_LOAD_URL"), time.Duration(0)
	if text := os.Getenv("GRETA_LOAD"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if url == "" {
		_, h := testServer(t, newFake())
		url = h.URL
	}
	var list struct{ Data []struct{ ID string } }
	_, _, body := get(t, url+"/v1/models")
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Data) == 0 {
		t.Fatalf("%s: %v", body, err)
	}
	model, vectors := list.Data[0].ID, list.Data[len(list.Data)-1].ID
	l := load{t: t, url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	defer l.client.CloseIdleConnections()
	l.named = strings.NewReplacer("%M", model, "%V", vectors)
	if long == 0 {
		l.run(slices.Repeat(mixes, 20))
	} else {
		l.last(long)
	}
	wait(t, "requests are still under way", func() bool { return gauge(t, url, "vllm:num_requests_running") == 0 })
}

// load sends requests.
type load struct {
	t      *testing.T
	url    string
	client *http.Client
	named  *strings.Replacer

	mu   sync.Mutex
	n    int
	took []float64
}

// one sends a request.
func (l *load) one(m *mixed) {
	l.mu.Lock()
	l.n++
	word := fmt.Sprintf("w%d", l.n)
	l.mu.Unlock()
	start := time.Now()
	err := m.ask(l.client, l.url, strings.ReplaceAll(l.named.Replace(m.body), "%W", word))
	if err != nil && !(m.leave > 0 && errors.Is(err, context.Canceled)) {
		l.t.Errorf("%s: %v", m.name, err)
	}
	if m.leave == 0 && m.pause == 0 && !m.bad {
		l.mu.Lock()
		l.took = append(l.took, float64(time.Since(start).Microseconds())/1000)
		l.mu.Unlock()
	}
}

// run sends a list, some at once.
func (l *load) run(list []mixed) {
	jobs := make(chan *mixed)
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for m := range jobs {
				l.one(m)
			}
		})
	}
	for i := range list {
		jobs <- &list[i]
	}
	close(jobs)
	g.Wait()
}

// last sends requests for some time, notes how the server is twenty times, and fails where it grows.
func (l *load) last(long time.Duration) {
	rate := 8.0
	if text := os.Getenv("GRETA_LOAD_RATE"); text != "" {
		var err error
		if rate, err = strconv.ParseFloat(text, 64); err != nil || !(rate > 0) {
			l.t.Fatalf("GRETA_LOAD_RATE is %s", text)
		}
	}
	const intervals = 20
	rng := rand.New(rand.NewPCG(3, 4))
	var g sync.WaitGroup
	var rows []loadRow
	var table bytes.Buffer
	fmt.Fprintf(&table, "%8s %9s %8s %8s %8s %6s %9s %9s\n", "at", "requests", "RSS MB", "heap MB", "routines", "files",
		"p50 ms", "p99 ms")
	begin := time.Now()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for i := range intervals {
		for time.Since(begin) < long*time.Duration(i+1)/intervals {
			<-tick.C
			m := &mixes[rng.IntN(len(mixes))]
			g.Go(func() { l.one(m) })
		}
		l.mu.Lock()
		r := loadRow{took: l.took}
		n := l.n
		l.took = nil
		l.mu.Unlock()
		r.memory, r.heap = gauge(l.t, l.url, "process_resident_memory_bytes"),
			gauge(l.t, l.url, "go_memstats_heap_inuse_bytes")
		r.goroutines, r.files = gauge(l.t, l.url, "go_goroutines"), gauge(l.t, l.url, "process_open_fds")
		if len(r.took) == 0 {
			l.t.Fatalf("no request was answered in %v", long/intervals)
		}
		rows = append(rows, r)
		fmt.Fprintf(&table, "%8s %9d %8.1f %8.1f %8.0f %6.0f %9.1f %9.1f\n", time.Since(begin).Round(time.Second), n,
			r.memory/1e6, r.heap/1e6, r.goroutines, r.files, percentile(r.took, .5), percentile(r.took, .99))
	}
	g.Wait()
	l.t.Logf("%s\n%s", l.url, table.String())
	// The first fifth is left out: caches fill and steps are captured.
	early, late := rows[intervals/5:intervals/2], rows[intervals*7/10:]
	for name, of := range map[string]func(r loadRow) float64{
		"memory":     func(r loadRow) float64 { return r.memory / 1e6 },
		"goroutines": func(r loadRow) float64 { return r.goroutines },
		"files":      func(r loadRow) float64 { return r.files },
	} {
		var a, b []float64
		for _, r := range early {
			a = append(a, of(r))
		}
		for _, r := range late {
			b = append(b, of(r))
		}
		before, after := percentile(a, .5), percentile(b, .5)
		if after > before*1.2+16 {
			l.t.Errorf("%s grew from %.1f to %.1f (medians)", name, before, after)
		}
	}
}
