package cpu

import (
	"unsafe"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
)

const (
	// splitBytes is about what a chunk reads of the cache.
	splitBytes = 1 << 20
	// A split has at least and at most so many positions, however long one is,
	// and a cache is divided into at most maxSplits.
	minSplit, maxSplit = 32, 128
	maxSplits          = 256
	// blockBytes is about what of the keys, or of the values, is worked on while
	// as much of what follows is on its way from memory.
	blockBytes = 64 << 10
	// sharedLoads is from how many query heads of a group on a group's heads share what is loaded of
	// several positions. With fewer, all heads look at a position before the next where one stream reads
	// memory fast enough.
	sharedLoads = 3
)

// decodeAttention lets few tokens look far. A chunk is one token and one split
// of the positions with all heads, so that memory is read in its order: a head's
// own rows lie far apart, which memory serves at a third of its speed. Each split
// leaves its maximum, its sum and its weighted sum of values; where there are
// several, a second region adds them up in order. Where one split has all positions
// a chunk is a group's heads instead. Splits depend on shapes and positions alone, and
// so do results.
type decodeAttention struct {
	attention
	most     int  // positions of a split
	split    int  // of one in this run
	block    int  // positions of a split that are worked on at a time
	splits   int  // of the longest cache
	used     int  // most splits of any token in this run
	parts    int  // chunks of a split, each some groups' heads
	byRows   bool // all heads look at a position before the next
	partials []float32
	partial  int // floats of one split
	work     []decodeWork
	joining  joinSplits
}

// decodeWork is one worker's memory.
type decodeWork struct {
	q      []float32 // [heads, dh], scaled
	scores []float32 // [heads, most]
	// partials are what the splits of one token leave, where the worker takes all of them.
	partials []float32
}

func newDecodeAttention(a attention) *decodeAttention {
	t := newDecodeWork(a, 0)
	t.joining.t = t
	t.partials = t.d.shared(len(t.pos) * t.splits * t.partial)
	return t
}

// newDecodeWork is newDecodeAttention without memory for what splits leave. Each worker has some more floats.
func newDecodeWork(a attention, more int) *decodeAttention {
	t := &decodeAttention{attention: a}
	bytes := 0
	if t.groups > 0 {
		bytes = t.groups * (t.k[0].Type.RowBytes(t.dh) + t.v[0].Type.RowBytes(t.dv))
	}
	t.most = max(minSplit, min(splitBytes/max(1, bytes), maxSplit))
	t.most = max(t.most, (t.capacity+maxSplits-1)/maxSplits)
	t.splits = (t.capacity + t.most - 1) / t.most
	t.block = min(t.most, max(8, 2*blockBytes/max(1, bytes)))
	t.byRows = t.share < sharedLoads && t.d.k.Far() != simd.FarPages
	t.partial = (t.heads*(t.dv+2) + 15) &^ 15
	t.work = make([]decodeWork, t.d.pool.Size())
	for i := range t.work {
		w := &t.work[i]
		parts := cut(t.d, i, []int{t.heads * t.dh, t.heads * t.most, more * t.splits * t.partial})
		w.q, w.scores, w.partials = parts[0], parts[1], parts[2]
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
	longest := 0
	for i := range t.pos {
		from, end := t.sees(i)
		longest = max(longest, end-from)
	}
	t.used = (longest + t.most - 1) / t.most
	t.split = t.most
	if t.used > 0 { // as even as they can be
		t.split = min(t.most, ((longest+t.used-1)/t.used+7)&^7)
	}
	t.parts = 1
	if t.used == 1 {
		t.parts = t.groups
	}
	p.Run(t, len(t.pos)*t.used*t.parts)
	if t.used > 1 {
		p.Run(&t.joining, len(t.pos)*t.groups)
	}
	return nil
}

func (t *decodeAttention) splitsOf(token int) int {
	from, end := t.sees(token)
	return (end - from + t.split - 1) / t.split
}

// part is where a split of a token leaves its results: dv values of each head, then for each the
// maximum and the sum.
func (t *decodeAttention) part(token, split int) []float32 {
	return t.partials[(token*t.splits+split)*t.partial:][:t.partial]
}

// headOf gives a head's values in a part, and its maximum and sum.
func (t *decodeAttention) headOf(part []float32, h int) (values []float32, sums *[2]float32) {
	return part[h*t.dv:][:t.dv], (*[2]float32)(part[t.heads*t.dv+2*h:])
}

func (t *decodeAttention) Do(worker, chunk int) {
	chunk, part := chunk/t.parts, chunk%t.parts
	first, behind := part*t.groups/t.parts, (part+1)*t.groups/t.parts // groups
	token, split := chunk/t.used, chunk%t.used
	if split >= t.splitsOf(token) {
		return
	}
	from, last := t.sees(token)
	from += split * t.split
	end := min(last, from+t.split)
	w := &t.work[worker]
	t.query(w, token, first, behind)
	if t.byRows {
		t.scores(w, first, behind, 0, from, end)
	} else {
		t.keys(w, from, end, first, behind)
	}
	results := t.part(token, split)
	t.powers(w, results, token, from, end, first, behind)
	if t.byRows {
		t.weigh(w, results, first, behind, 0, from, end)
	} else {
		t.values(w, results, from, end, last, first, behind)
	}
	if t.used > 1 {
		return
	}
	for h := first * t.share; h < behind*t.share; h++ {
		values, sums := t.headOf(results, h)
		t.d.k.Scale(t.y.row(token*t.heads+h), 1/t.sunk(h, sums[1], sums[0]), values)
	}
}

// query scales a token's queries of groups first … behind-1.
func (t *decodeAttention) query(w *decodeWork, token, first, behind int) {
	for h := first * t.share; h < behind*t.share; h++ {
		t.d.k.Scale(w.q[h*t.dh:(h+1)*t.dh], t.scale, t.q.row(token*t.heads+h))
	}
}

// powers takes the scores of n positions of groups first … behind-1 to powers of e, and leaves their maxima and
// sums and no values yet in results.
func (t *decodeAttention) powers(w *decodeWork, results []float32, token, from, end, first, behind int) {
	k := t.d.k
	for h := first * t.share; h < behind*t.share; h++ {
		s := w.scores[h*t.most:][:end-from]
		values, sums := t.headOf(results, h)
		t.cap(s)
		t.lean(h, token, from, s, 1)
		sums[0] = k.Max(s)
		sums[1] = k.ExpSum(s, s, sums[0])
		clear(values)
	}
}

// sideBySide gives the matrices of some heads as one.
func sideBySide(heads []simd.Matrix) simd.Matrix {
	m := heads[0]
	m.Cols *= len(heads)
	return m
}

// keys computes the scores of groups first … behind-1 at positions [from, end), a block after the other.
func (t *decodeAttention) keys(w *decodeWork, from, end, first, behind int) {
	askShare(ahead(t.k, from, min(from+t.block, end)), 0, 1) // in its order, which heads do not keep
	for p := from; p < end; p += t.block {
		to := min(p+t.block, end)
		next := ahead(t.v, from, min(from+t.block, end))
		if to < end {
			next = ahead(t.k, to, min(to+t.block, end))
		}
		for g := first; g < behind; g++ {
			askShare(next, g, t.groups)
			t.scores(w, g, g+1, p-from, p, to)
		}
	}
}

// values adds the values of groups first … behind-1 at positions [from, end) to results; the
// token sees those up to last.
func (t *decodeAttention) values(w *decodeWork, results []float32, from, end, last, first, behind int) {
	for p := from; p < end; p += t.block {
		to := min(p+t.block, end)
		next := ahead(t.v, to, min(to+t.block, end))
		if to == end { // what this worker will likely be given next
			at := min(from+t.split, last)
			next = ahead(t.k, at, min(at+t.block, last))
		}
		for g := first; g < behind; g++ {
			askShare(next, g, t.groups)
			t.weigh(w, results, g, g+1, p-from, p, to)
		}
	}
}

// scores computes those of the heads of groups first … behind-1 at positions [p, to), which are the split's from at on.
func (t *decodeAttention) scores(w *decodeWork, first, behind, at, p, to int) {
	h0, h1 := first*t.share, behind*t.share
	t.d.k.HeadMatVec(w.scores[h0*t.most+at:h1*t.most], t.most, sideBySide(t.k[first:behind]), p, to-p,
		simd.Heads{D: t.dh, Share: t.share}, w.q[h0*t.dh:h1*t.dh])
}

// weigh adds the values of positions [p, to), whose powers are the split's from at on, to the results of the heads of
// groups first … behind-1.
func (t *decodeAttention) weigh(w *decodeWork, results []float32, first, behind, at, p, to int) {
	h0, h1 := first*t.share, behind*t.share
	t.d.k.HeadWeightedSum(results[h0*t.dv:h1*t.dv], sideBySide(t.v[first:behind]), p, to-p,
		simd.Heads{D: t.dv, Share: t.share}, w.scores[h0*t.most+at:h1*t.most], t.most)
}

// ahead gives the memory of positions [from, to) of all heads.
func ahead(heads []simd.Matrix, from, to int) []byte {
	m := &heads[0]
	return m.Data[min(from*m.Stride, len(m.Data)):min(to*m.Stride, len(m.Data))]
}

// askShare asks for piece i of n of b: so many lines of each of its quarters, which are
// pages of their own, as one stream alone does not get all that memory gives.
func askShare(b []byte, i, n int) {
	lines := (len(b)/4 + 63) / 64 // of a quarter
	if lines == 0 {
		return
	}
	from, to := lines*i/n, lines*(i+1)/n
	prefetch(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), 64*from), to-from, 64*lines)
}

// joinSplits adds up what the splits of a token have left. A chunk is one
// token and one group's heads.
type joinSplits struct{ t *decodeAttention }

func (j *joinSplits) Do(_, chunk int) {
	t := j.t
	token, g := chunk/t.groups, chunk%t.groups
	t.add(t.partials[token*t.splits*t.partial:], t.splitsOf(token), token, g)
}

// add sums what splits have left in partials for a group's heads, and gives them to a token's result.
func (t *decodeAttention) add(partials []float32, splits, token, g int) {
	k := t.d.k
	for h := g * t.share; h < (g+1)*t.share; h++ {
		most := float32(least)
		for s := range splits {
			_, sums := t.headOf(partials[s*t.partial:][:t.partial], h)
			most = max(most, sums[0])
		}
		y := t.y.row(token*t.heads + h)
		clear(y)
		var sum float32
		for s := range splits {
			values, sums := t.headOf(partials[s*t.partial:][:t.partial], h)
			f := exp32(sums[0] - most)
			sum += f * sums[1]
			k.Axpy(y, f, values)
		}
		k.Scale(y, 1/t.sunk(h, sum, most), y)
	}
}
