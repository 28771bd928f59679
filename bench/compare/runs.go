package compare

// What is known of the noise between runs: runs of one code are a group, and two groups are
// held against each other by Student's test on the logarithms of their runs' medians.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"gonum.org/v1/gonum/mathext"

	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
)

const (
	enoughRuns = 3 // of one code: with fewer nothing is known of the noise between runs
	// enoughTurns is from how many rounds on the two runs of a round are a pair: with fewer it costs more in degrees of
	// freedom than what disturbs both runs of a round is worth.
	enoughTurns = 6
	target      = 0.10 // the slowdown that a gate is there to find
	wanted      = 0.90 // how often it is to be found, else the gate cannot tell
	unsure      = 0.20 // chance that the noise is more than what the power is reckoned with
	// wildFreedom bounds the degrees of freedom where one or two runs are judged: now and then a run is disturbed
	// far more than the others, more often than the normal distribution has it. A median of three is not moved by one.
	wildFreedom = 4
	leastNoise  = 1e-6 // of logarithms: medians that are equal to the last digit
	// assumedNoise stands for the noise between runs as long as fewer runs than enough say what it is. On a machine
	// that other programs used too, medians of identical short runs had such a spread, and tails as wildFreedom's.
	assumedNoise = 0.08
)

// code is what makes runs comparable as repetitions: the kernels' sources and the commit.
type code struct{ kernels, commit string }

func codeOf(e *store.Entry) code { return code{e.Run.Env.Kernels, e.Run.Env.Commit} }

// pure says that runs of it surely ran the same code: a changed source has many states.
func (c code) pure() bool { return c.commit != "" && !strings.HasSuffix(c.commit, "+dirty") }

func logMedian(e *store.Entry) float64 { return math.Log(stats.Summarize(e.Samples).Median) }

// group is the runs of one code.
type group struct {
	code    code
	entries []*store.Entry
	logs    []float64 // of the runs' medians, in seconds
}

// newGroup is of results of one benchmark; of a run with several the last counts. It is nil where there are none.
func newGroup(entries []*store.Entry) *group {
	last := map[string]int{}
	for i, e := range entries {
		last[e.Run.ID] = i
	}
	var g *group
	for i, e := range entries {
		if last[e.Run.ID] != i {
			continue
		}
		if g == nil {
			g = &group{code: codeOf(e)}
		}
		g.entries, g.logs = append(g.entries, e), append(g.logs, logMedian(e))
	}
	return g
}

func (g *group) typical() float64 { return stats.Summarize(g.logs).Median }

// middle is the run whose median is nearest to the typical one.
func (g *group) middle() *store.Entry {
	at := g.typical()
	return slices.MinFunc(g.entries, func(a, b *store.Entry) int {
		return cmp.Compare(math.Abs(logMedian(a)-at), math.Abs(logMedian(b)-at))
	})
}

// groupsOf sorts results of one benchmark and place by code. A run that does not know its code is alone.
func groupsOf(entries []*store.Entry) map[code]*group {
	by := map[code][]*store.Entry{}
	for _, e := range entries {
		c := codeOf(e)
		if c == (code{}) {
			c.commit = "run " + e.Run.ID
		}
		by[c] = append(by[c], e)
	}
	groups := map[code]*group{}
	for c, of := range by {
		groups[c] = newGroup(of)
		groups[c].code = c
	}
	return groups
}

// bestGroup is the code whose typical run is best, and among how many it was chosen. Codes with enough
// runs to know their noise come before those without.
func bestGroup(groups map[code]*group) (best *group, among int) {
	for _, need := range []int{enoughRuns, 1} {
		for _, g := range groups {
			if len(g.logs) < need {
				continue
			}
			among++
			if best == nil || g.typical() < best.typical() {
				best = g
			}
		}
		if best != nil {
			return best, among
		}
	}
	return nil, 0
}

// Runs says what a row rests on.
type Runs struct {
	Before int `json:"before"` // runs of the code that it is held against
	Now    int `json:"now"`    // runs of the code that is judged
	Codes  int `json:"codes"`  // among which the one before is the best: 1 but for a gate
	// Noise is the standard deviation of a run's median, relative: between runs of the same code, or
	// the drift within runs, if that is more.
	Noise float64 `json:"noise"`
	// Pairs are the rounds whose two runs are held against each other, where two programs took turns; 0: typical runs are
	// held against typical runs. The noise is then what is left between the two runs of a round, over √2.
	Pairs int `json:"pairs,omitempty"`
	// Assumed says that there are too few runs of either code to know the noise between them.
	Assumed bool `json:"assumed,omitempty"`
	// Power is how often a slowdown of a tenth is found with this noise, so many runs and tests.
	Power float64 `json:"power,omitempty"`
	// Need is how many runs of either code would find it often enough, 0 where these do, no hundred would or the noise is
	// assumed.
	Need int `json:"need,omitempty"`

	typical, now float64 // logarithms of typical seconds
	freedom      float64
	tries        float64 // ways in which identical code could be called different: codes, and either direction
}

func newRuns(before, now *group, codes int, twoSided bool) *Runs {
	r := &Runs{Before: len(before.logs), Now: len(now.logs), Codes: codes, typical: before.typical(), now: now.typical()}
	r.tries = float64(codes)
	if twoSided {
		r.tries *= 2
	}
	r.Assumed = max(r.Before, r.Now) < enoughRuns
	sum, known := 0.0, r.Before+r.Now-2
	for _, g := range []*group{before, now} {
		if n := len(g.logs); n > 1 {
			sum += squares(g.logs)
		}
	}
	var drifts []float64
	for _, e := range before.entries {
		drifts = append(drifts, drift(e.Samples))
	}
	within := max(stats.Summarize(drifts).Median, drift(now.entries[0].Samples))
	between := math.Sqrt(sum / float64(max(known, 1)))
	r.freedom = freedom(known, r.Before, r.Now)
	if r.Assumed {
		between, r.freedom = max(between, assumedNoise), wildFreedom
	}
	r.Noise = max(between, within, leastNoise)
	return r
}

// pair holds the runs of each round against each other: their difference is free of what lasts longer than a round, as
// the load of a machine does.
func (r *Runs) pair(differences []float64) {
	r.Pairs, r.Assumed = len(differences), false
	sum := 0.0
	for _, d := range differences {
		sum += d
	}
	r.now = r.typical + sum/float64(r.Pairs)
	r.freedom = float64(r.Pairs - 1)
	r.Noise = max(math.Sqrt(squares(differences)/r.freedom/2), leastNoise)
}

func (r *Runs) ratio() float64 { return math.Exp(r.now - r.typical) }

// share is the variance of the median of n runs as a share of that of one run: 1/n for one and two, and
// for more π/2n, which is the limit for many and more than it is for few.
func share(n int) float64 {
	if n <= 2 {
		return 1 / float64(n)
	}
	return math.Pi / 2 / float64(n)
}

// wide is the standard deviation of the difference of two typical runs, with before and now runs.
func (r *Runs) wide(before, now int) float64 {
	if r.Pairs > 0 { // the mean of differences
		return r.Noise * math.Sqrt(2/float64(now))
	}
	return r.Noise * math.Sqrt(share(before)+share(now))
}

// freedom is the degrees of freedom of the test, where runs of either code together have so many.
func freedom(known, before, now int) float64 {
	if min(before, now) < enoughRuns {
		known = min(known, wildFreedom)
	}
	return float64(known)
}

// squares is the sum of the squares of x less its mean.
func squares(x []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	return sum
}

// student is the chance that Student's t exceeds t, which is not negative.
func student(freedom, t float64) float64 {
	return mathext.RegIncBeta(freedom/2, 0.5, freedom/(t*t+freedom)) / 2
}

// studentLimit is what Student's t exceeds with the chance p.
func studentLimit(freedom, p float64) float64 {
	if p > 0.5 {
		return -studentLimit(freedom, 1-p)
	}
	x := mathext.InvRegIncBeta(freedom/2, 0.5, 2*p)
	return math.Sqrt(freedom * (1 - x) / x)
}

// p is the chance that identical code is as much slower (where either way counts: or faster) than the best of the
// codes as it is here.
func (r *Runs) p() float64 {
	t := math.Abs(r.now-r.typical) / r.wide(r.runs())
	return min(1, student(r.freedom, t)*r.tries)
}

// limit is the relative difference from which on one of so many tests is significant at alpha, by Bonferroni.
func (r *Runs) limit(alpha float64, tests int) float64 {
	return math.Expm1(studentLimit(r.freedom, alpha/(float64(tests)*r.tries)) * r.wide(r.runs()))
}

// settle reckons the power for so many tests.
func (r *Runs) settle(alpha, band float64, tests int) {
	// The noise is itself known from few runs: the power is reckoned with what it hardly exceeds.
	up := math.Sqrt(r.freedom / (2 * mathext.GammaIncRegInv(r.freedom/2, unsure)))
	power := func(before, now int, free float64) float64 {
		wide := r.wide(before, now)
		at := max(studentLimit(free, alpha/(float64(tests)*r.tries))*wide, math.Log1p(band))
		return math.Erfc((at-math.Log1p(target))/(wide*up*math.Sqrt2)) / 2 // of a normal distribution
	}
	before, now := r.runs()
	r.Power = power(before, now, r.freedom)
	if r.Assumed || r.Power >= wanted {
		return
	}
	need := enoughRuns + sort.Search(100-enoughRuns, func(i int) bool {
		b, n := max(enoughRuns+i, before), max(enoughRuns+i, now)
		if r.Pairs > 0 {
			return power(n, n, float64(n-1)) >= wanted
		}
		return power(b, n, freedom(b+n-2, b, n)) >= wanted
	})
	if need < 100 {
		r.Need = need
	}
}

// runs are how many there are of either code that the test has.
func (r *Runs) runs() (before, now int) {
	if r.Pairs > 0 {
		return r.Pairs, r.Pairs
	}
	return r.Before, r.Now
}

// from says what the noise is known from.
func (r *Runs) from() string {
	if r.Pairs > 0 {
		return fmt.Sprintf("%d rounds", r.Pairs)
	}
	if r.Assumed {
		return "assumption"
	}
	return fmt.Sprintf("%d+%d runs", r.Before, r.Now)
}

// cannot says why nothing can be told, and what would help.
func (r *Runs) cannot() string {
	if r.Assumed {
		return fmt.Sprintf("cannot tell: %d of %d runs that are needed of a code; until then noise of %.2g %% is assumed",
			max(r.Before, r.Now), enoughRuns, 100*r.Noise)
	}
	text := fmt.Sprintf("cannot tell: noise of %.2g %% between runs, a slowdown of 10 %% is found %.0f of 100 times",
		100*r.Noise, 100*r.Power)
	if r.Need > 0 {
		return text + fmt.Sprintf("; %d runs of either code (%d and %d now) would tell", r.Need, r.Before, r.Now)
	}
	return text + "; no hundred runs would tell"
}
