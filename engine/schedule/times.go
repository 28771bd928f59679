package schedule

import (
	"math"
	"time"
)

// Times are what steps of so many rows take, as far as that is known: so many guesses pay, and so many rows of prompts
// may be computed beside sequences that answer, without their next tokens coming much later.
type Times struct {
	list   []int   // the buckets
	usual  float64 // what a row more takes, of the time of a step of few, where nothing is measured
	times  []time.Duration
	runs   int // of the last step
	denied int // times that Most let a step have fewer rows than it wanted
}

const (
	// longer is by how much of its time a step of decoding rows may take longer for prompts.
	longer = 0.3
	// least is how many rows of prompts a step may have however long it takes.
	least = 16
	// again is how often a step may be of a bucket that takes too long, as it may not do so any more: of less than one
	// in a hundred tokens.
	again = 256
	// atOnce is how long a step may take that is filled with prompts, and atLeast how many rows it has however long they
	// take.
	atOnce  = 150 * time.Millisecond
	atLeast = 256
	// prefill is how long one may take in which nobody decodes (who comes meanwhile waits), and prefillLeast how
	// many rows it has however long they take.
	prefill      = 500 * time.Millisecond
	prefillLeast = 2048
	// filled is what part of a bucket rows should be; a step of fewer is of the bucket below.
	filled = 0.75
)

// NewTimes knows nothing yet but for which numbers of rows there are steps, and whether they wait for a device of their
// own, where rows come cheap.
func NewTimes(buckets []int, queued bool) *Times {
	usual := 0.3
	if queued {
		usual = 0.03
	}
	return &Times{list: buckets, usual: usual, times: make([]time.Duration, len(buckets)+1)}
}

func (t *Times) at(rows int) int {
	for i, b := range t.list {
		if rows <= b {
			return i
		}
	}
	return len(t.list)
}

// Note takes the time of a step that was captured before. What takes much longer than it did moves a time little.
func (t *Times) Note(rows, runs int, took time.Duration) {
	t.runs = runs
	if known := &t.times[t.at(rows)]; *known == 0 {
		*known = took
	} else {
		*known += (min(took, 2**known) - *known) / 8
	}
}

// Known is what steps take whose rows are at most those of a bucket, of all buckets of which that is known.
func (t *Times) Known() map[int]time.Duration {
	known := map[int]time.Duration{}
	for i, rows := range t.list {
		if t.times[i] > 0 {
			known[rows] = t.times[i]
		}
	}
	return known
}

// Cost is what a step takes with so many more rows for one sequence, as a multiple of what a token of
// it costs without: of a step's time, where other sequences have tokens in it too, only a part is its own.
func (t *Times) Cost(guesses int) float64 {
	base := max(t.runs, 1)
	return 1 + float64(base)*t.more(base, base+guesses)
}

// Most is how many rows a step may have in which base rows decode and want more are of prompts: those of the largest
// bucket that takes little longer than base rows alone. Where a larger one is wanted that one is tried now and then.
func (t *Times) Most(base, want int) int {
	first, last := t.at(base+least), t.at(base+want)
	if first >= len(t.list) || first > last {
		return base + want
	}
	most, next := t.list[first], 0
	for _, rows := range t.list[first+1 : min(last+1, len(t.list))] {
		if t.rise(base, rows) <= longer {
			most, next = rows, 0
		} else if next == 0 {
			next = rows
		}
	}
	if next > 0 {
		if t.denied++; t.denied%again == 0 {
			return next
		}
	}
	return most
}

// Fill is how many rows a step has in which base rows decode and that is filled with up to want of prompts: a bucket's,
// so that few rows pad it, of those that do not take too long for who decodes.
func (t *Times) Fill(base, want int) int {
	if base == 0 && want <= prefillLeast {
		return want
	}
	limit, least, most := atOnce, atLeast, 0
	if base == 0 {
		limit, least = prefill, prefillLeast
	}
	for i, rows := range t.list {
		switch {
		case rows <= base, most >= base+want:
			continue
		case most > 0 && (rows > least && t.about(i) > limit || float64(base+want) < filled*float64(rows)):
			return most
		}
		most = min(rows, base+want)
	}
	return max(most, base+min(want, 1))
}

// about is what a step of the i-th bucket takes: measured, else at most in proportion to the nearest below that is, or
// what the nearest above takes; where nothing is known longer than anything.
func (t *Times) about(i int) time.Duration {
	for k := i; k >= 0; k-- {
		if t.times[k] > 0 {
			return t.times[k] * time.Duration(t.list[i]) / time.Duration(t.list[k])
		}
	}
	for _, took := range t.times[i:] {
		if took > 0 {
			return took
		}
	}
	return math.MaxInt64
}

// lost is by how much longer rows of all take beside base rows if so many are computed in a step, than all of them in
// one, as a multiple of what base alone takes.
func (t *Times) lost(base, rows, all int) float64 {
	n := float64(rows)
	return max(0, t.rise(base, base+rows)-n/float64(all)*t.rise(base, base+all))
}

// more is rise, where each row costs something.
func (t *Times) more(base, rows int) float64 {
	return max(t.rise(base, rows), 0.005*float64(rows-base))
}

// rise is by how much of a step's time one of rows takes longer than one of base: measured where both are known, else
// along the line through base and the nearest number of rows above it that is, else by what rows take on most devices
// of the kind. Rows of one bucket take as long.
func (t *Times) rise(base, rows int) float64 {
	from, to := t.at(base), t.at(rows)
	if from == to {
		return 0
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
		return t.usual * float64(rows-base)
	case near == to || near == len(t.list):
		return float64(t.times[near])/one - 1
	}
	return (float64(t.times[near])/one - 1) * float64(rows-base) / float64(t.list[near]-base)
}

func abs(x int) int { return max(x, -x) }
