package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/internal/testfiles"
)

// Every panel of the dashboard asks for metrics that are there, with labels that they have.
func TestDashboard(t *testing.T) {
	_, h := testServer(t, newFake())
	post(t, h.URL+"/v1/chat/completions", ask("say hello", ""))
	_, _, body := get(t, h.URL+"/metrics")
	labels := map[string]map[string]bool{}
	for _, line := range strings.Split(body, "\n") {
		if r := regexp.MustCompile(`^([a-zA-Z0-9_:]+)(?:\{([^}]*)\})? `).FindStringSubmatch(line); r != nil {
			if labels[r[1]] == nil {
				labels[r[1]] = map[string]bool{}
			}
			for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(r[2], -1) {
				labels[r[1]][l[1]] = true
			}
		}
	}
	data, err := os.ReadFile(testfiles.Repo(t, "deploy", "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &d); err != nil || len(d.Panels) < 15 {
		t.Fatal(err, len(d.Panels))
	}
	metric := regexp.MustCompile(`\b((?:vllm|greta):\w+|go_\w+|process_\w+)(\{[^}]*\})?`)
	for _, p := range d.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, x := range p.Targets {
			found := metric.FindAllStringSubmatch(x.Expr, -1)
			if len(found) == 0 {
				t.Errorf("%s: %s has no metric", p.Title, x.Expr)
			}
			for _, m := range found {
				has := labels[m[1]]
				if has == nil {
					t.Errorf("%s: there is no metric %s", p.Title, m[1])
				}
				for _, l := range append(regexp.MustCompile(`(\w+)=~`).FindAllStringSubmatch(m[2], -1),
					regexp.MustCompile(`by \((?:le|(\w+))\)`).FindAllStringSubmatch(x.Expr, -1)...) {
					if l[1] != "" && !has[l[1]] {
						t.Errorf("%s: %s has no label %s", p.Title, m[1], l[1])
					}
				}
			}
		}
	}
	for _, want := range []string{`vllm:prompt_tokens_total{engine="0",model_name="fake"} 27`,
		`vllm:generation_tokens_total{engine="0",model_name="fake"} 6`,
		`vllm:request_success_total{engine="0",finished_reason="stop",model_name="fake"} 1`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="fake"} 1`,
		`vllm:inter_token_latency_seconds_count{engine="0",model_name="fake"} 5`,
		`vllm:cache_config_info{block_size="16",cache_dtype="f16"`,
		`vllm:request_params_max_tokens_count`, `vllm:spec_decode_num_drafts_total`,
		`vllm:prompt_tokens_recomputed_total`, "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter",
		`vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="fake",position="0"} 7`,
		`vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="fake",position="2"} 0`,
		"# TYPE vllm:lora_requests_info gauge",
		`vllm:lora_requests_info{max_lora="3",running_lora_adapters="a,b",waiting_lora_adapters="a"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}

// The files of deploy ask for flags and paths that there are.
func TestDeployFiles(t *testing.T) {
	_, h := testServer(t, newFake())
	verb, err := os.ReadFile(testfiles.Repo(t, "cmd", "greta", "serve.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"greta.service", "kubernetes.yaml", "Containerfile"} {
		data, err := os.ReadFile(testfiles.Repo(t, "deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		data = regexp.MustCompile(`(?m)^#.*$`).ReplaceAll(data, nil)
		for _, f := range regexp.MustCompile(`[\s\[]--([a-z-]+)[ ,]`).FindAllStringSubmatch(string(data), -1) {
			if !strings.Contains(string(verb), `"`+f[1]+`"`) {
				t.Errorf("%s: serve has no flag --%s", name, f[1])
			}
		}
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for d := yaml.NewDecoder(strings.NewReader(string(data))); ; {
			var v map[string]any
			if err := d.Decode(&v); err == io.EOF {
				break
			} else if err != nil || v["kind"] == nil {
				t.Fatalf("%s: %v %v", name, err, v)
			}
		}
		for _, p := range regexp.MustCompile(`(?:path|prometheus.io/path): (/\w+)[,}]`).FindAllStringSubmatch(string(data),
			-1) {
			if status, _, _ := get(t, h.URL+p[1]); status != 200 {
				t.Errorf("%s: %s answers %d", name, p[1], status)
			}
		}
	}
}

// A request becomes a span behind the client's own.
func TestTraces(t *testing.T) {
	got := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	tracer, err := NewTracer(collector.URL, "test", func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	_, h := testServer(t, newFake(), func(o *Options) { o.Tracer = tracer })
	post(t, h.URL+"/v1/chat/completions", ask("say hello", ""), "traceparent",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	select {
	case body := <-got:
		for _, want := range []string{"/v1/traces ", `"traceId":"0af7651916cd43dd8448eb211c80319c"`,
			`"parentSpanId":"b7ad6b7169203331"`,
			`"name":"POST /v1/chat/completions"`, `"key":"gen_ai.usage.completion_tokens","value":{"intValue":"6"}`,
			`"service.name"`} {
			if !strings.Contains(body, want) {
				t.Errorf("no %s in %s", want, body)
			}
		}
		if strings.Contains(body, "hello") {
			t.Error("the prompt is in the trace")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no span came")
	}
}

// A failed request's span says so, one that a client does not sample has none, and closing sends what is left.
func TestTracesOfFailures(t *testing.T) {
	got := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
		w.WriteHeader(503)
	}))
	defer collector.Close()
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test%20bed, service.name=other")
	reported := make(chan error, 10)
	tracer, err := NewTracer(collector.URL+"/", "test", func(err error) { reported <- err })
	if err != nil {
		t.Fatal(err)
	}
	_, h := testServer(t, newFake(), func(o *Options) { o.Tracer = tracer })
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333"
	post(t, h.URL+"/v1/chat/completions", ask("not sampled", ""), "traceparent", parent+"1-00")
	post(t, h.URL+"/v1/chat/completions", "{", "traceparent", parent+"2-01")
	if err := tracer.close(); err != nil {
		t.Fatal(err)
	}
	body := <-got
	for _, want := range []string{`"status":{"code":2`, `"parentSpanId":"b7ad6b7169203332"`, `"intValue":"400"`,
		`"key":"deployment.environment","value":{"stringValue":"test bed"}`, `"stringValue":"greta"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if strings.Contains(body, "b7ad6b7169203331") || len(got) > 0 {
		t.Errorf("a request that is not sampled has a span: %s", body)
	}
	if err := <-reported; !strings.Contains(err.Error(), "503") {
		t.Errorf("what is reported is %v", err)
	}
	tracer.start(httptest.NewRequest("GET", "/", nil), "/").end(200, nil) // behind the end: nobody waits for it
}

func TestTraceparent(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	trace, parent, flags, ok := traceparent(good)
	if !ok || trace[0] != 0x0a || trace[15] != 0x9c || parent[0] != 0xb7 || parent[7] != 0x31 || flags != 1 {
		t.Errorf("%x %x %x %v", trace, parent, flags, ok)
	}
	if _, _, _, ok := traceparent("01" + good[2:] + "-more"); !ok {
		t.Error("a later version may have more")
	}
	for _, bad := range []string{"", "00", good + "-more", "ff" + good[2:], strings.ToUpper(good), good[:54], good[1:],
		strings.Replace(good, "b7ad6b7169203331", "0000000000000000", 1), strings.Replace(good, "0af", "0ag", 1),
		strings.Replace(good, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1)} {
		if _, _, _, ok := traceparent(bad); ok {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestSamplers(t *testing.T) {
	low, high := [16]byte{8: 0x10}, [16]byte{8: 0xf0}
	for _, c := range []struct {
		name, arg string
		want      string // of low and high without a parent, high behind a sampled one, low behind one that is not
	}{
		{"", "", "yyyn"}, {"always_on", "", "yyyy"}, {"always_off", "", "nnnn"}, {"traceidratio", "0.5", "ynny"},
		{"TraceIDRatio", "", "yyyy"}, {"parentbased_always_on", "", "yyyn"}, {"parentbased_always_off", "", "nnyn"},
		{"parentbased_traceidratio", " .5 ", "ynyn"}, {"traceidratio", "0", "nnnn"}, {"traceidratio", "1", "yyyy"},
	} {
		s, err := samplerOf(c.name, c.arg)
		if err != nil {
			t.Errorf("%s %s: %v", c.name, c.arg, err)
			continue
		}
		got := ""
		for _, yes := range []bool{s(low, -1), s(high, -1), s(high, 1), s(low, 0)} {
			got += map[bool]string{true: "y", false: "n"}[yes]
		}
		if got != c.want {
			t.Errorf("%s %s samples %s, not %s", c.name, c.arg, got, c.want)
		}
	}
	for _, bad := range [][2]string{{"sometimes", ""}, {"traceidratio", "2"}, {"parentbased_traceidratio", "x"},
		{"parentbased_", ""}} {
		if _, err := samplerOf(bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), "OTEL_TRACES_SAMPLER") {
			t.Errorf("%q: the error is %v", bad, err)
		}
	}
	for _, bad := range []string{"a", "=b", "a=%zz"} {
		if _, err := resourceOf(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Scopes, models, quotas, bounds and priorities of keys; what they have used stays when the file is read again.
// In one piece: one server, whose keys file changes.
func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	line := func(name, more string) string {
		k := PlainKey(name, "key-"+name)
		return "- {name: " + name + ", sha256: " + k.Hash + more + "}\n"
	}
	text := line("alice", ", requests-per-minute: 2, priority: 5") + line("bob", ", models: [other]") + line("eve",
		", scopes: [metrics]") +
		line("old", ", expires: 1970-01-01T00:00:01Z") + line("dan", ", tokens-per-minute: 59") + line("root",
		", scopes: [admin], parallel: 1")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	keys.now = func() time.Time { return now }
	fake := newFake()
	_, h := testServer(t, fake, func(o *Options) { o.Keys = keys })
	asked := func(name string) (int, string) {
		status, header, _ := post(t, h.URL+"/v1/chat/completions", ask("say hello", `"priority": 2, "cache_salt": "s"`),
			"Authorization", "Bearer key-"+name)
		return status, header.Get("Retry-After")
	}
	for _, c := range []struct {
		name   string
		status int
		after  string
	}{{"nobody", 401, ""}, {"old", 401, ""}, {"eve", 403, ""}, {"bob", 404, ""}, {"alice", 200, ""}, {"alice", 200, ""},
		{"alice", 429, "30"},
		{"dan", 200, ""}, {"dan", 429, "2"}} {
		if status, after := asked(c.name); status != c.status || after != c.after {
			t.Errorf("%s: %d, Retry-After %q, want %d and %q", c.name, status, after, c.status, c.after)
		}
	}
	if status, _, _ := get(t, h.URL+"/metrics", "Authorization", "Bearer key-eve"); status != 200 {
		t.Errorf("eve may read metrics: %d", status)
	}
	if status, _, _ := get(t, h.URL+"/metrics", "Authorization", "Bearer key-alice"); status != 403 {
		t.Errorf("alice may not: %d", status)
	}
	if err := keys.Reload(); err != nil {
		t.Fatal(err)
	}
	if status, _ := asked("alice"); status != 429 {
		t.Errorf("reading the file again forgets what was used: %d", status)
	}
	now = now.Add(time.Minute)
	if status, _ := asked("alice"); status != 200 {
		t.Errorf("a minute later: %d", status)
	}
	if r := fake.lastRequest(); r.Key != "alice" || r.Priority != 7 || r.Salt != "alice\x00s" {
		t.Errorf("%+v", r)
	}
	os.WriteFile(path, []byte("- {name: x, sha256: zz}"), 0o600)
	if err := keys.Reload(); err == nil || !strings.Contains(err.Error(), "64 hexadecimal") {
		t.Errorf("%v", err)
	}
	now = now.Add(time.Hour) // the broken file is looked at: the old keys stay
	if status, _ := asked("alice"); status != 200 {
		t.Errorf("with a broken file: %d", status)
	}
	os.WriteFile(path, []byte(text+line("new", "")), 0o600)
	if status, _ := asked("new"); status != 401 {
		t.Errorf("the file is not looked at with every request: %d", status)
	}
	now = now.Add(lookKeys)
	if status, _ := asked("new"); status != 200 {
		t.Errorf("a key that was added: %d", status)
	}
	fake.delay = 20 * time.Millisecond
	var g sync.WaitGroup
	counts := make([]int, 6)
	for i := range counts {
		g.Go(func() { counts[i], _ = asked("root") })
	}
	g.Wait()
	ok := 0
	for _, c := range counts {
		if c == 200 {
			ok++
		} else if c != 429 {
			t.Errorf("%d", c)
		}
	}
	if ok == 0 || ok == 6 {
		t.Errorf("one at once: %v", counts)
	}
}

// Models are loaded when asked for, once for all who wait, and unloaded when nobody asked for long.
func TestManager(t *testing.T) {
	var mu sync.Mutex
	loads := map[string]int{}
	models := map[string]*fakeModel{}
	load := func(_ context.Context, s Spec) (Model, error) {
		mu.Lock()
		defer mu.Unlock()
		loads[s.Name]++
		if s.Name == "broken" {
			return nil, io.ErrUnexpectedEOF
		}
		models[s.Name] = newFake()
		return models[s.Name], nil
	}
	m, err := NewManager([]Spec{{Name: "a", Aliases: []string{"x"}}, {Name: "b", Idle: time.Hour}, {Name: "broken"}}, load,
		time.Minute, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	m.now = func() time.Time { return now }
	_, h := testServer(t, newFake(), func(o *Options) { o.Models = m })
	var g sync.WaitGroup
	for range 20 {
		g.Go(func() {
			if status, _, body := post(t, h.URL+"/v1/completions", `{"model": "x", "prompt": "say a"}`); status != 200 {
				t.Error(status, body)
			}
		})
	}
	g.Wait()
	post(t, h.URL+"/v1/completions", `{"model": "b", "prompt": "say a"}`)
	if loads["a"] != 1 || loads["b"] != 1 {
		t.Errorf("loads %v", loads)
	}
	now = now.Add(2 * time.Minute)
	m.Sweep()
	if !models["a"].closed.Load() || models["b"].closed.Load() {
		t.Error("a must be unloaded and b not")
	}
	if status, _, _ := post(t, h.URL+"/v1/completions", `{"model": "a", "prompt": "say a"}`); status != 200 ||
		loads["a"] != 2 {
		t.Errorf("%d, loads %v", status, loads)
	}
	for range 2 {
		status, header, body := post(t, h.URL+"/v1/completions", `{"model": "broken", "prompt": "a"}`)
		if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(body, "could not be loaded") {
			t.Errorf("%d %s", status, body)
		}
	}
}

// brokenWriter is a connection whose other end is gone behind so many writes.
type brokenWriter struct {
	*httptest.ResponseRecorder
	left int
}

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("connection reset by peer")
	}
	return w.ResponseRecorder.Write(b)
}

// A client that a failed write finds gone has aborted its request; the server had no error.
func TestGoneIsNoError(t *testing.T) {
	s, h := testServer(t, newFake())
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(ask(
		"say "+strings.Repeat("on and on ", 500), `"stream": true`)))
	r.Host = "localhost"
	s.ServeHTTP(&brokenWriter{httptest.NewRecorder(), 1}, r)
	_, _, body := get(t, h.URL+"/metrics")
	if !strings.Contains(body, `vllm:request_success_total{engine="0",finished_reason="abort",model_name="fake"} 1`) {
		t.Errorf("%s", regexp.MustCompile("vllm:request_success_total.*").FindAllString(body, -1))
	}
}
