//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// The functions of elementwise.comp, as it numbers them.
const (
	opAdd = iota
	opMul
	opScale
	opSiLU
	opGELUTanh
	opGELUErf
	opSigmoid
	opSoftcap
	opSwiGLU
	opGeGLUTanh
	opGeGLUErf
	opCopy
)

// function gives the code of a node's operator and its number, where it has one.
func function(n *graph.Node) (op uint32, by float64) {
	switch n.Op {
	case ops.Add:
		return opAdd, 0
	case ops.Mul:
		return opMul, 0
	case ops.Scale:
		return opScale, graph.Attr[ops.ScaleAttr](n).By
	case ops.SiLU:
		return opSiLU, 0
	case ops.Sigmoid:
		return opSigmoid, 0
	case ops.Softcap:
		return opSoftcap, graph.Attr[ops.SoftcapAttr](n).Cap
	case ops.SwiGLU:
		return opSwiGLU, 0
	}
	op = opGELUTanh
	if n.Op == ops.GeGLU {
		op = opGeGLUTanh
	}
	if graph.Attr[ops.GELUAttr](n).Form == "erf" {
		op++
	}
	return op, 0
}

func bindElementwise(b *bind) error {
	op, by := function(b.l.Node)
	if b.folds != nil {
		if g, ok := b.folds.gates[b.number]; ok {
			b.gated(g, op)
			return nil
		}
	}
	if op >= opSwiGLU && op <= opGeGLUErf {
		x, y, z := &b.l.In[0], &b.l.In[1], &b.l.Out[0]
		for _, f := range forms {
			if c := b.written(f, z, z.Shape.Last(), nil); c != nil {
				b.form(c, x, y, z, op)
				return nil
			}
		}
	}
	b.elementwise(op, by, &b.l.In[0], at(b.l.In, 1), &b.l.Out[0], 0)
	return nil
}

// elementwise runs z = f(x, y) over z's rows; x's begin at column from of its own.
func (b *bind) elementwise(op uint32, by float64, x, y, z *backends.Operand, from uint32) {
	c := b.call("elementwise")
	vx := b.floats(c, x, false)
	vy, vector := rows{}, uint32(0)
	switch {
	case y == nil:
		b.none(c)
	case len(y.Shape) == 1 && len(x.Shape) != 1 || y.Type != x.Type:
		vy.off, vector = b.vector(c, y)
	default:
		vy = b.floats(c, y, false)
	}
	vz := b.floats(c, z, true)
	n := vz.n * vz.cols
	c.spec = []uint32{workgroup, op, vector}
	c.push = []uint32{n, vz.cols, vz.inner, vx.off + from, vx.stride, vx.cols, vy.off, vy.stride, vz.off, vz.stride,
		bits(by)}
	b.run(c, groups(int(n), workgroup), 1)
}

func bindSplit(b *bind) error {
	from := uint32(0)
	for i := range b.l.Out {
		b.elementwise(opCopy, 0, &b.l.In[0], nil, &b.l.Out[i], from)
		from += uint32(b.l.Out[i].Shape.Last())
	}
	return nil
}

// bindView copies a tensor with gaps into a dense one of another shape.
func bindView(b *bind) error {
	z := b.l.Out[0] // the same elements in x's shape
	if !z.Dense() {
		return fmt.Errorf("a copy into a tensor with gaps")
	}
	z.Shape = b.l.In[0].Shape
	z.Stride = z.Type.RowBytes(z.RowElems())
	b.elementwise(opCopy, 0, &b.l.In[0], nil, &z, 0)
	return nil
}
