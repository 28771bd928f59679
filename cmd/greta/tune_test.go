package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/fakedev"
)

// A backend whose kernels have variants (internal/fakedev) is there in processes
// that the tests start.
func init() {
	if list := os.Getenv("GRETA_TEST_FAKE"); list != "" {
		backendTable = append(backendTable, fakeBackend(list))
	}
}

func fakeBackend(list string) backend {
	return backend{"fake", func(f deviceFlags) (backends.Device, error) {
		return fakedev.Open(1, strings.Split(list, ","), "1")
	}}
}

// withFake makes the backend fake available, here and in children.
func withFake(t *testing.T, variants string) {
	t.Helper()
	old := backendTable
	backendTable = append(slices.Clone(old), fakeBackend(variants))
	t.Cleanup(func() { backendTable = old })
	t.Setenv("GRETA_TEST_FAKE", variants)
	t.Setenv("GRETA_TEST_MAIN", "1")
	t.Setenv("GRETA_LOCKS", t.TempDir()) // locks
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// TestTune tunes a block on a device with a variant that is faster, one that crashes
// and one that hangs, and runs it: greta run uses the fastest, and says so.
// In one piece: what one run writes the next one reads.
func TestTune(t *testing.T) {
	withFake(t, "plain,crash,tenth,hang")
	const model = "models/llama2_block.yaml"
	small := []string{"--set", "D=64", "--set", "H=4", "--set", "G=2", "--set", "F=96"}
	file := filepath.Join(t.TempDir(), "tuned.yaml")
	args := []string{"tune", "--model", model, "--backend", "fake", "--threads", "1", "--prompt", "0", "--warm",
		"--rounds", "2", "--min-time", "1ms", "--limit", "2s", "--tuned", file}
	args = append(args, small...)
	ok := func(args ...string) result {
		t.Helper()
		r := greta(t, args...)
		if r.code != 0 {
			t.Fatalf("greta %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
		}
		return r
	}
	dry := ok(append(args, "--dry-run")...)
	has(t, dry.out, "linear x:f32[1,64]", "plain", "default", "tenth")
	if _, err := os.Stat(file); err == nil {
		t.Error("--dry-run wrote the file")
	}
	first := ok(args...)
	has(t, first.out, "tenth", "times as fast", "best", "REJECTED: the child process ended with exit status 3: fault "+
		"in the kernel", "hung", file)
	var lines []tuneLine
	if err := json.Unmarshal([]byte(ok(append(args, "--json")...).out), &lines); err != nil {
		t.Fatal(err)
	}
	kernels := len(lines)
	for _, l := range lines {
		if l.Tuned || l.Best != "tenth" || l.Gain < 1.1 {
			t.Errorf("%s %s: best %s, %.2f times as fast; tuned again: %v", l.Op, l.Shape, l.Best, l.Gain, l.Tuned)
		}
	}
	again := append([]string{"tune", "linear", "--m", "1", "--k", "64", "--n", "64", "--backend", "fake", "--threads", "1",
		"--warm", "--rounds", "1", "--samples", "3", "--min-time", "0s", "--limit", "2s", "--tuned", file, "--json"},
		"--no-store")
	var known, anew []tuneLine
	if err := errors.Join(json.Unmarshal([]byte(ok(again...).out), &known),
		json.Unmarshal([]byte(ok(append(again, "--again")...).out), &anew)); err != nil || len(known) != 1 ||
		known[0].Tuned || !anew[0].Tuned {
		t.Errorf("%v: %+v, and with --again %+v", err, known, anew)
	}
	kept := ok("history", "--bench", "op/linear*")
	has(t, kept.out, "config=tenth", "config=hang", "FAILED")

	run := []string{model, "--backend", "fake", "--threads", "1", "--prefill", "8", "--gen", "2", "--repeat", "1",
		"--tuned"}
	run = append(slices.Clone(small), run...)
	rep := runReport(t, append(run, file)...)
	if len(rep.Variants) == 0 || len(rep.Variants) > kernels {
		t.Errorf("%d of %d kernels are tuned: %+v", len(rep.Variants), kernels, rep.Variants)
	}
	for _, v := range rep.Variants {
		if v.Op != "linear" || v.Variant != "tenth" || v.Source != "tuned" || !strings.Contains(v.Shape, "w:f16") {
			t.Errorf("%+v", v)
		}
	}
	has(t, rep.Summary(), "kernels as greta tune found them")
	if rep := runReport(t, append(run, "off")...); len(rep.Variants) != 0 {
		t.Errorf("with --tuned off: %+v", rep.Variants)
	}
	rep = runReport(t, append(run, file, "--config", "linear=plain")...)
	if len(rep.Variants) != 1 || rep.Variants[0].Source != "forced" {
		t.Errorf("forced: %+v", rep.Variants)
	}
	has(t, rep.Summary(), "linear=plain forced")
	// Forced variants are what runs.
	dump := func(args ...string) string {
		return greta(t, append(append([]string{"dump", "--stage", "program", model, "--backend", "fake", "--threads", "1"},
			small...), args...)...).out
	}
	has(t, dump("--config", "linear=tenth"), ".tenth")
	has(t, dump("--tuned", file), ".tenth")
	hasNot(t, dump("--tuned", "off"), ".tenth")
	// So it is in benchmarks of models, whose results say so.
	bench := func(args ...string) []store.Entry {
		t.Helper()
		path := filepath.Join(t.TempDir(), "bench.sqlite")
		ok(append(append([]string{"bench", "model", model, "--backend", "fake", "-p", "0", "-n", "2", "-r", "1", "--store",
			path}, small...), args...)...)
		s, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		entries, err := s.Results(store.Filter{Bench: "model/tg2"})
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %d results", err, len(entries))
		}
		return entries
	}
	if e := bench("--tuned", file)[0]; e.Metrics["tuned_kernels"] == 0 || e.Config != "" {
		t.Errorf("%+v", e.Result)
	}
	if e := bench("--tuned", "off", "--config", "linear=tenth")[0]; e.Metrics["tuned_kernels"] != 0 ||
		e.Config != "linear=tenth" {
		t.Errorf("%+v", e.Result)
	}
	bad := greta(t, append([]string{"run"}, append(run, "off", "--config", "linear=none")...)...)
	if bad.code != exitUsage || !strings.Contains(bad.err, "linear=none") || !strings.Contains(bad.err, "they have") ||
		!strings.Contains(bad.err, "tenth") {
		t.Errorf("a variant that is not there: %d %s", bad.code, bad.err)
	}
	bad = greta(t, append([]string{"run"}, append(run, "off", "--config", "liner=tenth")...)...)
	if bad.code != exitUsage || !strings.Contains(bad.err, "operators of this model with variants are") ||
		!strings.Contains(bad.err, "linear") {
		t.Errorf("an operator that is not there: %d %s", bad.code, bad.err)
	}
	if r := greta(t, "run", model, "--tuned", write(t, "x.yaml", "a: 1\n")); r.code != exitUsage ||
		!strings.Contains(r.err, "no file of greta tune") {
		t.Errorf("%d %s", r.code, r.err)
	}
	if r := greta(t, "run", model, "--tuned", filepath.Join(t.TempDir(), "absent")); r.code != exitUsage {
		t.Errorf("a file that is not there: %d %s", r.code, r.err)
	}
	if r := greta(t, "run", model, "--config", "linear=x"); r.code != exitUsage ||
		!strings.Contains(r.err, "one variant each") && !strings.Contains(r.err, "linear=x") {
		t.Errorf("%d %s", r.code, r.err)
	}
}

// TestTuneRefusals: bad flags, and a device without variants.
func TestTuneRefusals(t *testing.T) {
	withFake(t, "plain,tenth")
	for _, args := range [][]string{{}, {"linear", "--limit", "0s"}, {"linear", "--rounds", "0"},
		{"linear", "--samples", "0"}, {"nosuch"},
		{"linear", "--no-store", "--label", "x"}, {"linear", "--min-time", "-1s"}, {"linear", "--tuned", "off"}} {
		if r := greta(t, append([]string{"tune"}, args...)...); r.code != exitUsage {
			t.Errorf("greta tune %v: exit code %d %s", args, r.code, r.err)
		}
	}
	r := greta(t, "tune", "linear", "--backend", "ref")
	if r.code != 0 || !strings.Contains(r.err, "nothing to tune") {
		t.Errorf("%d %s", r.code, r.err)
	}
}
