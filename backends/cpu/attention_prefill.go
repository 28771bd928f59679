package cpu

import (
	"math"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/tensor"
)

const (
	// tileSide is about how many positions a block has; small heads, whose products are short, have twice as many.
	tileSide  = 128
	smallHead = 64
	// tileQueries is about how many query rows a tile has, tokens times the heads of a group.
	tileQueries = 512
)

// prefillAttention takes a tile of tokens with the query heads of one group
// through the cache, a block of positions at a time. Keys and values of a block are packed once; then some
// queries after others, as many as the micro-kernel has columns (TileWidth), go through two products:
//
//	scores[p, r] = k[p]·q[r]        queries as the weights, keys packed
//	yᵀ[c, r]    += v[p, c]·e[p, r]  e = e^(scores - max) as the weights, values packed as they lie
//
// What the first one stores is what the second one reads, so that powers of e are taken where scores lie,
// in the caches nearest, and nothing that the queries of a panel do not see is computed.
// A chunk is one tile and one group.
type prefillAttention struct {
	attention
	tokens    int // of a tile
	tiles     int
	positions int // of a block
	work      []prefillWork
	to        *roundX // where results go in eight bits; may be nil
	keep      bool    // and to y too
}

// prefillWork is one worker's memory. R is the queries of a tile, in panels of M; P the positions of a block.
type prefillWork struct {
	rows              []float32   // [R, dh] queries, scaled; at the end [R, dv] results
	q, yt             simd.Matrix // as matrices: the queries, and one panel of yt
	queries           []float32   // [R/M, dh, M]
	keys              []float32   // [P/N, dh, N]
	values            []float32   // [dv/N, P, N]
	scores            []float32   // [P, M]
	sums              []float32   // [R/M, dv, M]: yᵀ
	most, sum, change []float32   // [R]: of the scores so far, of the powers, e^(old maximum - new one)
	started           []bool      // [R/M]: whether a panel has seen anything
	k, v              simd.Matrix // where the block's keys and values lie:
	shift             int         // position p in row p + shift
	gathered          []byte      // such of pages that lie apart
	wide              []float32   // [dv], where values are no f32
	plain             []float32   // [P, dh] and [P, dv] of a block, where caches are coded
	zeros             []float32   // [dv]
	bad               []int       // positions whose values are no numbers
}

func newPrefillAttention(a attention) *prefillAttention {
	t := &prefillAttention{attention: a}
	k := t.d.k
	t.positions = tileSide
	if max(t.dh, t.dv) <= smallHead {
		t.positions = 2 * tileSide
	}
	t.tokens = min(max(1, tileQueries/max(1, t.share)), len(t.pos))
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
	m, n := k.TileWidth(), k.PanelRows()
	r, p := (t.tokens*t.share+m-1)/m*m, (t.positions+n-1)/n*n
	coded := 0
	if t.coded {
		coded = p * (t.dh + t.dv)
	}
	for i := range t.work {
		w := &t.work[i]
		parts := cut(t.d, i, []int{r * max(t.dh, t.dv), r * t.dh, p * t.dh, k.PackedLen(t.dv, t.positions), p * m, r * t.dv,
			r, r, r, t.dv, coded})
		w.rows, w.queries, w.keys, w.values, w.scores, w.sums = parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
		w.most, w.sum, w.change, w.wide, w.plain = parts[6], parts[7], parts[8], parts[9], parts[10]
		w.zeros, w.bad, w.started = make([]float32, t.dv), make([]int, 0, p), make([]bool, r/m)
		w.q = simd.Matrix{Type: tensor.F32, Rows: r, Cols: t.dh, Data: tensor.Bytes(w.rows)}
		w.yt = simd.Matrix{Type: tensor.F32, Rows: r / m * t.dv, Cols: m, Data: tensor.Bytes(w.sums)}
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
	first := tile * t.tokens
	t.tile(&t.work[worker], g, first, min(first+t.tokens, len(t.pos)))
}

// tile takes tokens first … last-1 with the queries of group g through the cache.
func (t *prefillAttention) tile(w *prefillWork, g, first, last int) {
	k := t.d.k
	m, n := k.TileWidth(), k.PanelRows()
	r := (last - first) * t.share
	panels := (r + m - 1) / m
	begin, end := t.capacity, 0
	for token := first; token < last; token++ {
		from, to := t.sees(token)
		begin, end = min(begin, from), max(end, to)
		at := (token - first) * t.share * t.dh
		k.Scale(w.rows[at:at+t.share*t.dh], t.scale, t.q.span(token*t.heads+g*t.share, t.share))
	}
	for i := range panels {
		k.PackTile(w.queries[i*m*t.dh:], w.q, i*m, min(m, r-i*m), m)
		w.started[i] = false
	}
	for i := range panels * m {
		w.most[i], w.sum[i] = least, 0
	}
	for ; begin < end; begin += t.positions {
		to := min(begin+t.positions, end)
		if !t.seen(first, last, begin, to) {
			continue
		}
		if w.k, w.v, w.shift = t.k[g], t.v[g], 0; t.pages != nil {
			t.pages.block(w, g, int(t.pages.seq[first]), begin, to)
		}
		if t.coded {
			from, n := begin+w.shift, to-begin
			w.k = t.widen(w.plain, &w.k, from, n)
			w.v = t.widen(w.plain[t.positions*t.dh:], &w.v, from, n)
			w.shift = -begin
		}
		for p := begin; p < to; p += n {
			k.PackTile(w.keys[(p-begin)*t.dh:], w.k, p+w.shift, min(n, to-p), n)
		}
		t.packValues(w, begin, to, first, last)
		for i := range panels {
			t.panel(w, g, i, first, last, begin, to)
		}
	}
	t.store(w, g, first, r)
}

// panel takes the queries of panel i of a tile through the block of positions [begin, to).
func (t *prefillAttention) panel(w *prefillWork, g, i, first, last, begin, to int) {
	k := t.d.k
	m, n := k.TileWidth(), k.PanelRows()
	first, last, tile := first+i*m/t.share, min(first+((i+1)*m-1)/t.share+1, last), first
	// What some of its tokens see, from a panel of keys on.
	a, b := to, begin
	for token := first; token < last; token++ {
		if from, end := t.sees(token); from < to && end > begin {
			a, b = min(a, max(from, begin)), max(b, min(end, to))
		}
	}
	if a >= b {
		return
	}
	a = begin + (a-begin)/n*n
	s := w.scores[:(b-a)*m]
	k.MulPanel(s, w.queries[i*m*t.dh:], w.keys[(a-begin)*t.dh:], t.dh, n*t.dh, b-a, false)
	t.cap(s)
	rowsOf := func(token int) (r0, r1 int) {
		r0 = (token-tile)*t.share - i*m
		return max(r0, 0), min(r0+t.share, m)
	}
	for token := first; token < last; token++ {
		from, end := t.sees(token)
		r0, r1 := rowsOf(token)
		for r := r0; t.leans() && r < r1; r++ {
			t.lean(g*t.share+(i*m+r)%t.share, token, a, s[r:], m)
		}
		if from <= a && end >= b {
			continue
		}
		for p := a; p < b; p++ {
			if p < from || p >= end {
				for r := r0; r < r1; r++ {
					s[(p-a)*m+r] = hidden
				}
			}
		}
	}
	yt := w.sums[i*m*t.dv : (i+1)*m*t.dv]
	change := w.change[i*m:]
	if k.SoftmaxTile(s, w.most[i*m:], w.sum[i*m:], change) && w.started[i] {
		k.ScaleTile(yt, change)
	}
	k.MulPanel(yt, s, w.values[(a-begin)*n:], b-a, (to-begin)*n, t.dv, w.started[i])
	w.started[i] = true
	for _, p := range w.bad {
		for token := first; token < last; token++ {
			if from, end := t.sees(token); p < from || p >= end {
				continue
			}
			r0, r1 := rowsOf(token)
			for c, v := range t.value(w, p) {
				for r := r0; r < r1; r++ {
					yt[c*m+r] += s[(p-a)*m+r] * v
				}
			}
		}
	}
}

// hidden is the score of a position that a query does not see: its power is 0 whatever the maximum,
// which starts at least.
const hidden = -math.MaxFloat32

// seen says whether any token of [first, last) sees a position of [from, to).
func (t *prefillAttention) seen(first, last, from, to int) bool {
	for token := first; token < last; token++ {
		if a, b := t.sees(token); a < to && from < b {
			return true
		}
	}
	return false
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

// packValues lays the values of positions [from, to) into panels, [panel][position][PanelRows].
// Where some tokens do not see all positions, values that are no numbers would spoil their sums:
// 0·NaN is NaN. Then zeros take their place and w.bad lists them.
func (t *prefillAttention) packValues(w *prefillWork, from, to, first, last int) {
	k, n := t.d.k, to-from
	w.bad = w.bad[:0]
	if k.SpreadRows(w.values, w.v, from+w.shift, n) || !t.hides(first, last, from, to) {
		return
	}
	nr := k.PanelRows()
	for p := range n {
		row := t.value(w, from+p)
		if bad := k.Dot(row, w.zeros); bad == 0 {
			continue
		}
		w.bad = append(w.bad, from+p)
		for c, at := 0, p*nr; c < t.dv; c, at = c+nr, at+n*nr {
			clear(w.values[at : at+nr])
		}
	}
}

// value gives the values of a position.
func (t *prefillAttention) value(w *prefillWork, p int) []float32 {
	m := &w.v
	p += w.shift
	if m.Type == tensor.F32 {
		return tensor.View[float32](m.Data[p*m.Stride:][:4*t.dv])
	}
	t.d.decodeRow(w.wide, m, p)
	return w.wide
}

// store divides by the sums and turns yᵀ around.
func (t *prefillAttention) store(w *prefillWork, g, first, r int) {
	k := t.d.k
	m := k.TileWidth()
	for i := 0; i*m < r; i++ {
		for j := i * m; j < (i+1)*m; j++ {
			w.change[j] = 1 / t.sunk(g*t.share+j%t.share, w.sum[j], w.most[j])
		}
		k.ScaleTile(w.sums[i*m*t.dv:(i+1)*m*t.dv], w.change[i*m:])
		k.PackTile(w.rows[i*m*t.dv:], w.yt, i*t.dv, t.dv, t.dv)
	}
	per := t.share * t.dv
	for i := range r / t.share {
		y, token := w.rows[i*per:(i+1)*per], first+i
		if t.to == nil || t.keep {
			copy(t.y.span(token*t.heads+g*t.share, t.share), y)
		}
		if t.to != nil {
			k.QuantisePart(&t.to.q, token, g*per, y)
		}
	}
}

func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }
