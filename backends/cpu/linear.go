package cpu

import (
	"greta/backends"
	"greta/backends/cpu/simd"
	"greta/internal/pool"
	"greta/ops"
)

const (
	// matVecRows is the number of activation rows up to which the weights are
	// read row by row; from there on they are decoded once into tiles.
	matVecRows = 4
	// chunkBytes is about what one chunk of a mat-vec reads of the weights.
	chunkBytes = 512 << 10
	// tileRows is how many rows of weights a chunk of a product takes at most.
	tileRows = 128
)

// linear is y = x·wᵀ (+ b) (+ r).
type linear struct {
	d       *Device
	x, y, r rows
	w       simd.Matrix
	b       []float32
	per     int // rows of w in a chunk
	pack    packing
	scratch [][]float32 // per worker
	packed  []float32   // x in panels
}

// packing is the region that packs the activations.
type packing struct{ l *linear }

func bindLinear(d *Device, l *backends.Launch) (runner, error) {
	t := &linear{d: d}
	t.pack.l = t
	var err error
	if t.x, err = floats(&l.In[0]); err != nil {
		return nil, err
	}
	if t.y, err = floats(&l.Out[0]); err != nil {
		return nil, err
	}
	if t.w, err = matrix(&l.In[1]); err != nil {
		return nil, err
	}
	bias := 2
	if l.Node.Op == ops.LinearResidual {
		bias = 3
		if t.r, err = floats(&l.In[2]); err != nil {
			return nil, err
		}
	}
	if len(l.In) > bias {
		if t.b, err = vector(d, &l.In[bias]); err != nil {
			return nil, err
		}
	}
	threads := d.pool.Size()
	t.scratch = make([][]float32, threads)
	if t.gemm() {
		t.per = max(16, min(tileRows, (t.w.Rows/(4*threads)+15)/16*16))
		t.packed = d.shared(t.d.k.PackedLen(t.x.n, t.x.cols))
		for i := range t.scratch {
			t.scratch[i] = d.workerScratch(i, d.k.ScratchLen(t.w))
		}
		return t, nil
	}
	row := max(1, t.w.Type.RowBytes(t.w.Cols))
	t.per = max(4, min(chunkBytes/row, (t.w.Rows+4*threads-1)/(4*threads))&^3)
	if !simd.Direct(t.w.Type) {
		for i := range t.scratch {
			t.scratch[i] = d.workerScratch(i, t.w.Cols)
		}
	}
	return t, nil
}

// gemm says whether the product goes through packed tiles.
func (t *linear) gemm() bool {
	_, even := t.x.lead()
	_, evenY := t.y.lead()
	return t.x.n > matVecRows && even && evenY
}

func (t *linear) run(p *pool.Pool) error {
	if t.x.n == 0 || t.w.Rows == 0 {
		return nil
	}
	if t.packed != nil {
		p.Run(&t.pack, t.d.k.Panels(t.x.n))
	}
	p.Run(t, (t.w.Rows+t.per-1)/t.per)
	return nil
}

func (c *packing) Do(_, panel int) {
	t := c.l
	ld, _ := t.x.lead()
	t.d.k.PackX(t.packed, t.x.data, ld, t.x.n, t.x.cols, panel, panel+1)
}

func (t *linear) Do(worker, chunk int) {
	r0 := chunk * t.per
	r1 := min(r0+t.per, t.w.Rows)
	k := t.d.k
	if t.packed != nil {
		ld, _ := t.y.lead()
		k.MulRows(t.y.data, ld, t.w, r0, r1, t.packed, t.x.n, t.scratch[worker], false)
	}
	for i := range t.x.n {
		y := t.y.row(i)[r0:r1]
		if t.packed == nil {
			k.MatVec(y, t.w, r0, t.x.row(i), t.scratch[worker])
		}
		if t.b != nil {
			k.Add(y, y, t.b[r0:r1])
		}
		if t.r.data != nil {
			k.Add(y, y, t.r.row(i)[r0:r1])
		}
	}
}
