package cpu

import (
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/ops"
)

// norm is RMSNorm or LayerNorm of each row, after adding r where there is one.
type norm struct {
	d            *Device
	x, r, sum, y rows
	w, b         []float32
	eps          float64
	layer        bool // LayerNorm: the mean is taken off first
	per          int  // rows in a chunk
}

func (n *norm) run(p *pool.Pool) error {
	if n.x.n > 0 {
		p.Run(n, (n.x.n+n.per-1)/n.per)
	}
	return nil
}

func (n *norm) Do(_, chunk int) {
	for i := chunk * n.per; i < min((chunk+1)*n.per, n.x.n); i++ {
		n.make(i, n.y.row(i))
	}
}

func (n *norm) made() *rows { return &n.y }

// make computes row i into y, which may be another's memory.
func (n *norm) make(i int, y []float32) {
	x := n.x.row(i)
	if n.r.data != nil {
		n.d.k.Add(n.sum.row(i), x, n.r.row(i))
		x = n.sum.row(i)
	}
	if n.layer {
		n.layerRow(y, x)
		return
	}
	scale := float32(1 / math.Sqrt(float64(n.d.k.SumSquares(x))/float64(len(x))+n.eps))
	if n.w == nil {
		n.d.k.Scale(y, scale, x)
	} else {
		n.d.k.ScaleMul(y, scale, x, n.w)
	}
}

// layerRow computes y = (x - mean) / sqrt(variance + eps) · w + b.
func (n *norm) layerRow(y, x []float32) {
	mean := 0.0
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	for i, v := range x {
		y[i] = float32(float64(v) - mean)
	}
	scale := float32(1 / math.Sqrt(float64(n.d.k.SumSquares(y))/float64(len(x))+n.eps))
	if n.w == nil {
		n.d.k.Scale(y, scale, y)
	} else {
		n.d.k.ScaleMul(y, scale, y, n.w)
	}
	if n.b != nil {
		n.d.k.Add(y, y, n.b)
	}
}

func newNorm(d *Device, x, y *backends.Operand, w []backends.Operand, node *graph.Node) (*norm, error) {
	n := &norm{d: d, eps: graph.Attr[ops.NormAttr](node).Eps, layer: node.Op == ops.LayerNorm}
	var err error
	if n.x, err = floats(x); err != nil {
		return nil, err
	}
	if n.y, err = floats(y); err != nil {
		return nil, err
	}
	if len(w) > 0 {
		if n.w, err = vector(d, &w[0]); err != nil {
			return nil, err
		}
	}
	if len(w) > 1 {
		if n.b, err = vector(d, &w[1]); err != nil {
			return nil, err
		}
	}
	_, n.per = chunksOf(n.x.n, max(1, elementChunk/max(1, n.x.cols)))
	return n, nil
}

func bindNorm(d *Device, l *backends.Launch) (runner, error) {
	return newNorm(d, &l.In[0], &l.Out[0], l.In[1:], l.Node)
}

func bindAddNorm(d *Device, l *backends.Launch) (runner, error) {
	n, err := newNorm(d, &l.In[0], &l.Out[1], l.In[2:], l.Node)
	if err != nil {
		return nil, err
	}
	if n.r, err = floats(&l.In[1]); err != nil {
		return nil, err
	}
	n.sum, err = floats(&l.Out[0])
	return n, err
}
