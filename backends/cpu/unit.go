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
	panels  int  // of a chunk
	rows    int  // of x in a chunk, a multiple of 32 unless it is all of them
	across  int  // chunks that one group of panels makes
	byRows  bool // chunks of the same rows follow each other
	scratch [][]float32
}

// unitRows is how many rows of activations a chunk takes at most: they share
// the work of bringing its weights to the unit's form.
const unitRows = 512

// nearBytes is the most that weights take which every worker reads for rows of its own: what a worker makes of its
// rows then stays in its caches from product to product, and the weights come from the third level, which they share.
const nearBytes = 1 << 20

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
	if threads := d.pool.Size(); t.variant.rows == 0 && all*m.PanelSize() <= nearBytes && threads <= 4 &&
		t.x.n >= 64*threads {
		g.byRows = true
		g.rows = min(unitRows, ((t.x.n+threads-1)/threads+15)&^15)
	}
	count := func() int {
		g.across = (t.x.n + g.rows - 1) / g.rows
		return (all + g.panels - 1) / g.panels * g.across
	}
	for count() < enough && g.panels > 2 {
		g.panels /= 2
	}
	for count() < enough && g.rows > unitRows/4 && !g.byRows {
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
	groups := (simd.PanelCount(g.m.Rows) + g.panels - 1) / g.panels
	p0, i0 := chunk/g.across*g.panels, chunk%g.across*g.rows
	if g.byRows {
		p0, i0 = chunk%groups*g.panels, chunk/groups*g.rows
	}
	p1, i1 := min(p0+g.panels, simd.PanelCount(g.m.Rows)), min(i0+g.rows, g.t.x.n)
	ld, _ := g.t.y.lead()
	g.t.d.k.MulUnit(g.t.y.data, ld, g.m, p0, p1, &g.x.s, i0, i1, g.scratch[worker])
	r0, r1 = panelRows(g.m, p0, p1)
	return r0, r1, i0, i1
}
