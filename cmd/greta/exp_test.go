package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/exp"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

// lab is a folder with a store and a ledger, and a backend with variants.
type lab struct {
	t    *testing.T
	path string // of the store
}

func newLab(t *testing.T) *lab {
	withFake(t, "plain,tenth,twice,wrong")
	return &lab{t, filepath.Join(t.TempDir(), "bench.sqlite")}
}

func (l *lab) exp(code int, verb string, args ...string) result {
	l.t.Helper()
	r := greta(l.t, append([]string{"exp", verb, "--store", l.path}, args...)...)
	if r.code != code {
		l.t.Fatalf("greta exp %s %s: exit code %d, expected %d\n%s%s", verb, strings.Join(args, " "), r.code, code, r.out,
			r.err)
	}
	return r
}

// benchmark is what the experiments here measure.
var benchmark = []string{"--", "op", "linear", "--m", "1", "--k", "256", "--n", "512", "--backend", "fake", "--threads",
	"1", "--cache", "warm", "--min-time", "5ms"}

func (l *lab) begin(code int, name, variant string, more ...string) result {
	l.t.Helper()
	args := append([]string{name, "--hypothesis", "it takes a tenth of the time", "--config", variant, "--baseline",
		"this"}, more...)
	return l.exp(code, "new", append(args, benchmark...)...)
}

// TestExperiment: a configuration that is faster is checked, measured in turns with the
// baseline, and kept; all of it is on record.
func TestExperiment(t *testing.T) {
	l := newLab(t)
	l.begin(0, "tenth", "tenth")
	r := l.exp(0, "run", "tenth", "--rounds", "2")
	has(t, r.out, "op/linear", "faster", "base", "changed", "Mann and Whitney", "of modelled roof", "GFLOP/s",
		"tenth: faster: 1; at best")
	// Checked first, then in turns: the second round the other way round.
	var order []string
	for line := range strings.Lines(r.err) {
		if rest, ok := strings.CutPrefix(line, "greta: "); ok {
			side, _, _ := strings.Cut(rest, ":")
			order = append(order, side)
			if (side != "base") != strings.Contains(line, "--config=tenth") {
				t.Errorf("%s", line)
			}
		}
	}
	if got := strings.Join(order, " "); got != "check base changed changed base" {
		t.Errorf("the order is %s", got)
	}
	s, err := store.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	for side, want := range map[string]int{"base": 2, "changed": 2, "check": 1} {
		if runs, err := s.Runs(store.Filter{Label: "exp/tenth/*/" + side}); err != nil || len(runs) != want {
			t.Errorf("%d runs of %s in the store, %v", len(runs), side, err)
		}
	}
	s.Close()
	var x exp.Experiment
	if err := json.Unmarshal([]byte(l.exp(0, "show", "tenth", "--json").out), &x); err != nil || len(x.Runs) != 1 ||
		!x.Runs[0].Correct || x.Status != exp.Open {
		t.Errorf("%v %+v", err, x)
	}
	l.exp(exitUsage, "keep", "tenth")
	l.exp(0, "keep", "tenth", "--because", "a tenth of the time")
	has(t, l.exp(0, "list").out, "tenth", "kept", "a tenth of the time", "faster: 1")
	has(t, l.exp(0, "show", "tenth").out, "hypothesis    it takes a tenth of the time", "greta bench op linear",
		"--config=tenth", "correct; faster: 1")
	has(t, l.exp(exitUsage, "run", "tenth").err, "was kept")
	text, err := os.ReadFile(filepath.Join(filepath.Dir(l.path), "experiments.md"))
	if err != nil || !strings.Contains(string(text), "keep tenth") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestSlowerIsNotKept: what was found slower is kept only where somebody says what for.
func TestSlowerIsNotKept(t *testing.T) {
	l := newLab(t)
	l.begin(0, "doubled", "twice")
	l.exp(0, "run", "doubled", "--rounds", "2")
	has(t, l.exp(exitUsage, "keep", "doubled", "--because", "I say so").err, "found it slower", "--despite-slower")
	l.exp(0, "keep", "doubled", "--because", "half the memory", "--despite-slower")
}

// TestWrongExperiment: what computes something else is not timed, and cannot be kept;
// once rejected it needs a reason to be tried again.
func TestWrongExperiment(t *testing.T) {
	l := newLab(t)
	l.begin(0, "zeros", "wrong")
	r := l.exp(exitMismatch, "run", "zeros")
	has(t, r.err, "wrong results, nothing was timed", "relative L2")
	hasNot(t, r.err, "greta: base:")
	has(t, l.exp(0, "show", "zeros").out, "WRONG")
	has(t, l.exp(exitUsage, "keep", "zeros", "--because", "fast").err, "cannot be kept")
	l.exp(0, "reject", "zeros", "--because", "it writes zeros")
	has(t, l.begin(exitUsage, "zeros2", "wrong").err, "was rejected as zeros", "it writes zeros", "--precondition")
	l.begin(0, "zeros2", "wrong", "--precondition", "the kernel was mended")
	has(t, l.exp(0, "list", "--status", "open").out, "zeros2")
	hasNot(t, l.exp(0, "list", "--status", "rejected").out, "zeros2")
	l.exp(0, "new", append([]string{"quick", "--hypothesis", "h", "--change", "--min-time=1ms", "--baseline", "this"},
		benchmark...)...)
	has(t, l.exp(0, "run", "quick", "--rounds", "1").err, "check: greta bench op linear", "--min-time=1ms")
	other := greta(t, "exp", "new", "other", "--ledger", filepath.Join(t.TempDir(), "mine.md"), "--store", l.path,
		"--hypothesis", "h", "--config", "wrong", "--", "op", "linear", "--backend", "fake")
	if other.code != 0 {
		t.Errorf("another ledger: %s", other.err)
	}
}

func TestExperimentRefusals(t *testing.T) {
	l := newLab(t)
	for want, args := range map[string][]string{
		"a name and":          {"new"},
		"hypothesis":          {"new", "x", "--config", "tenth", "--", "op", "linear"},
		"--store does not go": {"new", "x", "--hypothesis", "h", "--config", "tenth", "--", "op", "linear", "--store", "y"},
		"-ojson does not go":  {"new", "x", "--hypothesis", "h", "--config", "tenth", "--", "op", "linear", "-ojson"},
		"no experiment":       {"run", "x"},
		"lineer": {"new", "x", "--hypothesis", "h", "--config", "tenth", "--", "op", "lineer", "--backend",
			"fake"},
		"has no parameter": {"new", "x", "--hypothesis", "h", "--change", "-r=3", "--", "platform", "latency", "--set",
			"latency.bite=4096"},
		"unknown flag": {"new", "x", "--hypothesis", "h", "--change", "--no-such-flag", "--", "op", "linear",
			"--backend", "fake"},
		"must be positive":     {"run", "x", "--rounds", "0"},
		"no experiment is":     {"show", "x"},
		"open, kept":           {"list", "--status", "good"},
		"no experiment is cal": {"reject", "x", "--because", "y"},
	} {
		has(t, l.exp(exitUsage, args[0], args[1:]...).err, want)
	}
	has(t, l.begin(exitUsage, "none", "none").err, "the benchmark cannot be run", "no kernel of these has such a variant",
		"plain, tenth, twice, wrong")
	l.exp(exitUsage, "show", "none") // nothing is in the ledger
	l.exp(0, "new", append([]string{"b", "--hypothesis", "h", "--config", "tenth", "--baseline", "no-such-commit"},
		benchmark...)...)
	has(t, l.exp(exitUsage, "run", "b").err, "no-such-commit")
}

// TestPooled: the rounds' samples are joined; one that is not OK spoils the benchmark.
func TestPooled(t *testing.T) {
	h := newShelf(t)
	h.run("a", "CPU", map[string]float64{"x": 1, "y": 1})
	h.run("a", "CPU", map[string]float64{"x": 1, "y": -1})
	h.run("a", "CPU", map[string]float64{"x": 1, "y": 1})
	entries, err := h.s.Results(store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	got := pooled(entries)
	if len(got) != 2 {
		t.Fatalf("%d benchmarks", len(got))
	}
	for _, e := range got {
		if e.Bench == "x" && len(e.Samples) != 60 || e.Bench == "y" && e.Verdict != "failed" {
			t.Errorf("%s: %d samples, %s", e.Bench, len(e.Samples), e.Verdict)
		}
	}
	if c := compare.Turns(entries, entries, compare.Options{}); c.Count(compare.Same) != 1 || c.Count(compare.Lost) != 1 {
		t.Errorf("%+v", c.Rows)
	}
}

// TestExperimentElsewhere: an experiment for a device that is not here is noted all the same.
func TestExperimentElsewhere(t *testing.T) {
	l := newLab(t)
	r := l.exp(0, "new", "far", "--hypothesis", "h", "--config", "x", "--", "op", "linear", "--backend", "none")
	has(t, r.err, "is not tried here")
}

// TestDryRun: what would be measured is listed, and nothing is measured or kept.
func TestDryRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sqlite")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"op", "linear", "--m", "1,2", "--n", "64", "--k", "32"}, "linear k=32 m=2 n=64 type=f16"},
		{[]string{"platform", "latency", "--set", "latency.bytes=4096"}, "latency bytes=4096"},
		{[]string{"model", "llama2_block", "-p", "8", "-n", "0", "-d", "0,16"}, "llama2_block, kv f16, pp8 @ d16"},
	} {
		r := greta(t, append(append([]string{"bench"}, c.args...), "--dry-run", "--store", path)...)
		if r.code != 0 || !strings.Contains(r.out, c.want) || strings.Contains(r.out, "verdict") {
			t.Errorf("%v: %d, %q is expected in\n%s%s", c.args, r.code, c.want, r.out, r.err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a store was made")
	}
}

// A share above 1 is explained below the table, as bench op does.
func TestExpAboveRoof(t *testing.T) {
	entry := func(roof float64) []store.Entry {
		return []store.Entry{{Result: record.Result{Bench: "op/x", Verdict: record.OK, Samples: []float64{1e-3}, Bytes: 30e6,
			Roofs: record.Roofs{MeasuredReadGBs: roof}}}}
	}
	has(t, roofText(entry(20)), "150.0 %", "1 of 1 results are faster than the measured roof")
	hasNot(t, roofText(entry(30)), "faster than")
}

// TestGateAgainst: a run's command is repeated by another program and by this one, in turns.
func TestGateAgainst(t *testing.T) {
	l := newLab(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A process of its own, whose arguments are the run's command.
	if err := runProgram(t.Context(), self, append(append([]string{"bench"}, benchmark[1:]...), "--store",
		l.path)); err != nil {
		t.Fatal(err)
	}
	// The same program: what is asked here is the turns, so nearly nothing is significant.
	r := greta(t, "gate", "--against", "this", "--rounds", "3", "--alpha", "1e-9", "--store", l.path)
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
	has(t, r.out, "in turns", "op/linear", "before", "now")
	var order []string
	for line := range strings.Lines(r.err) {
		if side, _, ok := strings.Cut(strings.TrimPrefix(line, "greta: "), ": greta bench"); ok {
			order = append(order, side)
		}
	}
	if got := strings.Join(order, " "); got != "before now now before before now" {
		t.Errorf("the order is %s", got)
	}
	for _, c := range []struct{ flag, value, want string }{
		{"--rounds", "2", "three at least"}, {"--against", "no-such-commit", ""},
	} {
		if r := greta(t, "gate", "--against", "this", c.flag, c.value, "--store", l.path); r.code != exitUsage ||
			!strings.Contains(r.err, c.want) {
			t.Errorf("%s %s: exit code %d %s", c.flag, c.value, r.code, r.err)
		}
	}
}
