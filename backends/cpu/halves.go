package cpu

import (
	"greta/backends"
	"greta/backends/cpu/simd"
	"greta/internal/pool"
)

// halves is a product over panels of bf16 with activations rounded to bf16.
type halves struct {
	t      *linear
	m      *simd.Panels
	r      []float32 // what the products are added to, laid out as y; may be nil
	panels int       // of a chunk
	tiles  int       // of a chunk
	across int       // chunks that one group of panels makes
	x      *roundX
	tail   [][]float32
}

func newHalves(d *Device, t *linear, m *simd.Panels, x *backends.Operand) *halves {
	g := &halves{t: t, m: m, panels: or(t.variant.panels, chunkPanels), tail: make([][]float32, d.pool.Size())}
	all := simd.BF16Tiles(t.x.n)
	g.tiles = max(1, chunkProducts/(g.panels*simd.PanelRows*simd.BF16Rows*max(1, m.Cols)))
	g.across = (all + g.tiles - 1) / g.tiles
	g.x = d.bindRounding(x, t.x, form{bf16: true})
	if t.sumsAtOnce() {
		g.r, t.summed = t.r.data, true
	}
	for i := range g.tail {
		g.tail[i] = d.workerScratch(i, simd.BF16TailFloats)
	}
	return g
}

func (g *halves) prepare(p *pool.Pool) { g.x.run(p) }

func (g *halves) chunks() int {
	return (simd.PanelCount(g.m.Rows) + g.panels - 1) / g.panels * g.across
}

func (g *halves) do(worker, chunk int) (r0, r1, i0, i1 int) {
	n := g.t.x.n
	p0, t0 := chunk/g.across*g.panels, chunk%g.across*g.tiles
	p1, t1 := min(p0+g.panels, simd.PanelCount(g.m.Rows)), min(t0+g.tiles, simd.BF16Tiles(n))
	ld, _ := g.t.y.lead()
	g.t.d.k.MulBF16(g.t.y.data, g.r, ld, g.m, p0, p1, g.x.packed, n, t0, t1, g.tail[worker])
	r0, r1 = panelRows(g.m, p0, p1)
	return r0, r1, min(t0*simd.BF16Rows, n), min(t1*simd.BF16Rows, n)
}
