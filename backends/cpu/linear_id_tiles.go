package cpu

import (
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/tensor"
)

// Products with experts for many tokens: the rows of activations that chose
// an expert are brought together, so that its weights are multiplied with many
// rows at a time as in linear, and the results go back to their places.

// idTiles is a linearID over panels for many tokens.
type idTiles struct {
	*linearID
	group  int   // rows that are brought together: of simd.Quants, or of the matrix unit
	parts  int   // of the matrix unit's activations; 0: in eight bits
	panels int   // of a chunk
	across int   // chunks of an expert's matrix
	start  []int // of each active expert among the groups
	groups int
	memory []float32 // the activations in their form, group behind group
	size   int       // floats of a group
	work   []idWork
}

// idWork is one worker's memory.
type idWork struct {
	x       []float32 // a group's rows
	y       []float32 // [idRows, panels·16]
	scratch []float32
}

// idRows is how many rows of activations a chunk takes at once.
const idRows = 512

// tileGroup gives the rows that should be brought together, and in how many
// parts, for so many rows a matrix on average; 0 where single rows are as good.
func (d *Device) tileGroup(t tensor.Type, each int) (group, parts int) {
	switch {
	case d.onUnit(each) && t == tensor.BF16 && d.bf16:
		return simd.SplitRows, 1
	case d.onUnit(each):
		return simd.SplitRows, simd.UnitParts(t)
	case simd.RoundsActivations(t) && each >= 2 && !d.invariant:
		return 8, 0
	}
	return 0, 0
}

func newIDTiles(t *linearID, typ tensor.Type, cols, group, parts int) *idTiles {
	g := &idTiles{linearID: t, group: group, parts: parts, panels: chunkPanels}
	experts := len(t.panels)
	g.groups = min(len(t.e), (len(t.e)+experts*(group-1))/group)
	scratch := simd.TailFloats
	if parts > 0 {
		g.panels = simd.UnitPanels
		g.size = simd.SplitLen(group, cols, parts)
		scratch = simd.UnitScratch(typ)
	} else {
		g.size = simd.QuantsLen(group, cols, group) / 4
	}
	g.across = (simd.PanelCount(t.height) + g.panels - 1) / g.panels
	g.memory = t.d.shared(g.groups * g.size)
	g.start = make([]int, 0, experts)
	g.work = make([]idWork, t.d.pool.Size())
	for i := range g.work {
		parts := cut(t.d, i, []int{group * cols, min(idRows, len(t.e)) * g.panels * simd.PanelRows, scratch})
		g.work[i] = idWork{parts[0], parts[1], parts[2]}
	}
	return g
}

func (g *idTiles) run(p *pool.Pool) error {
	if err := g.sort(); err != nil {
		return err
	}
	g.start = g.start[:0]
	at := 0
	for _, e := range g.active {
		g.start = append(g.start, at)
		at += (int(g.first[e+1]-g.first[e]) + g.group - 1) / g.group
	}
	if at > 0 {
		p.Run((*gathering)(g), at)
		p.Run(g, len(g.active)*g.across)
	}
	return nil
}

// usersOf gives the rows of y of the active expert a.
func (g *idTiles) usersOf(a int) []int32 {
	e := g.active[a]
	return g.list[g.first[e]:g.first[e+1]]
}

// gathering is the region that brings activations to their form; a chunk is a group.
type gathering idTiles

func (r *gathering) Do(worker, group int) {
	g := (*idTiles)(r)
	a := len(g.start) - 1
	for g.start[a] > group {
		a--
	}
	list := g.usersOf(a)
	from := (group - g.start[a]) * g.group
	list = list[from:min(from+g.group, len(list))]
	memory, cols := g.memory[group*g.size:(group+1)*g.size], g.x.cols
	if g.parts == 0 {
		q := simd.Quants{N: len(list), Cols: cols, Group: g.group, Data: tensor.Bytes(memory)}
		for j, i := range list {
			g.d.k.Quantise(&q, j, g.x.row(g.input(int(i))))
		}
		return
	}
	x := g.work[worker].x
	for j, i := range list {
		copy(x[j*cols:(j+1)*cols], g.x.row(g.input(int(i))))
	}
	s := simd.Split{N: len(list), Cols: cols, Parts: g.parts, Data: memory}
	g.d.k.Put(&s, x, cols, 0)
}

func (g *idTiles) Do(worker, chunk int) {
	a, w := chunk/g.across, &g.work[worker]
	e, m := int(g.active[a]), g.linearID.panels[g.active[a]]
	p0 := chunk % g.across * g.panels
	p1 := min(p0+g.panels, simd.PanelCount(m.Rows))
	r0, r1 := p0*simd.PanelRows, min(p1*simd.PanelRows, m.Rows)
	width, part := r1-r0, m.Part(p0, p1)
	for list, group := g.usersOf(a), g.start[a]; len(list) > 0; group += idRows / g.group {
		n := min(idRows, len(list))
		memory := g.memory[group*g.size:][:(n+g.group-1)/g.group*g.size]
		if g.parts == 0 {
			q := simd.Quants{N: n, Cols: m.Cols, Group: g.group, Data: tensor.Bytes(memory)}
			g.d.k.MulPanels(w.y, nil, width, &part, 0, p1-p0, &q, 0, q.Tiles(), w.scratch)
		} else {
			s := simd.Split{N: n, Cols: m.Cols, Parts: g.parts, Data: memory}
			g.d.k.MulUnit(w.y, width, &part, 0, p1-p0, &s, 0, n, w.scratch)
		}
		for j, i := range list[:n] {
			y := g.y.row(int(i))[r0:r1]
			copy(y, w.y[j*width:(j+1)*width])
			if g.b != nil {
				g.d.k.Add(y, y, g.b[e*g.height+r0:e*g.height+r1])
			}
		}
		list = list[n:]
	}
}
