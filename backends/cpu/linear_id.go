package cpu

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
)

// linearID multiplies each row with the matrix of the expert that was chosen
// for it. A chunk is some rows of one expert's matrix and all the activations
// that chose it, so that the weights are read once.
type linearID struct {
	d       *Device
	x, y    rows
	experts []simd.Matrix  // as stored,
	panels  []*simd.Panels // or in panels
	q       *roundX        // x in eight bits, where the panels want it so
	e       []int32
	users   int // experts per token
	inputs  int // rows of x per token: one, or one per chosen expert
	b       []float32
	height  int     // rows of a matrix
	per     int     // of them in a chunk
	blocks  int     // chunks of a matrix
	first   []int32 // of each expert in list
	list    []int32 // rows of y sorted by expert
	active  []int32 // experts that were chosen
	scratch [][]float32
}

func bindLinearID(d *Device, l *backends.Launch) (runner, error) {
	x, w := &l.In[0], &l.In[1]
	t := &linearID{d: d, users: l.In[2].Shape[1], inputs: x.Shape[1]}
	var err error
	if t.x, err = floats(x); err != nil {
		return nil, err
	}
	if t.y, err = floats(&l.Out[0]); err != nil {
		return nil, err
	}
	if t.e, err = ints(&l.In[2]); err != nil {
		return nil, err
	}
	if b := l.Named("b"); b != nil {
		if t.b, err = vector(d, b); err != nil {
			return nil, err
		}
	}
	t.height = w.Shape[1]
	row := max(1, w.Type.RowBytes(w.Shape[2]))
	t.per = max(simd.PanelRows, chunkBytes/4/row/simd.PanelRows*simd.PanelRows)
	t.blocks = (t.height + t.per - 1) / t.per
	for i := range w.Shape[0] {
		if w.Packing != "" {
			m, err := panelsOf(w, i)
			if err != nil {
				return nil, err
			}
			t.panels = append(t.panels, m)
			continue
		}
		o := *w
		o.Shape = w.Shape[1:]
		o.Offset += i * w.Stride
		o.Stride = w.Type.RowBytes(w.Shape[2])
		m, err := matrix(&o)
		if err != nil {
			return nil, err
		}
		t.experts = append(t.experts, m)
	}
	t.first = make([]int32, w.Shape[0]+1)
	t.list = make([]int32, len(t.e))
	t.active = make([]int32, 0, w.Shape[0])
	if t.panels != nil {
		if group, parts := d.tileGroup(w.Type, len(t.e)/len(t.panels)); group > 0 {
			return newIDTiles(t, w.Type, w.Shape[2], group, parts), nil
		}
	}
	if t.panels != nil && simd.RoundsActivations(w.Type) {
		t.q = d.bindRounding(x, t.x, form{group: 1})
	}
	t.scratch = make([][]float32, d.pool.Size())
	for i := range t.scratch {
		t.scratch[i] = d.workerScratch(i, max(simd.TailFloats, w.Shape[2]))
	}
	return t, nil
}

// sort finds the experts that were chosen, and the rows of y of each.
func (t *linearID) sort() error {
	clear(t.first)
	for i, e := range t.e {
		if e < 0 || int(e) >= len(t.first)-1 {
			return fmt.Errorf("choice %d is expert %d, there are %d", i, e, len(t.first)-1)
		}
		t.first[e+1]++
	}
	t.active = t.active[:0]
	for e := range len(t.first) - 1 {
		if t.first[e+1] > 0 {
			t.active = append(t.active, int32(e))
		}
		t.first[e+1] += t.first[e]
	}
	for i, e := range t.e { // counting sort: first[e] runs through the expert's part
		t.list[t.first[e]] = int32(i)
		t.first[e]++
	}
	for e := len(t.first) - 1; e > 0; e-- {
		t.first[e] = t.first[e-1]
	}
	t.first[0] = 0
	return nil
}

func (t *linearID) run(p *pool.Pool) error {
	if err := t.sort(); err != nil {
		return err
	}
	if len(t.active) > 0 {
		if t.q != nil {
			t.q.run(p)
		}
		p.Run(t, len(t.active)*t.blocks)
	}
	return nil
}

func (t *linearID) Do(worker, chunk int) {
	e := int(t.active[chunk/t.blocks])
	r0 := chunk % t.blocks * t.per
	r1 := min(r0+t.per, t.height)
	for _, i := range t.list[t.first[e]:t.first[e+1]] {
		y := t.y.row(int(i))
		t.product(y, e, t.input(int(i)), r0, r1, t.scratch[worker])
		if t.b != nil {
			t.d.k.Add(y[r0:r1], y[r0:r1], t.b[e*t.height+r0:e*t.height+r1])
		}
	}
}

// input gives the row of x that row i of y is made from.
func (t *linearID) input(i int) int {
	in := i / t.users * t.inputs
	if t.inputs > 1 {
		in += i % t.users
	}
	return in
}

// product computes elements r0 … r1-1 of expert e's product with row in of x.
func (t *linearID) product(y []float32, e, in, r0, r1 int, scratch []float32) {
	p0, p1 := r0/simd.PanelRows, simd.PanelCount(r1)
	switch {
	case t.q != nil:
		row := t.q.q.Row(in)
		t.d.k.MulPanels(y, nil, t.height, t.panels[e], p0, p1, &row, 0, 1, scratch)
	case t.panels != nil:
		t.d.k.MatVecPanels(y, t.panels[e], p0, p1, t.x.row(in), scratch)
	default:
		t.d.k.MatVec(y[r0:r1], t.experts[e], r0, t.x.row(in), scratch)
	}
}
