package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

// What the results of a model have beside their times; package model fills them in.
const (
	Tokens      = "tokens"        // of one repetition
	ModelBytes  = "model_bytes"   // of the weights
	ModelParams = "model_params"  // their number
	FirstToken  = "first_token_s" // median time from the prompt to the first token
	StepTime    = "step_s"        // median time of a whole step, from the host
	KernelSum   = "kernels_s"     // sum of its kernels
	BlockTime   = "block_s"       // mean time of a block's kernels
	OutsideTime = "outside_s"     // time of the kernels outside of blocks
	Positions   = "n_prompt"      // tokens of prefill, 0 in decode
	Generated   = "n_gen"         // tokens of decode, 0 in prefill
	Depth       = "n_depth"       // positions in the caches before
	Chunk       = "n_ubatch"      // most tokens in one step of prefill
	Launches    = "launches"      // of a step
	TokenSuffix = "/token"        // of the result with the times between tokens
)

// Models is the report of models: the table of llama-bench, and one of latencies
// and of where the time of a step goes.
func Models(run *record.Run, results []record.Result) *Report {
	r := &Report{Run: run, Results: results, Notes: notes(results), Full: llamaBench(run, results)}
	tests := &Table{Columns: []Column{{"model", true}, {"size", false}, {"params", false}, {"backend", true},
		{"threads", false}, {"test", false}, {"t/s", false}}}
	where := &Table{Columns: []Column{{"model", true}, {"test", true}, {"n", false}, {"median t/s", false}, {"95 %", true},
		{"first token", false},
		{"between tokens p50", false}, {"p95", false}, {"p99", false},
		{"launches", false}, {"a block", false}, {"outside", false}, {"kernels", false}, {"a step", false}, {"lost", false},
		{"of modelled", false}, {"of measured", false}, {"rel L2", false}, {"verdict", true}}}
	threads := false
	for i := range results {
		threads = threads || results[i].Params["threads"] != ""
	}
	if !threads { // as llama-bench, which names them on processors only
		tests.Columns = append(tests.Columns[:4:4], tests.Columns[5:]...)
	}
	for i := range results {
		t := &results[i]
		if strings.HasSuffix(t.Bench, TokenSuffix) {
			continue
		}
		row := []any{t.Params["model"] + " " + strings.ToUpper(t.Params["type"]), size(t.Metrics[ModelBytes]),
			params(t.Metrics[ModelParams]), strings.ToUpper(run.Env.Backend)}
		if threads {
			row = append(row, t.Params["threads"])
		}
		rate := verdict(t)
		if t.Verdict == record.OK {
			mean, dev := rates(t)
			rate = fmt.Sprintf("%.2f ± %.2f", mean, dev)
		}
		tests.Rows = append(tests.Rows, append(row, TestName(t), rate))
		where.Rows = append(where.Rows, append([]any{row[0]}, whereRow(t, tokenResult(results, t))...))
	}
	where.dropEmpty()
	r.People = []*Table{tests, where}
	return r
}

// TestName is a test as llama-bench calls it: "pp512", "tg128 @ d512".
func TestName(r *record.Result) string {
	name := strings.TrimPrefix(r.Bench, "model/")
	if d := int(r.Metrics[Depth]); d > 0 {
		name += " @ d" + strconv.Itoa(d)
	}
	return name
}

// tokenResult is the result that holds the times between tokens of a test.
func tokenResult(results []record.Result, of *record.Result) *record.Result {
	want := *of
	want.Bench += TokenSuffix
	for i := range results {
		if results[i].Name() == want.Name() {
			return &results[i]
		}
	}
	return nil
}

func whereRow(t, token *record.Result) []any {
	if t.Verdict != record.OK {
		return []any{TestName(t), len(t.Samples), nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
			relL2(t), verdict(t)}
	}
	tokens := t.Metrics[Tokens]
	s := stats.Summarize(t.Samples)
	time := func(key string) any {
		if x := t.Metrics[key]; x > 0 {
			return Seconds(x)
		}
		return nil
	}
	between := [3]any{}
	if token != nil {
		for i, q := range []float64{0.5, 0.95, 0.99} {
			if p, err := stats.Percentile(token.Samples, q); err == nil {
				between[i] = Seconds(p)
			}
		}
	}
	var lost any
	if step, sum := t.Metrics[StepTime], t.Metrics[KernelSum]; step > 0 && sum > 0 {
		lost = fmt.Sprintf("%s (%.1f %%)", Seconds(step-sum), 100*(step-sum)/step)
		if sum > step { // kernels timed one by one may take longer than in their step
			lost = fmt.Sprintf("0 (alone %.1f %% longer)", 100*(sum-step)/step)
		}
	}
	var count any
	if n := int(t.Metrics[Launches]); n > 0 {
		count = n
	}
	modelled, _ := Share(t, false)
	measured, _ := Share(t, true)
	interval := fmt.Sprintf("%s to %s", digits(tokens/s.Hi), digits(tokens/s.Lo))
	if !s.Sure {
		interval += " (range)"
	}
	return []any{TestName(t), s.N, digits(tokens / s.Median), interval, time(FirstToken), between[0], between[1],
		between[2],
		count, time(BlockTime), time(OutsideTime), time(KernelSum), time(StepTime), lost, percent(modelled),
		percent(measured), relL2(t), verdict(t)}
}

// rates are mean and standard deviation of tokens per second over the
// repetitions, as llama-bench has them.
func rates(r *record.Result) (mean, dev float64) {
	all := make([]float64, len(r.Samples))
	for i, s := range r.Samples {
		all[i] = r.Metrics[Tokens] / s
	}
	s := stats.Summarize(all)
	return s.Mean, s.Stddev
}

func size(bytes float64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.2f MiB", bytes/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", bytes/(1<<30))
}

func params(n float64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.2f M", n/1e6)
	}
	return fmt.Sprintf("%.2f B", n/1e9)
}

// llamaBench is the table that llama-bench writes: its columns under its names,
// those that mean nothing here at their defaults, and behind them some of our own.
func llamaBench(run *record.Run, results []record.Result) *Table {
	t := &Table{Name: "llama_bench"}
	for _, name := range []string{
		"build_commit", "build_number", "cpu_info", "gpu_info", "backends", "model_filename", "model_type", "model_size",
		"model_n_params",
		"n_batch", "n_ubatch", "n_threads", "cpu_mask", "cpu_strict", "poll", "type_k", "type_v", "n_gpu_layers", "n_cpu_moe",
		"split_mode",
		"main_gpu", "no_kv_offload", "flash_attn", "devices", "tensor_split", "tensor_buft_overrides", "load_mode",
		"embeddings", "no_op_offload", "no_host", "fit_target", "fit_min_ctx",
		"n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts",
		"median_ts", "lo_ts", "hi_ts", "first_token_ns", "inter_token_p50_ns", "inter_token_p95_ns", "inter_token_p99_ns",
		"step_ns", "kernels_ns", "block_ns", "outside_ns", "launches", "check_against", "rel_l2", "max_abs", "verdict",
		"reason", "run",
	} {
		t.Columns = append(t.Columns, Column{Name: name})
	}
	e := &run.Env
	gpu := e.Device
	if e.Backend == "cpu" || e.Backend == "ref" {
		gpu = ""
	}
	for i := range results {
		r := &results[i]
		if strings.HasSuffix(r.Bench, TokenSuffix) {
			continue
		}
		m := r.Metrics
		s := stats.Summarize(r.Samples)
		ns, ts := make([]float64, len(r.Samples)), make([]float64, len(r.Samples))
		for k, x := range r.Samples {
			ns[k], ts[k] = math.Round(x*1e9), m[Tokens]/x
		}
		mean, dev := rates(r)
		threads, err := strconv.Atoi(r.Params["threads"])
		if err != nil {
			threads = e.Threads
		}
		var between [3]any
		if token := tokenResult(results, r); token != nil {
			for k, q := range []float64{0.5, 0.95, 0.99} {
				if p, err := stats.Percentile(token.Samples, q); err == nil {
					between[k] = p * 1e9
				}
			}
		}
		tsOf := func(seconds float64) any {
			if seconds <= 0 {
				return nil
			}
			return m[Tokens] / seconds
		}
		nsOf := func(key string) any {
			if m[key] <= 0 {
				return nil
			}
			return m[key] * 1e9
		}
		layers := 0
		if gpu != "" {
			layers = 99 // all of them
		}
		t.Rows = append(t.Rows, []any{
			commit(e.Commit), 0, e.CPU, gpu, strings.ToUpper(e.Backend), r.Params["model"],
			r.Params["model"] + " " + strings.ToUpper(r.Params["type"]), int(m[ModelBytes]), int(m[ModelParams]),
			int(m[Chunk]), int(m[Chunk]), threads, "0x0", false, 0, r.Params["kv"], r.Params["kv"], layers, 0, "none",
			0, false, 1, e.Device, "0.00", "none", "",
			false, 0, false, 0, 0,
			int(m[Positions]), int(m[Generated]), int(m[Depth]), run.Started.UTC().Format(time.RFC3339),
			int(math.Round(s.Mean * 1e9)), int(math.Round(s.Stddev * 1e9)), mean, dev, ns, ts,
			tsOf(s.Median), tsOf(s.Hi), tsOf(s.Lo), nsOf(FirstToken), between[0], between[1], between[2],
			nsOf(StepTime), nsOf(KernelSum), nsOf(BlockTime), nsOf(OutsideTime), int(m[Launches]), r.Check.Against,
			r.Check.RelL2, r.Check.MaxAbs, string(r.Verdict), r.Reason, run.ID,
		})
	}
	return t
}

// commit is a commit's first nine digits, as llama-bench has them.
func commit(c string) string {
	if c == "" {
		return "unknown"
	}
	return c[:min(9, len(c))]
}
