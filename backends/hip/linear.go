package hip

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// product is y = x·wᵀ with what may follow it.
type product struct {
	x, w, bias, res *backends.Operand
	scale           *backends.Operand // a factor a row of w
	y               uintptr
	out             tensor.Type       // of y
	ids             *backends.Operand // linear_id: experts
	share           int               // linear_id: columns of y per row of x
	columns         int               // rows of y
	variant         string            // as Variants names it, "" for the default
}

// bias sets BIAS: 0 without one, else one more than its type's number.
func (b *binder) bias(p product) string {
	if p.bias.Buffer == nil {
		return "BIAS=0"
	}
	return define("BIAS", plainTypes[p.bias.Type])
}

// product gives the product of a linear, with what it has beside x and w.
func (b *binder) product() product {
	p := product{x: b.in(0), w: b.in(1), bias: b.named("b"), res: b.named("r"), scale: b.named("s"), y: b.out(0),
		out: b.l.Out[0].Type, share: 1}
	p.columns = p.x.Shape.Rows()
	p.variant = b.l.Kernel.(*kernel).variant
	return p
}

func bindLinearID(b *binder) {
	x, e := b.in(0), b.in(2)
	p := product{x: x, w: b.in(1), bias: b.named("b"), res: b.named("r"), y: b.out(0), ids: e, columns: e.Shape.Elems()}
	p.share = e.Shape[1] / x.Shape[1] // all of a token's experts may have one row
	b.matvec(p, 1)
}

func (b *binder) matvec(p product, together int) {
	columns := 1
	for columns < together {
		columns *= 2
	}
	perBlock, unroll, resident := matvecShape(p.w.Type, columns)
	n := p.w.Shape[len(p.w.Shape)-2]
	xr := rowsOf(p.x)
	x := b.pointer(p.x)
	loose := x%16 != 0 || xr.stride%4 != 0 || xr.cols%4 != 0
	prog := newProgram("matvec.hip", define("W_TYPE", weightNames[p.w.Type]), onOff("W_SCALAR", b.scalar(p.w)),
		onOff("X_SCALAR", loose), define("NR", perBlock), define("NC", columns), define("UNROLL", unroll),
		define("BLOCKS", resident), b.bias(p))
	d := b.start(prog, "matvec", 128, ceil(n, perBlock), ceil(p.columns, columns), 1)
	d.ptr(p.y, x).rows(xr)
	b.weights(d, p.w)
	d.u32(n, p.columns)
	d.ptr(b.dense(p.bias))
	b.residual(d, p.res)
	experts := 0
	if p.ids != nil {
		experts = p.w.Shape[0]
	}
	d.ptr(b.dense(p.ids)).u32(experts, p.share)
	b.status(d)
}

// matvecShape gives the rows of a block, the units that a thread has under way
// (less where there are more sums to hold), and how many blocks shall fit a
// multiprocessor.
func matvecShape(t tensor.Type, columns int) (rows, unroll, resident int) {
	switch {
	case columns > 2:
		return 2, 1, 1
	case columns == 2:
		return 2, 2, 1
	}
	switch t {
	case tensor.F16, tensor.BF16:
		return 4, 2, 8
	case tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ, tensor.Q2_K, tensor.Q3_K:
		return 2, 1, 8
	case tensor.IQ4_NL, tensor.IQ4_XS, tensor.MXFP4: // tables cost registers
		return 2, 2, 8
	}
	return 4, 4, 8
}

func (b *binder) residual(d *dispatch, o *backends.Operand) {
	d.ptr(b.pointer(o))
	if o.Buffer == nil {
		d.rows(rows{})
		return
	}
	d.rows(rowsOf(o))
}

// largeTile says whether a product fills the device with tiles of 128 by 128.
func (dev *Device) largeTile(rows, n int) bool {
	return ceil(rows, 128)*ceil(n, 128) >= dev.units
}

// tile multiplies on any device.
func (b *binder) tile(p product) {
	if b.copies(p) {
		return
	}
	n := p.w.Shape[0]
	options := []string{define("W_TYPE", weightNames[p.w.Type]), onOff("W_SCALAR", b.scalar(p.w)), b.bias(p)}
	name, side := "tile", 64
	if b.dev.largeTile(b.dev.rows(p.columns), n) {
		name, side = "tile128", 128
		options = append(options, onOff("X_SCALAR", b.loose(p.x)))
	}
	d := b.start(newProgram(name+".hip", options...), name, 256, ceil(n, side), ceil(p.columns, side), 1)
	d.ptr(p.y, b.pointer(p.x)).rows(rowsOf(p.x))
	b.weights(d, p.w)
	d.u32(n, p.columns)
	d.ptr(b.dense(p.bias))
	b.residual(d, p.res)
}

func bindEmbed(b *binder) {
	ids, w := b.in(0), b.in(1)
	prog := newProgram("embed.hip", define("W_TYPE", weightNames[w.Type]), onOff("W_SCALAR", b.scalar(w)))
	d := b.start(prog, "embed", 128, ids.Shape.Elems(), 1, 1)
	d.ptr(b.out(0), b.dense(ids))
	b.weights(d, w)
	d.u32(w.Shape[0])
	b.status(d)
}
