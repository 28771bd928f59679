// Package compare says whether one set of results is slower than another, and
// whether that is more than noise.
//
// Runs are what repeats: samples of one run share its placement, clocks and
// temperature, so that two runs of the same code differ by more than their samples
// suggest. So a run counts by its median, runs of one code are a group, and two
// groups are held against each other by Student's test on logarithms. Since a
// comparison makes one test for each benchmark, its p values are adjusted by Holm's
// method: the chance that any of them is a false alarm stays below alpha. What is
// not significant is the same only where a slowdown of a tenth would have been seen.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/sorting"
)

// Defaults of Options.
const (
	// DefaultAlpha is the chance that any result of identical code is called slower. It is half of what is promised
	// (1 of 50), since runs are not as independent and normal as the test takes them to be.
	DefaultAlpha = 0.01
	DefaultBand  = 0.03
)

// Options say what counts as a difference.
type Options struct {
	Alpha float64 // of all tests together; 0: DefaultAlpha
	Band  float64 // relative difference of medians that is noise in any case; 0: DefaultBand; below 0: none
	// Disturbed compares what was measured under load, a quota or a binding with what was not, too.
	Disturbed bool
	// TwoSided counts what is faster as a find too, so that either way has half of Alpha. Compare does it in any case.
	TwoSided bool

	rounds map[string]int // by run, of two programs that took turns
}

func (o *Options) fill() {
	switch {
	case o.Band == 0:
		o.Band = DefaultBand
	case o.Band < 0:
		o.Band = 0
	}
	if o.Alpha == 0 {
		o.Alpha = DefaultAlpha
	}
}

// Outcome is what a comparison of two results says of the second.
type Outcome string

// The outcomes.
const (
	Slower   Outcome = "slower"
	Faster   Outcome = "faster"
	Same     Outcome = "same"     // not significant, or within the band, and a slowdown of 10 % would have been seen
	Few      Outcome = "few"      // too few samples and runs, among so many tests, for any difference to be significant
	Lost     Outcome = "lost"     // it was measured before, and now failed, was refused or was skipped
	Gained   Outcome = "gained"   // the other way round
	Missing  Outcome = "missing"  // only the first has it
	New      Outcome = "new"      // only the second has it
	Unusable Outcome = "unusable" // neither is OK
	// Disturbed: other programs, a quota or a binding disturbed one of the two and not the other.
	Disturbed Outcome = "disturbed"
	// Noisy: the noise between runs is such that a slowdown of 10 % would be missed too often.
	Noisy Outcome = "noisy"
)

// Point is a side of a comparison: a result, in short.
type Point struct {
	Run     string         `json:"run"`
	Commit  string         `json:"commit,omitempty"`
	Kernel  string         `json:"kernel,omitempty"`
	Verdict record.Verdict `json:"verdict"`
	Reason  string         `json:"reason,omitempty"`
	// Disturbed says what disturbed the measurement.
	Disturbed string        `json:"disturbed,omitempty"`
	Time      stats.Summary `json:"seconds"`
	samples   []float64
}

func point(e *store.Entry) *Point {
	if e == nil {
		return nil
	}
	return &Point{e.Run.ID, e.Run.Env.Commit, e.Kernel, e.Verdict, e.Reason, e.Disturbed(), stats.Summarize(e.Samples),
		e.Samples}
}

// Row compares two results of one benchmark.
type Row struct {
	Name   string  `json:"name"`
	Clock  string  `json:"clock"`
	Device string  `json:"device,omitempty"`
	Old    *Point  `json:"old,omitempty"`
	New    *Point  `json:"new,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"` // of typical runs' medians, new to old: above 1 is slower
	P      float64 `json:"p,omitempty"`     // adjusted by Holm's method
	RawP   float64 `json:"raw_p,omitempty"` // of this test alone
	Band   float64 `json:"band"`            // relative: the least change that the noise lets be seen
	// BandFrom says what the noise is known from: so many runs of the same code, or an assumption.
	BandFrom string  `json:"band_from,omitempty"`
	Outcome  Outcome `json:"outcome"`
	Runs     *Runs   `json:"runs,omitempty"` // the runs that it rests on
}

// Why says in words what an outcome rests on.
func (r *Row) Why() string {
	switch r.Outcome {
	case Lost:
		return fmt.Sprintf("%s: %s", r.New.Verdict, r.New.Reason)
	case Gained:
		return fmt.Sprintf("was %s: %s", r.Old.Verdict, r.Old.Reason)
	case Unusable:
		return fmt.Sprintf("%s before, %s now", r.Old.Verdict, r.New.Verdict)
	case Disturbed:
		return fmt.Sprintf("before: %s; now: %s; --disturbed compares them", cmp.Or(r.Old.Disturbed, "nothing"),
			cmp.Or(r.New.Disturbed, "nothing"))
	case Noisy:
		return r.Runs.cannot()
	case Few:
		return fmt.Sprintf("%d and %d samples cannot show a difference", r.Old.Time.N, r.New.Time.N)
	}
	return ""
}

// Comparison is a table of rows with what they mean together.
type Comparison struct {
	Alpha    float64 `json:"alpha"`
	Band     float64 `json:"band"`
	Tests    int     `json:"tests"`              // that the p values are adjusted for
	Noisy    int     `json:"noisy,omitempty"`    // of Regressions: results too noisy to say, which are no rows
	Unjudged int     `json:"unjudged,omitempty"` // of Regressions: results with too few samples to say, which are no rows
	Rows     []Row   `json:"rows"`
}

// Count is the number of rows with one of some outcomes.
func (c *Comparison) Count(outcomes ...Outcome) int {
	n := 0
	for i := range c.Rows {
		if slices.Contains(outcomes, c.Rows[i].Outcome) {
			n++
		}
	}
	return n
}

// key is what two results must share to be compared: benchmark, parameters,
// cache, forced variant, and whose clock it is.
type key struct{ name, clock string }

func keyOf(e *store.Entry) key { return key{e.Name(), e.Clock} }

// latest gives the last result of each benchmark. One that is OK counts before one
// that is not.
func latest(entries []store.Entry) map[key]*store.Entry {
	out := map[key]*store.Entry{}
	for i := range entries {
		e := &entries[i]
		k := keyOf(e)
		if e.Verdict != record.OK {
			k.clock = "" // a result that is not OK may not know its clock
			for _, clock := range []string{record.DeviceClock, record.HostClock} {
				if e.Clock == clock {
					k.clock = clock
				}
			}
		}
		if have := out[k]; have == nil || have.Verdict != record.OK || e.Verdict == record.OK {
			out[k] = e
		}
	}
	return out
}

// Compare compares two sets of results benchmark by benchmark. Where a set has
// several runs of one, those of the code of its last run that is OK count, and are as
// disturbed as the last of the second set, unless Options say otherwise. Sets of one
// device each are compared whatever the devices are; where a set has several, results
// are compared on each device (with its driver and threads) that both have.
func Compare(before, after []store.Entry, opt Options) *Comparison {
	opt.TwoSided = true
	opt.fill()
	c := &Comparison{Alpha: opt.Alpha, Band: opt.Band}
	before, after = measured(before), measured(after)
	x, y := byPlace(before), byPlace(after)
	if len(x) <= 1 && len(y) <= 1 {
		c.pair(before, after, "", opt, repeats)
	} else {
		for p, entries := range x {
			if len(y[p]) > 0 {
				c.pair(entries, y[p], p.device, opt, repeats)
			}
		}
	}
	c.settle()
	return c
}

// Turns compares runs of two programs that took turns, whatever code they say they are: the first run of the one with
// the first of the other, and so on, where there are enough rounds. A result that is not OK in one of the runs after is
// lost.
func Turns(before, after []store.Entry, opt Options) *Comparison {
	opt.fill()
	opt.rounds = roundsOf(before, after)
	c := &Comparison{Alpha: opt.Alpha, Band: opt.Band}
	c.pair(before, spoiled(after), "", opt, all)
	c.settle()
	return c
}

// roundsOf numbers the runs of each side in their order.
func roundsOf(sides ...[]store.Entry) map[string]int {
	rounds := map[string]int{}
	for _, entries := range sides {
		n := 0
		for i := range entries {
			id := entries[i].Run.ID
			if _, known := rounds[id]; !known {
				rounds[id] = n
				n++
			}
		}
	}
	return rounds
}

// differences are those of the logarithms of the runs' medians, of each round that both sides have.
func differences(before, now *group, rounds map[string]int) (all []float64) {
	old := map[int]float64{}
	for i, e := range before.entries {
		old[rounds[e.Run.ID]] = before.logs[i]
	}
	for i, e := range now.entries {
		if x, ok := old[rounds[e.Run.ID]]; ok {
			all = append(all, now.logs[i]-x)
		}
	}
	return all
}

// measured leaves out runs that only checked.
func measured(entries []store.Entry) []store.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e store.Entry) bool { return e.Run.Checked() })
}

// spoiled leaves out what is OK of a benchmark of which one result is not. Such a one may not know its clock.
func spoiled(entries []store.Entry) []store.Entry {
	bad := map[key]bool{}
	for i := range entries {
		if e := &entries[i]; e.Verdict != record.OK {
			bad[keyOf(e)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e store.Entry) bool {
		return e.Verdict == record.OK && (bad[keyOf(&e)] || bad[key{e.Name(), ""}])
	})
}

func byPlace(entries []store.Entry) map[place][]store.Entry {
	m := map[place][]store.Entry{}
	for _, e := range entries {
		p := placeOf(e.Run)
		m[p] = append(m[p], e)
	}
	return m
}

// chooser picks those of a benchmark's OK results that repeat one of them.
type chooser func(ok []*store.Entry, last *store.Entry) []*store.Entry

// repeats are the runs of the same code. If its source was changed from a commit between them, that counts as noise:
// who compares them has chosen them as one side.
func repeats(ok []*store.Entry, last *store.Entry) (same []*store.Entry) {
	for _, e := range ok {
		if codeOf(e) == codeOf(last) {
			same = append(same, e)
		}
	}
	return same
}

func all(ok []*store.Entry, _ *store.Entry) []*store.Entry { return ok }

// pair adds the rows of two sets.
func (c *Comparison) pair(before, after []store.Entry, device string, opt Options, choose chooser) {
	a, b := latest(before), latest(after)
	joinUnclocked(a, b)
	joinUnclocked(b, a)
	keys := map[key]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	oksA, oksB := usable(before), usable(after)
	for k := range keys {
		old, new := a[k], b[k]
		row := newRow(k, old, new, opt)
		if row.Outcome == Same || row.Outcome == Disturbed {
			x := newGroup(alike(choose(oksA[k], old), new, opt))
			y := newGroup(alike(choose(oksB[k], new), new, opt))
			if x != nil {
				row = newRow(k, x.middle(), y.middle(), opt)
				row.weigh(x, y, 1, opt)
			}
		}
		row.Device = device
		c.Rows = append(c.Rows, row)
	}
}

// usable are the results that are OK, by benchmark.
func usable(entries []store.Entry) map[key][]*store.Entry {
	m := map[key][]*store.Entry{}
	for i := range entries {
		if e := &entries[i]; e.Verdict == record.OK && len(e.Samples) > 0 {
			m[keyOf(e)] = append(m[keyOf(e)], e)
		}
	}
	return m
}

// alike are the results that the same kinds of things disturbed as one.
func alike(entries []*store.Entry, e *store.Entry, opt Options) []*store.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(o *store.Entry) bool {
		return !opt.Disturbed && !o.DisturbedAlike(&e.Result)
	})
}

// joinUnclocked gives a result of a that ended before its clock was known the
// clock of b's result of the same benchmark.
func joinUnclocked(a, b map[key]*store.Entry) {
	for k, e := range a {
		if k.clock != "" {
			continue
		}
		for _, clock := range []string{record.DeviceClock, record.HostClock} {
			to := key{k.name, clock}
			if b[to] != nil && a[to] == nil {
				a[to] = e
				delete(a, k)
				break
			}
		}
	}
}

// newRow compares two results without regard to the others.
func newRow(k key, old, new *store.Entry, opt Options) Row {
	r := Row{Name: k.name, Clock: k.clock, Old: point(old), New: point(new), Band: opt.Band}
	good := func(p *Point) bool { return p != nil && p.Verdict == record.OK && p.Time.N > 0 }
	switch {
	case old == nil:
		r.Outcome = New
	case new == nil:
		r.Outcome = Missing
	case good(r.Old) && !good(r.New):
		r.Outcome = Lost
	case !good(r.Old) && good(r.New):
		r.Outcome = Gained
	case !good(r.Old):
		r.Outcome = Unusable
	case !opt.Disturbed && !old.DisturbedAlike(&new.Result):
		r.Outcome = Disturbed
	default:
		r.Outcome = Same
	}
	return r
}

// weigh takes the runs of two codes, of which the one before is the best of so many, as what is tested. Where the
// noise between them is assumed, their samples must differ too.
func (r *Row) weigh(before, now *group, codes int, opt Options) {
	r.Runs = newRuns(before, now, codes, opt.TwoSided)
	if opt.rounds != nil {
		if d := differences(before, now, opt.rounds); len(d) >= enoughTurns {
			r.Runs.pair(d)
		}
	}
	r.Band, r.Ratio, r.RawP = max(opt.Band, 0), r.Runs.ratio(), r.Runs.p()
	if r.Runs.Assumed {
		t := &benchmath.DefaultThresholds
		x, y := benchmath.NewSample(slices.Clone(r.Old.samples), t), benchmath.NewSample(slices.Clone(r.New.samples), t)
		r.RawP = max(r.RawP, benchmath.AssumeNothing.Compare(x, y).P)
	}
}

// driftParts is into how many parts a run's samples are divided to see how they drift.
const driftParts = 10

// drift is how far the medians of successive parts of a run's samples lie apart, relative
// to their median; 0 where there are too few samples to say.
func drift(samples []float64) float64 {
	size := len(samples) / driftParts
	if size < 5 {
		return 0
	}
	var medians []float64
	for i := range driftParts {
		medians = append(medians, stats.Summarize(samples[i*size:(i+1)*size]).Median)
	}
	return spread(medians)
}

// spread is the median distance of values from their median, relative to it, times 1.4826,
// which makes it the standard deviation where they are normal.
func spread(values []float64) float64 {
	middle := stats.Summarize(values).Median
	var off []float64
	for _, v := range values {
		off = append(off, math.Abs(v-middle))
	}
	return 1.4826 * stats.Summarize(off).Median / middle
}

// leastP is the least two-sided p that the test can give for samples of these
// sizes: all of one side below all of the other, in either of two ways.
func leastP(n, m int) float64 {
	p := 2.0
	for i := 1; i <= min(n, m); i++ {
		p *= float64(i) / float64(max(n, m)+i)
	}
	return min(p, 1)
}

// settle adjusts the p values for their number, decides, and sorts the rows.
func (c *Comparison) settle() {
	var tested []*Row
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Outcome == Same {
			tested = append(tested, r)
		}
	}
	c.Tests = len(tested)
	sorting.Sort(tested, func(a, b *Row) int { return cmp.Compare(a.RawP, b.RawP) })
	least := 0.0
	for _, r := range tested {
		r.Runs.settle(c.Alpha, r.Band, len(tested))
		if band := r.Runs.limit(c.Alpha, len(tested)); r.Band > 0 && band > r.Band {
			r.Band, r.BandFrom = band, r.Runs.from()
		}
	}
	for i, r := range tested {
		// Holm: the smallest of n by n, the next by n-1; never below one before it.
		least = max(least, min(1, r.RawP*float64(len(tested)-i)))
		r.P = least
		r.judge(c.Alpha, c.Band, len(tested))
	}
	c.sort()
}

// judge decides a row of so many that were tested, with P adjusted.
func (r *Row) judge(alpha, band float64, tests int) {
	// Even if all samples of one side lay beyond the other's, and all tests were so, these are too few among so many.
	few := r.Runs.Assumed && leastP(r.Old.Time.N, r.New.Time.N)*float64(tests) > alpha
	switch beyond := math.Abs(r.Ratio-1) > band; {
	case beyond && r.P <= alpha && r.Ratio > 1:
		r.Outcome = Slower
	case beyond && r.P <= alpha:
		r.Outcome = Faster
	case beyond && few:
		r.Outcome = Few
	case r.Runs.Power < wanted:
		r.Outcome = Noisy
	}
}

// sort puts what got slower first, then goes by name.
func (c *Comparison) sort() {
	order := func(r *Row) int {
		return slices.Index([]Outcome{Lost, Slower, Noisy, Faster, Gained, Same, Few, Disturbed, Unusable, Missing, New},
			r.Outcome)
	}
	sorting.Sort(c.Rows, func(a, b Row) int {
		if d := order(&a) - order(&b); d != 0 {
			return d
		}
		if a.Outcome == Slower || a.Outcome == Faster {
			if d := cmp.Compare(math.Abs(math.Log(b.Ratio)), math.Abs(math.Log(a.Ratio))); d != 0 {
				return d
			}
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Clock, b.Clock), cmp.Compare(a.Device, b.Device))
	})
}
