package cpu

import (
	"greta/backends/cpu/simd"
	"greta/internal/pool"
	"greta/tensor"
)

const (
	// splitBytes is about what a chunk reads of the cache.
	splitBytes = 256 << 10
	// A split has at least and at most so many positions, however long one is,
	// and a cache is divided into at most maxSplits.
	minSplit, maxSplit = 32, 128
	maxSplits          = 256
	// sharedLoads is from how many query heads of a group on a block of keys
	// and values is widened once for all of them.
	sharedLoads = 3
)

// decodeAttention lets few tokens look far. A chunk is one token and one split
// of the positions with all heads, so that memory is read in its order. Each split
// leaves its maximum, its sum and its weighted sum of values; where there are
// several, a second region adds them up in order. Splits depend on shapes and
// positions alone, and so do results.
type decodeAttention struct {
	attention
	split    int // positions
	splits   int // of the longest cache
	used     int // most splits of any token in this run
	partials []float32
	partial  int // floats of one split
	work     []decodeWork
	joining  joinSplits
}

// decodeWork is one worker's memory.
type decodeWork struct {
	q       []float32 // [heads, dh], scaled
	scores  []float32 // [share, split]
	wide    []float32 // [split, dv] values of a block
	packed  []float32 // queries of a group in panels
	scratch []float32 // of MulRows
}

func newDecodeAttention(a attention) *decodeAttention {
	t := &decodeAttention{attention: a}
	t.joining.t = t
	k := t.d.k
	bytes := 0
	if t.groups > 0 {
		bytes = t.groups * (t.k[0].Type.RowBytes(t.dh) + t.v[0].Type.RowBytes(t.dv))
	}
	t.split = max(minSplit, min(splitBytes/max(1, bytes), maxSplit))
	t.split = max(t.split, (t.capacity+maxSplits-1)/maxSplits)
	t.splits = (t.capacity + t.split - 1) / t.split
	t.partial = t.heads * (t.dv + 2)
	t.partials = t.d.shared(len(t.pos) * t.splits * t.partial)
	t.work = make([]decodeWork, t.d.pool.Size())
	for i := range t.work {
		w := &t.work[i]
		sizes := [...]int{t.heads * t.dh, t.share * t.split, 0, 0, 0}
		if t.share >= sharedLoads {
			sizes[2], sizes[3], sizes[4] = t.split*t.dv, k.PackedLen(t.share, t.dh), k.ScratchLen(t.k[0])
		}
		parts := cut(t.d, i, sizes[:])
		w.q, w.scores, w.wide, w.packed, w.scratch = parts[0], parts[1], parts[2], parts[3], parts[4]
	}
	return t
}

// cut divides a worker's scratch into parts that start on cache lines.
func cut(d *Device, worker int, sizes []int) [][]float32 {
	total := 0
	for _, n := range sizes {
		total += (n + 15) &^ 15
	}
	all := d.workerScratch(worker, total)
	parts := make([][]float32, len(sizes))
	for i, n := range sizes {
		parts[i] = all[:n:n]
		all = all[(n+15)&^15:]
	}
	return parts
}

func (t *decodeAttention) run(p *pool.Pool) error {
	if err := t.checkPositions(); err != nil {
		return err
	}
	if len(t.pos) == 0 || t.heads == 0 {
		return nil
	}
	t.used = 0
	for i := range t.pos {
		t.used = max(t.used, t.splitsOf(i))
	}
	p.Run(t, len(t.pos)*t.used)
	if t.used > 1 {
		p.Run(&t.joining, len(t.pos)*t.groups)
	}
	return nil
}

func (t *decodeAttention) splitsOf(token int) int {
	from, end := t.sees(token)
	return (end - from + t.split - 1) / t.split
}

// part is where a split of a token leaves its results: for each head the
// maximum, the sum, and dv values.
func (t *decodeAttention) part(token, split int) []float32 {
	return t.partials[(token*t.splits+split)*t.partial:][:t.partial]
}

func (t *decodeAttention) Do(worker, chunk int) {
	token, split := chunk/t.used, chunk%t.used
	if split >= t.splitsOf(token) {
		return
	}
	from, end := t.sees(token)
	from += split * t.split
	end = min(end, from+t.split)
	w, k := &t.work[worker], t.d.k
	for h := range t.heads {
		k.Scale(w.q[h*t.dh:(h+1)*t.dh], t.scale, t.q.row(token*t.heads+h))
	}
	part := t.part(token, split)
	for g := range t.groups {
		t.group(w, part, g, from, end)
	}
	if t.used > 1 {
		return
	}
	for h := range t.heads {
		one := part[h*(t.dv+2):][:t.dv+2]
		k.Scale(t.y.row(token*t.heads+h), 1/one[1], one[2:])
	}
}

// group computes the results of a group's heads over positions [from, end).
func (t *decodeAttention) group(w *decodeWork, part []float32, g, from, end int) {
	k, n := t.d.k, end-from
	first := g * t.share
	values, at := t.v[g], from
	if t.share >= sharedLoads {
		k.PackX(w.packed, w.q[first*t.dh:], t.dh, t.share, t.dh, 0, k.Panels(t.share))
		k.MulRows(w.scores, t.split, rowsOf(&t.k[g], from, end), 0, n, w.packed, t.share, w.scratch, false)
		values, at = t.widen(w.wide, g, from, end), 0
	}
	for i := range t.share {
		h := first + i
		s, one := w.scores[i*t.split:][:n], part[h*(t.dv+2):][:t.dv+2]
		if t.share < sharedLoads {
			k.MatVec(s, t.k[g], from, w.q[h*t.dh:(h+1)*t.dh], nil)
		}
		t.cap(s)
		one[0] = k.Max(s)
		one[1] = k.ExpSum(s, s, one[0])
		clear(one[2:])
		k.WeightedSum(one[2:], values, at, s)
	}
}

// widen brings the values of a group to f32 rows.
func (t *attention) widen(dst []float32, g, from, end int) simd.Matrix {
	m := &t.v[g]
	if m.Type == tensor.F32 {
		return rowsOf(m, from, end)
	}
	for p := from; p < end; p++ {
		t.d.decodeRow(dst[(p-from)*t.dv:][:t.dv], m, p)
	}
	return simd.Matrix{Type: tensor.F32, Rows: end - from, Cols: t.dv, Data: tensor.Bytes(dst), Stride: 4 * t.dv}
}

// joinSplits adds up what the splits of a token have left. A chunk is one
// token and one group's heads.
type joinSplits struct{ t *decodeAttention }

func (j *joinSplits) Do(_, chunk int) {
	t, k := j.t, j.t.d.k
	token, g := chunk/t.groups, chunk%t.groups
	splits := t.splitsOf(token)
	for h := g * t.share; h < (g+1)*t.share; h++ {
		most := float32(least)
		for s := range splits {
			most = max(most, t.part(token, s)[h*(t.dv+2)])
		}
		y := t.y.row(token*t.heads + h)
		clear(y)
		var sum float32
		for s := range splits {
			one := t.part(token, s)[h*(t.dv+2):][:t.dv+2]
			f := exp32(one[0] - most)
			sum += f * one[1]
			k.Axpy(y, f, one[2:])
		}
		k.Scale(y, 1/sum, y)
	}
}
