package cpu

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/ops"
)

// elementChunk is how many elements of an elementwise operator one chunk takes.
const elementChunk = 16 << 10

// elementwise runs f over rows, or over ranges of one long row.
type elementwise struct {
	x, y, z rows // z = f(x, y); y may be a single row for all of x's, or absent
	f       func(z, x, y []float32)
	single  bool // y has one row
	flat    bool // x and z, and y where it has rows, are dense
	per     int  // elements, or rows where not flat, in a chunk
}

func (e *elementwise) run(p *pool.Pool) error {
	n := e.x.n
	if e.flat {
		n *= e.x.cols
	}
	if n > 0 {
		p.Run(e, (n+e.per-1)/e.per)
	}
	return nil
}

func (e *elementwise) Do(_, chunk int) {
	from := chunk * e.per
	if e.flat {
		to := min(from+e.per, e.x.n*e.x.cols)
		var y []float32
		if e.y.data != nil {
			y = e.y.data[from:to]
		}
		e.f(e.z.data[from:to], e.x.data[from:to], y)
		return
	}
	for i := from; i < min(from+e.per, e.x.n); i++ {
		e.make(i, e.z.row(i))
	}
}

func (e *elementwise) made() *rows { return &e.z }

// make computes row i into z, which may be another's memory.
func (e *elementwise) make(i int, z []float32) {
	var y []float32
	if e.single {
		y = e.y.row(0)
	} else if e.y.data != nil {
		y = e.y.row(i)
	}
	e.f(z, e.x.row(i), y)
}

// newElementwise binds operands; y may be nil.
func newElementwise(x, y, z *backends.Operand, f func(z, x, y []float32)) (runner, error) {
	e := &elementwise{f: f}
	var err error
	if e.x, err = floats(x); err != nil {
		return nil, err
	}
	if e.z, err = floats(z); err != nil {
		return nil, err
	}
	e.flat = e.x.dense() && e.z.dense()
	if y != nil {
		if e.y, err = floats(y); err != nil {
			return nil, err
		}
		e.single = e.y.n == 1 && e.x.n > 1
		e.flat = e.flat && !e.single && e.y.dense()
	}
	e.per = elementChunk
	if !e.flat {
		e.per = max(1, elementChunk/max(e.x.cols, 1))
	}
	return e, nil
}

func bindAddMul(d *Device, l *backends.Launch) (runner, error) {
	f := func(z, x, y []float32) { d.k.Add(z, x, y) }
	if l.Node.Op == ops.Mul {
		f = func(z, x, y []float32) { d.k.Mul(z, x, y) }
	}
	y := l.In[1]
	if y.Type != l.In[0].Type { // a bias that is stored in another type
		v, err := vector(d, &y)
		if err != nil {
			return nil, err
		}
		r, err := newElementwise(&l.In[0], nil, &l.Out[0], nil)
		if err != nil {
			return nil, err
		}
		e := r.(*elementwise)
		if len(v) != e.x.cols {
			return nil, fmt.Errorf("an operand of %s with %d elements cannot be added to rows of %d", y.Type, len(v), e.x.cols)
		}
		e.y, e.single, e.flat, e.f = rows{data: v, n: 1, cols: len(v), inner: 1, stride: len(v)}, true, false, f
		e.per = max(1, elementChunk/max(e.x.cols, 1))
		return e, nil
	}
	return newElementwise(&l.In[0], &y, &l.Out[0], f)
}

func bindUnary(d *Device, l *backends.Launch) (runner, error) {
	f, err := unary(d.k, l.Node)
	if err != nil {
		return nil, err
	}
	return newElementwise(&l.In[0], nil, &l.Out[0], f)
}

func unary(k *simd.Kernels, n *graph.Node) (func(z, x, _ []float32), error) {
	switch n.Op {
	case ops.Scale:
		by := float32(graph.Attr[ops.ScaleAttr](n).By)
		return func(z, x, _ []float32) { k.Scale(z, by, x) }, nil
	case ops.SiLU:
		return func(z, x, _ []float32) { k.SiLU(z, x, nil) }, nil
	case ops.GELU:
		if graph.Attr[ops.GELUAttr](n).Form == "erf" {
			return func(z, x, _ []float32) { k.GELUErf(z, x, nil) }, nil
		}
		return func(z, x, _ []float32) { k.GELUTanh(z, x, nil) }, nil
	case ops.Sigmoid:
		return func(z, x, _ []float32) {
			for i, v := range x {
				z[i] = float32(1 / (1 + math.Exp(-float64(v))))
			}
		}, nil
	case ops.Softcap:
		c := graph.Attr[ops.SoftcapAttr](n).Cap
		return func(z, x, _ []float32) {
			for i, v := range x {
				z[i] = float32(c * math.Tanh(float64(v)/c))
			}
		}, nil
	}
	return nil, fmt.Errorf("%s is not elementwise", n.Op.Name)
}

// bindGate binds silu(g)·u and gelu(g)·u.
func bindGate(d *Device, l *backends.Launch) (runner, error) {
	f := d.k.SiLU
	if l.Node.Op == ops.GeGLU {
		f = d.k.GELUTanh
		if graph.Attr[ops.GELUAttr](l.Node).Form == "erf" {
			f = d.k.GELUErf
		}
	}
	return newElementwise(&l.In[0], &l.In[1], &l.Out[0], f)
}
