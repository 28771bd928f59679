// Metrics by the names that vLLM's dashboards know.

package serve

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are a server's.
type metrics struct {
	server   *Server
	registry *prometheus.Registry
	handler  http.Handler

	prompt, generated, cached *prometheus.CounterVec
	success                   *prometheus.CounterVec
	answers                   *prometheus.CounterVec

	ttft, itl, tpot, e2e, queue, inference, prefill, decode *prometheus.HistogramVec
	promptSizes, answerSizes, paramsN, paramsMax            *prometheus.HistogramVec

	itlOf sync.Map // model → prometheus.Observer
}

var modelLabels = []string{"model_name", "engine"}

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
	m := &metrics{server: s, registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(labels, modelLabels...))
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, modelLabels)
		m.registry.MustRegister(h)
		return h
	}
	m.prompt = counter("vllm:prompt_tokens_total", "Tokens of prompts.")
	m.cached = counter("vllm:prompt_tokens_cached_total", "Tokens of prompts that were found in the prefix cache.")
	m.generated = counter("vllm:generation_tokens_total", "Tokens of answers.")
	m.success = counter("vllm:request_success_total", "Answers that ended, by why.", "finished_reason")
	m.answers = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "greta:http_answers_total",
		Help: "Answers over HTTP."}, []string{"route", "status"})
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
	m.registry.MustRegister(m.answers, m, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	s.live.metrics = m
	return m
}

func (m *metrics) serve(w http.ResponseWriter, r *http.Request, _ *requestState) error {
	m.handler.ServeHTTP(w, r)
	return nil
}

const engineLabel = "0"

// gaps gives the observer of a model's inter-token latency.
func (m *metrics) gaps(model string) func(float64) {
	if f, ok := m.itlOf.Load(model); ok {
		return f.(func(float64))
	}
	f := m.itl.WithLabelValues(model, engineLabel).Observe
	m.itlOf.Store(model, f)
	return f
}

// answered counts an answer.
func (m *metrics) answered(route string, status int) {
	m.answers.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// finished counts a request's tokens and times.
func (m *metrics) finished(j *job, rs *requestState, l *live, u usage, r Result, err error) {
	model := rs.model
	of := func(h *prometheus.HistogramVec, v float64) { h.WithLabelValues(model, engineLabel).Observe(v) }
	m.prompt.WithLabelValues(model, engineLabel).Add(float64(u.prompt))
	m.cached.WithLabelValues(model, engineLabel).Add(float64(u.cached))
	m.generated.WithLabelValues(model, engineLabel).Add(float64(u.completion))
	for _, f := range l.finishes {
		if f == "tool_calls" {
			f = "stop"
		}
		m.success.WithLabelValues(f, model, engineLabel).Inc()
	}
	for range max(0, l.choices-len(l.finishes)) {
		reason := "abort"
		if asError(err).Status >= 500 && err != nil {
			reason = "error"
		}
		m.success.WithLabelValues(reason, model, engineLabel).Inc()
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

// Descriptions of what is asked of models when it is read.
var (
	descRunning   = desc("vllm:num_requests_running", "Requests in the batch.")
	descWaiting   = desc("vllm:num_requests_waiting", "Requests that wait.")
	descReasons   = desc("vllm:num_requests_waiting_by_reason", "Requests that wait, by why.", "reason")
	descUsage     = desc("vllm:kv_cache_usage_perc", "Share of the cache's pages in use, 1 is all.")
	descPreempted = desc("vllm:num_preemptions_total", "Requests that lost their pages to others.")
	descQueries   = desc("vllm:prefix_cache_queries_total", "Tokens that were looked for in the prefix cache.")
	descHits      = desc("vllm:prefix_cache_hits_total", "Tokens that were found in the prefix cache.")
	descSteps     = desc("vllm:iteration_tokens_total", "Rows of a step.")
	descCache     = desc("vllm:cache_config_info", "How the cache is.", "cache_dtype", "block_size", "num_gpu_blocks")
	descDrafts    = desc("vllm:spec_decode_num_drafts_total", "Drafts that were checked.")
	descDrafted   = desc("vllm:spec_decode_num_draft_tokens_total", "Tokens of drafts.")
	descAccepted  = desc("vllm:spec_decode_num_accepted_tokens_total", "Tokens of drafts that were accepted.")
	descRecompute = desc("vllm:prompt_tokens_recomputed_total", "Tokens that were computed again behind a preemption.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append(labels, modelLabels...), nil)
}

// Describe gives nothing: what is collected depends on the models.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect asks the models that are loaded.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.server.models.Loaded(func(name string, model Model) {
		st := model.Stats()
		put := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, t, v, append(labels, name, engineLabel)...)
		}
		put(descRunning, prometheus.GaugeValue, float64(st.Running))
		put(descWaiting, prometheus.GaugeValue, float64(st.Waiting))
		by := st.WaitingBy
		if len(by) == 0 {
			by = map[string]int{"capacity": st.Waiting}
		}
		for reason, n := range by {
			put(descReasons, prometheus.GaugeValue, float64(n), reason)
		}
		usage := 0.0
		if st.Pages > 0 {
			usage = float64(st.PagesUsed) / float64(st.Pages)
		}
		put(descUsage, prometheus.GaugeValue, usage)
		put(descPreempted, prometheus.CounterValue, float64(st.Preemptions))
		put(descQueries, prometheus.CounterValue, float64(st.PrefixQueries))
		put(descHits, prometheus.CounterValue, float64(st.PrefixHits))
		put(descRecompute, prometheus.CounterValue, float64(st.Recomputed))
		out <- prometheus.MustNewConstHistogram(descSteps, st.Steps, float64(st.StepRows), st.StepSizes, name, engineLabel)
		put(descCache, prometheus.GaugeValue, 1, st.CacheType, strconv.Itoa(st.PageSize), strconv.Itoa(st.Pages))
		put(descDrafts, prometheus.CounterValue, float64(st.Drafts))
		put(descDrafted, prometheus.CounterValue, float64(st.Drafted))
		put(descAccepted, prometheus.CounterValue, float64(st.Accepted))
	})
}
