package cpu

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/tensor"
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
	plain  []expanded // of each worker, where m is compact
}

// expanded is some compact panels as plain ones. The product with the first tile, which adds up in an order of its
// own whoever computes it, leaves them, and chunks with the same panels follow each other.
type expanded struct {
	m    simd.Panels
	from int // the first of the panels; -1: none
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
	room := 0
	if m.Compact() {
		room, g.plain = g.panels*simd.PanelBytes(m.Type, m.Cols)/4, make([]expanded, d.pool.Size())
	}
	for i := range g.tail {
		parts := cut(d, i, []int{simd.BF16TailFloats, room})
		g.tail[i] = parts[0]
		if m.Compact() {
			g.plain[i].m.Data = tensor.Bytes(parts[1])
		}
	}
	return g
}

func (g *halves) prepare(p *pool.Pool) {
	for i := range g.plain { // others have used the memory
		g.plain[i].from = -1
	}
	g.x.run(p)
}

func (g *halves) chunks() int {
	return (simd.PanelCount(g.m.Rows) + g.panels - 1) / g.panels * g.across
}

func (g *halves) do(worker, chunk int) (r0, r1, i0, i1 int) {
	n := g.t.x.n
	p0, t0 := chunk/g.across*g.panels, chunk%g.across*g.tiles
	p1, t1 := min(p0+g.panels, simd.PanelCount(g.m.Rows)), min(t0+g.tiles, simd.BF16Tiles(n))
	ld, _ := g.t.y.lead()
	r0, r1 = panelRows(g.m, p0, p1)
	if !g.m.Compact() {
		g.t.d.k.MulBF16(g.t.y.data, g.r, ld, g.m, p0, p1, g.x.packed, n, t0, t1, g.tail[worker])
	} else {
		e, t := &g.plain[worker], t0
		if t == 0 {
			keep := e.from != p0 && (g.across > 1 || t1 > 1)
			g.t.d.k.MulCompactBF16(g.t.y.data, g.r, ld, g.m, p0, p1, g.x.packed, n, t, g.tail[worker], &e.m, keep)
			t++
		} else if e.from != p0 {
			g.t.d.k.ExpandPanels(&e.m, g.m, p0, p1)
		}
		e.from = p0
		if t < t1 {
			r := g.r
			if r != nil {
				r = r[r0:]
			}
			g.t.d.k.MulBF16(g.t.y.data[r0:], r, ld, &e.m, 0, p1-p0, g.x.packed, n, t, t1, g.tail[worker])
		}
	}
	return r0, r1, min(t0*simd.BF16Rows, n), min(t1*simd.BF16Rows, n)
}
