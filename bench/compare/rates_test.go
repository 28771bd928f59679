package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/testfiles"
)

// rates are what became of simulated gates.
type rates struct {
	alarms      float64 // share of gates of identical code that found something slower
	found, told float64 // of slowdowns of a tenth: share called slower, and of those not called noisy
	noisy       float64 // share of slowed results that were called noisy
}

// noisyRun is a run of several benchmarks, the first of which is so much slower than 1 s.
func noisyRun(rng *rand.Rand, code string, benches int, slow, noise, wild float64) (out []store.Entry) {
	r := newRun(code)
	for b := range benches {
		scale := noise
		if wild > 1 && rng.IntN(10) == 0 {
			scale *= wild
		}
		x := math.Exp(scale * rng.NormFloat64())
		if b == 0 {
			x *= slow
		}
		out = append(out, entry(r, fmt.Sprint("b", b), x, 8, rng.Uint64()))
	}
	return out
}

// simulate runs gates of several benchmarks, one of which is slowed in every second one. Runs differ by noise, and
// every tenth by as much times wild.
func simulate(rng *rand.Rand, trials, benches, codes, before, now int, noise, wild float64) rates {
	var alarms, slower, noisy, gates float64
	for range trials {
		for _, slow := range []float64{1, 1.1} {
			var all []store.Entry
			for c := range codes {
				for range before {
					all = append(all, noisyRun(rng, fmt.Sprint("c", c), benches, 1, noise, wild)...)
				}
			}
			for range now {
				all = append(all, noisyRun(rng, "now", benches, slow, noise, wild)...)
			}
			c := Gate(all[len(all)-1].Run.ID, all, Options{})
			if slow == 1 {
				gates++
				if c.Count(Slower) > 0 {
					alarms++
				}
				continue
			}
			switch outcomes(c)["b0"] {
			case Slower:
				slower++
			case Noisy:
				noisy++
			}
		}
	}
	told := 1.0
	if gates > noisy {
		told = slower / (gates - noisy)
	}
	return rates{alarms / gates, slower / gates, told, noisy / gates}
}

// TestGateRates measures how often the gate errs: identical code fails at most 1 of 50 times, and of slowdowns of a
// tenth that it does not call too noisy it finds nine of ten. The rates stand in docs/bench.md.
func TestGateRates(t *testing.T) {
	rng := rand.New(rand.NewPCG(30, 3))
	trials := 250
	if testfiles.Exhaustive() {
		trials = 1000
	}
	for i, c := range []struct {
		benches, codes, before, now int
		noise, wild                 float64
		atLeast                     float64 // slowdowns found among all, noisy or not
	}{
		{1, 1, 1, 1, 0.05, 1, 0},
		{1, 1, 2, 1, 0.05, 1, 0},
		{4, 1, 1, 1, 0.05, 1, 0},
		{4, 3, 2, 1, 0.08, 1, 0},
		{1, 1, 1, 1, 0.05, 3, 0},
		{4, 1, 2, 1, 0.05, 3, 0},
		{1, 1, 3, 1, 0.01, 1, 0.5},
		{1, 1, 10, 1, 0.01, 1, 0.99},
		{1, 1, 10, 1, 0.02, 1, 0.5},
		{1, 1, 5, 1, 0.03, 1, 0},
		{1, 1, 10, 1, 0.03, 1, 0.1},
		{1, 1, 20, 1, 0.03, 1, 0.1},
		{1, 1, 12, 6, 0.03, 1, 0.9},
		{4, 1, 10, 1, 0.03, 1, 0},
		{4, 1, 16, 8, 0.03, 1, 0.9},
		{4, 3, 10, 1, 0.03, 1, 0},
		{4, 5, 3, 1, 0.02, 1, 0},
		{4, 1, 10, 1, 0.10, 1, 0},
		{1, 1, 10, 1, 0.03, 3, 0},
		{4, 1, 10, 1, 0.01, 3, 0},
		{4, 1, 12, 6, 0.01, 3, 0.9},
	} {
		if i%3 > 0 && !testfiles.Exhaustive() {
			continue
		}
		r := simulate(rng, trials, c.benches, c.codes, c.before, c.now, c.noise, c.wild)
		name := fmt.Sprintf("%d benchmarks, %d codes of %d runs, %d now, noise %g, wild %g", c.benches, c.codes, c.before,
			c.now, c.noise, c.wild)
		t.Logf("%s: alarms %.2f %%, found %.1f %%, of those told %.1f %%, noisy %.1f %%", name, 100*r.alarms, 100*r.found,
			100*r.told, 100*r.noisy)
		if r.alarms > 0.02 {
			t.Errorf("%s: identical code fails %.2f %%", name, 100*r.alarms)
		}
		if r.told < 0.9 {
			t.Errorf("%s: of slowdowns that are not called noisy %.1f %% are found", name, 100*r.told)
		}
		if r.found < c.atLeast {
			t.Errorf("%s: %.1f %% of slowdowns are found, expected %.0f", name, 100*r.found, 100*c.atLeast)
		}
	}
}

// TestCompareRates measures how often a comparison of runs of two programs errs: of identical code at most 1 of 50 has
// a row that is called slower or faster, and of slowdowns by 30 % that it does not call noisy it finds nine of ten.
func TestCompareRates(t *testing.T) {
	rng := rand.New(rand.NewPCG(30, 5))
	trials := 100
	if testfiles.Exhaustive() {
		trials = 1000
	}
	for i, c := range []struct {
		benches, runs int
		noise, wild   float64
		atLeast       float64 // slowdowns found among all, noisy or not
	}{
		{1, 1, 0.08, 3, 0}, {12, 1, 0.15, 1, 0}, {1, 3, 0.05, 1, 0.5}, {12, 3, 0.03, 1, 0.4}, {12, 8, 0.05, 1, 0.95},
		{12, 8, 0.10, 1, 0.3}, {12, 8, 0.05, 3, 0.8},
	} {
		if i%2 > 0 && !testfiles.Exhaustive() {
			continue
		}
		var alarms, slower, noisy float64
		for range trials {
			for _, slow := range []float64{1, 1.3} {
				var sides [2][]store.Entry
				for i, code := range []string{"a", "b"} {
					for range c.runs {
						sides[i] = append(sides[i], noisyRun(rng, code, c.benches, []float64{1, slow}[i], c.noise, c.wild)...)
					}
				}
				got := Compare(sides[0], sides[1], Options{})
				switch o := outcomes(got)["b0"]; {
				case slow == 1 && got.Count(Slower, Faster) > 0:
					alarms++
				case slow > 1 && o == Slower:
					slower++
				case slow > 1 && o == Noisy:
					noisy++
				}
			}
		}
		n := float64(trials)
		told := 1.0
		if n > noisy {
			told = slower / (n - noisy)
		}
		t.Logf("| %d | %d+%d | %.0f %%, wild %g | %.2f %% | %.1f %% | %.1f %% | %.1f %% |", c.benches, c.runs, c.runs,
			100*c.noise, c.wild, 100*alarms/n, 100*slower/n, 100*told, 100*noisy/n)
		if alarms/n > 0.02 || told < 0.9 || slower/n < c.atLeast {
			t.Errorf("%+v: identical code differs %.2f %%, found %.1f %%, of those told %.1f %%", c, 100*alarms/n, 100*slower/n,
				100*told)
		}
	}
}

// TestTurnsRates measures how often a gate by turns errs where a machine's load changes from round to round: identical
// code fails at most 1 of 50 times, and of slowdowns of a tenth that it does not call noisy it finds nine of ten. What
// both runs of a round share does not count as noise.
func TestTurnsRates(t *testing.T) {
	rng := rand.New(rand.NewPCG(30, 6))
	trials := 250
	if testfiles.Exhaustive() {
		trials = 1000
	}
	for i, c := range []struct {
		benches, rounds   int
		load, noise, wild float64 // shared by a round's runs, and of each run
		atLeast           float64 // slowdowns found among all, noisy or not
	}{
		{1, 8, 0.2, 0.03, 1, 0.9}, {4, 8, 0, 0.03, 1, 0.9}, {4, 8, 0.3, 0.02, 3, 0.4}, {1, 8, 0.2, 0.15, 1, 0},
		{1, 5, 0.05, 0.01, 1, 0}, {12, 8, 0.1, 0.02, 1, 0.9}, {1, 20, 0.3, 0.05, 1, 0.9}, {1, 6, 0.2, 0.01, 1, 0.9},
	} {
		if i%2 > 0 && !testfiles.Exhaustive() {
			continue
		}
		var alarms, slower, noisy float64
		for range trials {
			for _, slow := range []float64{1, 1.1} {
				var before, now []store.Entry
				for range c.rounds {
					a, b := noisyRun(rng, "a", c.benches, 1, c.noise, c.wild), noisyRun(rng, "b", c.benches, slow, c.noise, c.wild)
					load := math.Exp(c.load * rng.NormFloat64())
					for _, run := range [][]store.Entry{a, b} {
						for k := range run {
							for j := range run[k].Samples {
								run[k].Samples[j] *= load
							}
						}
					}
					before, now = append(before, a...), append(now, b...)
				}
				got := Turns(before, now, Options{})
				switch o := outcomes(got)["b0"]; {
				case slow == 1 && got.Count(Slower) > 0:
					alarms++
				case slow > 1 && o == Slower:
					slower++
				case slow > 1 && o == Noisy:
					noisy++
				}
			}
		}
		n := float64(trials)
		told := 1.0
		if n > noisy {
			told = slower / (n - noisy)
		}
		t.Logf("| %d | %d | %.0f %% | %.0f %%, wild %g | %.2f %% | %.1f %% | %.1f %% | %.1f %% |", c.benches, c.rounds,
			100*c.load, 100*c.noise, c.wild, 100*alarms/n, 100*slower/n, 100*told, 100*noisy/n)
		if alarms/n > 0.02 || told < 0.9 || slower/n < c.atLeast {
			t.Errorf("%+v: identical code fails %.2f %%, found %.1f %%, of those told %.1f %%", c, 100*alarms/n, 100*slower/n,
				100*told)
		}
	}
}

// TestTurns: runs of two programs by turns are told apart though both say they are the same code, and one result
// that is not OK is lost.
func TestTurns(t *testing.T) {
	rng := rand.New(rand.NewPCG(30, 4))
	var before, now []store.Entry
	for range 8 {
		for _, b := range []struct {
			name string
			slow float64
		}{{"slow", 1.1}, {"same", 1}, {"lost", 1}} {
			noise := func() float64 { return math.Exp(0.01 * rng.NormFloat64()) }
			before = append(before, entry(newRun("a"), b.name, noise(), 20, rng.Uint64()))
			now = append(now, entry(newRun("a"), b.name, b.slow*noise(), 20, rng.Uint64()))
		}
	}
	now[5].Verdict, now[5].Reason = "failed", "wrong"
	c := Turns(before, now, Options{})
	got := outcomes(c)
	if got["slow"] != Slower || got["same"] != Same || got["lost"] != Lost || len(got) != 3 || c.Tests != 2 {
		t.Errorf("%d tests, %v", c.Tests, got)
	}
	for _, r := range c.Rows {
		if r.Outcome != Lost && (r.Runs.Before != 8 || r.Runs.Now != 8 || r.Runs.Noise > 0.02) {
			t.Errorf("%s: %+v", r.Name, r.Runs)
		}
	}
}
