package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

var clock = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newRun is a run an hour after the one before.
func newRun(commit string) *record.Run {
	clock = clock.Add(time.Hour)
	return &record.Run{ID: record.NewID(clock), Started: clock, Status: record.Complete,
		Env: record.Env{Backend: "cpu", Device: "CPU", Driver: "1", Commit: commit, Kernels: "k" + commit}}
}

// entry has n samples around a time, with noise of one percent that is the same
// every time, and takes turns with a shift that depends on the salt.
func entry(r *record.Run, bench string, seconds float64, n int, salt uint64) store.Entry {
	e := store.Entry{Run: r, Result: record.Result{Bench: bench, Clock: record.HostClock, Verdict: record.OK}}
	for i := range n {
		salt = salt*6364136223846793005 + 1442695040888963407 + uint64(i)
		e.Samples = append(e.Samples, seconds*(1+0.01*(float64(salt>>11)/(1<<53)-0.5)))
	}
	return e
}

func outcomes(c *Comparison) map[string]Outcome {
	m := map[string]Outcome{}
	for _, r := range c.Rows {
		m[r.Name] = r.Outcome
	}
	return m
}

// several are n runs of one code, whose times differ by a hundredth of noise at most.
func several(commit, bench string, seconds float64, n int) (out []store.Entry) {
	for i := range n {
		out = append(out, entry(newRun(commit), bench, seconds*(1+0.002*float64(i%3)), 20, uint64(i)))
	}
	return out
}

func TestCompare(t *testing.T) {
	other := several("old", "slower", 2, 3) // another code that the selection has, measured before
	a, b := newRun("a"), newRun("b")
	failed := func(r *record.Run, bench string) store.Entry {
		return store.Entry{Run: r, Result: record.Result{Bench: bench, Clock: record.HostClock, Verdict: record.Failed,
			Reason: "wrong"}}
	}
	unclocked := failed(b, "lost2")
	unclocked.Clock = ""
	before := []store.Entry{entry(a, "few", 1, 3, 5), entry(a, "gone", 1, 20, 6), entry(a, "lost", 1, 20, 7),
		failed(a, "gained"), failed(a, "never"), entry(a, "lost2", 1, 20, 8), entry(a, "once", 1, 20, 9)}
	after := []store.Entry{entry(b, "few", 2, 3, 15), entry(b, "new", 1, 20, 16), failed(b, "lost"),
		entry(b, "gained", 1, 20, 17), failed(b, "never"), unclocked, entry(b, "once", 1.3, 20, 9)}
	for name, ratio := range map[string]float64{"slower": 1.2, "faster": 0.8, "noise": 1, "within": 1.02} {
		before = append(before, several("a", name, 1, 4)...)
		after = append(after, several("b", name, ratio, 5)...)
	}
	before = slices.Concat(other, before)
	c := Compare(before, after, Options{})
	want := map[string]Outcome{"slower": Slower, "faster": Faster, "noise": Same, "within": Same, "few": Few,
		"gone": Missing, "new": New, "once": Noisy,
		"lost": Lost, "gained": Gained, "never": Unusable, "lost2": Lost}
	for name, o := range outcomes(c) {
		if o != want[name] {
			t.Errorf("%s: %s, expected %s", name, o, want[name])
		}
	}
	if len(c.Rows) != len(want) || c.Tests != 6 || c.Count(Slower, Lost) != 3 {
		t.Errorf("%d rows, %d tests, %d regressions", len(c.Rows), c.Tests, c.Count(Slower, Lost))
	}
	if r := c.Rows[0]; r.Outcome != Lost || r.Why() != "failed: wrong" {
		t.Errorf("first comes %s: %s", r.Name, r.Why())
	}
	for _, r := range c.Rows {
		if r.Name == "slower" && (math.Abs(r.Ratio-1.2) > 0.01 || r.Runs.Before != 4 || r.Runs.Now != 5 || r.P > 1e-4 ||
			r.P < 5*r.RawP) {
			t.Errorf("%+v %+v", r, r.Runs)
		}
		if r.Name == "within" && (r.P > 0.05 || r.Band != DefaultBand) {
			t.Errorf("a difference of 2 %% is significant here (p %g), and noise by the band of %g", r.P, r.Band)
		}
	}
	if o := outcomes(Compare(before, after, Options{Band: -1})); o["within"] != Slower {
		t.Errorf("without a band 2 %% more are %s", o["within"])
	}
	if o := outcomes(Compare(before, after, Options{Band: 0.5})); o["slower"] != Noisy {
		t.Errorf("in a band of 50 %% 20 %% more are %s", o["slower"])
	}
}

// TestFewAmongMany has ten benchmarks of one run of five samples, all three times slower: Holm's p cannot
// be below 0.01 for any of them, which must not be called the same.
func TestFewAmongMany(t *testing.T) {
	a, b := newRun("a"), newRun("b")
	var x, y []store.Entry
	for i := range uint64(10) {
		x = append(x, entry(a, fmt.Sprint("b", i), 1, 5, i))
		y = append(y, entry(b, fmt.Sprint("b", i), 3, 5, i+50))
	}
	if c := Compare(x, y, Options{}); c.Count(Few) != 10 || c.Tests != 10 || c.Rows[0].P <= c.Alpha {
		t.Errorf("%v of %d tests", outcomes(c), c.Tests)
	}
	if c := Regressions(append(slices.Clone(x), y...), Options{}); c.Unjudged != 10 || len(c.Rows) != 0 {
		t.Errorf("regressions: %d cannot be judged, %v", c.Unjudged, outcomes(c))
	}
	if c := Compare(x[:1], y[:1], Options{}); c.Count(Slower) != 1 {
		t.Errorf("of one test: %v", outcomes(c))
	}
	for i := range y {
		y[i].Samples = x[i].Samples
	}
	if c := Compare(x, y, Options{}); c.Count(Noisy) != 10 {
		t.Errorf("the same samples: %v", outcomes(c))
	}
}

// TestLuckOfARun: on a loaded machine one run of the same code is a quarter slower than the other with all its samples.
// That says nothing; eight runs of either code, a third slower, do.
func TestLuckOfARun(t *testing.T) {
	x, y := entry(newRun("a"), "x", 1, 20, 1), entry(newRun("b"), "x", 1.25, 20, 2)
	r := Compare([]store.Entry{x}, []store.Entry{y}, Options{}).Rows[0]
	if r.Outcome != Noisy || !strings.HasPrefix(r.Why(), "cannot tell: 1 of 3 runs") {
		t.Errorf("%s: %s", r.Outcome, r.Why())
	}
	var before, after []store.Entry
	for i := range 8 {
		luck := []float64{0.95, 1, 1.08, 0.97}
		before = append(before, entry(newRun(""), "x", luck[i%4], 20, uint64(i))) // built where no commit is known
		after = append(after, entry(newRun("b+dirty"), "x", 1.3*luck[(i+1)%4], 20, uint64(i)))
	}
	if r := Compare(before, after, Options{}).Rows[0]; r.Outcome != Slower {
		t.Errorf("%s: %s %+v", r.Outcome, r.Why(), r.Runs)
	}
	if r := Compare(after, before, Options{}).Rows[0]; r.Outcome != Faster {
		t.Errorf("the other way round: %s: %s", r.Outcome, r.Why())
	}
}

// TestAlikeRunsAreCompared: of a code's runs those count that were disturbed as the last of the other was, by the same
// quota where it was one; without such nothing is compared.
func TestAlikeRunsAreCompared(t *testing.T) {
	quota := func(entries []store.Entry, cpus float64) []store.Entry {
		for i := range entries {
			entries[i].Metrics = map[string]float64{record.QuotaCPUs: cpus}
		}
		return entries
	}
	before := slices.Concat(several("a", "x", 1, 4), quota(several("a", "x", 3, 3), 0.5))
	for _, c := range []struct {
		now     []store.Entry
		outcome Outcome
		runs    int
	}{
		{several("b", "x", 1, 3), Same, 4},
		{quota(several("b", "x", 3, 3), 0.5), Same, 3},
		{quota(several("b", "x", 3, 3), 1.5), Disturbed, 0},
	} {
		r := Compare(before, c.now, Options{}).Rows[0]
		if r.Outcome != c.outcome || r.Runs != nil && r.Runs.Before != c.runs {
			t.Errorf("%s, expected %s: %+v", r.Outcome, c.outcome, r.Runs)
		}
		if g := Gate(c.now[0].Run.ID, append(before[:7:7], c.now[0]), Options{}).Rows[0]; c.runs == 0 && g.Outcome != New ||
			c.runs > 0 && g.Runs.Before != c.runs {
			t.Errorf("gate: %s, %+v", g.Outcome, g.Runs)
		}
	}
	if r := Compare(before, quota(several("b", "x", 1, 3), 1.5), Options{Disturbed: true}).Rows[0]; r.Runs.Before != 7 {
		t.Errorf("asked for: %+v", r.Runs)
	}
}

// TestGate: the best ever counts, not the last, and only that of the same device and driver. What few runs came before
// is not called the same.
func TestGate(t *testing.T) {
	var all []store.Entry
	add := func(r *record.Run, bench string, seconds float64) string {
		all = append(all, entry(r, bench, seconds, 20, uint64(len(all))))
		return r.ID
	}
	for range 4 {
		add(newRun("a"), "creep", 1)
		add(newRun("b"), "creep", 1.025) // each step is within the band
		add(newRun("c"), "creep", 1.05)
		add(newRun("f"), "better", 1)
	}
	other := newRun("d")
	other.Env.Driver = "2"
	add(other, "driver", 0.5)
	card := newRun("e")
	card.Env.Device = "other CPU"
	add(card, "device", 0.5)
	add(newRun("f"), "driver", 1)
	add(newRun("f"), "device", 1)
	gone := newRun("f")
	add(gone, "gone", 1)
	now := newRun("now")
	add(now, "creep", 1.075)
	add(now, "driver", 1)
	add(now, "device", 1)
	add(now, "better", 0.9)
	id := add(now, "first", 1)
	all = append(all, store.Entry{Run: now, Result: record.Result{Bench: "gone", Verdict: record.Skipped,
		Reason: "no kernel"}})
	c := Gate(id, all, Options{})
	want := map[string]Outcome{"creep": Slower, "driver": Noisy, "device": Noisy, "better": Faster, "first": New,
		"gone": Lost}
	got := outcomes(c)
	for name, o := range want {
		if got[name] != o {
			t.Errorf("%s: %s, expected %s", name, got[name], o)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for _, r := range c.Rows {
		if r.Name == "creep" && (r.Old.Commit != "a" || math.Abs(r.Ratio-1.075) > 0.01) {
			t.Errorf("creep was held against commit %s: %g", r.Old.Commit, r.Ratio)
		}
		if r.Outcome == Noisy && (r.Old.Commit != "f" || r.BandFrom != "assumption" ||
			!strings.HasPrefix(r.Why(), "cannot tell: 1 of 3 runs that are needed")) {
			t.Errorf("%s against %s: band by %s, %s", r.Name, r.Old.Commit, r.BandFrom, r.Why())
		}
	}
}

// TestBandFromHistory: where runs of the same code differ by ten percent, ten percent
// more than the best of them is no regression, and nothing that could be told.
func TestBandFromHistory(t *testing.T) {
	var all []store.Entry
	for i, s := range []float64{1, 1.1, 1.05, 1.12, 1.02} {
		all = append(all, entry(newRun("same"), "loud", s, 20, uint64(i)))
	}
	now := newRun("now")
	all = append(all, entry(now, "loud", 1.1, 20, 9))
	c := Gate(now.ID, all, Options{})
	r := c.Rows[0]
	if r.Outcome != Noisy || r.BandFrom != "5+1 runs" || r.Band < 0.1 || r.Band > 0.25 {
		t.Errorf("%+v", r)
	}
	if r.Runs.Before != 5 || r.Runs.Noise < 0.03 || r.Runs.Noise > 0.06 ||
		!strings.Contains(r.Why(), "cannot tell: noise of 4.") {
		t.Errorf("%+v %s", r.Runs, r.Why())
	}
	for i := range 5 {
		all = append(all, entry(newRun("same"), "loud", 1.01*float64(100+i)/100, 20, uint64(i)))
	}
	all = append(all, entry(now, "loud", 2, 20, 9))
	if r := Gate(now.ID, all, Options{}).Rows[0]; r.Outcome != Slower || r.Runs.Before != 10 {
		t.Errorf("twice the time: %+v", r)
	}
}

// TestRegressions: the last result of each benchmark and device counts, not what came before.
func TestRegressions(t *testing.T) {
	var all []store.Entry
	add := func(r *record.Run, bench string, seconds float64) {
		all = append(all, entry(r, bench, seconds, 20, uint64(len(all))))
	}
	a, b, c := newRun("a"), newRun("b"), newRun("c")
	add(a, "mended", 1)
	add(a, "slow", 1)
	add(a, "once", 1)
	add(b, "mended", 2)
	add(b, "slow", 1)
	add(c, "mended", 1)
	add(c, "slow", 2.5)
	got := Regressions(all, Options{})
	if len(got.Rows) != 1 || got.Rows[0].Name != "slow" || got.Rows[0].New.Run != c.ID || got.Tests != 2 {
		t.Errorf("%d tests, %+v", got.Tests, got.Rows)
	}
}

// TestCompareDevices: two devices can be compared; sets that hold several are compared
// device by device.
func TestCompareDevices(t *testing.T) {
	a, b := newRun("a"), newRun("a")
	b.Env.Device, b.Env.Backend = "GPU", "vulkan"
	x, y := []store.Entry{entry(a, "add", 2, 20, 1)}, []store.Entry{entry(b, "add", 1, 20, 2)}
	if c := Compare(x, y, Options{}); len(c.Rows) != 1 || c.Rows[0].Outcome != Faster {
		t.Errorf("%+v", c.Rows)
	}
	later := newRun("b")
	z := append(y[:1:1], entry(later, "add", 2, 20, 3))
	if c := Compare(x, z, Options{}); len(c.Rows) != 1 || c.Rows[0].Outcome != Noisy || c.Rows[0].Device != "CPU" {
		t.Errorf("%+v", c.Rows)
	}
}

// TestDriftIsNoise: where the samples of the runs wander by ten percent, five percent between them are noise;
// scatter alone is none.
func TestDriftIsNoise(t *testing.T) {
	var x, y []store.Entry
	for i := range uint64(4) {
		x = append(x, entry(newRun("a"), "drifts", 1, 100, i))
		y = append(y, entry(newRun("b"), "drifts", 1.05, 100, i+9))
	}
	if r := Compare(x, y, Options{}).Rows[0]; r.Outcome != Slower {
		t.Errorf("%s, band %g from %q", r.Outcome, r.Band, r.BandFrom)
	}
	for _, e := range y {
		for i := range e.Samples {
			e.Samples[i] *= 1 + 0.1*float64(i/10%3-1)
		}
	}
	if r := Compare(x, y, Options{}).Rows[0]; r.Outcome != Noisy || r.Runs.Noise < 0.05 || r.BandFrom != "4+4 runs" {
		t.Errorf("%s, band %g from %q, %+v", r.Outcome, r.Band, r.BandFrom, r.Runs)
	}
	if r := Compare(x, y, Options{Band: -1}).Rows[0]; r.Band != 0 || r.BandFrom != "" {
		t.Errorf("without a band it is %g from %q", r.Band, r.BandFrom)
	}
}
