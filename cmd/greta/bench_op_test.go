package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
)

// tiny makes bench op quick.
var tiny = []string{"bench", "op", "-r", "2", "--min-time", "0s", "--cache", "warm", "--no-store", "-o", "json"}

type benchRow struct {
	Bench     string    `json:"bench"`
	Params    string    `json:"params"`
	Kernel    string    `json:"kernel"`
	Config    string    `json:"config"`
	Backend   string    `json:"backend"`
	Cache     string    `json:"cache"`
	Verdict   string    `json:"verdict"`
	Reason    string    `json:"reason"`
	N         int       `json:"n"`
	Threads   int       `json:"threads"`
	Metrics   string    `json:"metrics"`
	RelL2     float64   `json:"rel_l2"`
	Limit     float64   `json:"limit_of_rel_l2"`
	Samples   []float64 `json:"samples_s"`
	Working   float64   `json:"working_set_bytes"`
	MedianSec *float64  `json:"median_s"`
}

func benchRows(t *testing.T, args ...string) []benchRow {
	t.Helper()
	r := greta(t, args...)
	if r.code != 0 {
		t.Fatalf("greta %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	var rows []benchRow
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	return rows
}

func opRows(t *testing.T, args ...string) []benchRow {
	t.Helper()
	return benchRows(t, append(append([]string{}, tiny...), args...)...)
}

func paramsOf(rows []benchRow) string {
	var all []string
	for _, r := range rows {
		all = append(all, r.Params)
	}
	return strings.Join(all, "; ")
}

// TestBenchOpFlags shows the effect of each flag that chooses what is measured.
func TestBenchOpFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // parameters of the results
	}{
		{[]string{"linear", "--m", "1,3", "--n", "32..64*2", "--k", "64", "--dtype", "f32,q4_0"},
			"k=64 m=1 n=32 type=f32; k=64 m=1 n=32 type=q4_0; k=64 m=1 n=64 type=f32; k=64 m=1 n=64 type=q4_0; " +
				"k=64 m=3 n=32 type=f32; k=64 m=3 n=32 type=q4_0; k=64 m=3 n=64 type=f32; k=64 m=3 n=64 type=q4_0"},
		{[]string{"linear", "--n", "32", "--k", "32", "--type", "f32"}, "k=32 m=1 n=32 type=f32"}, // the flag's old name
		{[]string{"linear", "--n", "32", "--k", "32", "--with", "b"}, "k=32 m=1 n=32 type=f16 with=b"},
		{[]string{"attention", "--h", "4", "--g", "2", "--dh", "16", "--c", "32", "--kv", "f16,f32", "--at", "5"},
			"at=5 c=32 dh=16 dv=16 g=2 h=4 kv=f16 s=1; at=5 c=32 dh=16 dv=16 g=2 h=4 kv=f32 s=1"},
		{[]string{"attention", "--h", "4", "--dh", "16", "--c", "32", "--s", "3", "--attr", "window=5"},
			"at=29 c=32 dh=16 dv=16 g=4 h=4 kv=f16 s=3 window=5"},
		{[]string{"topk", "--m", "3", "--e", "9", "--k", "4"}, "e=9 k=4 m=3"},
		{[]string{"rmsnorm", "softmax", "--m", "2", "--n", "33", "--d", "65"}, "d=65 m=2; m=2 n=33"},
	} {
		rows := opRows(t, c.args...)
		if got := paramsOf(rows); got != c.want {
			t.Errorf("%v: %s; want %s", c.args, got, c.want)
		}
		for _, r := range rows {
			if r.Verdict != "ok" || r.Cache != "warm" || r.N < 2 || r.RelL2 > r.Limit {
				t.Errorf("%v: %+v", c.args, r)
			}
		}
	}
}

// TestBenchOpModel: the shapes of a model's steps, with their counts.
func TestBenchOpModel(t *testing.T) {
	small := []string{"--model", "llama2_block", "--set", "D=64", "--set", "H=4", "--set", "F=96"}
	rows := opRows(t, append(small, "--prompt", "5", "--depth", "3")...)
	names := map[string]string{}
	for _, r := range rows {
		names[r.Bench+" "+r.Params] = r.Metrics
	}
	for name, metrics := range map[string]string{
		"op/linear k=64 m=1 n=64 type=f16":                          "launches_in_tg_d3=3",
		"op/linear k=64 m=5 n=64 type=f16":                          "launches_in_pp5=3",
		"op/linear_residual k=96 m=1 n=64 type=f16":                 "launches_in_tg_d3=1",
		"op/swiglu m=5 n=96":                                        "launches_in_pp5=1",
		"op/attention at=3 c=2048 dh=16 dv=16 g=4 h=4 kv=f16 s=1":   "launches_in_tg_d3=1",
		"op/rope_push at=0 c=2048 dh=16 g=4 kv=f16 layout=pair s=5": "",
		"op/attention at=0 c=2048 dh=16 dv=16 g=4 h=4 kv=f16 s=5":   "launches_in_pp5=1",
	} {
		if got, ok := names[name]; metrics != "" && (!ok || !strings.Contains(got, metrics)) {
			t.Errorf("%s: %q, want %s; there are %v", name, got, metrics, names)
		}
	}
	if all := paramsOf(opRows(t, append(small, "linear", "--prompt", "0", "--depth", "0", "--dtype",
		"f32,q8_0")...)); all !=
		"k=64 m=1 n=64 type=f32; k=64 m=1 n=96 type=f32; k=64 m=1 n=64 type=q8_0; k=64 m=1 n=96 type=q8_0" {
		t.Errorf("only linears, without prefill, in two types: %s", all)
	}
	// In two types each is a step of its own; what has no weights is in both.
	for _, r := range opRows(t, append(small, "--prompt", "0", "--depth", "0", "--dtype", "f32,q8_0")...) {
		f32, q8 := strings.Contains(r.Metrics, "launches_in_tg_d0_f32="),
			strings.Contains(r.Metrics, "launches_in_tg_d0_q8_0=")
		if want := [2]bool{!strings.Contains(r.Params, "q8_0"), !strings.Contains(r.Params, "f32")}; [2]bool{f32,
			q8} != want {
			t.Errorf("%s %s: %s", r.Bench, r.Params, r.Metrics)
		}
	}
	for _, r := range opRows(t, append(small, "--prompt", "0", "--depth", "0", "--no-fuse")...) {
		if r.Bench == "op/linear_residual" || r.Bench == "op/swiglu" {
			t.Errorf("--no-fuse measures %s", r.Bench)
		}
	}
	if got := paramsOf(opRows(t, append(small, "attention", "--prompt", "0", "--depth", "0", "--context", "48", "--kv",
		"f32")...)); got != "at=0 c=48 dh=16 dv=16 g=4 h=4 kv=f32 s=1" {
		t.Errorf("--context and --kv: %s", got)
	}
}

func TestBenchOpMeasuring(t *testing.T) {
	add := []string{"add", "--m", "1", "--n", "64"}
	if rows := opRows(t, append(add, "-r", "7")...); rows[0].N != 7 {
		t.Errorf("-r 7 gives %d samples", rows[0].N)
	}
	start := time.Now()
	if rows := opRows(t, append(add, "--min-time", "20ms")...); rows[0].N < 100 &&
		time.Since(start) < 20*time.Millisecond {
		t.Errorf("--min-time 20ms gives %d samples in %v", rows[0].N, time.Since(start))
	}
	if rows := opRows(t, append(add, "--e2e")...); len(rows) != 2 || rows[1].Bench != "op/add/e2e" ||
		rows[1].Verdict != "ok" {
		t.Errorf("--e2e: %+v", rows)
	}
	if rows := opRows(t, append(add, "--backend", "ref")...); rows[0].Backend != "ref" || rows[0].Kernel != "reference" {
		t.Errorf("--backend ref: %+v", rows)
	}
	if rows := opRows(t, append(add, "--threads", "1")...); rows[0].Threads != 1 {
		t.Errorf("--threads 1: %d", rows[0].Threads)
	}
	linear := []string{"linear", "--m", "2", "--n", "64", "--k", "64", "--dtype", "q8_0"}
	rounded, exact := opRows(t, linear...), opRows(t, append(linear, "--exact")...)
	if exact[0].RelL2 > 1e-6 || rounded[0].RelL2 < 1e-4 {
		t.Errorf("--exact: errors %g and %g", exact[0].RelL2, rounded[0].RelL2)
	}
	// Cold goes through four times the last-level cache, or says that it cannot.
	r := greta(t, append(append([]string{}, tiny...), append(add, "--cache", "both")...)...)
	var rows []benchRow
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || len(rows) != 2 || rows[0].Cache != "cold" ||
		rows[1].Cache != "warm" {
		t.Fatalf("--cache both: %+v, %v", rows, err)
	}
	if c := rows[0]; c.Verdict == "ok" && c.Working < 4*lastCache("/sys/devices/system/cpu/cpu0/cache") ||
		c.Verdict == "skipped" && !strings.Contains(c.Reason, "working set") {
		t.Errorf("cold: %+v", c)
	}
}

// TestBenchProgress: with --progress standard error says what is measured, without
// it, where it is no terminal, nothing.
func TestBenchProgress(t *testing.T) {
	args := append(append([]string{}, tiny...), "add", "--m", "1", "--n", "64")
	if r := greta(t, args...); r.err != "" {
		t.Errorf("standard error: %q", r.err)
	}
	if r := greta(t, append(args, "--progress")...); !strings.Contains(r.err, "1 of 1: add m=1 n=64") {
		t.Errorf("--progress: %q", r.err)
	}
}

func TestBenchFormats(t *testing.T) {
	base := []string{"bench", "op", "add", "--m", "1", "--n", "64", "--cache", "warm", "-r", "2", "--min-time", "0s",
		"--no-store"}
	for name, part := range map[string]string{
		"md": "| add ", "csv": "run,kind,", "json": "[\n", "jsonl": `{"run": `, "sql": "INSERT INTO results",
		"benchstat": "BenchmarkOp/add/m=1/n=64/cache=warm 1 ",
	} {
		if r := greta(t, append(base, "-o", name)...); r.code != 0 || !strings.Contains(r.out, part) {
			t.Errorf("-o %s: %d %s%s", name, r.code, r.out, r.err)
		}
	}
	if r := greta(t, append(base, "--json")...); !strings.HasPrefix(r.out, "[") {
		t.Errorf("--json: %s", r.out)
	}
}

// TestBenchStore: results are kept with their samples, unless --no-store.
func TestBenchStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "bench.sqlite")
	base := []string{"bench", "op", "add", "--m", "1", "--n", "64", "--cache", "warm", "-r", "4", "--min-time", "0s"}
	if r := greta(t, append(base, "--store", path, "--label", "mine")...); r.code != 0 {
		t.Fatal(r.err)
	}
	s, err := store.OpenExisting(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Results(store.Filter{Label: "mine"})
	if err != nil || len(got) != 1 || got[0].Bench != "op/add" || len(got[0].Samples) != 4 ||
		got[0].Run.Status != record.Complete || got[0].Run.Kind != "op" || got[0].Run.Env.Backend != "cpu" {
		t.Errorf("%+v, %v", got, err)
	}
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", dir)
	if r := greta(t, append(base, "--no-store")...); r.code != 0 || exists(filepath.Join(dir, "greta", "bench.sqlite")) {
		t.Errorf("--no-store keeps: %d %s", r.code, r.err)
	}
	if r := greta(t, base...); r.code != 0 || !exists(filepath.Join(dir, "greta", "bench.sqlite")) {
		t.Errorf("the default place: %d %s", r.code, r.err)
	}
}

// TestMeasuredRoof: what bench platform measured on this device is the measured roof.
func TestMeasuredRoof(t *testing.T) {
	env := record.Env{Backend: "hip", Device: "X", DeviceID: "0000:01:00.0", Level: "sm_90"}
	run, other := &record.Run{Env: env}, &record.Run{Env: record.Env{Backend: "hip", Device: "X",
		DeviceID: "0000:02:00.0"}}
	entry := func(r *record.Run, cache string, bytes, flops float64) store.Entry {
		return store.Entry{Run: r, Result: record.Result{Cache: cache, Bytes: bytes, Flops: flops, Samples: []float64{1},
			Roofs: record.Roofs{LastCache: 7}}}
	}
	var x record.Roofs
	measuredRoofs(&x, []store.Entry{entry(run, record.Cold, 5e9, 1e9), entry(run, record.Warm, 50e9, 20e9),
		entry(other, record.Cold, 500e9, 500e9), entry(run, record.Cold, 3e9, 0)}, &env)
	if x.MeasuredReadGBs != 5 || x.MeasuredGFlops != 20 || x.LastCache != 7 {
		t.Errorf("%+v", x)
	}
	// The same card through another backend has the same roofs; one without a place must be the same in all.
	x = record.Roofs{}
	measuredRoofs(&x, []store.Entry{entry(run, record.Cold, 5e9, 1e9)},
		&record.Env{Backend: "vulkan", Device: "X (driver)", DeviceID: "0000:01:00.0"})
	if x.MeasuredReadGBs != 5 {
		t.Errorf("through another backend: %+v", x)
	}
	x = record.Roofs{}
	cpu := func(threads int) *record.Run {
		return &record.Run{Env: record.Env{Backend: "cpu", Device: "C", Threads: threads}}
	}
	measuredRoofs(&x, []store.Entry{entry(cpu(2), record.Cold, 5e9, 1e9), entry(cpu(1), record.Cold, 9e9, 1e9)},
		&cpu(2).Env)
	if x.MeasuredReadGBs != 5 || x.LastCache != 0 {
		t.Errorf("other threads: %+v", x)
	}
}

func TestBenchOpProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	text := "repetitions: 3\ncache: warm\nop:\n  - {op: [add], sizes: {m: 1, n: [32, 64]}}\n  - {op: [attention], " +
		"sizes: {h: 2, dh: 8, c: 16}, kv: f32, at: 3, attrs: {window: 2}}\n" +
		"  - {op: [linear], sizes: {n: 32, k: 32}, types: f32, with: b, cache: both}\n  - {model: llama2_block, prompt: " +
		"3, set: {D: \"64\", H: \"4\", F: \"96\"}}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r := greta(t, "bench", "op", "--profile", path, "--min-time", "0s", "--no-store", "-o", "json")
	var rows []benchRow
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || r.code != 0 {
		t.Fatalf("%v %s", err, r.err)
	}
	got := paramsOf(rows[:5])
	if want := "m=1 n=32; m=1 n=64; at=3 c=16 dh=8 dv=8 g=2 h=2 kv=f32 s=1 window=2; k=32 m=1 n=32 type=f32 with=b; " +
		"k=32 m=1 n=32 type=f32 with=b"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if len(rows) < 15 || rows[0].N != 3 || rows[3].Cache != "cold" || rows[4].Cache != "warm" {
		t.Errorf("%d rows; %+v", len(rows), rows[:5])
	}
}

// TestBenchOpRefused: each mistake has one line that says what is wrong, and code 2 or 3.
func TestBenchOpRefused(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		part string
	}{
		{"", exitUsage, "name operators"},
		{"liner", exitUsage, "did you mean linear?"},
		{"linear --n 4..x", exitUsage, `--n: "4..x", column 4: a number is expected`},
		{"linear --n=", exitUsage, "a number is expected at the end"},
		{"linear --q 4", exitUsage, "unknown flag: --q"},
		{"rmsnorm --k 4", exitUsage, "--k: none of rmsnorm has a size of this name; rmsnorm has m, d"},
		{"rmsnorm --type f16", exitUsage, "--dtype f16: none of rmsnorm"},
		{"linear --dtype f17", exitUsage, "no such type"},
		{"linear --kv f32", exitUsage, "none of linear has a cache"},
		{"linear rmsnorm --at 5", exitUsage, "none of linear, rmsnorm has positions"},
		{"linear --cache hot", exitUsage, "cold, warm or both"},
		{"linear --prompt 4", exitUsage, "--prompt goes with --model"},
		{"--model llama2_block --m 4", exitUsage, "--m does not go with it"},
		{"--model lama2_block", exitUsage, "did you mean llama2_block?"},
		{"--model llama2_block topk", exitUsage, "none of the operators topk"},
		{"--profile smoke linear", exitUsage, "no operator goes with it"},
		{"--profile smoke --type f16", exitUsage, "--dtype does not go with it"},
		{"--profile smoke --n 4", exitUsage, "--n does not go with it"},
		{"--profile smok", exitUsage, "did you mean smoke?"},
		{"linear -o xml", exitUsage, "there are md, csv"},
		{"linear -o csv --json", exitUsage, "contradict"},
		{"linear -r 0", exitUsage, "-r 0"},
		{"linear --no-store --label x", exitUsage, "--no-store"},
		{"linear --attr window", exitUsage, "NAME=VALUE"},
		{"linear --backend ref --config fast", exitUsage, "one configuration each"},
		{"linear --backend cuda", exitNoDevice, "no backend"},
		{"linear --device 7", exitNoDevice, "--device 7"},
		{"linear --fp16 on", exitUsage, "no path in half precision"},
		{"linear --k 33 --dtype q4_0", exitUsage, "33"},
	} {
		r := greta(t, append([]string{"bench", "op"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.err, c.part) || r.out != "" {
			t.Errorf("%s: code %d, want %d with %q\n%s%s", c.args, r.code, c.code, c.part, r.err, r.out)
		}
	}
}

// TestNoStoreOutdoesVariables: what a variable sets gives way to a flag that contradicts it.
func TestNoStoreOutdoesVariables(t *testing.T) {
	t.Setenv("GRETA_STORE", filepath.Join(t.TempDir(), "bench.sqlite"))
	t.Setenv("GRETA_LABEL", "x")
	args := []string{"bench", "op", "add", "--m", "1", "--n", "8", "--min-time", "1ms", "--no-store"}
	if r := greta(t, args...); r.code != 0 {
		t.Errorf("with variables: exit code %d: %s", r.code, r.err)
	}
	if r := greta(t, append(args, "--label", "x")...); r.code != exitUsage {
		t.Errorf("with another flag: exit code %d", r.code)
	}
}

// TestBenchSkipped: a device without the kernel gives SKIPPED, which is no success.
func TestBenchSkipped(t *testing.T) {
	err := judge([]record.Result{{Bench: "op/add", Verdict: record.Skipped, Reason: "it has none"}}, nil)
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "SKIPPED") {
		t.Errorf("%v", err)
	}
	ok := record.Result{Bench: "op/add", Verdict: record.OK}
	if err := judge([]record.Result{{Verdict: record.Skipped}, ok}, &backends.OutOfMemory{Need: 2}); err != nil {
		t.Error(err)
	}
	if err := judge([]record.Result{ok, {Bench: "x", Verdict: record.Failed,
		Reason: "wrong"}}, nil); exitCode(err) != exitMismatch {
		t.Errorf("a wrong result: %v", err)
	}
	if err := judge([]record.Result{ok, {Bench: "x", Verdict: record.Refused}}, nil); exitCode(err) != exitFailed {
		t.Errorf("a refused figure: %v", err)
	}
}

// TestBenchTooLarge: sizes that no memory holds end with what they need and what there is, and with the code for that.
func TestBenchTooLarge(t *testing.T) {
	r := greta(t, append(tiny, "linear", "--m", "2147483647", "--k", "4096", "--n", "4096", "--dtype", "f16")...)
	if r.code != exitMemory || !strings.Contains(r.err, "GB may be used") || !strings.Contains(r.err, "smaller sizes") ||
		!strings.Contains(r.out, `"verdict": "skipped"`) {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.out, r.err)
	}
}

// TestSoftwareIsSkipped: a driver that computes on the processor is no GPU.
func TestSoftwareIsSkipped(t *testing.T) {
	info := backends.Info{Backend: "vulkan", Name: "llvmpipe (LLVM 19.1.7, 256 bits)"}
	if software(info, "") == "" || software(info, "llvmpipe") != "" ||
		software(backends.Info{Name: "NVIDIA H200"}, "") != "" {
		t.Error("software devices are not told apart")
	}
	device := lavapipe(t)
	add := []string{"add", "--m", "1", "--n", "64", "--backend", "vulkan"}
	r := greta(t, append(append([]string{}, tiny...), add...)...)
	if r.code == 0 && !strings.Contains(r.out, "skipped") && strings.Contains(r.out, "llvmpipe") {
		t.Errorf("%d %s %s", r.code, r.out, r.err)
	}
	rows := opRows(t, append(add, "--device", device)...)
	if rows[0].Verdict != "ok" || rows[0].Backend != "vulkan" || !strings.Contains(rows[0].Metrics, "launches_a_sample=") {
		t.Errorf("--device %s: %+v", device, rows)
	}
}

// TestConfigOfBench: --config is asked of a device whose kernels have variants.
func TestConfigOfBench(t *testing.T) {
	for _, name := range backendNames() {
		dev, err := openBackend(name, deviceFlags{})
		if err != nil {
			continue
		}
		tuned, tunable := backends.Tuned(dev)
		var variants []string
		if tunable {
			c, err := op.New(ops.Linear, op.Request{Sizes: map[string]int{"n": 64, "k": 64}, At: -1, Float: dev.Info().Float})
			if err != nil {
				t.Fatal(err)
			}
			variants = tuned.Variants(c.Node)
		}
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
		if len(variants) > 1 && name == "cpu" {
			rows := opRows(t, "linear", "--n", "64", "--k", "64", "--config", variants[1])
			if rows[0].Config != variants[1] || rows[0].Verdict != "ok" {
				t.Errorf("--config %s: %+v", variants[1], rows[0])
			}
		}
		r := greta(t, append(append([]string{}, tiny...), "linear", "--n", "64", "--k", "64", "--backend", name, "--config",
			"no such variant", "-o", "md")...)
		if r.code == 0 || tunable && !strings.Contains(r.out+r.err, "no such variant") {
			t.Errorf("%s: an unknown variant gives code %d\n%s%s", name, r.code, r.out, r.err)
		}
	}
}

// TestBenchInterrupted: Ctrl-C keeps what was measured, in the report and in the store.
func TestBenchInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals here")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "bench.sqlite")
	cmd := process(ctx, "bench", "op", "add", "--m", "1", "--n", "64..4000+1", "--cache", "warm", "--min-time", "30ms",
		"--store", path, "--progress", "-o", "jsonl")
	var out strings.Builder
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(errs)
	for lines.Scan() && !strings.Contains(lines.Text(), "4 of ") {
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for lines.Scan() {
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if took := time.Since(start); took > time.Second+slack {
		t.Errorf("it took %v", took)
	}
	if n := strings.Count(out.String(), `"verdict": "ok"`); n < 3 {
		t.Errorf("%d results are reported, three at least were there\n%s", n, out.String())
	}
	s, err := store.OpenExisting(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Results(store.Filter{})
	if err != nil || len(got) < 3 || got[0].Run.Status != record.Incomplete {
		t.Errorf("%d results are kept, %v", len(got), err)
	}
}

// TestSizeFlags: every size of every operator is a flag.
func TestSizeFlags(t *testing.T) {
	c := (&app{}).benchOpCmd()
	for _, name := range sizeNames() {
		if c.Flags().Lookup(name) == nil {
			t.Errorf("--%s is missing", name)
		}
	}
}

// TestProfilesOfTheProgram builds what every profile asks for, without measuring it.
func TestProfilesOfTheProgram(t *testing.T) {
	dev, err := openBackend("cpu", deviceFlags{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, name := range profile.Names() {
		f := &benchOpFlags{profile: name}
		f.fp16, f.backend = "auto", "cpu"
		list, got, err := f.selections((&app{}).benchOpCmd(), nil)
		if err != nil || got != name {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		total := 0
		for i := range list {
			cases, err := f.cases(t.Context(), dev, &list[i])
			if err != nil || len(cases) == 0 {
				t.Errorf("%s, entry %d: %v", name, i+1, err)
			}
			total += len(cases)
		}
		if total < 5 || total > 500 {
			t.Errorf("%s: %d benchmarks of operators", name, total)
		}
		g := &benchModelFlags{profile: name, threadList: "0", chunk: "512", kvList: "f16"}
		g.backend = "cpu"
		jobs, _, err := g.jobs((&app{}).benchModelCmd(), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, j := range jobs {
			b := &bundle{}
			if err := g.one(&j, "", "f16", 0, 512).find(b, j.arg); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestVerifyProfile runs every operator at odd sizes in every type of weights.
func TestVerifyProfile(t *testing.T) {
	if !testfiles.Exhaustive() {
		t.Skip("hundreds of kernels: $GRETA_EXHAUSTIVE has them all run; the other profiles are tested beside")
	}
	rows := benchRows(t, "bench", "op", "--profile", "verify", "--no-store", "-o", "json")
	types := map[string]bool{}
	for _, r := range rows {
		if r.Verdict != "ok" {
			t.Errorf("%s %s: %s %s", r.Bench, r.Params, r.Verdict, r.Reason)
		}
		for p := range strings.FieldsSeq(r.Params) {
			if name, ok := strings.CutPrefix(p, "type="); ok {
				types[name] = true
			}
		}
	}
	if len(rows) < 150 || len(types) < 13 {
		t.Errorf("%d results in %d types", len(rows), len(types))
	}
}

// TestProfilesAreNamed: what is wrong in a profile is said with its line and key, not by flags.
func TestProfilesAreNamed(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"op", "op:\n  - op: [linear]\n    types: [f16, f17]\n", "line 3, op 1, types f17: no such type"},
		{"op", "op:\n  - op: [linear]\n    sizes: {q: 3}\n", "line 3, op 1, sizes.q: none of linear has a size"},
		{"op", "op:\n  - op: [add]\n  - op: [liner]\n", "line 3, op 2, op: no operator liner"},
		{"op", "op:\n  - op: [softcap]\n    attrs: {cap: many}\n", "line 2, op 1: "},
		{"op", "op:\n  - model: llama2_block\n    prompt: 4..x\n", "line 3, op 1, prompt: "},
		{"model", "model:\n  - model: llama2_block\n    prompt: 0\n    gen: 0\n", "line 2, model 1: prompt 0 and gen 0"},
		{"model", "model:\n  - model: no_such_model\n", "line 2, model 1: "},
		{"platform", "platform:\n  - bench: latency\n  - {bench: latency, params: {bite: 3}}\n",
			"line 3, platform 2: the benchmark latency has no parameter"},
	} {
		path := filepath.Join(t.TempDir(), "mine.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := greta(t, "bench", c.kind, "--profile", path, "--no-store")
		if r.code != exitUsage || !strings.Contains(r.err, "profile "+path+", "+c.want) || strings.Contains(r.err, " --") {
			t.Errorf("%s\n%d %s; %q is expected", c.text, r.code, r.err, c.want)
		}
	}
}
