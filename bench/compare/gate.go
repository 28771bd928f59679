package compare

import (
	"slices"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
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

// Gate holds a run's results against earlier and other runs of the same benchmark, device and
// driver: against that code whose typical run is best, with the noise between its runs.
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

// Regressions holds the last result of every benchmark on every device as
// Gate does one run, and gives what is slower or lost.
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
	c.Unjudged, c.Noisy = c.Count(Few), c.Count(Noisy)
	c.Rows = slices.DeleteFunc(c.Rows, func(r Row) bool { return r.Outcome != Slower && r.Outcome != Lost })
	return c
}

// against compares results with the best code among other runs.
func against(now []*store.Entry, all []store.Entry, opt Options) *Comparison {
	if opt.Alpha == 0 {
		opt.Alpha = DefaultGateAlpha
	}
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
		row := gateRow(k, before, e, opt)
		row.Device = e.Run.Env.Device
		c.Rows = append(c.Rows, row)
	}
	c.settle()
	return c
}

// gateRow compares a result with the best code among those before, without regard to other rows.
func gateRow(k key, before []*store.Entry, e *store.Entry, opt Options) Row {
	groups := groupsOf(before)
	best, tries := bestGroup(groups)
	if best == nil {
		return newRow(k, nil, e, opt)
	}
	row := newRow(k, best.middle(), e, opt)
	if row.Outcome != Same && row.Outcome != Few { // there is nothing to test
		return row
	}
	mine := &group{code: codeOf(e), entries: []*store.Entry{e}, logs: []float64{logMedian(e)}}
	if g := groups[mine.code]; g != nil && mine.code != best.code && mine.code.pure() {
		mine.entries, mine.logs = append(mine.entries, g.entries...), append(mine.logs, g.logs...)
	}
	row.weigh(best, mine, tries, opt)
	return row
}

// weigh takes the runs of two codes as what is tested. Where the noise between them is assumed, their samples must
// differ too.
func (row *Row) weigh(before, now *group, codes int, opt Options) {
	row.Runs = newRuns(before, now, codes)
	row.Delta, row.Band, row.BandFrom, row.Ratio = 0, max(opt.Band, 0), "", row.Runs.ratio()
	if row.Runs.Assumed {
		row.RawP = max(row.RawP, row.Runs.p())
		return
	}
	row.Outcome, row.RawP = Same, row.Runs.p()
}

// Turns compares runs of two programs that took turns, as Gate does, whatever code they say they are. A result that
// is not OK in one of the runs after is lost.
func Turns(before, after []store.Entry, opt Options) *Comparison {
	if opt.Alpha == 0 {
		opt.Alpha = DefaultGateAlpha
	}
	opt.fill()
	c := &Comparison{Alpha: opt.Alpha, Band: opt.Band}
	var sides [2]map[key]*group
	bad := map[key]*store.Entry{}
	for i, entries := range [][]store.Entry{before, after} {
		sides[i] = map[key]*group{}
		for j := range entries {
			e := &entries[j]
			k := keyOf(e)
			if e.Verdict != record.OK || len(e.Samples) == 0 {
				if i == 1 {
					bad[k] = e
				}
				continue
			}
			if sides[i][k] == nil {
				sides[i][k] = &group{code: codeOf(e)}
			}
			g := sides[i][k]
			g.entries, g.logs = append(g.entries, e), append(g.logs, logMedian(e))
		}
	}
	for k, g := range sides[0] {
		mine := sides[1][k]
		if e := bad[k]; e != nil || mine == nil {
			c.Rows = append(c.Rows, newRow(k, g.middle(), e, opt))
			continue
		}
		row := newRow(k, g.middle(), mine.middle(), opt)
		if row.Outcome == Same || row.Outcome == Few {
			row.weigh(g, mine, 1, opt)
		}
		c.Rows = append(c.Rows, row)
	}
	c.settle()
	return c
}
