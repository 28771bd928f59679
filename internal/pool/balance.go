package pool

import "time"

// Where others want the cores too, a worker that loses its core with a chunk in its hands keeps the caller waiting
// until it is back, which may take longer than all its help has saved. And what it takes to work together (polling,
// data from another core's cache) is then time of a core that others would have used, such as this process's own
// connections. So the caller weighs both, and where sharing gains too little it computes all regions by itself for a
// while.

const (
	// What was waited and saved is weighed when so much time has passed, and waiting is held against so much at most:
	// before it nobody may have asked for anything.
	weighAfter  = 10 * time.Millisecond
	weighWithin = 100 * time.Millisecond

	// Sharing must be so many times as fast as the caller alone where cores are wanted.
	worth = 1.25

	// The caller is alone for so many times the time that was weighed, twice as many each time that sharing has lost
	// again. So trying it costs a thirtieth in the end.
	firstRest = 2
	mostRest  = 32
)

// balance says whether regions are shared. The caller of Run has it, under the pool's mutex.
type balance struct {
	since  time.Time     // the beginning of what is weighed
	waited time.Duration // since then
	mine   int           // units of regions that the caller has computed since then,
	units  int           // of so many
	until  time.Time     // regions are the caller's until then; zero: they are shared
	rest   int           // times what was weighed, of the last time alone; 0: none lately
}

// alone reports whether the caller is to compute a region by itself. The clock is read only where that is in question.
func (b *balance) alone(now func() time.Time) bool {
	if b.until.IsZero() {
		return false
	}
	t := now()
	if t.Before(b.until) {
		return true
	}
	*b = balance{since: t, rest: b.rest}
	return false
}

// wait notes that from start to end the caller had nothing to do but wait for others. Where those did the share s of
// the units, and the caller waited for the share f of the time, sharing was (1-f)/(1-s) times as fast as the caller
// alone.
func (b *balance) wait(start, end time.Time) {
	b.waited += end.Sub(start)
	all := end.Sub(b.since)
	if all < weighAfter || b.units == 0 {
		return
	}
	window := min(all, weighWithin)
	others := float64(b.units-b.mine) / float64(b.units)
	lost := min(1, b.waited.Seconds()/window.Seconds())
	if 1-lost >= worth*(1-others) {
		rest := b.rest / 2
		if all > mostRest*weighWithin {
			rest = 0
		}
		*b = balance{since: end, rest: rest}
		return
	}
	b.rest = min(max(2*b.rest, firstRest), mostRest)
	b.until = end.Add(time.Duration(b.rest) * window)
}
