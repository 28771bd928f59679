package compare

import (
	"cmp"
	"fmt"
	"slices"

	"greta/bench/record"
	"greta/bench/stats"
	"greta/bench/store"
)

// place is where results can be held against each other over time: a kind of
// device with its driver, and how much of it the process uses. The host is no part
// of it: rented machines change their names with every start.
type place struct {
	backend, device, level, driver string
	threads                        int
}

func placeOf(r *record.Run) place {
	e := &r.Env
	return place{e.Backend, e.Device, e.Level, e.Driver, e.Threads}
}

// Gate holds a run's results against the best ever of the same benchmark, device
// and driver, among the results of all other runs. Where three or more runs of the
// same code are there, the band is at least twice their spread.
func Gate(run string, all []store.Entry, opt Options) *Comparison {
	var mine []store.Entry
	for i := range all {
		if all[i].Run.ID == run {
			mine = append(mine, all[i])
		}
	}
	var now []*store.Entry
	for _, e := range latest(mine) {
		now = append(now, e)
	}
	return against(now, all, opt)
}

// Regressions holds the last result of every benchmark on every device against the
// best ever, as Gate does, and gives what is slower or lost.
func Regressions(all []store.Entry, opt Options) *Comparison {
	var now []*store.Entry
	all = slices.DeleteFunc(slices.Clone(all), func(e store.Entry) bool { return e.Run.Checked() })
	for _, entries := range byPlace(all) {
		last := map[string][]store.Entry{} // by benchmark: the run that measured it last
		for _, e := range entries {
			have := last[e.Name()]
			if len(have) > 0 && have[0].Run.ID != e.Run.ID {
				have = nil
			}
			last[e.Name()] = append(have, e)
		}
		for _, results := range last {
			for _, e := range latest(results) {
				now = append(now, e)
			}
		}
	}
	c := against(now, all, opt)
	c.Unjudged = c.Count(Few)
	c.Rows = slices.DeleteFunc(c.Rows, func(r Row) bool { return r.Outcome != Slower && r.Outcome != Lost })
	return c
}

// against compares results with the best of other runs.
func against(now []*store.Entry, all []store.Entry, opt Options) *Comparison {
	opt.fill()
	c := &Comparison{Alpha: opt.Alpha, Band: opt.Band}
	type shelf struct {
		key
		place
	}
	others := map[shelf][]*store.Entry{}
	for i := range all {
		if e := &all[i]; e.Verdict == record.OK && len(e.Samples) > 0 && !e.Run.Checked() {
			s := shelf{keyOf(e), placeOf(e.Run)}
			others[s] = append(others[s], e)
		}
	}
	for _, e := range now {
		k := keyOf(e)
		clocks := []string{k.clock}
		if e.Verdict != record.OK && k.clock == "" { // it ended before its clock was known
			clocks = []string{record.DeviceClock, record.HostClock}
		}
		var before []*store.Entry
		for _, clock := range clocks {
			for _, o := range others[shelf{key{k.name, clock}, placeOf(e.Run)}] {
				if o.Run.ID != e.Run.ID && (opt.Disturbed || o.DisturbedAlike(&e.Result)) {
					before = append(before, o)
				}
			}
		}
		row := newRow(k, Best(before), e, opt)
		if far, n := Spread(before); n >= spreadRuns {
			row.widen(2*far, fmt.Sprintf("%d runs", n))
		}
		row.Device = e.Run.Env.Device
		c.Rows = append(c.Rows, row)
	}
	c.settle()
	return c
}

// Best is the result with the least median, nil of none.
func Best(entries []*store.Entry) *store.Entry {
	if len(entries) == 0 {
		return nil
	}
	return slices.MinFunc(entries, func(a, b *store.Entry) int {
		return cmp.Compare(stats.Summarize(a.Samples).Median, stats.Summarize(b.Samples).Median)
	})
}

// spreadRuns is how many runs of the same code must be there to say how far they spread.
const spreadRuns = 3

// Spread is the relative spread of the medians of runs of the same code, and of how
// many runs. Of several such groups the one with the most runs counts.
func Spread(entries []*store.Entry) (relative float64, runs int) {
	type code struct{ kernels, commit string }
	groups := map[code]map[string]float64{}
	for _, e := range entries {
		c := code{e.Run.Env.Kernels, e.Run.Env.Commit}
		if c == (code{}) {
			continue
		}
		if groups[c] == nil {
			groups[c] = map[string]float64{}
		}
		groups[c][e.Run.ID] = stats.Summarize(e.Samples).Median
	}
	for _, g := range groups {
		var medians []float64
		for _, m := range g {
			medians = append(medians, m)
		}
		spread := spread(medians)
		if len(medians) > runs || len(medians) == runs && spread > relative {
			relative, runs = spread, len(medians)
		}
	}
	return relative, runs
}
