package cpu

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/tensor"
)

// unit is a product of many rows over panels on the processor's matrix unit.
type unit struct {
	t       *linear
	m       *simd.Panels
	x       *roundX
	panels  int // of a chunk
	rows    int // of x in a chunk, a multiple of 32 unless it is all of them
	across  int // chunks that one group of panels makes
	scratch [][]float32
}

// unitRows is how many rows of activations a chunk takes at most: they share
// the work of bringing its weights to the unit's form.
const unitRows = 512

func bindUnit(d *Device, t *linear, w, x *backends.Operand) (product, error) {
	m, err := panelsOf(w, 0)
	if err != nil {
		return nil, err
	}
	parts := simd.UnitParts(m.Type)
	if m.Type == tensor.BF16 && d.bf16 {
		parts = 1
	}
	g := &unit{t: t, m: m, x: d.bindRounding(x, t.x, form{parts: parts}), panels: or(t.variant.panels, simd.UnitPanels),
		rows: or(t.variant.rows, unitRows)}
	all, enough := simd.PanelCount(m.Rows), 4*d.pool.Size()
	count := func() int {
		g.across = (t.x.n + g.rows - 1) / g.rows
		return (all + g.panels - 1) / g.panels * g.across
	}
	for count() < enough && g.panels > 2 {
		g.panels /= 2
	}
	for count() < enough && g.rows > unitRows/4 {
		g.rows /= 2
	}
	g.scratch = make([][]float32, d.pool.Size())
	for i := range g.scratch {
		g.scratch[i] = d.workerScratch(i, simd.UnitScratch(m.Type))
	}
	return g, nil
}

func (g *unit) prepare(p *pool.Pool) { g.x.run(p) }

func (g *unit) chunks() int {
	return (simd.PanelCount(g.m.Rows) + g.panels - 1) / g.panels * g.across
}

func (g *unit) do(worker, chunk int) (r0, r1, i0, i1 int) {
	p0, i0 := chunk/g.across*g.panels, chunk%g.across*g.rows
	p1, i1 := min(p0+g.panels, simd.PanelCount(g.m.Rows)), min(i0+g.rows, g.t.x.n)
	ld, _ := g.t.y.lead()
	g.t.d.k.MulUnit(g.t.y.data, ld, g.m, p0, p1, &g.x.s, i0, i1, g.scratch[worker])
	r0, r1 = panelRows(g.m, p0, p1)
	return r0, r1, i0, i1
}
