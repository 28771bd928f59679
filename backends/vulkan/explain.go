//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/errlist"
)

// Where the time of a program goes. One launch after another, each with a barrier and a timestamp behind it, a token's
// step takes half as long again as its replay: there launches are folded into others, stages are handed over, and what
// is independent runs side by side. So the replay itself is timed, cut behind each of its parts: by how much it is
// longer with a part than without is what the part adds, and what all add is the whole.

// timed is a recording with timestamps in it.
type timed struct {
	e       *executable
	s       *submission
	pool    vk.DescriptorPool
	queries vk.QueryPool
	stamps  []uint64
	next    int           // timestamp that is recorded next
	before  *timed        // runs before every run; nil: nothing does
	each    time.Duration // what a run took on the host, when several were made
}

// timed makes a recording with n timestamps.
func (e *executable) timed(what string, n int, record func(t *timed) (vk.DescriptorPool, error)) (t *timed, err error) {
	d := e.d
	if !d.p.stamps || d.p.limits.TimestampPeriod == 0 {
		return nil, fmt.Errorf("%s has no timestamps", d.p.Name)
	}
	t = &timed{e: e, stamps: make([]uint64, n)}
	defer func() {
		if err != nil {
			t, err = nil, errlist.Join(err, t.close())
		}
	}()
	info := (&vk.QueryPoolCreateInfo{QueryType: vk.VK_QUERY_TYPE_TIMESTAMP, QueryCount: uint32(n)}).Init()
	if err := d.check(d.c.CreateQueryPool(d.handle, info, nil, &t.queries), "vkCreateQueryPool",
		e.program.Name); err != nil {
		return t, err
	}
	if t.s, err = d.newSubmission(what + " of step " + e.program.Name); err != nil {
		return t, err
	}
	if e.after != nil {
		t.s.follow(e.after)
	}
	t.pool, err = record(t)
	return t, err
}

// reset and stamp record what the timestamps need.
func (t *timed) reset(r *recorder) {
	t.e.d.c.CmdResetQueryPool(r.cb, t.queries, 0, uint32(len(t.stamps)))
}

func (t *timed) stamp(r *recorder) {
	t.e.d.c.CmdWriteTimestamp(r.cb, vk.PipelineStageFlagBits(vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT), t.queries,
		uint32(t.next))
	t.next++
}

// profile is the program launch by launch, with timestamps between launches.
func (e *executable) profile() (*timed, error) {
	return e.timed("profile", len(e.program.Launches)+1, func(t *timed) (vk.DescriptorPool, error) {
		return e.record(t.s, recording{apart: func(r *recorder, launch int) {
			if launch < 0 {
				t.reset(r)
			} else {
				r.barrier(shaderStage, shaderStage)
			}
			t.stamp(r)
		}})
	})
}

// around is a recording between two timestamps.
func (e *executable) around(what string, how recording) (*timed, error) {
	return e.timed(what, 2, func(t *timed) (vk.DescriptorPool, error) {
		how.begun = func(r *recorder) {
			t.reset(r)
			t.stamp(r)
		}
		how.ended = t.stamp
		return e.record(t.s, how)
	})
}

// empties is how many intervals with nothing in them tell what one takes.
const empties = 16

// empty are intervals as a profile has them, with nothing in them.
func (e *executable) empty() (*timed, error) {
	return e.timed("empty profile", empties+1, func(t *timed) (vk.DescriptorPool, error) {
		if err := e.d.begin(*t.s.cb); err != nil {
			return 0, err
		}
		r := &recorder{d: e.d, cb: *t.s.cb}
		t.reset(r)
		for range t.stamps {
			r.barrier(shaderStage, shaderStage)
			t.stamp(r)
		}
		return 0, e.d.check(e.d.c.EndCommandBuffer(r.cb), "vkEndCommandBuffer", t.s.what)
	})
}

// run runs the recording, waits for it and what comes behind it, and gives the times between its timestamps.
func (t *timed) run() ([]time.Duration, error) {
	e, d := t.e, t.e.d
	if t.before != nil {
		if _, err := t.before.run(); err != nil {
			return nil, err
		}
	}
	if err := t.s.submit(); err != nil {
		return nil, err
	}
	if err := t.s.wait(); err != nil {
		return nil, err
	}
	if e.after != nil {
		if err := e.after.wait(); err != nil {
			return nil, err
		}
	}
	if err := e.status(); err != nil {
		return nil, err
	}
	n := len(t.stamps)
	r := d.c.GetQueryPoolResults(d.handle, t.queries, 0, uint32(n), uintptr(8*n), unsafe.Pointer(&t.stamps[0]), 8,
		vk.QueryResultFlags(vk.VK_QUERY_RESULT_64_BIT|vk.VK_QUERY_RESULT_WAIT_BIT))
	if err := d.check(r, "vkGetQueryPoolResults", e.program.Name); err != nil {
		return nil, err
	}
	times := make([]time.Duration, n-1)
	for i := range times {
		times[i] = time.Duration(float64(t.stamps[i+1]-t.stamps[i]) * float64(d.p.limits.TimestampPeriod))
	}
	return times, nil
}

// median gives the medians of several runs' times: of at most most, and of no more than least when the time is up.
func (t *timed) median(least, most int, until time.Time) ([]time.Duration, error) {
	runs, begin := make([][]time.Duration, len(t.stamps)-1), time.Now()
	n := 0
	for ; n < least || n < most && time.Now().Before(until); n++ {
		times, err := t.run()
		if err != nil {
			return nil, err
		}
		for i, x := range times {
			runs[i] = append(runs[i], x)
		}
	}
	t.each = time.Since(begin) / time.Duration(n)
	times := make([]time.Duration, len(runs))
	for i, list := range runs {
		times[i] = backends.Median(list)
	}
	return times, nil
}

// close gives the recording back.
func (t *timed) close() error {
	var err error
	d := t.e.d
	if t.s != nil {
		err = t.s.close()
	}
	if t.pool != 0 {
		d.c.DestroyDescriptorPool(d.handle, t.pool, nil)
	}
	if t.queries != 0 {
		d.c.DestroyQueryPool(d.handle, t.queries, nil)
	}
	return err
}

// medians makes a recording, gives the medians of its runs' times, and gives it back.
func medians(record func() (*timed, error), least, most int, until time.Time) ([]time.Duration, error) {
	t, err := record()
	if err != nil {
		return nil, err
	}
	times, err := t.median(least, most, until)
	return times, errlist.Join(err, t.close())
}

// Profile runs the program once and times each launch, its barrier included.
func (e *executable) Profile() ([]time.Duration, error) {
	return medians(e.profile, 1, 1, time.Time{})
}

// parts are what the program runs as one, in the order in which they begin, and then what has no dispatch; runs says of
// each dispatch, in the order of recording, to which it belongs.
func (e *executable) parts() (parts []backends.Part, runs []int) {
	launch, of := make([]int, len(e.dispatches)), make([]int, len(e.owners))
	for i := range e.owners {
		of[i] = -1
		for j := e.first[i]; j < e.first[i+1]; j++ {
			launch[j] = i
		}
	}
	part := func(owner int) int {
		if of[owner] < 0 {
			of[owner] = len(parts)
			parts = append(parts, backends.Part{Launches: []int{owner}})
		}
		return of[owner]
	}
	for k := range e.links {
		for _, j := range e.links[k].order(e) {
			runs = append(runs, part(launch[j]))
		}
	}
	for i, owner := range e.owners {
		if p := part(owner); i != owner {
			parts[p].Launches = append(parts[p].Launches, i)
		}
	}
	return parts, runs
}

const (
	// leastRuns and mostRuns are how often replays and beginnings are timed, warmUps how often the replay runs before.
	leastRuns, mostRuns, warmUps = 3, 9, 3
	// early is what share of a replay's time beginnings take of which each run comes behind a replay: what they read would
	// stay in the device's caches from one run to the next, as it does not from one replay to the next.
	early = 1.0 / 8
)

// Explain times replays of the program, of its launches one by one, and of its beginnings.
func (e *executable) Explain(budget time.Duration) (*backends.Explanation, error) {
	begin := time.Now()
	whole, err := e.around("replay", recording{})
	if err != nil {
		return nil, err
	}
	out, err := e.explain(whole, time.Since(begin), begin, budget)
	if err = errlist.Join(err, whole.close()); err != nil {
		return nil, err
	}
	return out, nil
}

// explain does so with a replay that took so long to record.
func (e *executable) explain(whole *timed, recorded time.Duration, begin time.Time,
	budget time.Duration) (*backends.Explanation, error) {
	until := begin.Add(budget / 6)
	if _, err := whole.median(1, warmUps, until); err != nil {
		return nil, err
	}
	times, err := whole.median(leastRuns, mostRuns, until)
	if err != nil {
		return nil, err
	}
	out := &backends.Explanation{Whole: times[0]}
	var runs []int
	out.Parts, runs = e.parts()
	if err := e.alone(out.Parts, budget/3); err != nil {
		return nil, err
	}

	ends := []int{0} // of beginnings, in dispatches
	for n := range runs {
		if n+1 == len(runs) || runs[n+1] != runs[n] {
			ends = append(ends, n+1)
		}
	}
	// What beginnings take on the host: half of a replay's time on the device, and all of the rest.
	count, each := time.Duration(len(ends)), whole.each-out.Whole/2+time.Duration(early*float64(whole.each))
	left := budget - time.Since(begin) - count*recorded/2
	n := min(mostRuns, int(left/(count*max(each, 1)))-1) // one more warms up
	if n < leastRuns {
		return out, nil
	}
	var last time.Duration
	for i, end := range ends {
		var before *timed
		if last < time.Duration(early*float64(out.Whole)) {
			before = whole
		}
		took, err := e.beginning(end, n, before)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			out.Start = took
		} else {
			out.Parts[runs[end-1]].Added += took - last
		}
		last = took
	}
	out.End, out.Cut = out.Whole-last, true
	return out, nil
}

// alone times parts with nothing else under way, as often as the time lets it.
func (e *executable) alone(parts []backends.Part, budget time.Duration) error {
	nothing, err := medians(e.empty, mostRuns, mostRuns, time.Time{})
	if err != nil {
		return err
	}
	var empty time.Duration
	for _, x := range nothing {
		empty += x
	}
	empty /= empties
	times, err := medians(e.profile, 1, mostRuns, time.Now().Add(budget))
	if err != nil {
		return err
	}
	for i := range parts {
		// The other launches have no dispatch.
		if l := parts[i].Launches[0]; e.first[l] < e.first[l+1] {
			parts[i].Alone = max(times[l]-empty, 0)
		}
	}
	return nil
}

// beginning times the program's first dispatches, each run behind another recording's if there is one.
func (e *executable) beginning(first, n int, before *timed) (time.Duration, error) {
	t, err := e.around("beginning", recording{cut: true, first: first})
	if err != nil {
		return 0, err
	}
	t.before = before
	var times []time.Duration
	if _, err = t.run(); err == nil {
		times, err = t.median(n, n, time.Time{})
	}
	if err = errlist.Join(err, t.close()); err != nil {
		return 0, err
	}
	return times[0], nil
}

var _ backends.Explainer = (*executable)(nil)
