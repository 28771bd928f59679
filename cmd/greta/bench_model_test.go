package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/testfiles"
)

// smallBlock is a block that takes milliseconds.
var smallBlock = []string{"bench", "model", "llama2_block", "--set", "D=64", "--set", "H=4", "--set", "F=96",
	"--no-store", "-o", "json", "-r", "2"}

type modelRow struct {
	Model    string    `json:"model_type"`
	File     string    `json:"model_filename"`
	Prompt   int       `json:"n_prompt"`
	Gen      int       `json:"n_gen"`
	Depth    int       `json:"n_depth"`
	Threads  int       `json:"n_threads"`
	Chunk    int       `json:"n_ubatch"`
	KV       string    `json:"type_k"`
	Backends string    `json:"backends"`
	AvgNS    float64   `json:"avg_ns"`
	AvgTS    float64   `json:"avg_ts"`
	Samples  []float64 `json:"samples_ns"`
	First    *float64  `json:"first_token_ns"`
	P50      *float64  `json:"inter_token_p50_ns"`
	P99      *float64  `json:"inter_token_p99_ns"`
	Step     *float64  `json:"step_ns"`
	Kernels  *float64  `json:"kernels_ns"`
	Block    *float64  `json:"block_ns"`
	Outside  *float64  `json:"outside_ns"`
	Launches int       `json:"launches"`
	RelL2    float64   `json:"rel_l2"`
	Verdict  string    `json:"verdict"`
}

func modelRows(t *testing.T, args ...string) []modelRow {
	t.Helper()
	r := greta(t, args...)
	if r.code != 0 {
		t.Fatalf("greta %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	var rows []modelRow
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil {
		t.Fatalf("%v\n%s", err, r.out)
	}
	for _, row := range rows {
		if row.Verdict != "ok" || row.AvgTS <= 0 || row.Step == nil || row.Kernels == nil || row.Block == nil ||
			row.RelL2 <= 0 && row.Backends != "REF" {
			t.Errorf("greta %s: %+v", strings.Join(args, " "), row)
		}
	}
	return rows
}

// tests names what was measured: "pp5@3".
func tests(rows []modelRow) string {
	var all []string
	for _, r := range rows {
		name := "pp" + itoa(r.Prompt)
		if r.Gen > 0 {
			name = "tg" + itoa(r.Gen)
		}
		all = append(all, name+"@"+itoa(r.Depth))
	}
	return strings.Join(all, " ")
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// TestBenchModelFlags shows the effect of each flag.
func TestBenchModelFlags(t *testing.T) {
	run := func(args ...string) []modelRow {
		return modelRows(t, append(append([]string{}, smallBlock...), args...)...)
	}
	if got := tests(run("-p", "4,8..16*2", "-n", "3", "-d", "0,5")); got != "pp4@0 pp8@0 pp16@0 tg3@0 pp4@5 pp8@5 "+
		"pp16@5 tg3@5" {
		t.Errorf("-p, -n, -d: %s", got)
	}
	if got := tests(run("-p", "0", "-n", "2-4")); got != "tg2@0 tg3@0 tg4@0" {
		t.Errorf("-p 0, a range as llama-bench writes it: %s", got)
	}
	if got := tests(run("-p", "6", "-n", "0")); got != "pp6@0" {
		t.Errorf("-n 0: %s", got)
	}
	small := []string{"-p", "4", "-n", "0"}
	with := func(args ...string) []modelRow { return run(append(append([]string{}, small...), args...)...) }
	if rows := with("-t", "1,2"); len(rows) != 2 || rows[0].Threads != 1 || rows[1].Threads != 2 {
		t.Errorf("-t 1,2: %+v", rows)
	}
	if rows := with("-r", "7"); len(rows[0].Samples) != 7 {
		t.Errorf("-r 7: %d samples", len(rows[0].Samples))
	}
	if rows := with("--min-time", "30ms", "-r", "1"); len(rows[0].Samples) < 2 {
		t.Errorf("--min-time 30ms: %d samples of %g ns", len(rows[0].Samples), rows[0].AvgNS)
	}
	if rows := with("--dtype", "f32,q8_0"); len(rows) != 2 || !strings.HasSuffix(rows[0].Model, " F32") ||
		!strings.HasSuffix(rows[1].Model, " Q8_0") {
		t.Errorf("--dtype: %+v", rows)
	}
	if rows := with("--kv", "f32,f16"); len(rows) != 2 || rows[0].KV != "f32" || rows[1].KV != "f16" ||
		rows[0].RelL2 == rows[1].RelL2 {
		t.Errorf("--kv: %+v", rows)
	}
	if rows := with("--chunk", "2,4"); len(rows) != 2 || rows[0].Chunk != 2 || rows[1].Chunk != 4 {
		t.Errorf("--chunk: %+v", rows)
	}
	if rows := with("--backend", "ref", "--kv", "f32"); rows[0].Backends != "REF" {
		t.Errorf("--backend ref: %+v", rows)
	}
	if a, b := with("--weight-seed", "1"), with("--weight-seed", "2"); a[0].RelL2 == b[0].RelL2 {
		t.Error("--weight-seed changes nothing")
	}
	if exact, rounded := with("--dtype", "q8_0", "--exact"), with("--dtype", "q8_0"); exact[0].RelL2 >= rounded[0].RelL2 {
		t.Errorf("--exact: errors %g and %g", exact[0].RelL2, rounded[0].RelL2)
	}
	if fused, plain := with(), with("--no-fuse"); fused[0].Launches >= plain[0].Launches || fused[0].Launches < 5 {
		t.Errorf("--no-fuse: %d launches, %d with fused operators", plain[0].Launches, fused[0].Launches)
	}
	// Without a warm-up the first repetition, in which the step is captured, counts.
	if rows := with("--no-warmup", "-r", "9"); len(rows[0].Samples) != 9 {
		t.Errorf("--no-warmup: %d samples", len(rows[0].Samples))
	}
	if r := greta(t, append(append(append([]string{}, smallBlock...), small...), "--progress")...); r.code != 0 ||
		!strings.Contains(r.err, "llama2_block D=64 H=4 F=96: pp4 @ d0") {
		t.Errorf("--progress: %d %s", r.code, r.err)
	}
	if r := greta(t, append(append([]string{}, smallBlock...), "-p", "40", "-n", "0", "--context",
		"16")...); r.code != exitUsage || !strings.Contains(r.err, "--context 16 does not hold the 41 positions") {
		t.Errorf("--context 16: %d %s", r.code, r.err)
	}
}

// TestBenchModelOfWeights measures a model with tokens, from files of two formats.
func TestBenchModelOfWeights(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	path := filepath.Join(t.TempDir(), "b.sqlite")
	rows := modelRows(t, "bench", "model", dir, "-p", "9", "-n", "60", "-r", "2", "--store", path, "-o", "json")
	if got := tests(rows); got != "pp9@0 tg60@0" {
		t.Fatal(got)
	}
	if pp, tg := rows[0], rows[1]; pp.First == nil || *pp.First < pp.Samples[0]/4 || pp.P50 != nil || tg.P50 == nil ||
		tg.P99 == nil || tg.First != nil || tg.Outside == nil || pp.File != "tolstoy-2.7m" {
		t.Errorf("%+v\n%+v", pp, tg)
	}
	s, err := store.OpenExisting(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Results(store.Filter{Kind: "model", Verdict: record.OK})
	if err != nil || len(got) != 3 || got[2].Bench != "model/tg60/token" || len(got[2].Samples) != 120 {
		t.Errorf("%d results are kept, %v", len(got), err)
	}
	// A model file with weights, and weights with a model file, are the same.
	for _, args := range [][]string{{"llama2_7b", "--weights", dir}, {dir, "--model", "llama2_7b"}} {
		rows := modelRows(t, append([]string{"bench", "model", "-p", "3", "-n", "0", "-r", "1", "--no-store", "--json"},
			args...)...)
		if !strings.HasSuffix(rows[0].Model, " BF16") || rows[0].Launches < 50 {
			t.Errorf("%v: %+v", args, rows[0])
		}
	}
	few := modelRows(t, "bench", "model", dir, "-p", "0", "-n", "10", "-r", "2", "--no-store", "--json")
	if few[0].P99 != nil {
		t.Error("a 99th percentile of twenty samples")
	}
}

func TestBenchModelProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	text := "repetitions: 3\nmodel:\n  - {model: llama2_block, prompt: [3, 5], gen: 2, depth: 4, dtype: q8_0, set: {D: " +
		"\"64\", H: \"4\", F: \"96\"}}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rows := modelRows(t, "bench", "model", "--profile", path, "--no-store", "--json")
	if got := tests(rows); got != "pp3@4 pp5@4 tg2@4" || len(rows[0].Samples) != 3 ||
		!strings.HasSuffix(rows[0].Model, "Q8_0") {
		t.Errorf("%s %+v", got, rows[0])
	}
}

func TestBenchModelRefused(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		part string
	}{
		{"", exitUsage, "name a model"},
		{"lama2_block", exitUsage, "did you mean llama2_block?"},
		{"llama2_block -p x", exitUsage, `--prompt: "x", column 1`},
		{"llama2_block -p 0 -n 0", exitUsage, "nothing to measure"},
		{"llama2_block --dtype f17", exitUsage, "no such type"},
		{"llama2_block --kv q4_0", exitUsage, "caches can be"},
		{"llama2_block -t 1 --backend ref", exitUsage, "only the cpu backend"},
		{"llama2_block --backend cuda", exitNoDevice, "no backend"},
		{"llama2_block --profile smoke", exitUsage, "no model goes with it"},
		{"--profile smoke -p 4", exitUsage, "--prompt does not go with it"},
		{"llama2_block --chunk 0", exitUsage, "--chunk 0"},
		{"llama2_block --cache-limit lots", exitUsage, "--cache-limit"},
		{"llama2_block --fp16 perhaps", exitUsage, "--fp16"},
		{"llama2_block --device 7", exitNoDevice, "--device 7"},
	} {
		r := greta(t, append([]string{"bench", "model"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.err, c.part) || r.out != "" {
			t.Errorf("%s: code %d, want %d with %q\n%s%s", c.args, r.code, c.code, c.part, r.err, r.out)
		}
	}
}
