package engine

import "math"

// What a device has left for the caches of many sequences.

const (
	// spareShare of a device's memory is left free, at least spareLeast, for what drivers and libraries take, captured
	// programs and others on the device; but at most half of what is left.
	spareShare = 0.08
	spareLeast = 1 << 30
	// arenaShare of a device's memory is what a step of the usual number of rows takes at most.
	arenaShare = 1.0 / 32
)

// wanted is of how many rows of a step logits are wanted at most: with guesses of all.
func (o *SchedulerOptions) wanted() int {
	if o.Draft != nil {
		return o.Rows
	}
	return o.Sequences
}

// usualRows is how many rows a step has at most where nothing says how many. On a device of its own prompts take least
// time in steps of many rows, and who decodes waits for fewer of them: there it is the most whose step takes no more
// than arenaShare of its memory.
func (e *Engine) usualRows(o *SchedulerOptions) (int, error) {
	least, n := max(256, 2*o.Sequences), buckets[len(buckets)-1]
	if !e.queued || o.Draft != nil || n <= least {
		return least, nil
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	defer e.dropEmpty()
	size := o.poolSize(e)
	g, sel, err := e.lowered(stepKind{Tokens: n, Rows: 1, adapted: e.adapters != nil}, &size)
	if err != nil {
		return 0, err
	}
	a := float64(planMemory(g, sel, e.dev.Info().Window).arena)
	for room := arenaShare * float64(e.dev.Info().Memory); n > least && a > room; n /= 2 {
		a /= 2
	}
	return max(n, least), nil
}

// poolSize is that of pools that hold the whole context of every sequence.
func (o *SchedulerOptions) poolSize(e *Engine) poolSize {
	return poolSize{pages: o.Sequences * ((e.opt.Context + o.Page - 1) / o.Page), page: o.Page, lines: o.Sequences,
		slots: o.slots()}
}

// room is how many bytes the caches may take where nothing says how many. On a device with memory of its own that is
// what is left behind weights, steps and a margin. Of the host's memory, which others take from as they need it, half.
func (e *Engine) room(o *SchedulerOptions) (int64, error) {
	has := int64(e.dev.Info().Memory) // when the device was opened
	switch {
	case has <= 0:
		return math.MaxInt64, nil
	case e.hosted():
		return max(has-int64(e.bytes), 0) / 2, nil
	}
	weights, steps, err := e.taken(o)
	if err != nil {
		return 0, err
	}
	left := has - weights - steps - o.Beside
	if left <= 0 {
		return 0, &OutOfMemory{Need: has - left, Have: has, What: "weights and steps, before any caches,",
			Try: "fewer sequences at once, fewer tokens a step or a smaller --dtype"}
	}
	left /= int64(max(1, o.Share))
	spare := max(int64(spareShare*float64(has)), spareLeast)
	return left - min(spare, left/2), nil
}

// hosted says whether the device computes in memory that is the host's too.
func (e *Engine) hosted() bool {
	if e.host() != nil {
		return true
	}
	for _, l := range e.weights {
		if b, ok := l.buffer.(hostBytes); ok && b.Bytes() != nil {
			return true
		}
	}
	return false
}

// loadedBytes is what the weights take of the device's memory, bytes.
func (e *Engine) loadedBytes() (sum int64) {
	for _, l := range e.weights {
		if l.buffer != nil && l.from != fromFile && l.from != fromCache {
			sum += int64(l.buffer.Size())
		}
	}
	return sum
}

// taken is what weights take, with those that steps of other numbers of rows want in layouts of their own, and steps:
// the arena of the largest, and of each bucket of rows inputs and logits, of decoding rows and beside prompts.
func (e *Engine) taken(o *SchedulerOptions) (weights, steps int64, err error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	defer e.dropEmpty()
	weights = e.loadedBytes()
	rows, wanted := bucket(e.rowBuckets(), o.Rows), o.wanted()
	size := o.poolSize(e)
	kinds := e.largest(rows, wanted)
	for _, n := range wantedBuckets {
		if n < rows {
			kinds = append(kinds, stepKind{Tokens: n, Rows: n, adapted: e.adapters != nil})
		}
	}
	for _, kind := range kinds {
		g, sel, err := e.lowered(kind, &size)
		if err != nil && kind.drawn { // who asks for a step that cannot be made is told why
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		for _, j := range e.jobs(g, sel) {
			weights += int64(j.size())
		}
		steps = max(steps, int64(planMemory(g, sel, e.dev.Info().Window).arena))
	}
	out := e.first.Outputs[0]
	row := int64(rowBytes(out) + 4*maskWords(out.Shape.Last()))
	steps += int64(min(rows, bucket(wantedBuckets, wanted))) * row // that one part of a step leaves for the other
	for _, n := range upTo(e.rowBuckets(), rows) {
		steps += 2 * int64(min(n, bucket(wantedBuckets, wanted))) * row
	}
	return weights, steps, nil
}
