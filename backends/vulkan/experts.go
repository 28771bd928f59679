//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
)

// Products with a token's own experts. A pair of a token and a place meets its expert's matrix row by row of it, where
// there are few; where there are many, experts.comp orders them by expert, and kernels of many rows take an expert's
// pairs a tile at a time, so that its matrix is read once a tile.

// mostExperts is how many experts.comp counts.
const mostExperts = 1024

// groupTile is the size of matmul.comp's tiles that are taken by groups.
const groupTile = 64

// experts is the choice for experts' products, for rows pairs and so many experts; grouped: they are ordered by expert.
// A row's kernel never depends on other rows where the device was opened so.
func (q question) experts(count int) (c *productChoice, grouped bool) {
	if many := q; !q.d.opt.Invariant && count <= mostExperts {
		many.on.regDecode = false // whose tiles are too large
		if c = many.choose(); c.grouped != nil && q.rows >= c.each*count {
			return c, true
		}
	}
	q.rows, q.grouped = 1, false
	return q.choose(), false
}

// groupsByMatrix says whether cooperative matrices multiply a linear_id.
func (d *Device) groupsByMatrix(n *graph.Node) bool {
	w := n.In[1]
	q := question{d, taken{matrix: true}, w.Type, w.Shape.Last(), n.In[2].Shape.Elems(), true, true}
	c, grouped := q.experts(w.Shape[0])
	return grouped && c.form == halves
}

// experts is the choice for a weight as it is placed and the chosen experts; grouped: they are taken together.
func (b *bind) experts(w, e *backends.Operand) (c *productChoice, grouped bool) {
	return question{b.d, b.on, w.Type, w.Shape[2], e.Shape.Elems(), b.lines(w) != 0, true}.experts(w.Shape[0])
}

// bindLinearID multiplies, for each pair, the token's row with the chosen expert's matrix. A piece is a number of
// experts.
func bindLinearID(b *bind) error {
	l := b.l
	w, e := b.placed(&l.In[1]), &l.In[2]
	c, grouped := b.experts(w, e)
	p := product{x: &l.In[0], w: w, bias: l.Named("b"), y: &l.Out[0]}
	for _, part := range b.pieces(w) {
		switch {
		case grouped:
			c.grouped(b, p, part, e)
		case c.form == dots:
			b.expertDots(p, part, e)
		default:
			b.expertRows(p, part, e)
		}
	}
	return nil
}

// expertDots multiplies bytes, a pair at a time.
func (b *bind) expertDots(p product, part piece, e *backends.Operand) {
	w, users := p.w, e.Shape[1]
	x := b.convert(dots, p.x)
	if x == nil {
		return
	}
	size, per := b.dotShape(w.Type, w.Shape[2], 1)
	c := b.call(fmt.Sprintf("matvecq_%s_1", w.Type))
	woff := b.weights(c, w, part)
	b.temporary(c, x.data, false)
	b.temporary(c, x.scales, false)
	boff, btype := b.vector(c, p.bias)
	b.none(c)
	y := b.floats(c, p.y, true)
	eoff := b.ints(c, e)
	b.status(c)
	c.spec = []uint32{uint32(size), btype, 0, 1}
	c.push = []uint32{uint32(w.Shape[1]), uint32(w.Shape[2]), uint32(part.first), uint32(w.Rows()),
		uint32(e.Shape.Elems()), woff, uint32(rowBytes(w)), uint32(part.count),
		x.pitch / 8, boff, 0, 0, y.off, y.stride, y.inner, 1, eoff, uint32(users), uint32(p.x.Shape[1]), uint32(b.number)}
	b.eachPair(c, w.Shape[1], per, e)
}

// expertRows multiplies in f32, a pair at a time.
func (b *bind) expertRows(p product, part piece, e *backends.Operand) {
	w, users := p.w, e.Shape[1]
	size, per := b.vecShape(w.Type, w.Shape[2], 1)
	c := b.call(fmt.Sprintf("matvec_%s_1", w.Type))
	woff, x, _, y, boff, btype := b.operands(c, p, part)
	eoff := b.ints(c, e)
	b.status(c)
	if !w.Type.IsBlock() {
		b.none(c)
	}
	c.spec = []uint32{uint32(size), b.lines(w), vectors(x, w.Type), btype, 0, 1}
	c.push = []uint32{uint32(w.Shape[1]), x.cols, uint32(part.first), uint32(w.Rows()), uint32(e.Shape.Elems()), woff,
		uint32(rowBytes(w)), uint32(part.count),
		x.off, x.stride, 1, boff, 0, 0, y.off, y.stride, y.inner, 1, eoff, uint32(users), uint32(p.x.Shape[1]),
		uint32(b.number)}
	b.eachPair(c, w.Shape[1], per, e)
}

// eachPair runs a dispatch over rows of a matrix, so many a workgroup, and the pairs.
func (b *bind) eachPair(c *dispatch, rows, per int, e *backends.Operand) {
	gx, gy := spread((rows+per-1)/per, int(b.d.p.limits.MaxComputeWorkGroupCount[0]))
	b.run3(c, gx, gy, e.Shape.Elems())
}

// lines says whether rows of experts' matrices can be read 16 bytes at a time.
func (b *bind) lines(w *backends.Operand) uint32 {
	return flag(aligned(w, w.Shape[2], rowBytes(w)) != 0 && w.Stride%16 == 0)
}

// ordered gives a plan of experts.comp, pairs by expert in tiles of so many rows, and the most tiles that it may have:
// each expert's last one may be nearly empty. It is that of a launch before where one had the same.
func (b *bind) ordered(e *backends.Operand, experts, rows int) (plan *buffer, tiles int) {
	pairs := e.Shape.Elems()
	tiles = pairs/rows + min(experts, pairs)
	at, ok := b.region(form(fmt.Sprintf("tiles of %d rows of %d experts", rows, experts)), e)
	if !ok {
		return nil, 0
	}
	if x := b.copies.find(at); x != nil {
		return x.data, tiles
	}
	plan, err := b.reserved("groups", 4*(2*tiles+pairs))
	if err != nil {
		b.fail(err)
		return nil, 0
	}
	b.copies.forget(func(old *converted) bool { return old.data == plan })
	b.copies.list = append(b.copies.list, converted{region: at, maker: -1, data: plan,
		from: span{at.buffer, uint64(e.Offset), uint64(e.Offset + e.Extent()), false}})
	c := b.call("experts")
	eoff := b.ints(c, e)
	b.temporary(c, plan, true)
	b.status(c)
	c.spec = []uint32{uint32(min(b.d.p.Invocations, mostExperts))}
	c.push = []uint32{uint32(pairs), uint32(experts), uint32(rows), uint32(tiles), eoff, uint32(b.number)}
	b.run(c, 1, 1)
	return plan, tiles
}

// groupPush is what groups.glsl wants behind other constants.
func groupPush(p product, part piece, e *backends.Operand) []uint32 {
	share := 1 // pairs of a row of x
	if p.x.Shape[1] == 1 {
		share = e.Shape[1]
	}
	return []uint32{uint32(share), uint32(part.first), uint32(part.count)}
}

// matMulGroups multiplies by groups in f32.
func (b *bind) matMulGroups(p product, part piece, e *backends.Operand) {
	w := p.w
	plan, tiles := b.ordered(e, w.Shape[0], groupTile)
	if plan == nil {
		return
	}
	n := w.Shape[1]
	c := b.call(fmt.Sprintf("matmul_%s_%d", w.Type, groupTile))
	woff, x, _, y, boff, btype := b.operands(c, p, part)
	b.none(c)
	b.temporary(c, plan, false)
	c.spec = []uint32{groupTile / 4 * (groupTile / 4), b.lines(w), vectors(x, w.Type), btype, 0, 0, 0, 1}
	c.push = append([]uint32{uint32(n), x.cols, 0, uint32(n), x.n, woff, uint32(rowBytes(w)),
		x.off, x.stride, x.inner, boff, 0, 0, y.off, y.stride, y.inner, 1, 0}, groupPush(p, part, e)...)
	b.run(c, (n+groupTile-1)/groupTile, tiles)
}

// matrixGroups multiplies by groups and cooperative matrices.
func (b *bind) matrixGroups(p product, part piece, e *backends.Operand) {
	w, v := p.w, softwareTile
	if b.d.core().size == 16 {
		v = &matrixVariants[len(matrixVariants)-1]
	}
	plan, tiles := b.ordered(e, w.Shape[0], v.rows)
	if plan == nil {
		return
	}
	x := b.convert(halves, p.x) // behind ordered, which moves forms
	if x == nil {
		return
	}
	core, n, cols := b.d.core(), w.Shape[1], w.Shape[2]
	c := b.call(fmt.Sprintf(v.module, w.Type))
	c.subgroup = core.subgroup
	woff, boff, btype, _, y := b.scaledOperands(c, p, *x, part)
	b.temporary(c, plan, false)
	c.spec = []uint32{uint32(v.subgroups * core.subgroup), b.lines(w), btype, 0,
		flag(n%4 == 0 && y.off%4 == 0 && y.stride%4 == 0), flag(y.inner == 1), flag(cols%64 == 0), 1}
	c.push = []uint32{uint32(n), uint32(cols), 0, uint32(n), x.n, woff, uint32(rowBytes(w)), x.pitch / 2, boff, 0, 0,
		y.off, y.stride, y.inner, 1, flipOf(w.Type)}
	if v.halves {
		c.push = append(c.push, 0, uint32(cols))
	}
	c.push = append(c.push, groupPush(p, part, e)...)
	b.run(c, tiles, (n+v.cols-1)/v.cols)
}
