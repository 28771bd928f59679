package engine

import (
	"time"

	"github.com/greta-project/greta/engine/draft"
	"github.com/greta-project/greta/engine/schedule"
)

// Speculation: guesses of the tokens that follow are computed in the same step as the token they follow, and those
// are kept that the choice would have been anyway, so that a text is the one without. Right guesses cost a row each
// instead of a step each.

// Drafter guesses the tokens of one sequence. It is used by the scheduler's goroutine.
type Drafter interface {
	// Propose appends to dst tokens that may follow, most at most. It must not keep the slices.
	Propose(tokens, dst []int32, most int) []int32
	// Verified says how many of the last guesses were computed, and how many of these were right.
	Verified(tried, accepted int)
}

// NGrams makes drafters that guess from what repeats in the prompt and the text, see draft.NGram. It is for
// SchedulerOptions.Draft.
func NGrams(_ Sampling, cost func(guesses int) float64) Drafter { return draft.New(cost) }

// rowTimes are what steps of so many rows take, as far as that is known.
type rowTimes struct {
	list  []int   // the buckets
	usual float64 // what a row more takes, of the time of a step of few, where nothing is measured
	times []time.Duration
	seen  []int
	rows  int // of the last step
	runs  int
}

// newRowTimes knows nothing yet but whether steps wait for a device of their own, where rows come cheap.
func newRowTimes(list []int, queued bool) rowTimes {
	usual := 0.3
	if queued {
		usual = 0.03
	}
	return rowTimes{list: list, usual: usual, times: make([]time.Duration, len(list)+1), seen: make([]int, len(list)+1)}
}

func (t *rowTimes) at(rows int) int {
	for i, b := range t.list {
		if rows <= b {
			return i
		}
	}
	return len(t.list)
}

// note takes a step's time. The first of a bucket, which may have been captured, does not count.
func (t *rowTimes) note(rows, runs int, took time.Duration) {
	t.rows, t.runs = rows, runs
	i := t.at(rows)
	switch t.seen[i]++; {
	case t.seen[i] == 1:
	case t.seen[i] == 2:
		t.times[i] = took
	default:
		t.times[i] += (took - t.times[i]) / 8
	}
}

// cost is what a step takes with so many more rows for one sequence, as a multiple of what a token of
// it costs without: of a step's time, where other sequences have tokens in it too, only a part is its own.
func (t *rowTimes) cost(guesses int) float64 {
	base := max(t.runs, 1)
	return 1 + float64(base)*t.more(base, base+guesses)
}

// more is by how much of a step's time one of rows takes longer than one of base: measured where both are known, else
// along the line through base and the nearest number of rows above it that is, else by what rows take on most devices
// of the kind.
func (t *rowTimes) more(base, rows int) float64 {
	from, to := t.at(base), t.at(rows)
	added := float64(rows - base)
	if from == to && rows > base {
		return 0.005 * added
	}
	one := float64(t.times[from])
	near := -1
	for i := from + 1; i < len(t.times) && one > 0; i++ {
		if t.times[i] > 0 && (near < 0 || abs(i-to) < abs(near-to)) {
			near = i
		}
	}
	switch {
	case near < 0:
		return t.usual * added
	case near == to || near == len(t.list):
		return max(float64(t.times[near])/one-1, 0.005*added)
	}
	slope := (float64(t.times[near])/one - 1) / float64(t.list[near]-base)
	return max(slope, 0.005) * added
}

func abs(x int) int { return max(x, -x) }

// draftInto tells the plan how to ask for guesses.
func (s *Scheduler) draftInto(po *schedule.Options, make func(o Sampling,
	cost func(guesses int) float64) Drafter) {
	if make == nil {
		return
	}
	po.Draft = func(q *schedule.Seq, dst []int32, most int) []int32 {
		c := choiceOf(q)
		if c.drafter == nil && c.stop == "" {
			c.drafter = make(c.sampler.opt, s.times.cost)
		}
		if c.drafter == nil {
			return dst
		}
		return c.drafter.Propose(q.Tokens(), dst, most)
	}
	po.Verified = func(q *schedule.Seq, tried, accepted int) {
		if d := choiceOf(q).drafter; d != nil {
			d.Verified(tried, accepted)
		}
	}
}
