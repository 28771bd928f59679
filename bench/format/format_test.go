package format

import (
	"bytes"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"
	_ "modernc.org/sqlite"

	"github.com/greta-project/greta/bench/record"
)

func sample() (*record.Run, []record.Result) {
	run := &record.Run{ID: "20260102T030405.000Z-1234abcd", Kind: "op",
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Env: record.Env{OS: "linux", Arch: "amd64", CPU: "Some CPU", Backend: "cpu", Device: "It's a CPU",
			Commit: "0123456789abcdef", Threads: 2}}
	check := record.Check{Against: "float64", RelL2: 1.5e-7, MaxAbs: 3e-6, Limit: 1e-5}
	ok := record.Result{
		Bench: "op/linear", Params: map[string]string{"m": "1", "n": "4096", "k": "4096", "type": "f16"},
		Kernel: "linear.f16.avx512",
		Clock:  record.DeviceClock, Cache: record.Cold, Samples: []float64{1e-3, 1.1e-3, 1.2e-3},
		Host: []float64{2e-3, 2e-3, 2e-3}, Bytes: 33.6e6, Flops: 33.5e6,
		Roofs: record.Roofs{ReadGBs: 100, GFlops: 1000}, Check: check, Verdict: record.OK,
		Metrics: map[string]float64{"copies": 9},
	}
	bad := ok
	bad.Params = map[string]string{"m": "8"}
	bad.Verdict, bad.Reason = record.Skipped, "no kernel | for this"
	bad.Samples, bad.Host = nil, nil
	return run, []record.Result{ok, bad}
}

func write(t *testing.T, r *Report, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestMarkdown(t *testing.T) {
	got := write(t, Results(sample()), "md")
	for _, part := range []string{"| benchmark |", "k=4096 m=1 n=4096 type=f16", "1.10 ms", "1.00 ms to 1.20 ms (range)",
		"30.5", "30.5 %", "memory",
		"1.5e-07", "2.00 ms", "| SKIPPED |", "\n- SKIPPED op/linear/m=8/cache=cold: no kernel | for this\n"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in\n%s", part, got)
		}
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d lines", len(lines))
	}
	// A result that is not OK has no time that could be read as one.
	if strings.Count(lines[3], "ms") > 0 {
		t.Errorf("a skipped result with a time: %s", lines[3])
	}
}

// TestShortIsSaid: a result with fewer samples than were asked for says so below the table.
func TestShortIsSaid(t *testing.T) {
	r := record.Result{Bench: "platform/copy", Verdict: record.OK, Clock: record.HostClock, Samples: []float64{1, 1, 1}}
	if n := notes([]record.Result{r}); len(n) > 0 {
		t.Errorf("%q", n)
	}
	r.Short(10, time.Second)
	if n := notes([]record.Result{r}); len(n) != 1 || !strings.HasPrefix(n[0], "platform/copy: 3 samples instead of 10") {
		t.Errorf("%q", n)
	}
}

// TestP95RefusesSmallN: with three samples there is no 95th percentile, with
// twenty there is.
func TestP95RefusesSmallN(t *testing.T) {
	run, results := sample()
	column := slices.IndexFunc(Results(run, results).Full.Columns, func(c Column) bool { return c.Name == "p95_s" })
	if v := Results(run, results).Full.Rows[0][column]; v != nil {
		t.Errorf("the 95th percentile of three samples is %v", v)
	}
	results[0].Samples = make([]float64, 20)
	for i := range results[0].Samples {
		results[0].Samples[i] = 1e-3 * float64(i+1)
	}
	if v, ok := Results(run, results).Full.Rows[0][column].(float64); !ok || v < 0.018 || v > 0.02 {
		t.Errorf("the 95th percentile of 1 to 20 ms is %v", v)
	}
}

func TestMachineFormats(t *testing.T) {
	r := Results(sample())
	var list, lines []map[string]any
	if err := json.Unmarshal([]byte(write(t, r, "json")), &list); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(write(t, r, "jsonl")) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, o)
	}
	rows, err := csv.NewReader(strings.NewReader(write(t, r, "csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || len(lines) != 2 || len(rows) != 3 {
		t.Fatalf("%d, %d and %d rows", len(list), len(lines), len(rows))
	}
	for _, o := range []map[string]any{list[0], lines[0]} {
		if o["bench"] != "op/linear" || o["median_s"] != 1.1e-3 || o["verdict"] != "ok" || o["device"] != "It's a CPU" ||
			len(o["samples_s"].([]any)) != 3 || o["p95_s"] != nil {
			t.Errorf("%v", o)
		}
	}
	if list[1]["median_s"] != nil || list[1]["verdict"] != "skipped" {
		t.Errorf("%v", list[1])
	}
	at := slices.Index(rows[0], "median_s")
	if rows[1][at] != "0.0011" || rows[2][at] != "" {
		t.Errorf("medians are %q and %q", rows[1][at], rows[2][at])
	}
}

func query(t *testing.T, text, q string, to ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(text); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := db.QueryRow(q).Scan(to...); err != nil {
		t.Fatal(err)
	}
}

func TestSQL(t *testing.T) {
	var device string
	var median float64
	var n int
	query(t, write(t, Results(sample()), "sql"),
		`SELECT device, median_s, (SELECT count(*) FROM results) FROM results WHERE verdict = 'ok'`, &device, &median, &n)
	if device != "It's a CPU" || median != 1.1e-3 || n != 2 {
		t.Errorf("%q, %g, %d", device, median, n)
	}
}

// TestBenchstat reads the lines with the package that benchstat reads them with.
func TestBenchstat(t *testing.T) {
	r := benchfmt.NewReader(strings.NewReader(write(t, Results(sample()), "benchstat")), "x")
	var names []string
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			names = append(names, rec.Name.String())
			sec, ok := rec.Value("sec/op")
			if want := []float64{1e-3, 1.1e-3, 1.2e-3}[len(names)-1]; !ok || math.Abs(sec-want) > 1e-12 {
				t.Errorf("sample %d is %v, %v", len(names), sec, ok)
			}
			if rate, ok := rec.Value("B/s"); !ok || math.Abs(rate*sec/33.6e6-1) > 1e-4 {
				t.Errorf("%v B/s", rate)
			}
			if rec.GetConfig("commit") != "" || rec.GetConfig("run") != "" {
				t.Error("two runs of different commits could not be compared")
			}
			if rec.GetConfig("device") != "It's a CPU" || rec.GetConfig("cpu") != "Some CPU" {
				t.Errorf("configuration: %v", rec.Config)
			}
			if parts := rec.Name.String(); !strings.HasPrefix(parts, "Op/linear/k=4096/m=1/n=4096/type=f16") {
				t.Errorf("name %q", parts)
			}
		case *benchfmt.SyntaxError:
			t.Errorf("line %d: %s", rec.Line, rec.Msg)
		case *benchfmt.UnitMetadata:
		}
	}
	if err := r.Err(); err != nil || len(names) != 3 {
		t.Errorf("%d results, %v", len(names), err)
	}
}

func modelResults() (*record.Run, []record.Result) {
	run, _ := sample()
	run.Kind = "model"
	check := record.Check{Against: "float64", RelL2: 1e-5, Limit: 2e-3}
	params := func(depth string) map[string]string {
		return map[string]string{"model": "llama2_7b", "type": "f16", "kv": "f16", "threads": "2", "depth": depth}
	}
	metrics := func(p, g, d float64) map[string]float64 {
		return map[string]float64{Tokens: p + g, ModelBytes: 13e9, ModelParams: 6.7e9, Positions: p, Generated: g, Depth: d,
			Chunk: 512, StepTime: 0.1, KernelSum: 0.09, BlockTime: 0.0028, OutsideTime: 0.001}
	}
	pp := record.Result{Bench: "model/pp512", Params: params("0"), Clock: record.HostClock, Samples: []float64{2, 4},
		Check: check, Metrics: metrics(512, 0, 0), Verdict: record.OK}
	pp.Metrics[FirstToken] = 2.5
	tg := record.Result{Bench: "model/tg128", Params: params("512"), Clock: record.HostClock, Samples: []float64{10, 10},
		Check: check, Metrics: metrics(0, 128, 512), Verdict: record.OK}
	token := tg
	token.Bench += TokenSuffix
	token.Samples = make([]float64, 100)
	for i := range token.Samples {
		token.Samples[i] = 0.07 + float64(i)*1e-4
	}
	return run, []record.Result{pp, tg, token}
}

func TestModels(t *testing.T) {
	r := Models(modelResults())
	got := write(t, r, "md")
	for _, part := range []string{"| model ", " size |", " params |", "| backend |", "| threads |", " test |", " t/s |",
		"llama2_7b F16", "12.11 GiB", "6.70 B", "CPU",
		"pp512 |", "tg128 @ d512", "192.00 ± 90.51", "12.80 ± 0.00", "2.50 s", "75.0 ms", "79.8 ms", "10.0 ms (10.0 %)"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in\n%s", part, got)
		}
	}
	if strings.Contains(got, "/token") {
		t.Errorf("times between tokens are a row of their own:\n%s", got)
	}
	var model, test string
	var avg float64
	var prompt, gen, depth, rows int
	query(t, write(t, r, "sql"),
		`SELECT model_type, n_prompt, n_gen, n_depth, avg_ts, build_commit, (SELECT count(*) FROM llama_bench)
			FROM llama_bench WHERE n_gen > 0`,
		&model, &prompt, &gen, &depth, &avg, &test, &rows)
	if model != "llama2_7b F16" || prompt != 0 || gen != 128 || depth != 512 || math.Abs(avg-12.8) > 1e-9 ||
		test != "012345678" || rows != 2 {
		t.Errorf("%s %d %d %d %g %s %d", model, prompt, gen, depth, avg, test, rows)
	}
}

// TestColumnsOfLlamaBench holds the names that scripts for llama-bench look for.
func TestColumnsOfLlamaBench(t *testing.T) {
	var have []string
	for _, c := range Models(modelResults()).Full.Columns {
		have = append(have, c.Name)
	}
	for _, want := range strings.Fields(
		`build_commit build_number cpu_info gpu_info backends model_filename model_type model_size model_n_params
		n_batch n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v n_gpu_layers split_mode main_gpu no_kv_offload
		flash_attn tensor_split
		tensor_buft_overrides load_mode embeddings no_op_offload n_prompt n_gen n_depth test_time avg_ns
		stddev_ns avg_ts stddev_ts n_cpu_moe fit_target fit_min_ctx`) {
		if !slices.Contains(have, want) {
			t.Errorf("column %s is missing", want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, n := range Names {
		if err := Check(n); err != nil {
			t.Error(err)
		}
		var b bytes.Buffer
		if err := Results(sample()).Write(&b, n); err != nil || b.Len() == 0 {
			t.Errorf("%s: %d bytes, %v", n, b.Len(), err)
		}
	}
	if err := Check("jsno"); err == nil || !strings.Contains(err.Error(), "json") {
		t.Errorf("%v", err)
	}
}

// TestSteps adds up the kernels of a step: cold figures where both are there.
func TestSteps(t *testing.T) {
	run, results := sample()
	ok := results[0]
	ok.Metrics = map[string]float64{record.InStep + "pp512": 2, record.InStep + "tg": 3}
	warm := ok
	warm.Cache, warm.Samples = record.Warm, []float64{1}
	norm := ok
	norm.Params, norm.Cache, norm.Samples, norm.Metrics = map[string]string{"m": "9"}, record.Warm, []float64{2e-6},
		map[string]float64{record.InStep + "tg": 5}
	bad := results[1]
	bad.Metrics = map[string]float64{record.InStep + "pp512": 4}
	got := write(t, Results(run, []record.Result{ok, warm, norm, bad}), "md")
	for _, part := range []string{"| pp512 |        6 |                4 |            2.20 ms |",
		"| tg    |        8 |                  |            3.31 ms |", "| pp512 2×, tg 3× |"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in\n%s", part, got)
		}
	}
}

// TestAboveMeasuredRoof: a roof that results pass is none, and that is said.
func TestAboveMeasuredRoof(t *testing.T) {
	run, results := sample()
	results[0].Roofs.MeasuredReadGBs = 20 // 30.5 GB/s were reached
	if got := write(t, Results(run, results[:1]), "md"); !strings.Contains(got,
		"1 of 1 results are faster than the measured roof") {
		t.Error(got)
	}
	results[0].Roofs.MeasuredReadGBs = 31
	if got := write(t, Results(run, results[:1]), "md"); strings.Contains(got, "faster than") {
		t.Error(got)
	}
}

// TestShareWithoutARoof: of a decode, which memory bounds, the arithmetic says nothing where the roof of memory was not
// measured.
func TestShareWithoutARoof(t *testing.T) {
	r := record.Result{Samples: []float64{0.01}, Bytes: 13e9, Flops: 13e9}
	r.Roofs = record.Roofs{ReadGBs: 4000, GFlops: 9e5, MeasuredGFlops: 6e5}
	if share, _ := Share(&r, true); share != 0 {
		t.Errorf("%.1f %% of a measured roof that is not there", 100*share)
	}
	if share, binds := Share(&r, false); math.Abs(share-0.325) > 1e-9 || binds != "memory" {
		t.Errorf("%g, %s", share, binds)
	}
	r.Roofs.MeasuredReadGBs = 3900
	if share, binds := Share(&r, true); math.Abs(share-1.0/3) > 1e-9 || binds != "memory" {
		t.Errorf("%g, %s", share, binds)
	}
}

// TestLost: kernels that take longer alone than in their step lose nothing there.
func TestLost(t *testing.T) {
	run, results := modelResults()
	results[0].Metrics[KernelSum] = 0.12
	got := write(t, Models(run, results[:1]), "md")
	if strings.Contains(got, "-20") || !strings.Contains(got, "0 (alone 20.0 % longer)") {
		t.Error(got)
	}
}
