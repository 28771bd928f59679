package cpu

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/tensor"
)

const (
	// matVecRows is the number of activation rows up to which weights of plain
	// types are read row by row; from there on they are decoded once into tiles.
	matVecRows = 4
	// fewRows is the number of activation rows up to which panels of plain types are streamed past them; from there on
	// they are decoded into tiles, whose products take no time for what a row loads.
	fewRows = 32
	// chunkPanels is how many panels a chunk of a product of many rows takes.
	chunkPanels = 4
	// chunkBytes is the most that one chunk of a mat-vec reads of the weights where threads share
	// it, but for a panel that is larger.
	chunkBytes = 1 << 20
	// leastBytes is about the least: what comes between two chunks takes as long as reading a tenth of it.
	leastBytes = 192 << 10
	// aloneBytes is what a row alone reads of the weights before the next row: it stays in the second-level cache.
	aloneBytes = 256 << 10
	// chunkProducts is about what one chunk of a product over panels multiplies:
	// a tenth of a millisecond's work.
	chunkProducts = 16 << 20
	// wideBytes is the most that a chunk reads of activations in eight bits, so that they stay in
	// the second-level cache while all weights pass; and chunks are as large as that, or
	// twice chunkProducts.
	wideBytes = 768 << 10
)

// linear is y = x·wᵀ (+ b) (+ r), in chunks of some rows of w.
type linear struct {
	d       *Device
	x, y, r rows
	b       []float32
	variant variant
	mul     product
	summed  bool        // mul adds r itself
	next    *pool.Ahead // the beginning of the mat-vec that follows; may be nil
	redo    *pool.Redo  // t where its chunks may be computed twice; may be nil
	results [][]float32 // of each worker's chunk until it is committed
}

// product computes the sums of a linear.
type product interface {
	// prepare runs once before the chunks.
	prepare(p *pool.Pool)
	// chunks is the number of chunks.
	chunks() int
	// do computes a chunk: rows r0 … r1-1 of w times rows i0 … i1-1 of x.
	do(worker, chunk int) (r0, r1, i0, i1 int)
}

func bindLinear(d *Device, l *backends.Launch) (runner, error) {
	t := &linear{d: d}
	if k, ok := l.Kernel.(*kernel); ok {
		t.variant = k.variant
	}
	var err error
	if t.x, err = floats(&l.In[0]); err != nil {
		return nil, err
	}
	if t.y, err = floats(&l.Out[0]); err != nil {
		return nil, err
	}
	if r := l.Named("r"); r != nil {
		if t.r, err = floats(r); err != nil {
			return nil, err
		}
	}
	if b := l.Named("b"); b != nil {
		if t.b, err = vector(d, b); err != nil {
			return nil, err
		}
	}
	w := &l.In[1]
	switch {
	case w.Packing == "":
		t.mul, err = bindStored(d, t, w, &l.In[0])
	case d.onUnit(t.x.n) && t.tiled():
		t.mul, err = bindUnit(d, t, w, &l.In[0])
	case simd.RoundsActivations(w.Type):
		t.mul, err = bindRounded(d, t, w, &l.In[0])
	default:
		t.mul, err = bindPlain(d, t, w, &l.In[0])
	}
	return t, err
}

func (t *linear) run(p *pool.Pool) error {
	if t.x.n > 0 && t.y.cols > 0 {
		t.mul.prepare(p)
		if t.redo != nil {
			p.RunRedo(t.redo, t.mul.chunks(), t.next)
		} else {
			p.RunAhead(t, t.mul.chunks(), t.next)
		}
	}
	return nil
}

func (t *linear) Do(worker, chunk int) {
	r0, r1, i0, i1 := t.mul.do(worker, chunk)
	if t.b == nil && (t.r.data == nil || t.summed) {
		return
	}
	for i := i0; i < i1; i++ {
		t.add(i, r0, r1)
	}
}

// add adds bias and residual to results r0 … r1-1 of row i, where mul does not.
func (t *linear) add(i, r0, r1 int) {
	y := t.y.row(i)[r0:r1]
	if t.b != nil {
		t.d.k.Add(y, y, t.b[r0:r1])
	}
	if t.r.data != nil && !t.summed {
		t.d.k.Add(y, y, t.r.row(i)[r0:r1])
	}
}

// rounding is a product over panels of a block format, with activations in
// eight bits.
type rounding struct {
	t     *linear
	m     *simd.Panels
	x     *roundX
	k     *simd.Kernels
	r     []float32 // what the products are added to, laid out as y; may be nil
	ldy   int
	cuts  cuts
	tiles int // of a chunk
	tail  [][]float32
}

// panelRows gives the rows of panels p0 … p1-1.
func panelRows(m *simd.Panels, p0, p1 int) (r0, r1 int) {
	return p0 * simd.PanelRows, min(p1*simd.PanelRows, m.Rows)
}

// cuts divides panels into chunks: chunk c has those from cuts[c] to cuts[c+1].
type cuts []int32

func (c cuts) chunks() int               { return len(c) - 1 }
func (c cuts) of(chunk int) (p0, p1 int) { return int(c[chunk]), int(c[chunk+1]) }

// cutEven makes chunks of so many panels.
func cutEven(panels, most int) cuts {
	c := cuts{0}
	for p := 0; p < panels; {
		p = min(p+most, panels)
		c = append(c, int32(p))
	}
	return c
}

// cutTapered makes chunks of panels of so many bytes for a mat-vec, whose region lasts but a few chunks:
// each thread's share, which is a range of the pool's, ends in ever smaller ones, so that all
// threads end together. Large ones come first, because memory rests between two chunks: the weights
// of one leave neither the code nor the data of what comes between in a cache nearer than the
// third level. So one thread alone has a single chunk.
func cutTapered(panels, size, chunk, threads int) cuts {
	c := cuts{0}
	if threads == 1 && panels > 0 {
		return append(c, int32(panels))
	}
	most, least := max(1, chunk/max(1, size)), max(1, leastBytes/max(1, size))
	take := func(left int) int {
		n := min(most, max((left+1)/2, least))
		if left-n < least/2 {
			n = left
		}
		return min(n, most, left)
	}
	count := 0 // chunks of the largest share
	for left := (panels + threads - 1) / threads; left > 0; count++ {
		left -= take(left)
	}
	for t := range threads {
		p, end := t*panels/threads, (t+1)*panels/threads
		for range count {
			p += take(end - p)
			c = append(c, int32(p))
		}
	}
	return c
}

func bindRounded(d *Device, t *linear, w, x *backends.Operand) (product, error) {
	m, err := panelsOf(w, 0)
	if err != nil {
		return nil, err
	}
	ldy, even := t.y.lead()
	g := &rounding{t: t, m: m, k: d.k, ldy: ldy, tail: tails(d)}
	all := simd.PanelCount(m.Rows)
	if t.x.n <= d.k.RowsAlone(m.Type) || !even || d.invariant {
		g.x = d.bindRounding(x, t.x, form{group: 1})
		g.tiles = max(1, t.x.n)
		g.k = t.matVec()
		g.cuts = cutTapered(all, m.PanelSize(), or(t.variant.chunk, chunkBytes), d.pool.Size())
	} else {
		panels := or(t.variant.panels, chunkPanels)
		g.x = d.bindRounding(x, t.x, form{group: 8})
		g.cuts = cutEven(all, panels)
		g.tiles = g.tilesOf(panels, d.pool.Size())
		if t.sumsAtOnce() {
			g.r, t.summed = t.r.data, true
		}
	}
	return g, nil
}

// sumsAtOnce says whether a product can add the residual where it stores results: rows of both are
// equally far apart, and no bias comes first.
func (t *linear) sumsAtOnce() bool {
	ldy, even := t.y.lead()
	ldr, also := t.r.lead()
	return t.r.data != nil && even && also && ldr == ldy && t.b == nil
}

// tilesOf gives the groups of activations of a chunk of so many panels: even parts of all, and
// so many chunks that all threads end together.
func (g *rounding) tilesOf(panels, threads int) int {
	all := g.x.q.Tiles()
	most := min(2*chunkProducts/(panels*simd.PanelRows*8*max(1, g.m.Cols)),
		wideBytes/max(1, simd.QuantsLen(8, g.m.Cols, 8)))
	if enough := 8 * threads; g.cuts.chunks() < enough {
		most = min(most, all*g.cuts.chunks()/enough)
	}
	most = min(max(1, most), max(1, all))
	parts := (all + most - 1) / most
	return max(1, (all+parts-1)/max(1, parts))
}

func (g *rounding) prepare(p *pool.Pool) { g.x.run(p) }

// chunks gives some rows of activations with all weights, then the next: these rows stay in the
// second-level cache, and are the larger part of what a chunk reads.
func (g *rounding) chunks() int { return (g.x.q.Tiles() + g.tiles - 1) / g.tiles * g.cuts.chunks() }

func (g *rounding) do(worker, chunk int) (r0, r1, i0, i1 int) {
	q := &g.x.q
	p0, p1 := g.cuts.of(chunk % g.cuts.chunks())
	t0 := chunk / g.cuts.chunks() * g.tiles
	t1 := min(t0+g.tiles, q.Tiles())
	i0, i1 = t0*q.Group, min(t1*q.Group, q.N)
	if q.Group > 1 {
		g.k.MulPanels(g.t.y.data, g.r, g.ldy, g.m, p0, p1, q, t0, t1, g.tail[worker])
	} else {
		near := p1 - p0
		if i1-i0 > 1 {
			near = max(1, aloneBytes/g.m.PanelSize())
		}
		for p := p0; p < p1; p += near {
			for i := i0; i < i1; i++ {
				row := q.Row(i)
				g.k.MulPanels(g.t.y.row(i), nil, g.m.Rows, g.m, p, min(p+near, p1), &row, 0, 1, g.tail[worker])
			}
		}
	}
	r0, r1 = panelRows(g.m, p0, p1)
	return r0, r1, i0, i1
}

// tails is the scratch of products over panels.
func tails(d *Device) [][]float32 {
	all := make([][]float32, d.pool.Size())
	for i := range all {
		all[i] = d.workerScratch(i, simd.TailFloats)
	}
	return all
}

// plain is a product over panels of a plain type, in f32.
type plain struct {
	t    *linear
	k    *simd.Kernels
	m    *simd.Panels
	cuts cuts
	tail [][]float32
}

func bindPlain(d *Device, t *linear, w, x *backends.Operand) (product, error) {
	m, err := panelsOf(w, 0)
	if err != nil {
		return nil, err
	}
	if t.tiled() && d.bf16Dots(m.Type) {
		return newHalves(d, t, m, x), nil
	}
	if t.tiled() && t.x.n > fewRows {
		return newTiles(d, t, simd.Matrix{Type: m.Type, Rows: m.Rows, Cols: m.Cols, Panels: m}, x), nil
	}
	c := cutTapered(simd.PanelCount(m.Rows), m.PanelSize(), or(t.variant.chunk, chunkBytes), d.pool.Size())
	return &plain{t: t, k: t.matVec(), m: m, cuts: c, tail: tails(d)}, nil
}

func (g *plain) prepare(*pool.Pool) {}
func (g *plain) chunks() int        { return g.cuts.chunks() }

func (g *plain) do(worker, chunk int) (r0, r1, i0, i1 int) {
	p0, p1 := g.cuts.of(chunk)
	x, y, n := &g.t.x, &g.t.y, g.t.x.n
	r0, r1 = panelRows(g.m, p0, p1)
	if ldx, even := x.lead(); n > 1 && even && !g.t.d.invariant {
		if ldy, even := y.lead(); even {
			g.k.MulFewPanels(y.data, ldy, g.m, p0, p1, x.data, ldx, n, g.tail[worker])
			return r0, r1, 0, n
		}
	}
	for i := range n {
		g.k.MatVecPanels(y.row(i), g.m, p0, p1, x.row(i), g.tail[worker])
	}
	return r0, r1, 0, n
}

// matVec is the kernels for one row of activations.
func (t *linear) matVec() *simd.Kernels {
	if t.variant.chunk == 0 || t.variant.far == t.d.k.Far() {
		return t.d.k
	}
	return t.d.k.WithFar(t.variant.far)
}

// or gives n, or what stands for a zero.
func or(n, zero int) int {
	if n == 0 {
		return zero
	}
	return n
}

// onUnit says whether products of n rows go to the matrix unit.
func (d *Device) onUnit(n int) bool { return d.k.HasUnit() && n >= simd.MinUnitRows && !d.invariant }

// bf16Dots says whether products of many rows with weights of type t are made of
// dot products of bf16.
func (d *Device) bf16Dots(t tensor.Type) bool { return d.bf16 && t == tensor.BF16 }

// tiled says whether a product in f32 goes through packed tiles.
func (t *linear) tiled() bool {
	_, even := t.x.lead()
	_, evenY := t.y.lead()
	return t.x.n > matVecRows && even && evenY && !t.d.invariant
}

// tiles is a product in f32 by the blocked algorithm.
type tiles struct {
	t       *linear
	w       simd.Matrix
	per     int // rows of w in a chunk
	x       *roundX
	scratch [][]float32
}

func newTiles(d *Device, t *linear, w simd.Matrix, x *backends.Operand) *tiles {
	threads := d.pool.Size()
	g := &tiles{t: t, w: w, scratch: make([][]float32, threads)}
	g.per = max(16, min(or(t.variant.rows, d.k.TileRows()), (w.Rows/(4*threads)+15)/16*16))
	g.x = d.bindRounding(x, t.x, form{})
	for i := range g.scratch {
		g.scratch[i] = d.workerScratch(i, d.k.ScratchLen(w))
	}
	return g
}

func (g *tiles) prepare(p *pool.Pool) { g.x.run(p) }
func (g *tiles) chunks() int          { return (g.w.Rows + g.per - 1) / g.per }

func (g *tiles) do(worker, chunk int) (r0, r1, i0, i1 int) {
	r0 = chunk * g.per
	r1 = min(r0+g.per, g.w.Rows)
	ld, _ := g.t.y.lead()
	g.t.d.k.MulRows(g.t.y.data, ld, g.w, r0, r1, g.x.packed, g.t.x.n, g.scratch[worker], false)
	return r0, r1, 0, g.t.x.n
}

// stored is a product over rows as files store them, in f32.
type stored struct {
	t       *linear
	w       simd.Matrix
	per     int
	scratch [][]float32
}

func bindStored(d *Device, t *linear, o, x *backends.Operand) (product, error) {
	w, err := matrix(o)
	if err != nil {
		return nil, err
	}
	if t.tiled() {
		return newTiles(d, t, w, x), nil
	}
	threads := d.pool.Size()
	g := &stored{t: t, w: w, scratch: make([][]float32, threads)}
	row := max(1, w.Type.RowBytes(w.Cols))
	g.per = max(4, min(chunkBytes/row, (w.Rows+4*threads-1)/(4*threads))&^3)
	if !simd.Direct(w.Type) {
		for i := range g.scratch {
			g.scratch[i] = d.workerScratch(i, w.Cols)
		}
	}
	return g, nil
}

func (g *stored) prepare(*pool.Pool) {}
func (g *stored) chunks() int        { return (g.w.Rows + g.per - 1) / g.per }

func (g *stored) do(worker, chunk int) (r0, r1, i0, i1 int) {
	r0 = chunk * g.per
	r1 = min(r0+g.per, g.w.Rows)
	for i := range g.t.x.n {
		g.t.d.k.MatVec(g.t.y.row(i)[r0:r1], g.w, r0, g.t.x.row(i), g.scratch[worker])
	}
	return r0, r1, 0, g.t.x.n
}
