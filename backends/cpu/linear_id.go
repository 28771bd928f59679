package cpu

import (
	"fmt"

	"greta/backends"
	"greta/backends/cpu/simd"
	"greta/internal/pool"
)

// linearID multiplies each row with the matrix of the expert that was chosen
// for it. A chunk is some rows of one expert's matrix and all the activations
// that chose it, so that the weights are read once.
type linearID struct {
	d       *Device
	x, y    rows
	experts []simd.Matrix
	e       []int32
	users   int // experts per token
	inputs  int // rows of x per token: one, or one per chosen expert
	b       []float32
	per     int     // rows of a matrix in a chunk
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
	if len(l.In) > 3 {
		if t.b, err = vector(d, &l.In[3]); err != nil {
			return nil, err
		}
	}
	size := w.Type.RowBytes(w.RowElems())
	for i := range w.Shape[0] {
		o := *w
		o.Shape = w.Shape[1:]
		o.Offset += i * w.Stride
		o.Stride = size / max(1, o.Shape[0])
		m, err := matrix(&o)
		if err != nil {
			return nil, err
		}
		t.experts = append(t.experts, m)
	}
	row := max(1, w.Type.RowBytes(w.Shape[2]))
	t.per = max(4, chunkBytes/4/row)
	t.blocks = (w.Shape[1] + t.per - 1) / t.per
	t.first = make([]int32, len(t.experts)+1)
	t.list = make([]int32, len(t.e))
	t.active = make([]int32, 0, len(t.experts))
	t.scratch = make([][]float32, d.pool.Size())
	if !simd.Direct(w.Type) {
		for i := range t.scratch {
			t.scratch[i] = d.workerScratch(i, w.Shape[2])
		}
	}
	return t, nil
}

func (t *linearID) run(p *pool.Pool) error {
	clear(t.first)
	for i, e := range t.e {
		if e < 0 || int(e) >= len(t.experts) {
			return fmt.Errorf("choice %d is expert %d, there are %d", i, e, len(t.experts))
		}
		t.first[e+1]++
	}
	t.active = t.active[:0]
	for e := range t.experts {
		if t.first[e+1] > 0 {
			t.active = append(t.active, int32(e))
		}
		t.first[e+1] += t.first[e]
	}
	for i, e := range t.e { // counting sort: first[e] runs through the expert's part
		t.list[t.first[e]] = int32(i)
		t.first[e]++
	}
	for e := len(t.experts); e > 0; e-- {
		t.first[e] = t.first[e-1]
	}
	t.first[0] = 0
	if len(t.active) > 0 {
		p.Run(t, len(t.active)*t.blocks)
	}
	return nil
}

func (t *linearID) Do(worker, chunk int) {
	e := t.active[chunk/t.blocks]
	m := t.experts[e]
	r0 := chunk % t.blocks * t.per
	r1 := min(r0+t.per, m.Rows)
	for _, i := range t.list[t.first[e]:t.first[e+1]] {
		in := int(i) / t.users * t.inputs
		if t.inputs > 1 {
			in += int(i) % t.users
		}
		y := t.y.row(int(i))[r0:r1]
		t.d.k.MatVec(y, m, r0, t.x.row(in), t.scratch[worker])
		if t.b != nil {
			t.d.k.Add(y, y, t.b[int(e)*m.Rows+r0:int(e)*m.Rows+r1])
		}
	}
}
