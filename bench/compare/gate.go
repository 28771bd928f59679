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
	all = measured(all)
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
	if row.Outcome != Same { // there is nothing to test
		return row
	}
	mine := newGroup([]*store.Entry{e})
	if g := groups[mine.code]; g != nil && mine.code != best.code && mine.code.pure() {
		mine.entries, mine.logs = append(mine.entries, g.entries...), append(mine.logs, g.logs...)
	}
	row.weigh(best, mine, tries, opt)
	return row
}
