package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/testfiles"
)

// small is a block that takes no time.
var small = []string{"llama2_block", "--set", "D=64", "--set", "H=4", "--set", "G=2", "--set", "F=96"}

func with(args []string, more ...string) []string { return append(slices.Clone(args), more...) }

func trained(t testing.TB) string { return testfiles.Repo(t, "testdata", "tolstoy-2.7m") }

// A measured run of a block: sizes, checks, percentiles, roofs, hash.
func TestMeasuredBlock(t *testing.T) {
	rep := runReport(t, with(small, "--prefill", "33", "--gen", "40", "--repeat", "3")...)
	if rep.Mode != "measure" || rep.Kind != "block" || rep.Status != report.OK || rep.Format != "synthetic" {
		t.Errorf("%s %s %s %s", rep.Mode, rep.Kind, rep.Status, rep.Format)
	}
	if rep.Prefill.Test != "pp33" || rep.Decode.Test != "tg40" || rep.Prefill.Repeats != 3 ||
		len(rep.Decode.SamplesMS) != 3 {
		t.Errorf("phases %+v %+v", rep.Prefill, rep.Decode)
	}
	if rep.InterToken.N != 120 || rep.InterToken.P99 == nil || rep.TTFTMS == nil || *rep.Prefill.TokensPerSecond <= 0 {
		t.Errorf("latency %+v", rep.InterToken)
	}
	if rep.WeightBytes == 0 || rep.Decode.GBPerSecond == nil || rep.OutputHash == "" {
		t.Errorf("weights %d, %v, hash %q", rep.WeightBytes, rep.Decode.GBPerSecond, rep.OutputHash)
	}
	var names []string
	for _, c := range rep.Checks {
		names = append(names, c.Name)
		if !c.OK || c.Name != "repeats" && (c.RelL2 == nil || *c.RelL2 > 2e-3) {
			t.Errorf("check %+v", c)
		}
	}
	if want := []string{"repeats", "prefill = decode", "decode = float64", "prefill = float64"}; !slices.Equal(names,
		want) {
		t.Errorf("checks %v, want %v", names, want)
	}
}

// A model file without weights and without a prompt is measured too.
func TestMeasuredModel(t *testing.T) {
	rep := runReport(t, trained(t), "--prefill", "9", "--gen", "3", "--repeat", "1", "--kv", "f32")
	if rep.Mode != "measure" || rep.Kind != "model" || len(rep.Checks) != 3 {
		t.Errorf("%+v", rep)
	}
}

// Each flag has an effect that the report or the output shows.
func TestFlagsHaveEffects(t *testing.T) {
	base := with(small, "--prefill", "5", "--gen", "2", "--repeat", "1")
	first := runReport(t, base...)
	for _, c := range []struct {
		flag  []string
		shown func(r *report.Report) bool
	}{
		{[]string{"--threads", "1"}, func(r *report.Report) bool { return r.Threads == 1 }},
		{[]string{"--backend", "ref"}, func(r *report.Report) bool { return r.Backend == "ref" }},
		{[]string{"--context", "77"}, func(r *report.Report) bool { return r.Context == 77 }},
		{[]string{"--kv", "f32"}, func(r *report.Report) bool { return r.KV == "f32" && r.OutputHash != first.OutputHash }},
		{[]string{"--dtype", "q8_0"}, func(r *report.Report) bool {
			return r.DType == "q8_0" && r.WeightBytes < first.WeightBytes
		}},
		{[]string{"--dtype", "Q4_K_M"}, func(r *report.Report) bool {
			return r.DType == "q4_k_m" && r.WeightBytes < first.WeightBytes
		}},
		{[]string{"--dtype", "f32"}, func(r *report.Report) bool {
			return r.DType == "f32" && r.WeightBytes > first.WeightBytes
		}},
		{[]string{"--set", "F=128"}, func(r *report.Report) bool { return r.WeightBytes > first.WeightBytes }},
		{[]string{"--weight-seed", "7"}, func(r *report.Report) bool {
			return r.Seed == 7 && r.OutputHash != first.OutputHash
		}},
		{[]string{"--no-limits"}, func(r *report.Report) bool {
			return r.Prefill.Limit == nil && r.Decode.Limit == nil && first.Prefill.Limit != nil && first.Decode.Limit != nil
		}},
		{[]string{"--prefill", "6"}, func(r *report.Report) bool { return r.Prefill.Tokens == 6 }},
		{[]string{"--prefill", "0"}, func(r *report.Report) bool { return r.Prefill.Tokens == 0 && r.Decode.Tokens == 2 }},
		{[]string{"--gen", "3"}, func(r *report.Report) bool { return r.Decode.Tokens == 3 }},
		{[]string{"--repeat", "2"}, func(r *report.Report) bool { return r.Decode.Repeats == 2 }},
	} {
		if r := runReport(t, with(base, c.flag...)...); !c.shown(r) {
			t.Errorf("%v shows no effect: %+v", c.flag, r)
		}
	}
	for flag, want := range map[string]string{"--verbose": "launches for one token",
		"--profile": "profile of llama2 S=1"} {
		if r := greta(t, append(with([]string{"run"}, base...), flag)...); !strings.Contains(r.err, want) {
			t.Errorf("%s: %s", flag, r.err)
		}
	}
	if again := runReport(t, base...); again.OutputHash != first.OutputHash {
		t.Error("the same run gives another hash")
	}
	plan := func(args ...string) string {
		return greta(t, append([]string{"dump", "--stage", "fused"}, args...)...).out
	}
	if fused, plain := plan(small...), plan(with(small, "--no-fuse")...); fused == plain ||
		!strings.Contains(fused, "swiglu") || strings.Contains(plain, "swiglu") {
		t.Errorf("--no-fuse has no effect:\n%s", plain)
	}
	if r := runReport(t, with(base, "--no-capture")...); r.OutputHash != first.OutputHash {
		t.Error("eager launches give other bits than replay")
	}
}

// --exact leaves the rounding of activations out, and takes f32's place only where block formats are.
func TestExact(t *testing.T) {
	quantised := with(small, "--dtype", "q8_0", "--prefill", "5", "--gen", "2", "--repeat", "1")
	rounded, exact := runReport(t, quantised...), runReport(t, with(quantised, "--exact")...)
	if rounded.OutputHash == exact.OutputHash {
		t.Error("--exact has no effect on weights of q8_0")
	}
	if r := greta(t, append([]string{"run", "--exact", "--backend", "ref"}, small...)...); r.code != exitUsage {
		t.Errorf("--exact on ref: code %d, %s", r.code, r.err)
	}
}

func TestSamplingFlags(t *testing.T) {
	base := []string{trained(t), "--prompt", "Prince Andrew", "--gen", "24"}
	ids := func(more ...string) []int32 { return runReport(t, with(base, more...)...).GeneratedTokens }
	greedy := ids()
	if !slices.Equal(greedy, ids("--temperature", "1", "--top-k", "1", "--seed", "5")) {
		t.Error("the choice from one token depends on the seed")
	}
	hot := ids("--temperature", "1.5", "--seed", "1")
	if slices.Equal(hot, greedy) || !slices.Equal(hot, ids("--temperature", "1.5", "--seed", "1")) ||
		slices.Equal(hot, ids("--temperature", "1.5", "--seed", "2")) {
		t.Error("temperature and seed do not decide the draws")
	}
	for _, narrow := range [][]string{{"--top-k", "1"}, {"--top-p", "1e-9"}, {"--min-p", "1"}} {
		if got := ids(with([]string{"--temperature", "1.5"}, narrow...)...); !slices.Equal(got, greedy) {
			t.Errorf("%v leaves more than the best token: %v", narrow, got)
		}
	}
	if slices.Equal(ids("--repeat-penalty", "2"), greedy) {
		t.Error("--repeat-penalty has no effect")
	}
	for _, more := range [][]string{
		{"--frequency-penalty", "5"}, {"--presence-penalty", "9"}, {"--logit-bias", fmt.Sprintf("%d=-inf", greedy[0])},
		{"--temperature", "1.5", "--typical-p", "0.2"},
	} {
		if got := ids(more...); slices.Equal(got, greedy) {
			t.Errorf("%v has no effect", more)
		}
	}
	if slices.Equal(ids("--repeat-penalty", "2"), ids("--repeat-penalty", "2", "--repeat-last", "1")) {
		t.Error("--repeat-last has no effect")
	}
	forced := ids("--logit-bias", "7=1e6,9=-3")
	if slices.IndexFunc(forced, func(id int32) bool { return id != 7 }) >= 0 {
		t.Errorf("a bias of a million does not decide: %v", forced)
	}
	for _, bad := range []string{"x=1", "3", "3=", "-2=1", "3=inf", "1000000=1"} {
		if r := greta(t, append(append([]string{"run"}, base...), "--logit-bias", bad)...); r.code != exitUsage {
			t.Errorf("--logit-bias %s: code %d", bad, r.code)
		}
	}
}

func TestLogprobs(t *testing.T) {
	r := runReport(t, trained(t), "--prompt", "Prince Andrew", "--gen", "6", "--logprobs", "3")
	if len(r.Logprobs) != len(r.GeneratedTokens) {
		t.Fatalf("%d of %d tokens have log-probabilities", len(r.Logprobs), len(r.GeneratedTokens))
	}
	for i, c := range r.Logprobs {
		if c.ID != r.GeneratedTokens[i] || len(c.Top) != 3 || c.Top[0] != c.TokenLogprob ||
			c.Logprob > 0 || c.Top[1].Logprob > c.Logprob {
			t.Errorf("token %d: %+v", r.GeneratedTokens[i], c)
		}
	}
}

// A prompt in small chunks gives what it gives in one.
func TestChunk(t *testing.T) {
	base := []string{trained(t), "--prompt", `"Well, my dear," said the count`, "--gen", "5"}
	whole := runReport(t, base...)
	r := greta(t, append(with([]string{"run"}, base...), "--chunk", "3", "--profile")...)
	if r.code != 0 || strings.TrimSuffix(r.out, "\n") != whole.Text || !strings.Contains(r.err, "S=3") {
		t.Errorf("exit code %d, %q instead of %q\n%s", r.code, r.out, whole.Text, r.err)
	}
}

// Weights that are no numbers fail the run, in whatever way it is made.
func TestNotFinite(t *testing.T) {
	dir := edited(t, "qwen2", "model.safetensors", func(s string) string {
		return s[:len(s)-64] + strings.Repeat("\xff", 64)
	})
	for _, args := range [][]string{{"--tokens", "1,2", "--gen", "3"}, {"--tokens", "1,2", "--gen", "0"},
		{"--tokens", "1,2", "--nll"}, {"--prefill", "4", "--gen", "2"}} {
		r := greta(t, append([]string{"run", dir}, args...)...)
		if r.code != exitFailed && r.code != exitMismatch || !strings.Contains(r.err, "STATUS=FAILED: ") ||
			!strings.Contains(r.err, "NaN") {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
}

func TestStopAndEnd(t *testing.T) {
	base := []string{trained(t), "--prompt", `"Well, my dear," said the count`, "--gen", "20"}
	whole := runReport(t, base...)
	if whole.StopReason != "end" || !strings.HasSuffix(whole.Text, "to the door.") {
		t.Fatalf("%s: %q", whole.StopReason, whole.Text)
	}
	if r := runReport(t, with(base, "--ignore-eos")...); r.StopReason != "max" || len(r.GeneratedTokens) != 20 {
		t.Errorf("--ignore-eos: %s after %d", r.StopReason, len(r.GeneratedTokens))
	}
	if r := runReport(t, with(base, "--stop", "xyz", "--stop", "o the")...); r.StopReason != "stop" ||
		r.Text+"o the door." != whole.Text {
		t.Errorf("--stop: %s, %q", r.StopReason, r.Text)
	}
	if r := runReport(t, with(base, "--gen", "3")...); r.StopReason != "max" || len(r.GeneratedTokens) != 3 {
		t.Errorf("--gen 3: %s after %d", r.StopReason, len(r.GeneratedTokens))
	}
	if r := runReport(t, with(base, "--context", "12", "--ignore-eos")...); r.StopReason != "context" {
		t.Errorf("--context 12: %s after %d", r.StopReason, len(r.GeneratedTokens))
	}
}

// The text on standard output is the report's, and the prompt can come from
// standard input.
func TestTextStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	r := gretaIn(t, "Prince Andrew\n", "run", trained(t), "--prompt", "-", "--gen", "12", "--json", path)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rep report.Report
	if err := json.Unmarshal(data, &rep); err != nil {
		t.Fatal(err)
	}
	if r.code != 0 || rep.Text == "" || r.out != rep.Text+"\n" {
		t.Errorf("exit code %d, %q, %q", r.code, r.out, rep.Text)
	}
	if len(rep.GeneratedTokens) != 12 || rep.OutputHash != report.HashIDs(rep.GeneratedTokens) {
		t.Errorf("%d tokens, hash %s", len(rep.GeneratedTokens), rep.OutputHash)
	}
	// Without a tokenizer ids come out as ids.
	r = greta(t, "run", family(t, "qwen2"), "--tokens", "1,2,3", "--gen", "4")
	if f := strings.Fields(r.out); r.code != 0 || len(f) != 4 {
		t.Errorf("exit code %d, %q, %s", r.code, r.out, r.err)
	}
}

func TestVariablesAndConfig(t *testing.T) {
	dump := func(args ...string) string {
		r := greta(t, append([]string{"dump", "llama2_block", "--stage", "graph"}, args...)...)
		if r.code != 0 {
			t.Fatal(r.err)
		}
		return r.out
	}
	t.Setenv("GRETA_CONTEXT", "33")
	if !strings.Contains(dump(), "[33, ") {
		t.Error("GRETA_CONTEXT has no effect")
	}
	if !strings.Contains(dump("--context", "44"), "[44, ") {
		t.Error("the flag does not win over the variable")
	}
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	if err := os.Mkdir(filepath.Join(dir, "greta"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "greta", "config.yaml")
	if err := os.WriteFile(config, []byte("context: 55\ntokens-per-step: 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := dump(); !strings.Contains(got, "[33, ") || !strings.Contains(got, "float") &&
		!strings.Contains(got, "f32[3, ") {
		t.Error("the variable does not win over the file, or the file has no effect")
	}
	t.Setenv("GRETA_CONTEXT", "")
	if !strings.Contains(dump(), "[55, ") {
		t.Error("the file has no effect")
	}
	// What is for greta run alone is not what a command's flag of the same name means.
	if err := os.WriteFile(config, []byte("cache: /somewhere\nprompt: Once\nsmoke-profile: fill\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bench := []string{"bench", "op", "add", "--m", "1", "--n", "64", "--dry-run", "--no-store"}
	if r := greta(t, bench...); r.code != 0 {
		t.Errorf("a folder of caches in the file: exit code %d, %s", r.code, r.err)
	}
	t.Setenv("GRETA_BENCH_OP_CACHE", "lukewarm")
	if r := greta(t, bench...); r.code != exitUsage || !strings.Contains(r.err, "lukewarm") {
		t.Errorf("GRETA_BENCH_OP_CACHE: exit code %d, %s", r.code, r.err)
	}
	if err := os.WriteFile(config, []byte("contxt: 55\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := greta(t, "version"); r.code != exitUsage || !strings.Contains(r.err, "contxt") {
		t.Errorf("a misspelt setting: exit code %d, %s", r.code, r.err)
	}
}

func TestProfileAndTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	r := greta(t, append([]string{"run", "--profile", "--trace", path, "--prefill", "7", "--gen", "2", "--repeat", "1"},
		small...)...)
	if r.code != 0 {
		t.Fatal(r.err)
	}
	for _, want := range []string{"profile of llama2 S=7", "profile of llama2 S=1", "attention", "block", "GFLOP/s",
		"all"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("the profile lacks %q:\n%s", want, r.err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			TS, Dur  float64
			TID      int
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(data, &trace); err != nil {
		t.Fatal(err)
	}
	end, tracks := map[int]float64{}, map[int]int{}
	for _, e := range trace.TraceEvents {
		if e.Ph != "X" {
			continue
		}
		tracks[e.TID]++
		if e.TS < end[e.TID]-1e-6 {
			t.Errorf("%s starts before the launch ahead of it ends", e.Name)
		}
		end[e.TID] = e.TS + e.Dur
	}
	if len(tracks) != 2 || tracks[1] < 8 {
		t.Errorf("tracks %v", tracks)
	}
}

// Quantised weights cost little likelihood.
func TestQuantize(t *testing.T) {
	if testing.Short() {
		t.Skip("converts a model three times")
	}
	dir, x := readTolstoy(t)
	tokens := joinIDs(x.NLLTokens)
	for typ, most := range map[string]float64{"q8_0": 0.01, "q4_k_m": 0.1, "q4_0": 0.25} {
		if typ != "q4_k_m" && !testfiles.Exhaustive() {
			continue
		}
		out := filepath.Join(t.TempDir(), "m.gguf")
		r := greta(t, "quantize", dir, out, "--type", typ)
		if r.code != 0 {
			t.Errorf("%s: %s", typ, r.err)
			continue
		}
		if again := greta(t, "quantize", dir, out, "--type", typ); again.code != exitUsage ||
			!strings.Contains(again.err, "--force") {
			t.Errorf("an existing file was overwritten: %s", again.err)
		}
		rep := runReport(t, out, "--tokens", tokens, "--nll")
		if rise := *rep.NLL - x.NLL; math.IsNaN(rise) || rise > most {
			t.Errorf("%s: the NLL rises by %.4f, at most %g is allowed", typ, rise, most)
		} else {
			t.Logf("%s: the NLL rises by %.4f", typ, rise)
		}
		if text := runReport(t, out, "--prompt", "Prince Andrew", "--gen", "4"); text.Text == "" {
			t.Errorf("%s: the file has no tokenizer", typ)
		}
	}
}

func TestOtherVerbs(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"version"}, []string{"greta 0."}},
		{[]string{"devices"}, []string{"cpu", "ref", "f64"}},
		{[]string{"devices", "--json"}, []string{`"backend": "cpu"`}},
		{[]string{"ops"}, []string{"attention", "swiglu", "fused", "weight types", "q4_K"}},
		{[]string{"ops", "--json"}, []string{`"signature"`, `"cpu": "linear.f32`}},
		{[]string{"show", trained(t)}, []string{"model.embed_tokens.weight", "bf16", "[2048 192]", "hidden_size"}},
		{[]string{"show", trained(t), "--json"}, []string{`"format": "safetensors"`}},
		{[]string{"tokenize", trained(t), "Hello world"}, []string{"1,376,444,1984,1482\n"}},
		{[]string{"tokenize", trained(t), "376,444,1984,1482", "--decode"}, []string{"Hello world\n"}},
		{[]string{"tokenize", trained(t), "Hello world", "--pieces", "--no-bos"}, []string{"376"}},
		{[]string{"schema"}, []string{"{", "params"}},
		{append([]string{"dump", "--stage", "spec"}, small...), []string{"D"}},
		{append([]string{"dump", "--stage", "plan"}, small...), []string{"arena"}},
		{append([]string{"dump", "--stage", "program", "--tokens-per-step", "5"}, small...),
			[]string{"launches", "attention"}},
		{append([]string{"dump", "--stage", "fused", "--format", "dot"}, small...), []string{"digraph"}},
		{append([]string{"dump", "--json"}, small...), []string{`"stage": "graph"`}},
		{append([]string{"check", "--kv", "f32"}, small...), []string{"attention", "replay equals eager launches   ok",
			"prefill equals decode          ok"}},
		{append([]string{"check", "--json"}, small...), []string{`"replay_equals_eager": true`}},
		{[]string{"help", "run"}, []string{"--temperature", "greta run models/llama2_block.yaml"}},
		{[]string{"completion", "bash"}, []string{"greta"}},
	} {
		r := greta(t, c.args...)
		if r.code != 0 || r.err != "" {
			t.Errorf("greta %s: exit code %d, %s", strings.Join(c.args, " "), r.code, r.err)
		}
		for _, w := range c.want {
			if !strings.Contains(r.out, w) {
				t.Errorf("greta %s lacks %q:\n%s", strings.Join(c.args, " "), w, r.out)
			}
		}
	}
}

// A shell that completes is offered what flags take, not files, where they take one of some words.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"run x.yaml --backend ", []string{"cpu", "ref", ":4"}},
		{"bench op silu --backend c", []string{"cpu", ":4"}},
		{"check x.yaml --backend cpu --device ", []string{"0\t", ":4"}},
		{"run x.yaml --dtype q4_k", []string{"q4_k_s", "q4_k_m", ":4"}},
		{"run x.yaml --dtype mxf", []string{"mxfp4", ":4"}},
		{"bench model x --dtype f16,q8", []string{"f16,q8_0", ":4"}},
		{"serve x --kv ", []string{"f16", "bf16", "f32", "f8e4m3", "q8_0", ":4"}},
		{"run x --fp16 ", []string{"auto", "on", "off", ":4"}},
		{"history --device ", []string{":0"}},
		{"run x --weights ", []string{":0"}},
	} {
		r := greta(t, append([]string{"__complete"}, strings.Split(c.args, " ")...)...)
		got := strings.Split(strings.TrimSpace(r.out), "\n")
		ok := r.code == 0 && len(got) >= len(c.want) && got[len(got)-1] == c.want[len(c.want)-1]
		for _, w := range c.want {
			ok = ok && slices.ContainsFunc(got, func(g string) bool {
				return g == w || strings.HasSuffix(w, "\t") && strings.HasPrefix(g, w)
			})
		}
		if !ok {
			t.Errorf("%q: exit code %d, %q; wanted are %q", c.args, r.code, got, c.want)
		}
	}
}

// A limit that nothing meets makes a divergence, which names the operator.
func TestCheckDivergence(t *testing.T) {
	r := greta(t, append([]string{"check", "--kv", "f32", "--tolerance", "1e-12"}, small...)...)
	if r.code != exitMismatch || !strings.Contains(r.err, "is the first that diverges") ||
		!strings.Contains(r.out, "DIVERGED") {
		t.Errorf("exit code %d, %s%s", r.code, r.out, r.err)
	}
}

// A recurrence turns what rounding to eight bits does to its operands into 5 % of its results. check gives the
// reference the same operands, so that no operator answers for another's rounding.
func TestCheckOfRounded(t *testing.T) {
	r := greta(t, "check", "../../testdata/families/falcon_h1", "--dtype", "q4_0")
	if r.code != 0 || !strings.Contains(r.out, "self-consistent") {
		t.Errorf("exit code %d, %s%s", r.code, r.out, r.err)
	}
}

// A block's result may be narrower than its input; both are compared row by row.
func TestMeasuredNarrowBlock(t *testing.T) {
	file := write(t, "m.yaml", "block: b\nin: {x: 'float[S, D]'}\nparams: {D: 8}\nbody:\n  a, c: split(x, sizes=[3, "+
		"5])\n  y: a * a\nout: y\n")
	rep := runReport(t, file, "--prefill", "5", "--gen", "3", "--repeat", "1")
	for _, name := range []string{"prefill = decode", "decode = float64", "prefill = float64"} {
		if !slices.ContainsFunc(rep.Checks, func(c report.Check) bool { return c.Name == name && c.OK && c.RelL2 != nil }) {
			t.Errorf("%s was not checked: %+v", name, rep.Checks)
		}
	}
}

// Layers that the weights have and the metadata do not count are refused: without them a result is wrong.
func TestUnreadTensors(t *testing.T) {
	dir := edited(t, "llama2_gqa_tied", "config.json", func(s string) string {
		return regexp.MustCompile(`"num_hidden_layers": \d+`).ReplaceAllString(s, `"num_hidden_layers": 1`)
	})
	r := greta(t, "run", dir, "--tokens", "1,2", "--gen", "1")
	if r.code != exitUsage || !strings.Contains(r.err, "model.layers.1.input_layernorm.weight, of a layer behind the 1") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	whole := family(t, "llama2_gqa_tied") // where fewer are asked for, what is left out is said
	r = greta(t, "run", whole, "--set", "L=1", "--tokens", "1,2", "--gen", "1")
	if r.code != 0 || !strings.Contains(r.err, "does not read every tensor") ||
		!strings.Contains(r.err, "model.layers.1.") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
	if r := greta(t, "run", whole, "--tokens", "1,2", "--gen", "1"); strings.Contains(r.err, "does not read") {
		t.Error(r.err)
	}
}

// TestBetween: steps that one program computed share its time, also where not all of its tokens were given.
func TestBetween(t *testing.T) {
	begin := time.Now()
	at := func(ms, ready int) stamp { return stamp{begin.Add(time.Duration(ms) * time.Millisecond), ready} }
	for _, c := range []struct {
		stamps []stamp
		want   []int
	}{
		{nil, nil},
		{[]stamp{at(5, 0)}, nil},
		{[]stamp{at(5, 0), at(9, 0), at(14, 0)}, []int{4, 5}},
		{[]stamp{at(5, 0), at(45, 3), at(46, 2), at(46, 1), at(46, 0), at(56, 0)}, []int{10, 11, 10, 10, 10}},
		{[]stamp{at(5, 0), at(45, 3), at(45, 2)}, []int{10, 10}},
		{[]stamp{at(0, 0), at(8, 1), at(8, 0), at(16, 1), at(16, 0)}, []int{4, 4, 4, 4}},
	} {
		var got []int
		for _, d := range between(c.stamps) {
			got = append(got, int(d/time.Millisecond))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, not %v", c.stamps, got, c.want)
		}
	}
}

// TestOutputsKeepFiles: what a run reads is not overwritten by what it writes, nor one of its files by another.
func TestOutputsKeepFiles(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "m.gguf")
	if r := greta(t, "quantize", trained(t), model); r.code != 0 {
		t.Fatal(r.err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(model, link); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "fol[d]er")
	if err := os.CopyFS(folder, os.DirFS(trained(t))); err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile(filepath.Join(folder, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	for _, c := range [][]string{
		{model, "--json", model},
		{model, "--logits", link},
		{link, "--trace", model},
		{"llama2_7b", "--weights", model, "--json", model},
		{trained(t), "--tokenizer", model, "--json", model},
		{model, "--json", out, "--logits", out},
		{folder, "--json", filepath.Join(folder, "model.safetensors")},
		{"llama2_7b", "--weights", folder, "--logits", filepath.Join(folder, "config.json")},
		{model, "--logits", "-"},
	} {
		r := greta(t, append(append([]string{"run"}, c...), "--tokens", "1", "--gen", "1")...)
		if r.code != exitUsage || !strings.Contains(r.err, "file") {
			t.Errorf("%v: code %d, %s", c, r.code, r.err)
		}
	}
	if after, err := os.ReadFile(model); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("the model is lost: %d bytes of %d, %v", len(after), len(before), err)
	}
	if after, err := os.ReadFile(filepath.Join(folder, "model.safetensors")); err != nil || !bytes.Equal(weights, after) {
		t.Fatalf("the folder's weights are lost: %d bytes of %d, %v", len(after), len(weights), err)
	}
	// What is no file may be named twice.
	if r := greta(t, "run", model, "--tokens", "1", "--gen", "1", "--json", os.DevNull, "--logits",
		os.DevNull); r.code != 0 {
		t.Error(r.err)
	}
}

// TestComparePrefill: one position counts; where a router chooses, one of several is enough, and where all are off by
// no more than another expert makes, nothing is said to be right or wrong.
func TestComparePrefill(t *testing.T) {
	all := []int{512, 511, 510, 509, 508, 507, 506, 505}
	for _, c := range []struct {
		off         []int // tokens behind which it is off, by so much
		by          float64
		routes      bool
		ok, skipped bool
		asked       int
		note        string
	}{
		{nil, 0, true, true, false, 1, "position 511"},
		{[]int{512}, .2, false, false, false, 1, "position 511"},
		{[]int{512, 511, 509}, .2, true, true, false, 8, "position 509; 5 of 8 positions are within 5e-02, position 511 " +
			"is off by 2.00e-01: close experts may be chosen otherwise"},
		{all, .2, true, false, true, 8, "unchecked: 0 of 8 positions are within 5e-02, position 511 is off by 2.00e-01, " +
			"as where rounding decides which of two close experts is chosen; greta check does it operator by operator"},
		{all, 1.2, true, false, false, 8, "position 511; 0 of 8 positions are within 5e-02, position 511 is off by 1.20e+00"},
	} {
		asked := 0
		got, err := comparePrefill(512, 5e-2, c.routes, func(n int) (l2, worst float64, err error) {
			asked++
			if slices.Contains(c.off, n) {
				return c.by, 1, nil
			}
			return 1e-3, .1, nil
		})
		if err != nil || got.OK != c.ok || got.Skipped != c.skipped || asked != c.asked || got.Note != c.note {
			t.Errorf("%+v: %d asked, %+v, %v", c, asked, got, err)
		}
	}
}
