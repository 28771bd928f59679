// Metrics by the names that vLLM's dashboards know.

package serve

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	runtimemetrics "runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	prometheus "github.com/VictoriaMetrics/metrics"

	"github.com/greta-project/greta/internal/plainfile"
)

// metrics are a server's.
type metrics struct {
	server *Server
	set    *prometheus.Set
	help   map[string]string // by name

	prompt, generated, cached *counter
	success                   *counter
	answers                   *counter

	ttft, itl, tpot, e2e, queue, inference, prefill, decode *histogram
	promptSizes, answerSizes, paramsN, paramsMax            *histogram

	itlOf sync.Map // model → func(float64)
}

// counter has a count for each of its labels' values.
type counter struct {
	set    *prometheus.Set
	name   string
	labels []string
}

func (c *counter) add(n int, values ...string) {
	c.set.GetOrCreateCounter(series(c.name, c.labels, values)).Add(n)
}

// histogram has one for each model.
type histogram struct {
	set    *prometheus.Set
	name   string
	bounds []float64
}

func (h *histogram) of(model string) *prometheus.PrometheusHistogram {
	return h.set.GetOrCreatePrometheusHistogramExt(series(h.name, modelLabels, []string{engineLabel, model}), h.bounds)
}

var modelLabels = []string{"engine", "model_name"}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// series is a name with its labels, as Prometheus writes it.
func series(name string, labels, values []string) string {
	var b strings.Builder
	b.WriteString(name)
	for i, l := range labels {
		fmt.Fprintf(&b, `%c%s="%s"`, "{,"[min(i, 1)], l, labelEscaper.Replace(strings.ToValidUTF8(values[i], "\uFFFD")))
	}
	b.WriteByte('}')
	return b.String()
}

// Buckets, as vLLM's are.
var (
	ttftBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
		640, 2560}
	itlBuckets = []float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20,
		40, 80}
	longBuckets = []float64{.01, .05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960,
		1920, 7680}
	sizeBuckets = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000}
	nBuckets    = []float64{1, 2, 5, 10, 20}
)

func newMetrics(s *Server) *metrics {
	prometheus.ExposeMetadata(true)
	m := &metrics{server: s, set: prometheus.NewSet(), help: map[string]string{}}
	counter := func(name, help string, labels ...string) *counter {
		m.help[name] = help
		return &counter{m.set, name, labels}
	}
	histogram := func(name, help string, bounds []float64) *histogram {
		m.help[name] = help
		return &histogram{m.set, name, bounds}
	}
	m.prompt = counter("vllm:prompt_tokens_total", "Tokens of prompts.", modelLabels...)
	m.cached = counter("vllm:prompt_tokens_cached_total", "Tokens of prompts that were found in the prefix cache.",
		modelLabels...)
	m.generated = counter("vllm:generation_tokens_total", "Tokens of answers.", modelLabels...)
	m.success = counter("vllm:request_success_total", "Answers that ended, by why.", "engine", "finished_reason",
		"model_name")
	m.answers = counter("greta:http_answers_total", "Answers over HTTP.", "route", "status")
	m.ttft = histogram("vllm:time_to_first_token_seconds", "From a request to its first token.", ttftBuckets)
	m.itl = histogram("vllm:inter_token_latency_seconds", "Between tokens of a request.", itlBuckets)
	m.tpot = histogram("vllm:request_time_per_output_token_seconds", "Mean time between a request's tokens.", itlBuckets)
	m.e2e = histogram("vllm:e2e_request_latency_seconds", "From a request to its last token.", longBuckets)
	m.queue = histogram("vllm:request_queue_time_seconds", "Waiting for a place.", longBuckets)
	m.inference = histogram("vllm:request_inference_time_seconds", "Prefill and decode.", longBuckets)
	m.prefill = histogram("vllm:request_prefill_time_seconds", "Prefill.", longBuckets)
	m.decode = histogram("vllm:request_decode_time_seconds", "Decode.", longBuckets)
	m.promptSizes = histogram("vllm:request_prompt_tokens", "Tokens of a request's prompt.", sizeBuckets)
	m.answerSizes = histogram("vllm:request_generation_tokens", "Tokens of a request's answers.", sizeBuckets)
	m.paramsN = histogram("vllm:request_params_n", "Answers that a request asked for.", nBuckets)
	m.paramsMax = histogram("vllm:request_params_max_tokens", "Most tokens that a request asked for.", sizeBuckets)
	s.live.metrics = m
	return m
}

// serve writes all metrics as text, each name with what it means.
func (m *metrics) serve(w http.ResponseWriter, _ *http.Request, _ *requestState) error {
	var all, out bytes.Buffer
	m.set.WritePrometheus(&all)
	m.writeLoaded(&all)
	prometheus.WriteProcessMetrics(&all)
	prometheus.WriteFDMetrics(&all)
	writeLimits(&all)
	for line := range bytes.Lines(all.Bytes()) {
		name, isHelp := bytes.CutPrefix(bytes.TrimRight(line, "\n"), []byte("# HELP "))
		switch help := m.help[string(name)]; {
		case help != "":
			fmt.Fprintf(&out, "# HELP %s %s\n", name, help)
		case !isHelp || bytes.ContainsRune(name, ' '): // the library writes names alone
			out.Write(line)
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, err := w.Write(out.Bytes())
	return err
}

// writeLimits writes what the runtime was told, and on Linux what the process may use and what went over its network.
func writeLimits(w io.Writer) {
	told := []runtimemetrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"},
		{Name: "/sched/gomaxprocs:threads"}}
	runtimemetrics.Read(told)
	for i, name := range []string{"go_gc_gogc_percent", "go_gc_gomemlimit_bytes", "go_sched_gomaxprocs_threads"} {
		prometheus.WriteGaugeUint64(w, name, told[i].Value.Uint64())
	}
	if limits, err := plainfile.Read("/proc/self/limits"); err == nil {
		if _, rest, ok := strings.Cut(string(limits), "Max address space"); ok {
			most := float64(math.MaxUint64) // "unlimited"
			if v, err := strconv.ParseFloat(strings.Fields(rest)[0], 64); err == nil {
				most = v
			}
			prometheus.WriteGaugeFloat64(w, "process_virtual_memory_max_bytes", most)
		}
	}
	if text, err := plainfile.Read("/proc/self/net/netstat"); err == nil {
		received, sent := octets(string(text))
		prometheus.WriteCounterUint64(w, "process_network_receive_bytes_total", received)
		prometheus.WriteCounterUint64(w, "process_network_transmit_bytes_total", sent)
	}
}

// octets finds in /proc/self/net/netstat the bytes that came and went by IP: a line of names, and one of numbers.
func octets(netstat string) (received, sent uint64) {
	_, rest, _ := strings.Cut(netstat, "\nIpExt:")
	names, rest, _ := strings.Cut(rest, "\nIpExt:")
	numbers, _, _ := strings.Cut(rest, "\n")
	values := strings.Fields(numbers)
	for i, name := range strings.Fields(names) {
		if i >= len(values) {
			break
		}
		v, err := strconv.ParseUint(values[i], 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "InOctets":
			received = v
		case "OutOctets":
			sent = v
		}
	}
	return received, sent
}

const engineLabel = "0"

// gaps gives the observer of a model's inter-token latency.
func (m *metrics) gaps(model string) func(float64) {
	if f, ok := m.itlOf.Load(model); ok {
		return f.(func(float64))
	}
	f := m.itl.of(model).Update
	m.itlOf.Store(model, f)
	return f
}

// answered counts an answer.
func (m *metrics) answered(route string, status int) { m.answers.add(1, route, strconv.Itoa(status)) }

// finished counts a request's tokens and times.
func (m *metrics) finished(j *job, rs *requestState, l *live, u usage, r Result, err error) {
	model := rs.model
	of := func(h *histogram, v float64) { h.of(model).Update(v) }
	m.prompt.add(u.prompt, engineLabel, model)
	m.cached.add(u.cached, engineLabel, model)
	m.generated.add(u.completion, engineLabel, model)
	for _, f := range l.finishes {
		if f == "tool_calls" {
			f = "stop"
		}
		m.success.add(1, engineLabel, f, model)
	}
	for range max(0, l.choices-len(l.finishes)) {
		reason := "abort"
		if asError(err).Status >= 500 && err != nil {
			reason = "error"
		}
		m.success.add(1, engineLabel, reason, model)
	}
	of(m.promptSizes, float64(u.prompt))
	of(m.answerSizes, float64(u.completion))
	of(m.paramsN, float64(l.choices))
	if l.max > 0 {
		of(m.paramsMax, float64(l.max))
	}
	of(m.queue, r.Queue.Seconds())
	of(m.prefill, r.Prefill.Seconds())
	of(m.decode, r.Decode.Seconds())
	of(m.inference, (r.Prefill + r.Decode).Seconds())
	if n := l.tokens.Load(); n > 0 {
		first, last := float64(l.first.Load())/1e9, float64(l.last.Load())/1e9
		of(m.ttft, first)
		of(m.e2e, last)
		if n > 1 {
			of(m.tpot, (last-first)/float64(n-1))
		}
	}
}

// loadedMetrics are what models that are loaded are asked for when metrics are read.
var loadedMetrics = []struct {
	name, kind, help string
	value            func(*Stats) float64
}{
	{"vllm:num_requests_running", "gauge", "Requests in the batch.",
		func(st *Stats) float64 { return float64(st.Running) }},
	{"vllm:num_requests_waiting", "gauge", "Requests that wait.",
		func(st *Stats) float64 { return float64(st.Waiting) }},
	{"vllm:kv_cache_usage_perc", "gauge", "Share of the cache's pages in use, 1 is all.",
		func(st *Stats) float64 { return float64(st.PagesUsed) / float64(max(1, st.Pages)) }},
	{"vllm:num_preemptions_total", "counter", "Requests that lost their pages to others.",
		func(st *Stats) float64 { return float64(st.Preemptions) }},
	{"vllm:prefix_cache_queries_total", "counter", "Tokens that were looked for in the prefix cache.",
		func(st *Stats) float64 { return float64(st.PrefixQueries) }},
	{"vllm:prefix_cache_hits_total", "counter", "Tokens that were found in the prefix cache.",
		func(st *Stats) float64 { return float64(st.PrefixHits) }},
	{"vllm:prompt_tokens_recomputed_total", "counter", "Tokens that were computed again behind a preemption.",
		func(st *Stats) float64 { return float64(st.Recomputed) }},
	{"vllm:spec_decode_num_drafts_total", "counter", "Drafts that were checked.",
		func(st *Stats) float64 { return float64(st.Drafts) }},
	{"vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens of drafts.",
		func(st *Stats) float64 { return float64(st.Drafted) }},
	{"vllm:spec_decode_num_accepted_tokens_total", "counter", "Tokens of drafts that were accepted.",
		func(st *Stats) float64 { return float64(st.Accepted) }},
}

// writeLoaded asks the models that are loaded.
func (m *metrics) writeLoaded(w io.Writer) {
	stats := map[string]*Stats{}
	m.server.models.Loaded(func(name string, model Model) {
		st := model.Stats()
		stats[name] = &st
	})
	models := slices.Sorted(maps.Keys(stats))
	if len(models) == 0 {
		return
	}
	begin := func(name, kind, help string) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	for _, x := range loadedMetrics {
		begin(x.name, x.kind, x.help)
		for _, model := range models {
			fmt.Fprintln(w, series(x.name, modelLabels, []string{engineLabel, model}), x.value(stats[model]))
		}
	}
	begin("vllm:num_requests_waiting_by_reason", "gauge", "Requests that wait, by why.")
	for _, model := range models {
		by := stats[model].WaitingBy
		if len(by) == 0 {
			by = map[string]int{"capacity": stats[model].Waiting}
		}
		for _, reason := range slices.Sorted(maps.Keys(by)) {
			fmt.Fprintln(w, series("vllm:num_requests_waiting_by_reason", append(modelLabels[:2:2], "reason"),
				[]string{engineLabel, model, reason}), by[reason])
		}
	}
	begin("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
		"Tokens of drafts that were accepted, by their place in the draft.")
	for _, model := range models {
		for i, n := range stats[model].AcceptedAt {
			fmt.Fprintln(w, series("vllm:spec_decode_num_accepted_tokens_per_pos_total",
				append(modelLabels[:2:2], "position"), []string{engineLabel, model, strconv.Itoa(i)}), n)
		}
	}
	writeAdapters(w, slices.Collect(maps.Values(stats)))
	begin("vllm:cache_config_info", "gauge", "How the cache is.")
	for _, model := range models {
		st := stats[model]
		fmt.Fprintln(w, series("vllm:cache_config_info",
			[]string{"block_size", "cache_dtype", "engine", "model_name", "num_gpu_blocks"},
			[]string{strconv.Itoa(st.PageSize), st.CacheType, engineLabel, model, strconv.Itoa(st.Pages)}), 1)
	}
	begin("greta:step_seconds", "gauge", "What the device takes for a step of at most so many rows, lately.")
	for _, model := range models {
		for _, rows := range slices.Sorted(maps.Keys(stats[model].StepTimes)) {
			fmt.Fprintln(w, series("greta:step_seconds", append(modelLabels[:2:2], "rows"),
				[]string{engineLabel, model, strconv.Itoa(rows)}), stats[model].StepTimes[rows].Seconds())
		}
	}
	begin("vllm:iteration_tokens_total", "histogram", "Rows of a step.")
	for _, model := range models {
		writeSteps(w, model, stats[model])
	}
}

// writeAdapters says of which adapters requests run and wait, and when that was so, where a model has adapters. As in
// vLLM there is one line for a server: adapters have names of their own among all models.
func writeAdapters(w io.Writer, stats []*Stats) {
	var running, waiting []string
	most := 0
	for _, st := range stats {
		most += len(st.Adapters)
		running, waiting = append(running, st.AdaptersRunning...), append(waiting, st.AdaptersWaiting...)
	}
	if most == 0 {
		return
	}
	slices.Sort(running)
	slices.Sort(waiting)
	const name = "vllm:lora_requests_info"
	fmt.Fprintf(w, "# HELP %s Adapters of requests, at the time that is the value.\n# TYPE %s gauge\n", name, name)
	fmt.Fprintln(w, series(name, []string{"max_lora", "running_lora_adapters", "waiting_lora_adapters"},
		[]string{strconv.Itoa(most), strings.Join(running, ","), strings.Join(waiting, ",")}),
		strconv.FormatFloat(float64(time.Now().UnixMicro())/1e6, 'f', -1, 64))
}

// writeSteps writes the histogram of a model's steps.
func writeSteps(w io.Writer, model string, st *Stats) {
	const name = "vllm:iteration_tokens_total"
	bucket := func(bound string, n uint64) {
		fmt.Fprintln(w, series(name+"_bucket", append(modelLabels[:2:2], "le"), []string{engineLabel, model, bound}), n)
	}
	for _, bound := range slices.Sorted(maps.Keys(st.StepSizes)) {
		bucket(strconv.FormatFloat(bound, 'g', -1, 64), st.StepSizes[bound])
	}
	bucket("+Inf", st.Steps)
	fmt.Fprintln(w, series(name+"_sum", modelLabels, []string{engineLabel, model}), st.StepRows)
	fmt.Fprintln(w, series(name+"_count", modelLabels, []string{engineLabel, model}), st.Steps)
}
