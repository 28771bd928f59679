package exp

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "exp") // for locks
	if err != nil {
		panic(err)
	}
	os.Setenv("GRETA_LOCKS", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func trial(name string) Experiment {
	return Experiment{Name: name, Hypothesis: "Four rows a wave\nhide the loads' latency.",
		Bench: []string{"op", "linear", "--m", "1"}, Change: []string{"--config", "rows=4"}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("%v, expected %q", err, part)
	}
}

// TestLife follows an experiment from its hypothesis to its end, and reads all of
// it from the file.
func TestLife(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "new folder", "experiments.md")
	must(t, New(ctx, path, trial("rows4")))
	refused(t, New(ctx, path, trial("rows4")), "an experiment rows4 exists")
	refused(t, New(ctx, path, trial("again")), "still open")
	refused(t, Decide(ctx, path, "rows4", Kept, "faster", false), "was never run")
	refused(t, AddRun(ctx, path, "rows5", Run{}), "no experiment is called rows5")
	run := Run{Correct: false, Summary: "wrong"}
	must(t, AddRun(ctx, path, "rows4", run))
	refused(t, Decide(ctx, path, "rows4", Kept, "faster", false), "wrong results")
	must(t, AddRun(ctx, path, "rows4", Run{Correct: true, Slower: 1, Summary: "slower: 1; at worst 86.0 % more"}))
	refused(t, Decide(ctx, path, "rows4", Kept, "I say so", false), "found it slower (slower: 1; at worst 86.0 % more)")
	must(t, AddRun(ctx, path, "rows4", Run{Correct: true, Summary: "faster on 1", Details: "benchmark  old  new\n  " +
		"op/linear  1 µs  2 µs\n\nfour\n"}))
	refused(t, Decide(ctx, path, "rows4", Kept, "  ", false), "--because")
	must(t, Decide(ctx, path, "rows4", Kept, "a third faster at m=1", false))
	refused(t, Decide(ctx, path, "rows4", Rejected, "no", false), "was kept")
	if _, err := Begin(path, "rows4"); err == nil {
		t.Error("an experiment that was kept can be run")
	}
	l, err := Read(path)
	must(t, err)
	x := l.Find("rows4")
	if x.Hypothesis != "Four rows a wave hide the loads' latency." || !reflect.DeepEqual(x.Bench, trial("").Bench) ||
		!reflect.DeepEqual(x.Change, trial("").Change) ||
		x.Status != Kept || x.Why != "a third faster at m=1" || len(x.Runs) != 3 || x.Runs[0].Correct ||
		x.Runs[1].Slower != 1 || !x.Runs[2].Correct || x.Runs[2].Slower != 0 || time.Since(x.Decided) > time.Minute {
		t.Errorf("%+v", x)
	}
	if want := "benchmark  old  new\n  op/linear  1 µs  2 µs\n\nfour"; x.Runs[2].Details != want {
		t.Errorf("%q, expected %q", x.Runs[2].Details, want)
	}
	text, err := os.ReadFile(path)
	must(t, err)
	for _, part := range []string{"# Experiments\n", "new rows4\nhypothesis: Four rows a wave hide", "change: rows=4\n",
		"keep rows4\nbecause: a third faster"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
}

// TestRejectedIsRefused: what was rejected is tried again only with a new reason to.
func TestRejectedIsRefused(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "experiments.md")
	reject := func(x Experiment) {
		t.Helper()
		must(t, New(ctx, path, x))
		must(t, AddRun(ctx, path, x.Name, Run{Correct: true, Summary: "slower"}))
		must(t, Decide(ctx, path, x.Name, Rejected, "registers spill", false))
	}
	reject(trial("a"))
	err := New(ctx, path, trial("b"))
	var before *RejectedBefore
	if !errors.As(err, &before) || before.Old.Name != "a" {
		t.Fatalf("the same configuration under another name: %v", err)
	}
	refused(t, err, "registers spill")
	again := trial("b")
	again.Precondition = "a compiler with another allocator"
	reject(again)
	again.Name, again.Precondition = "c", "A compiler  with another ALLOCATOR"
	if err := New(ctx, path, again); !errors.As(err, &before) || before.Old.Name != "b" {
		t.Errorf("a precondition that was used: %v", err)
	}
	again.Precondition = "gfx12"
	must(t, New(ctx, path, again))
	other := trial("d")
	other.Change = []string{"--config", "rows=8"}
	must(t, New(ctx, path, other))
}

// TestRejectedInOtherWords: the order and spelling of flags make no other experiment, their
// values and the order of a repeated one do.
func TestRejectedInOtherWords(t *testing.T) {
	try := func(bench ...string) *Experiment {
		return &Experiment{Bench: bench, Change: []string{"--config=rows=4"}}
	}
	x := try("op", "linear", "--m", "1", "--k=256", "--attr", "a=1", "--attr", "b=2")
	for _, y := range []*Experiment{
		try("op", "linear", "--k", "256", "--m=1", "--attr", "a=1", "--attr", "b=2"),
		try("op", "--m", "1", "linear", "--attr", "a=1", "--k", "256", "--attr=b=2"),
		{Bench: x.Bench, Change: []string{"--config", "rows=4"}},
	} {
		if !x.same(y) {
			t.Errorf("%q %q is taken for something new", y.Bench, y.Change)
		}
	}
	if !try("op", "linear", "--type", "f16").same(try("op", "linear", "--dtype=f16")) {
		t.Error("a flag's old name makes an experiment new")
	}
	for _, y := range []*Experiment{
		try("op", "linear", "--m", "1", "--k=512", "--attr", "a=1", "--attr", "b=2"),
		try("op", "linear", "--m", "1", "--k=256", "--attr", "b=2", "--attr", "a=1"),
		try("op", "rmsnorm", "--m", "1", "--k=256", "--attr", "a=1", "--attr", "b=2"),
		{Bench: x.Bench, Change: []string{"--config", "rows=8"}},
	} {
		if x.same(y) {
			t.Errorf("%q %q is taken for the same", y.Bench, y.Change)
		}
	}
}

func TestNewRefusals(t *testing.T) {
	for want, change := range map[string]func(*Experiment){
		"letters, digits":          func(x *Experiment) { x.Name = "two words" },
		"hypothesis":               func(x *Experiment) { x.Hypothesis = " \n" },
		"needs a benchmark":        func(x *Experiment) { x.Bench = nil },
		"nothing is changed":       func(x *Experiment) { x.Change = nil },
		`"\n" begins or ends with`: func(x *Experiment) { x.Bench = []string{"\n"} },
	} {
		x := trial("x")
		change(&x)
		refused(t, New(t.Context(), filepath.Join(t.TempDir(), "l"), x), want)
	}
}

// TestDamage: an altered ledger is an error with its line, never a guess.
func TestDamage(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"heading": {"## yesterday new a\n", "cannot parse"},
		"parts":   {"x\n\n## 2026-01-01T00:00:00Z new\n", ":3: a heading is"},
		"kind": {"## 2026-01-01T00:00:00Z new a\nhypothesis: h\n\n## 2026-01-01T00:00:00Z praise a\n",
			"no event is called"},
		"orphan": {"## 2026-01-01T00:00:00Z keep a\nbecause: x\n", "never begun"},
		"twice":  {"## 2026-01-01T00:00:00Z new a\n\n## 2026-01-01T00:00:00Z new a\n", "twice"},
		"line":   {"## 2026-01-01T00:00:00Z new a\nno field at all\n", ":2: NAME: TEXT"},
		"indent": {"## 2026-01-01T00:00:00Z new a\n    text\n", "none came before"},
	} {
		path := filepath.Join(t.TempDir(), "ledger")
		must(t, os.WriteFile(path, []byte(c.text), 0o644))
		_, err := Read(path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "ledger")
	must(t, os.WriteFile(path, []byte("# Experiments\r\n\r\n## 2026-01-01T00:00:00Z new a\r\nhypothesis: "+
		"h\r\nbench: op\r\n"), 0o644))
	l, err := Read(path)
	must(t, err)
	if x := l.Find("a"); x == nil || x.Hypothesis != "h" || x.Bench[0] != "op" {
		t.Errorf("%+v", x)
	}
}

func TestLedgerIsAFile(t *testing.T) {
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("a folder: %v", err)
	}
}
