//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// largeTiles is the number of large tiles from which on they keep a device busy whose multiprocessors
// nobody counts; fewer leave some idle that small ones use.
const largeTiles = 256

// fills says whether so many large tiles keep a device of so many multiprocessors busy, 0 where
// that is not known: small ones take 4/3 of their time, and leave none idle.
func fills(tiles, units int) bool {
	if units == 0 {
		return tiles >= largeTiles
	}
	rounds := (tiles + units - 1) / units
	return 4*tiles >= 3*rounds*units
}

// product is what the two kernels of linear operators have in common.
type product struct {
	x, w, bias, r, y *backends.Operand
	factors          *backends.Operand // of w's rows, before the bias
}

func bindLinear(b *bind) error {
	l := b.l
	p := product{x: &l.In[0], w: b.placed(&l.In[1]), bias: l.Named("b"), r: l.Named("r"), factors: l.Named("s"),
		y: &l.Out[0]}
	c := b.d.product(b.on, p.w, b.d.rows(p.x.Shape.Rows()))
	if p.factors != nil && c.form != "" {
		return b.scaled(p, c)
	}
	for _, part := range b.pieces(p.w) {
		if norm, ahead := b.folds.norm(b.number); ahead {
			b.chain(p, nil, 0, norm)
		} else {
			c.bind(b, p, part)
		}
	}
	return nil
}

// scaled multiplies in a form whose kernel knows no factors, and the result by them.
func (b *bind) scaled(p product, c *productChoice) error {
	for _, part := range b.pieces(p.w) {
		c.bind(b, product{x: p.x, w: p.w, y: p.y}, part)
	}
	b.elementwise(opMul, 0, p.y, p.factors, p.y, 0)
	if p.bias != nil {
		b.elementwise(opAdd, 0, p.y, p.bias, p.y, 0)
	}
	return nil
}

// operands binds what both kernels have at bindings 0 to 4.
func (b *bind) operands(c *dispatch, p product, part piece) (woff uint32, x, r, y rows, boff, btype uint32) {
	woff = b.weights(c, p.w, part)
	x = b.floats(c, p.x, false)
	boff, btype = b.vector(c, p.bias)
	r = b.residual(c, p.r)
	y = b.floats(c, p.y, true)
	return
}

// residual binds what is added to a product, a placeholder where that is nothing.
func (b *bind) residual(c *dispatch, o *backends.Operand) rows {
	if o == nil {
		b.none(c)
		return rows{inner: 1}
	}
	return b.floats(c, o, false)
}

// vectors says whether rows of activations can be read 16 bytes at a time.
func vectors(x rows, t tensor.Type) uint32 {
	return flag(x.off%4 == 0 && x.stride%4 == 0 && int(x.cols)%unitOf(t) == 0)
}

// vecShape is the number of invocations and of rows of w for a workgroup, for
// rows of so many elements and nx rows of x. The rows are those that make.sh compiles.
func (b *bind) vecShape(t tensor.Type, cols, nx int) (size, r int) {
	size = 32
	for size < 256 && cols >= 16*size { // two turns of 8 elements for each invocation
		size *= 2
	}
	size = max(size, min(b.d.p.Subgroup, 64))
	switch {
	case nx > 4:
		r = 1
	case nx > 1 || !t.IsBlock() || t == tensor.Q6_K || t == tensor.Q3_K:
		r = 2
	default:
		r = 4
	}
	return size, r
}

// dotRows is the number of results of a workgroup of matvecq.comp for one row of x; its subgroups
// take two rows of w at a time in turn. The numbers of its invocations are what was fastest: of products
// that run side by side, of a gate, and of those whose results a norm takes, beside which nothing
// runs; of these with a row a subgroup, handed over.
const dotRows, dotGroup, dotGroupGate, dotGroupAlone, dotGroupOne = 32, 256, 128, 512, 1024

// wideGates are the formats whose gates are fastest with as many invocations as other products.
var wideGates = map[tensor.Type]bool{tensor.Q4_0: true, tensor.Q8_0: true}

// dotShape is vecShape for matvecq.comp.
func (b *bind) dotShape(t tensor.Type, cols, nx int) (size, r int) {
	if nx == 1 {
		return min(dotGroup, b.d.p.Invocations), dotRows
	}
	unit := 32
	if e, _ := t.Block(); e > 32 {
		unit = 64
	}
	size = 32
	for size < 128 && cols >= 2*size*unit {
		size *= 2
	}
	r = 2
	if nx > 4 {
		r = 1
	}
	return max(size, min(b.d.p.Subgroup, 64)), r
}

// matVecDots multiplies bytes.
func (b *bind) matVecDots(p product, part piece) {
	nx := columns(b.d.rows(p.x.Shape.Rows()))
	size, per := b.dotShape(p.w.Type, p.w.Shape.Last(), nx)
	x := b.convert(dots, p.x)
	if x == nil {
		return
	}
	if x.squares != nil {
		b.chain(p, nil, 0, -1)
		return
	}
	c := b.call(fmt.Sprintf("matvecq_%s_%d", p.w.Type, nx))
	woff, boff, btype, r, y := b.dotOperands(c, p, *x, part)
	c.spec = []uint32{uint32(size), btype, flag(p.r != nil), 0}
	c.push = []uint32{uint32(part.count), uint32(p.w.Shape.Last()), uint32(part.first), uint32(p.w.Rows()), x.n, woff,
		uint32(p.w.Stride), 0,
		x.pitch / 8, boff, r.off, r.stride, y.off, y.stride, y.inner, r.inner, 0, 1, 1, uint32(b.number)}
	gx, gy := spread((part.count+per-1)/per, int(b.d.p.limits.MaxComputeWorkGroupCount[0]))
	b.run3(c, gx, gy, (int(x.n)+nx-1)/nx)
}

// dotOperands binds what all products of bytes have in common, in the order of matvecq.comp: offsets
// of the weights and of the bias, the bias's type, the residual and the result.
func (b *bind) dotOperands(c *dispatch, p product, x converted, part piece) (woff, boff, btype uint32, r, y rows) {
	woff = b.weights(c, p.w, part)
	b.temporary(c, x.data, false)
	b.temporary(c, x.scales, false)
	boff, btype = b.vector(c, p.bias)
	r = b.residual(c, p.r)
	y = b.floats(c, p.y, true)
	b.none(c)
	b.status(c)
	return
}

// chain multiplies one row of bytes, by w or by the two weights of a gate: with what comes before
// and after (fusion.go). norm is the launch of the norm that y goes to, -1: none.
func (b *bind) chain(p product, up *backends.Operand, act uint32, norm int) {
	x := b.convert(dots, p.x)
	if x == nil {
		return
	}
	read := *x // reserving memory below may move it
	if up == nil && norm >= 0 && b.handQ(p, &read, norm) {
		return
	}
	whole := piece{0, p.w.Rows()}
	size, per := b.dotShape(p.w.Type, p.w.Shape.Last(), 1)
	room := b.aheadOf(p.w.Type, p.w.Shape.Last())
	name, suffix := "chainq_", ""
	switch {
	case up != nil:
		name = "gateq_"
		if !wideGates[p.w.Type] {
			size = min(dotGroupGate, b.d.p.Invocations)
		}
	case norm >= 0 && room > 0 && handOne[p.w.Type] && b.d.p.Invocations >= dotGroupOne:
		size, suffix = dotGroupOne, "_1"
	case norm >= 0:
		size = min(dotGroupAlone, b.d.p.Invocations)
	}
	c := b.call(name + p.w.Type.String() + suffix)
	woff, boff, btype, r, y := b.dotOperands(c, p, read, whole)
	if read.squares != nil {
		b.temporary(c, read.squares, false)
	} else {
		b.none(c)
	}
	var to *converted
	goff := uint32(0)
	switch {
	case norm >= 0:
		to = b.normed(norm)
	case p.w.Rows()%32 == 0:
		to = b.written(dots, p.y, p.y.Shape.Last(), &read)
	}
	if to != nil {
		b.temporary(c, to.data, true)
		b.temporary(c, to.scales, true)
		if norm >= 0 {
			b.temporary(c, to.squares, true)
			goff, _ = b.vector(c, &b.program.Launches[norm].In[1])
		} else {
			b.floats(c, p.y, true)
			b.none(c)
		}
	} else {
		// In place of what is not written stands what is: the placeholder is read by others
		// at the same time.
		for range 3 {
			b.floats(c, p.y, true)
		}
		b.none(c)
	}
	asks := []*buffer{read.data, read.scales}
	if read.squares != nil {
		asks = append(asks, read.squares)
	}
	b.hand(c, room > 0, p.y, asks, p.r)
	uoff := uint32(0)
	if up != nil {
		uoff = b.weights(c, up, whole)
	}
	c.spec = []uint32{uint32(size), btype, flag(p.r != nil), 0, flag(read.squares != nil), flag(to != nil),
		flag(norm >= 0), act,
		flag(room > 0), uint32(max(room, 128))}
	c.push = []uint32{uint32(p.w.Rows()), uint32(p.w.Shape.Last()), 0, uint32(p.w.Rows()), 1, woff, uint32(p.w.Stride), 0,
		read.pitch / 8, boff, r.off, r.stride, y.off, y.stride, y.inner, r.inner, 0, 1, 1, uint32(b.number), goff, uoff,
		bits(read.eps), 0}
	gx, gy := spread((p.w.Rows()+per-1)/per, int(b.d.p.limits.MaxComputeWorkGroupCount[0]))
	b.run(c, gx, gy)
}

// handQ multiplies a row of bytes by w, where those of a norm come next, on devices whose stages
// can hand over; false: it cannot.
func (b *bind) handQ(p product, x *converted, norm int) bool {
	n, cols, next := p.w.Rows(), p.w.Shape.Last(), &b.program.Launches[norm]
	turn, ok := handQTurns[p.w.Type]
	if !ok || !b.d.p.inOrder && !b.d.ordered || x.squares != nil || n%handQRows != 0 || cols/32 < turn.least {
		return false
	}
	// The invocations of a set take a row in turns of as many blocks, or halves of them.
	units, sets, suffix := cols/32, handQSets, ""
	if p.w.Type == tensor.Q8_0 && cols <= 16*handQHalves {
		units, sets, suffix, turn.most = cols/16, handQSets/2, "_half", handQHalves
	}
	lanes := max(32, b.d.p.Subgroup)
	turns := (units + turn.most - 1) / turn.most
	size := (units + turns*lanes - 1) / (turns * lanes) * lanes * sets
	if size > b.d.p.Invocations || size > 64*b.d.p.MinSubgroup {
		return false
	}
	c := b.call("handq_" + p.w.Type.String() + suffix)
	woff, boff, btype, r, y := b.dotOperands(c, p, *x, piece{0, n})
	b.none(c)
	to := b.normed(norm)
	if to == nil {
		return true
	}
	b.temporary(c, to.data, true)
	b.temporary(c, to.scales, true)
	b.temporary(c, to.squares, true)
	goff, _ := b.vector(c, &next.In[1])
	b.hand(c, b.places != nil, p.y, []*buffer{x.data, x.scales}, p.r)
	c.spec = []uint32{uint32(size), btype, flag(p.r != nil)}
	c.push = []uint32{uint32(n), uint32(cols), woff, uint32(p.w.Stride), boff, r.off, y.off, goff, uint32(b.number), 0}
	gx, gy := spread(n/handQRows, int(b.d.p.limits.MaxComputeWorkGroupCount[0]))
	b.run(c, gx, gy)
	return true
}

// handQRows is the number of results of a workgroup of handq.comp.
const handQRows = 32

// handQSets is how many sets of invocations share them, half as many where they take halves of
// blocks; make.sh has the rows of a set. handQHalves is of how many halves rows are then at most: a
// turn of a set.
const handQSets, handQHalves = 4, 256

// handQTurns are how many invocations a set of handq.comp has at most, and of how many blocks rows are at least: Q4_0's
// shorter ones are faster by chainq_q4_0_1.
var handQTurns = map[tensor.Type]struct{ most, least int }{tensor.Q4_0: {192, 256}, tensor.Q8_0: {128, 0}}

// gated computes an activation together with the products that it is of.
func (b *bind) gated(g gate, act uint32) {
	w, u := b.placed(&g.gate.In[1]), b.placed(&g.up.In[1])
	p := product{x: &g.gate.In[0], w: w, y: &b.l.Out[0]}
	if b.d.formOf(g.gate.Kernel.(*kernel).on, w, 1) == dots {
		b.chain(p, u, act, -1)
		return
	}
	if b.handVec(p, u, act) {
		return
	}
	size, _ := b.vecShape(w.Type, w.Shape.Last(), 1)
	c := b.call("gate_" + w.Type.String())
	norm := b.norm(p.x)
	if norm != nil {
		p.x = norm.x
	}
	woff, x, _, y, _, _ := b.operands(c, p, piece{0, w.Rows()})
	b.none(c)
	b.status(c)
	goff, eps := uint32(0), uint32(0)
	if norm != nil {
		goff, _ = b.vector(c, norm.w)
		goff, eps = goff/4, bits(norm.eps)
	} else {
		b.none(c)
	}
	uoff := b.weights(c, u, piece{0, u.Rows()})
	c.spec = []uint32{uint32(size), 1, 1, 0, 0, 0, flag(norm != nil), act}
	c.push = []uint32{uint32(w.Rows()), x.cols, 0, uint32(w.Rows()), 1, woff, uint32(w.Stride), 0,
		x.off, x.stride, x.inner, 0, 0, 0, y.off, y.stride, y.inner, 1, 0, 1, 1, uint32(b.number), goff, eps, uoff}
	gx, gy := spread(w.Rows()/2, int(b.d.p.limits.MaxComputeWorkGroupCount[0]))
	b.run(c, gx, gy)
}

// handRows is the number of rows of w for a workgroup of handvec.comp.
const handRows = 8

// handVec multiplies one row by w, or by the two weights of a gate, in a step whose stages hand over; false: it
// cannot.
func (b *bind) handVec(p product, up *backends.Operand, act uint32) bool {
	x := p.x
	norm := b.norm(x)
	if norm != nil {
		x = norm.x
	}
	cols := p.w.Shape.Last()
	if b.places == nil || p.w.Type != tensor.F16 && p.w.Type != tensor.BF16 || p.factors != nil ||
		aligned(p.w, cols, p.w.Stride) == 0 || x.Offset%16 != 0 || cols%unitOf(p.w.Type) != 0 {
		return false
	}
	name, per, whole := "handvec_", handRows, piece{0, p.w.Rows()}
	if up != nil {
		name, per = "handgate_", handRows/2
	}
	size, _ := b.vecShape(p.w.Type, cols, 1)
	c := b.call(name + p.w.Type.String())
	p.x = x
	woff, vx, r, y, boff, btype := b.operands(c, p, whole)
	b.status(c)
	goff, eps, uoff := uint32(0), uint32(0), uint32(0)
	if norm != nil {
		goff, _ = b.vector(c, norm.w)
		goff, eps = goff/4, bits(norm.eps)
	} else {
		b.none(c)
	}
	if up != nil {
		uoff = b.weights(c, up, whole)
	} else {
		b.none(c)
	}
	b.hand(c, true, p.y, buffersOf(p.x), p.r)
	c.spec = []uint32{uint32(size), btype, flag(p.r != nil), flag(norm != nil), act}
	c.push = []uint32{uint32(p.w.Rows()), uint32(cols), woff, uint32(p.w.Stride), vx.off / 4, goff, boff, r.off, y.off,
		uint32(b.number), eps, uoff, 0}
	gx, gy := spread((p.w.Rows()+per-1)/per, int(b.d.p.limits.MaxComputeWorkGroupCount[0]))
	b.run(c, gx, gy)
	return true
}

// columns is for how many rows of x mat-vec kernels are compiled, of n rows.
func columns(n int) int {
	switch {
	case n == 1:
		return 1
	case n <= 4:
		return 4
	}
	return 8
}

func (b *bind) matVec(p product, part piece) {
	nx := columns(b.d.rows(p.x.Shape.Rows()))
	if nx == 1 && part.count == p.w.Rows() && b.handVec(p, nil, 0) {
		return
	}
	size, per := b.vecShape(p.w.Type, p.w.Shape.Last(), nx)
	c := b.call(fmt.Sprintf("matvec_%s_%d", p.w.Type, nx))
	norm := b.norm(p.x)
	if norm != nil {
		p.x = norm.x
	}
	woff, x, r, y, boff, btype := b.operands(c, p, part)
	foff, ftype := b.vector(c, p.factors)
	b.status(c)
	goff, eps := uint32(0), uint32(0)
	if norm != nil {
		goff, _ = b.vector(c, norm.w)
		goff, eps = goff/4, bits(norm.eps)
	} else if nx == 1 && !p.w.Type.IsBlock() {
		b.none(c)
	}
	c.spec = []uint32{uint32(size), aligned(p.w, int(x.cols), p.w.Stride), vectors(x, p.w.Type),
		btype, flag(p.r != nil), 0, flag(norm != nil), 0, ftype}
	c.push = []uint32{uint32(part.count), x.cols, uint32(part.first), uint32(p.w.Rows()), x.n, woff, uint32(p.w.Stride), 0,
		x.off, x.stride, x.inner, boff, r.off, r.stride, y.off, y.stride, y.inner, r.inner, foff, 1, 1, uint32(b.number),
		goff, eps}
	gx, gy := spread((part.count+per-1)/per, int(b.d.p.limits.MaxComputeWorkGroupCount[0]))
	b.run3(c, gx, gy, (int(x.n)+nx-1)/nx)
}

// spread covers n workgroups by two dimensions of at most limit.
func spread(n, limit int) (x, y int) {
	if n <= limit {
		return n, 1
	}
	y = (n + limit - 1) / limit
	return (n + y - 1) / y, y
}

// tile gives the shape of matmul.comp's workgroups: rows of w and of x alike,
// and those of an invocation.
func (b *bind) tile(rows, n int) (size, part int) {
	if b.d.tile > 0 {
		return b.d.tile, b.d.tile / 16
	}
	switch {
	case b.d.p.Kind == Software:
		return 32, 2
	case fills((n+127)/128*((rows+127)/128), b.d.p.units) && b.d.p.Shared >= 16*9*(128+128):
		return 128, 8
	}
	return 64, 4
}

func (b *bind) matMul(p product, part piece) {
	size, each := b.tile(part.count, b.d.rows(p.x.Shape.Rows()))
	c := b.call(fmt.Sprintf("matmul_%s_%d", p.w.Type, size))
	woff, x, r, y, boff, btype := b.operands(c, p, part)
	foff, ftype := b.vector(c, p.factors)
	c.spec = []uint32{uint32(size / each * (size / each)), aligned(p.w, int(x.cols), p.w.Stride), vectors(x, p.w.Type),
		btype, flag(p.r != nil), ftype}
	c.push = []uint32{uint32(part.count), x.cols, uint32(part.first), uint32(p.w.Rows()), x.n, woff, uint32(p.w.Stride),
		x.off, x.stride, x.inner, boff, r.off, r.stride, y.off, y.stride, y.inner, r.inner, foff}
	if size == groupTile {
		b.none(c) // of no groups
		c.push = append(c.push, 0, 0, 0)
	}
	b.run(c, (part.count+size-1)/size, (int(x.n)+size-1)/size)
}

// matrix multiplies by cooperative matrices.
func (b *bind) matrix(p product, part piece) {
	v := b.variant
	if v == nil { // of software devices
		if n := b.d.core().size; n != 8 {
			b.fail(fmt.Errorf("a product by matrices of %d rows has no tile", n))
			return
		}
		v = softwareTile
	}
	f := halves
	if p.w.Type == tensor.BF16 {
		f = bfloats
	}
	x := b.convert(f, p.x)
	if x == nil {
		return
	}
	n, cols := p.x.Shape.Rows(), p.w.Shape.Last()
	last := min(b.halved(p, part, v)*v.cols, part.count) // of part's rows those whose columns are halved
	var sums *buffer
	if last > 0 {
		var err error
		if sums, err = b.reserved("halved sums", n*last*4); err != nil {
			last = 0 // without memory for sums nothing is
		}
	}
	if last == 0 {
		left, narrow := b.left(p, part, v)
		first := part.count - left
		b.tiles(p, piece{part.first, first}, v, *x, 0, cols)
		b.tiles(p, piece{part.first + first, left}, narrow, *x, 0, cols)
		return
	}
	first := part.count - last
	b.tiles(p, piece{part.first, first}, v, *x, 0, cols)
	b.tiles(p, piece{first, last}, v, *x, 0, half(cols))
	y := backends.Operand{Buffer: sums, Type: tensor.F32, Shape: tensor.Shape{n, last}, Stride: 4 * last}
	w := *p.w // its last rows
	w.Shape, w.Offset = tensor.Shape{last, cols}, w.Offset+first*w.Stride
	b.tiles(product{x: p.x, w: &w, y: &y}, piece{0, last}, v, *x, half(cols), cols)
	b.halfDue(p.y, due{first: first, count: last, sums: sums})
}

// tiles runs tiles of v over a piece of w, from one column of it to another; x are the activations.
func (b *bind) tiles(p product, part piece, v *matrixVariant, x converted, from, to int) {
	core, n, cols := b.d.core(), p.x.Shape.Rows(), p.w.Shape.Last()
	if part.count == 0 {
		return
	}
	module := fmt.Sprintf(v.module, p.w.Type)
	if x.form == bfloats {
		module = bfloatModule + fmt.Sprintf(v.module, tensor.F16)
	}
	c := b.call(module)
	c.subgroup = core.subgroup
	woff, boff, btype, r, y := b.scaledOperands(c, p, x, part)
	whole := part.count%4 == 0 && part.first%4 == 0 && p.w.Rows()%4 == 0 && y.off%4 == 0 && y.stride%4 == 0 &&
		r.off%4 == 0 && r.stride%4 == 0
	c.spec = []uint32{uint32(v.subgroups * core.subgroup), aligned(p.w, cols, p.w.Stride), btype, flag(p.r != nil),
		flag(whole),
		flag(y.inner == 1 && r.inner == 1)}
	if v.name != regDecodeTile {
		c.spec = append(c.spec, flag(cols%64 == 0))
	}
	c.push = []uint32{uint32(part.count), uint32(cols), uint32(part.first), uint32(p.w.Rows()), uint32(n), woff,
		uint32(p.w.Stride),
		x.pitch / 2, boff, r.off, r.stride, y.off, y.stride, y.inner, r.inner, flipOf(p.w.Type)}
	if v.halves {
		c.push = append(c.push, uint32(from), uint32(to))
	}
	if v.grouped {
		b.none(c) // of no groups
		c.push = append(c.push, 0, 0, 0)
	}
	b.run(c, (n+v.rows-1)/v.rows, (part.count+v.cols-1)/v.cols)
}

// flipOf is what matrix.comp flips of a format's codes.
func flipOf(t tensor.Type) uint32 {
	if t == tensor.Q8_0 {
		return 0x64806480 // codes are signed
	}
	return 0x64006400
}

// scaledOperands binds what products of f16 with a scale a row have in common, in the order of product.glsl: offsets
// of the weights and of the bias, the bias's type, the residual and the result.
func (b *bind) scaledOperands(c *dispatch, p product, x converted, part piece) (woff, boff, btype uint32, r, y rows) {
	woff = b.weights(c, p.w, part)
	b.temporary(c, x.data, false)
	boff, btype = b.vector(c, p.bias)
	r = b.residual(c, p.r)
	y = b.floats(c, p.y, true)
	b.temporary(c, x.scales, false)
	return
}
