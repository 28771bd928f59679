//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Operators of tensors of different shapes, copies of parts of tensors, and sums of rows.

// spreadFunctions are those of spread.comp, as it numbers them.
var spreadFunctions = []string{"add", "mul", "sub", "div", "min", "max", "greater", "copy"}

// plainFloats binds a tensor of f32, f16 or bf16 and gives its offset in elements.
func (b *bind) plainFloats(c *dispatch, o *backends.Operand, write bool) uint32 {
	_, size := o.Type.Block()
	if !narrow(o.Type) || o.Offset%size != 0 || o.Stride%size != 0 {
		b.fail(fmt.Errorf("a tensor of f32, f16 or bf16 is wanted, not %s at offset %d with stride %d", o.Type, o.Offset,
			o.Stride))
		return 0
	}
	return b.operand(c, o, write) / uint32(size)
}

// strided runs a dispatch of spread.comp whose operands x, y, z are bound.
func (b *bind) strided(c *dispatch, name string, over backends.Spread, off [3]uint32, steps [3][4]int, xtype,
	ytype uint32) {
	c.spec = []uint32{workgroup, uint32(slices.Index(spreadFunctions, name)), xtype, ytype}
	n := over.Elems()
	c.push = []uint32{uint32(n), uint32(over.Sizes[1]), uint32(over.Sizes[2]), uint32(over.Sizes[3])}
	for i := range off {
		c.push = append(c.push, off[i])
		for _, s := range steps[i] {
			c.push = append(c.push, uint32(s))
		}
	}
	b.run(c, groups(n, workgroup), 1)
}

// bindPair binds an operator of two tensors.
func bindPair(b *bind) error {
	n := b.l.Node
	if (n.Op == ops.Add || n.Op == ops.Mul) && ops.PlainBinary(n) && b.l.In[0].Type == tensor.F32 {
		return bindElementwise(b)
	}
	x, y, z := &b.l.In[0], &b.l.In[1], &b.l.Out[0]
	over, err := backends.SpreadOver(z.Shape)
	if err != nil {
		return err
	}
	c := b.call("spread")
	off := [3]uint32{b.plainFloats(c, x, false), b.plainFloats(c, y, false), b.plainFloats(c, z, true)}
	b.strided(c, n.Op.Name, over, off, [3][4]int{over.Steps(x), over.Steps(y), over.Steps(z)}, typeCodes[x.Type],
		typeCodes[y.Type])
	return nil
}

// copied runs a copy of parts of tensors.
func (b *bind) copied(x, z *backends.Operand, p backends.Copy) {
	c := b.call("spread")
	xoff := b.plainFloats(c, x, false)
	b.none(c)
	zoff := b.plainFloats(c, z, true)
	b.strided(c, "copy", p.Over, [3]uint32{xoff + uint32(p.From), 0, zoff + uint32(p.To)},
		[3][4]int{p.XSteps, {}, p.ZSteps}, typeCodes[x.Type], 0)
}

func bindConcat(b *bind) error {
	z := &b.l.Out[0]
	axis, at := backends.Axis(graph.Attr[ops.ConcatAttr](b.l.Node).Axis, z.Shape), 0
	for i := range b.l.In {
		x := &b.l.In[i]
		if x.Buffer == nil {
			continue
		}
		c, err := backends.ConcatCopy(x, z, axis, at)
		if err != nil {
			return err
		}
		b.copied(x, z, c)
		at += x.Shape[axis]
	}
	return nil
}

func bindSlice(b *bind) error {
	x, z, a := &b.l.In[0], &b.l.Out[0], graph.Attr[ops.SliceAttr](b.l.Node)
	c, err := backends.SliceCopy(x, z, backends.Axis(a.Axis, x.Shape), a.From)
	if err != nil {
		return err
	}
	b.copied(x, z, c)
	return nil
}

func bindExpand(b *bind) error {
	x, z := &b.l.In[0], &b.l.Out[0]
	b.copied(x, z, backends.ExpandCopy(x, z, graph.Attr[ops.ExpandAttr](b.l.Node).Copy == "behind"))
	return nil
}

// bindSelect binds gather: elements of rows by their indices.
func bindSelect(b *bind) error {
	c := b.call("select")
	x := b.floats(c, &b.l.In[0], false)
	e := b.ints(c, &b.l.In[1])
	z := b.floats(c, &b.l.Out[0], true)
	b.status(c)
	n := z.n * z.cols
	c.spec = []uint32{workgroup}
	c.push = []uint32{n, z.cols, x.cols, z.inner, x.off, x.stride, e, z.off, z.stride, uint32(b.number)}
	b.run(c, groups(int(n), workgroup), 1)
	return nil
}

// rowSums are the functions of rowsum.comp, as it numbers them.
var rowSums = []string{"sum", "mean", "largest", "cumsum"}

func bindRowSum(b *bind) error {
	c := b.call("rowsum")
	x, z := b.floats(c, &b.l.In[0], false), b.floats(c, &b.l.Out[0], true)
	c.spec = []uint32{min(b.d.rowGroup(int(x.cols)), 256), uint32(slices.Index(rowSums, b.l.Node.Op.Name))}
	c.push = []uint32{x.n, x.cols, x.inner, x.off, x.stride, z.off, z.stride}
	b.run(c, min(int(x.n), 32768), 1)
	return nil
}

// bindPool binds the mean of ranges of rows.
func bindPool(b *bind) error {
	c := b.call("pool")
	x, at, z := b.floats(c, &b.l.In[0], false), b.ints(c, &b.l.In[1]), b.floats(c, &b.l.Out[0], true)
	b.status(c)
	c.spec = []uint32{workgroup}
	c.push = []uint32{x.n, x.cols, x.off, x.stride, at, z.off, z.stride, uint32(b.number)}
	b.run(c, groups(int(x.cols), 32), int(z.n))
	return nil
}

// bindIntegers binds shift and real.
func bindIntegers(b *bind) error {
	z, by := &b.l.Out[0], 0
	stride := 1
	if a, ok := b.l.Node.Attr.(*ops.ShiftAttr); ok {
		by = a.By
	} else {
		stride = z.Stride / 4
	}
	c := b.call("integers")
	x := b.ints(c, &b.l.In[0])
	zoff := b.operand(c, z, true) / 4
	n := b.l.In[0].Shape.Elems()
	c.spec = []uint32{workgroup, flag(z.Type == tensor.F32)}
	c.push = []uint32{uint32(n), x, zoff, uint32(stride), uint32(int32(by))}
	b.run(c, groups(n, workgroup), 1)
	return nil
}

func bindPerHead(b *bind) error {
	w := &b.l.In[1]
	c := b.call("perhead")
	x := b.floats(c, &b.l.In[0], false)
	woff, wtype := b.vector(c, w)
	boff, btype := b.vector(c, at(b.l.In, 2))
	z := b.floats(c, &b.l.Out[0], true)
	n := b.l.Out[0].Shape.Elems()
	c.spec = []uint32{workgroup, wtype, btype}
	c.push = []uint32{uint32(n), uint32(w.Shape[0]), uint32(w.Shape[1]), uint32(w.Shape[2]), x.off, x.stride, woff, boff,
		z.off, z.stride}
	b.run(c, groups(8*n, workgroup), 1)
	return nil
}

func bindXIELU(b *bind) error {
	a := graph.Attr[ops.XIELUAttr](b.l.Node)
	c := b.call("xielu")
	x := b.floats(c, &b.l.In[0], false)
	c.spec = []uint32{workgroup}
	var off [4]uint32
	for i := range off {
		var code uint32
		off[i], code = b.vector(c, at(b.l.In, 1+i))
		c.spec = append(c.spec, code)
	}
	z := b.floats(c, &b.l.Out[0], true)
	n := z.n * z.cols
	c.push = append([]uint32{n, z.cols, z.inner, x.off, x.stride}, off[:]...)
	c.push = append(c.push, z.off, z.stride, bits(a.Beta), bits(a.Eps))
	b.run(c, groups(int(n), workgroup), 1)
	return nil
}
