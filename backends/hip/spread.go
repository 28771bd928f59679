package hip

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Operators of tensors of different shapes, copies of parts of tensors, sums of rows.

var spreadFile = newProgram("spread.hip")

func init() {
	for _, name := range []string{"sub", "div", "min", "max", "greater"} {
		table[name] = only("spread", pairwise, bindSpread, 0, 1)
	}
	for _, name := range []string{"sum", "mean", "largest", "cumsum"} {
		table[name] = only("spread", rowwise, bindRowSum)
	}
	table["concat"] = only("spread", "each part is copied where it belongs", bindConcat, 0, 1, 2, 3, 4, 5)
	table["slice"] = only("spread", "a range is copied", bindSlice, 0)
	table["expand"] = only("spread", "heads are copied", bindExpand, 0)
	table["gather"] = only("spread", pairwise, bindSelect)
	table["shift"] = only("spread", pairwise, bindIntegers)
	table["real"] = only("spread", pairwise, bindIntegers)
	table["per_head"] = only("spread", "a wave sums up an element", bindPerHead, 1, 2)
	table["xielu"] = only("spread", pairwise, bindXIELU, 1, 2, 3, 4)
}

// bindAddMul binds add and mul: of equal shapes, or of rows and one row, or spread.
func bindAddMul(b *binder) {
	if ops.PlainBinary(b.l.Node) && b.in(0).Type == tensor.F32 {
		bindPair(b)
		return
	}
	bindSpread(b)
}

// steps passes a struct Steps.
func (d *dispatch) steps(s [4]int) *dispatch {
	d.args.add(uint64(uint32(s[0]))|uint64(uint32(s[1]))<<32, uint64(uint32(s[2]))|uint64(uint32(s[3]))<<32)
	return d
}

// strided is a tensor, or some of it: an address, its type's number, and its steps.
type strided struct {
	at    uintptr
	typ   int
	steps [4]int
}

// partOf is an operand from an element on, with steps.
func (b *binder) partOf(o *backends.Operand, from int, steps [4]int) strided {
	at := b.pointer(o)
	_, size := o.Type.Block()
	return strided{at + uintptr(from*size), int(plainTypes[o.Type]) - 1, steps}
}

// spread runs a function of spread.hip over so many elements; y is empty where it has one operand.
func (b *binder) spread(name string, over backends.Spread, x, y, z strided) {
	n := over.Elems()
	b.start(spreadFile, "spread_"+name, 256, ceil(n, 256), 1, 1).
		ptr(z.at).steps(z.steps).ptr(x.at).u32(x.typ).steps(x.steps).ptr(y.at).u32(y.typ).steps(y.steps).
		u32(n, over.Sizes[1], over.Sizes[2], over.Sizes[3])
}

func bindSpread(b *binder) {
	x, y, z := b.in(0), b.in(1), &b.l.Out[0]
	over, err := backends.SpreadOver(z.Shape)
	if err != nil {
		b.failf("%w", err)
		return
	}
	b.spread(b.l.Node.Op.Name, over, b.partOf(x, 0, over.Steps(x)), b.partOf(y, 0, over.Steps(y)),
		b.partOf(z, 0, over.Steps(z)))
}

// copied runs a copy of parts of tensors.
func (b *binder) copied(x, z *backends.Operand, c backends.Copy, err error) {
	if err != nil {
		b.failf("%w", err)
		return
	}
	b.spread("copy", c.Over, b.partOf(x, c.From, c.XSteps), strided{}, b.partOf(z, c.To, c.ZSteps))
}

func bindConcat(b *binder) {
	z := &b.l.Out[0]
	axis, at := backends.Axis(graph.Attr[ops.ConcatAttr](b.l.Node).Axis, z.Shape), 0
	for i := range b.l.In {
		if x := b.in(i); x.Buffer != nil {
			c, err := backends.ConcatCopy(x, z, axis, at)
			b.copied(x, z, c, err)
			at += x.Shape[axis]
		}
	}
}

func bindSlice(b *binder) {
	x, z, a := b.in(0), &b.l.Out[0], graph.Attr[ops.SliceAttr](b.l.Node)
	c, err := backends.SliceCopy(x, z, backends.Axis(a.Axis, x.Shape), a.From)
	b.copied(x, z, c, err)
}

func bindExpand(b *binder) {
	x, z := b.in(0), &b.l.Out[0]
	b.copied(x, z, backends.ExpandCopy(x, z, graph.Attr[ops.ExpandAttr](b.l.Node).Copy == "behind"), nil)
}

// bindSelect binds gather: elements of rows by their indices.
func bindSelect(b *binder) {
	z := &b.l.Out[0]
	n := z.Shape.Elems()
	d := b.start(spreadFile, "select_of", 256, ceil(n, 256), 1, 1).
		ptr(b.out(0), b.pointer(b.in(0))).rows(rowsOf(b.in(0))).ptr(b.dense(b.in(1))).u32(n, z.Shape.Last())
	b.status(d)
}

func bindRowSum(b *binder) {
	r := rowsOf(b.in(0))
	b.start(spreadFile, "row_"+b.l.Node.Op.Name, 256, r.n, 1, 1).ptr(b.out(0), b.pointer(b.in(0))).rows(r)
}

// bindIntegers binds shift and real.
func bindIntegers(b *binder) {
	n := b.in(0).Shape.Elems()
	d := b.start(spreadFile, b.l.Node.Op.Name+"_of", 256, ceil(n, 256), 1, 1).
		ptr(b.out(0), b.dense(b.in(0))).u32(n)
	if a, ok := b.l.Node.Attr.(*ops.ShiftAttr); ok {
		d.u32(a.By)
	}
}

func bindPerHead(b *binder) {
	x, w := b.in(0), b.in(1)
	n := b.l.Out[0].Shape.Elems()
	wAt, wType := b.plain(w)
	bAt, bType := b.plain(b.in(2))
	waves := 256 / max(b.dev.wave, 32)
	b.start(spreadFile, "per_head", 256, ceil(n, waves), 1, 1).
		ptr(b.out(0), b.pointer(x)).u32(x.Stride/4).ptr(wAt).u32(wType).ptr(bAt).
		u32(bType, n, w.Shape[0], w.Shape[1], w.Shape[2])
}

func bindXIELU(b *binder) {
	a, x := graph.Attr[ops.XIELUAttr](b.l.Node), b.in(0)
	count := x.Shape.Elems()
	row, stride := spread(x)
	d := b.start(spreadFile, "xielu", 256, ceil(count, 256), 1, 1).ptr(b.out(0), b.pointer(x)).u32(count, row, stride)
	for i := 1; i <= 4; i++ {
		at, typ := b.plain(b.in(i))
		d.ptr(at).u32(typ)
	}
	d.f32(a.Beta).f32(a.Eps)
}
