package cpu

import (
	"math"

	"greta/backends/cpu/simd"
	"greta/internal/pool"
	"greta/tensor"
)

const (
	// tileSide is about how many query rows a tile has, tokens times the heads of a group, and how many
	// positions a block; small heads, whose products are short, have twice as many, at most packedBlock.
	tileSide    = 128
	smallHead   = 64
	packedBlock = 256 // columns up to which panels of a packed operand follow each other
)

// prefillAttention takes a tile of tokens with the query heads of one group
// through the cache, a block of positions at a time, as two products:
//
//	scores[r, p] = q[r]·k[p]        queries packed once, keys as the weights
//	yᵀ[c, r]    += v[p, c]·e[r, p]  values packed as they lie, e = e^(scores - max) as the weights
//
// The second one is transposed because values lie position by position, which
// is how a packed operand lies. A chunk is one tile and one group.
type prefillAttention struct {
	attention
	tokens    int // of a tile
	tiles     int
	positions int // of a block
	work      []prefillWork
	to        *roundX // where results go in eight bits; may be nil
	keep      bool    // and to y too
}

// prefillWork is one worker's memory. R is the queries of a tile, P the positions of a block.
type prefillWork struct {
	q         []float32   // [R, dh], scaled
	queries   []float32   // q in panels
	scores    []float32   // [R, P]
	probs     simd.Matrix // the same, as a matrix
	values    []float32   // [P, dv] in panels
	wide      []float32   // [dv], where values are no f32
	yt        []float32   // [dv, R]
	most, sum []float32   // [R]: of the scores so far
	change    []float32   // [R]: e^(old maximum - new one)
	row       []float32   // [share, dv]: a token's results
	zeros     []float32   // [dv]
	bad       []int       // positions whose values are no numbers
	scratch   []float32
}

func newPrefillAttention(a attention) *prefillAttention {
	t := &prefillAttention{attention: a}
	k := t.d.k
	t.positions = tileSide
	if max(t.dh, t.dv) <= smallHead {
		t.positions = 2 * tileSide
	}
	t.tokens = min(max(1, t.positions/max(1, t.share)), len(t.pos))
	count := func() int {
		t.tiles = (len(t.pos) + t.tokens - 1) / t.tokens
		return t.tiles * t.groups
	}
	for count() < 4*t.d.pool.Size() && t.tokens*t.share > tileSide && t.tokens > 1 {
		t.tokens /= 2
	}
	t.work = make([]prefillWork, t.d.pool.Size())
	if t.groups == 0 {
		return t
	}
	r, p := t.tokens*t.share, t.positions
	scratch := max(k.ScratchLen(t.k[0]), k.ScratchLen(simd.Matrix{Type: tensor.F32}))
	for i := range t.work {
		w := &t.work[i]
		parts := cut(t.d, i, []int{r * t.dh, k.PackedLen(r, t.dh), r * p, max(k.PackedLen(t.dv, p), k.PackedLen(t.dv, r)), t.dv, t.dv * r, r, r, r, scratch, t.share * t.dv})
		w.zeros, w.bad = make([]float32, t.dv), make([]int, 0, p)
		w.q, w.queries, w.scores, w.values, w.wide, w.yt = parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
		w.most, w.sum, w.change, w.scratch, w.row = parts[6], parts[7], parts[8], parts[9], parts[10]
		w.probs = simd.Matrix{Type: tensor.F32, Data: tensor.Bytes(w.scores), Stride: 4 * p}
	}
	return t
}

// rounding gives the same step with results in eight bits, too or instead; nil where it cannot.
func (t *prefillAttention) rounding(to *roundX, keep bool) *prefillAttention {
	if to.form.group == 0 || to.x.n != len(t.pos) || to.x.cols != t.heads*t.dv || t.share*t.dv%64 != 0 {
		return nil
	}
	same := *t
	same.to, same.keep = to, keep
	return &same
}

func (t *prefillAttention) run(p *pool.Pool) error {
	if err := t.checkPositions(); err != nil {
		return err
	}
	if t.to != nil {
		t.d.rounded.now = t.to
	}
	if t.heads > 0 {
		p.Run(t, t.tiles*t.groups)
	}
	return nil
}

func (t *prefillAttention) Do(worker, chunk int) {
	// Later tokens have more to do: they come first, so that chunks end evenly.
	tile, g := t.tiles-1-chunk/t.groups, chunk%t.groups
	w, k, nr := &t.work[worker], t.d.k, t.d.k.PanelRows()
	first := tile * t.tokens
	last := min(first+t.tokens, len(t.pos))
	r := (last - first) * t.share
	begin, end := t.capacity, 0
	for token := first; token < last; token++ {
		from, to := t.sees(token)
		begin, end = min(begin, from), max(end, to)
		for i := range t.share {
			at := ((token-first)*t.share + i) * t.dh
			k.Scale(w.q[at:at+t.dh], t.scale, t.q.row(token*t.heads+g*t.share+i))
		}
	}
	k.PackAll(w.queries, w.q, t.dh, r, t.dh)
	for i := range r {
		w.most[i], w.sum[i] = least, 0
	}
	started := false
	for ; begin < end; begin += t.positions {
		to := min(begin+t.positions, end)
		seeing := t.firstSeeing(first, last, begin, to)
		if seeing == last {
			continue
		}
		// Near the diagonal the tile's first queries see nothing any more.
		lo := 0
		if started && t.dh <= packedBlock {
			lo = (seeing - first) * t.share / nr * nr
		}
		k.MulRows(w.scores[lo*t.positions:], t.positions, rowsOf(&t.k[g], begin, to), 0, to-begin, w.queries[lo*t.dh:], r-lo, w.scratch, false)
		if t.softmax(w, first, last, begin, to) && started {
			for c := range t.dv {
				y := w.yt[c*r:][:r]
				k.Mul(y, y, w.change[:r])
			}
		}
		t.packValues(w, g, begin, to, t.hides(first, last, begin, to))
		w.probs.Rows, w.probs.Cols = r, to-begin
		k.MulRows(w.yt, r, w.probs, lo, r, w.values, t.dv, w.scratch, started)
		for _, p := range w.bad {
			t.addBad(w, g, first, last, begin, p)
		}
		started = true
	}
	t.store(w, g, first, r)
}

// firstSeeing gives the first token of [first, last) that sees a position of
// [from, to), or last.
func (t *prefillAttention) firstSeeing(first, last, from, to int) int {
	for token := first; token < last; token++ {
		if a, b := t.sees(token); a < to && from < b {
			return token
		}
	}
	return last
}

// softmax turns the scores of positions [begin, to) into powers of e, 0 where
// a token does not look, and says whether any maximum has changed.
func (t *prefillAttention) softmax(w *prefillWork, first, last, begin, to int) bool {
	k, changed := t.d.k, false
	for token := first; token < last; token++ {
		from, end := t.sees(token)
		from, end = max(from, begin)-begin, min(end, to)-begin
		for i := range t.share {
			r := (token-first)*t.share + i
			s := w.scores[r*t.positions:][:to-begin]
			w.change[r] = 0
			if from >= end {
				clear(s)
				continue
			}
			seen := s[from:end]
			t.cap(seen)
			if most := k.Max(seen); most > w.most[r] {
				if w.change[r] = w.most[r] - most; w.change[r] < -60 { // as ExpSum
					w.change[r] = floor
				}
				w.most[r] = most
				changed = true
			}
			clear(s[:from])
			clear(s[end:])
			sum := k.ExpSum(seen, seen, w.most[r])
			if w.change[r] != 0 {
				w.sum[r] *= exp32(w.change[r])
			}
			w.sum[r] += sum
		}
	}
	if changed {
		n := (last - first) * t.share
		k.Exp(w.change[:n], w.change[:n])
	}
	return changed
}

// hides says whether a token of [first, last) does not see all positions of [from, to).
func (t *prefillAttention) hides(first, last, from, to int) bool {
	for token := first; token < last; token++ {
		if a, b := t.sees(token); a > from || b < to {
			return true
		}
	}
	return false
}

// packValues lays the values of positions [from, to) into panels, as PackX
// would lay their transpose: [panel][position][PanelRows]. Where some tokens
// do not see all positions, values that are no numbers would spoil their sums:
// 0·NaN is NaN. Then zeros take their place and w.bad lists them.
func (t *prefillAttention) packValues(w *prefillWork, g, from, to int, hidden bool) {
	nr, n, m := t.d.k.PanelRows(), to-from, &t.v[g]
	w.bad = w.bad[:0]
	for p := range n {
		row := t.value(w, m, from+p)
		if hidden {
			if bad := t.d.k.Dot(row, w.zeros); bad != 0 {
				w.bad = append(w.bad, from+p)
				row = w.zeros
			}
		}
		c, at := 0, p*nr
		for ; nr == 12 && c+12 <= t.dv; c, at = c+12, at+n*12 { // without a call
			*(*[12]float32)(w.values[at:]) = *(*[12]float32)(row[c:])
		}
		for ; c < t.dv; c, at = c+nr, at+n*nr {
			copy(w.values[at:at+nr], row[c:min(c+nr, t.dv)])
		}
	}
}

// value gives the values of a position.
func (t *prefillAttention) value(w *prefillWork, m *simd.Matrix, p int) []float32 {
	if m.Type == tensor.F32 {
		return tensor.View[float32](m.Data[p*m.Stride:][:4*t.dv])
	}
	t.d.decodeRow(w.wide, m, p)
	return w.wide
}

// addBad adds position p of the block that starts at begin for the tokens that see it.
func (t *prefillAttention) addBad(w *prefillWork, g, first, last, begin, p int) {
	r := (last - first) * t.share
	row := t.value(w, &t.v[g], p)
	for token := first; token < last; token++ {
		if from, end := t.sees(token); p < from || p >= end {
			continue
		}
		for i := (token - first) * t.share; i < (token-first+1)*t.share; i++ {
			e := w.scores[i*t.positions+p-begin]
			for c, v := range row {
				w.yt[c*r+i] += e * v
			}
		}
	}
}

// store divides by the sums and turns yᵀ around: in panels, its rows lie side by side.
func (t *prefillAttention) store(w *prefillWork, g, first, r int) {
	k, nr := t.d.k, t.d.k.PanelRows()
	for i := range r {
		w.change[i] = 1 / w.sum[i]
	}
	for c := range t.dv {
		y := w.yt[c*r:][:r]
		k.Mul(y, y, w.change[:r])
	}
	k.PackAll(w.values, w.yt, r, t.dv, r)
	for i := range r {
		token, h := first+i/t.share, i%t.share
		y := w.row[h*t.dv:][:t.dv]
		if t.to == nil {
			y = t.y.row(token*t.heads + g*t.share + h)
		}
		for c, at := 0, i*nr; c < t.dv; c, at = c+nr, at+r*nr {
			copy(y[c:min(c+nr, t.dv)], w.values[at:at+nr])
		}
		if t.to != nil && t.keep {
			copy(t.y.row(token*t.heads+g*t.share+h), y)
		}
		if t.to != nil && h == t.share-1 {
			k.QuantisePart(&t.to.q, token, g*t.share*t.dv, w.row)
		}
	}
}

func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }
