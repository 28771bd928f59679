//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/ops"
)

// Products side by side come in rounds of as many tiles as the device has units, and the last round may leave most of
// them idle. If they are so few that there is a unit for each half of them, its tiles are halved by
// columns of w: two dispatches multiply a range of columns each, and what they give is added up.
// Thirds lose: a dispatch's beginning and end cost what a third does.

// halfColumns is the least number of columns of a half, halfUnit what the first is a multiple of.
const halfColumns, halfUnit = 512, 256

// half is the column of w at which the second half begins.
func half(cols int) int { return (cols/halfUnit + 1) / 2 * halfUnit }

// halvedBlocks says how many of a product's blocks of columns of its result are halved, the last
// ones: it has so many blocks of across tiles; tiles is how many run side by side on so many units,
// its own the last of them.
func halvedBlocks(tiles, blocks, across, cols, units int) int {
	if units == 0 || cols < 2*halfColumns {
		return 0
	}
	if rest := (tiles%units + across - 1) / across; rest <= blocks && 2*rest*across <= units {
		return rest
	}
	return 0
}

// halved is halvedBlocks of the product at hand in tiles of v; nothing of one in pieces.
func (b *bind) halved(p product, part piece, v *matrixVariant) int {
	whole := func(o *backends.Operand) bool {
		return o == nil || len(o.Shape) == 2 && o.Offset%16 == 0 && o.Stride%16 == 0
	}
	if b.d.opt.Invariant || !v.halves || b.program == nil || !isLinear(b.l.Node) || part.count != p.w.Rows() ||
		part.count%4 != 0 || !whole(p.y) || !whole(p.r) {
		return 0
	}
	across, blocks := (p.x.Shape.Rows()+v.rows-1)/v.rows, (part.count+v.cols-1)/v.cols
	return halvedBlocks(b.beside(v, across), blocks, across, p.w.Shape.Last(), b.d.units)
}

// leftRows says how many of a product's rows of w, the last ones, are left to narrower tiles, of so
// many of them: where the last round of tiles does not fill the units, and narrower ones of the
// same rows do it in one round as well.
func leftRows(tiles, rows, across, units int, v, narrow *matrixVariant) int {
	if units == 0 {
		return 0
	}
	blocks, rest := (rows+v.cols-1)/v.cols, (tiles%units+across-1)/across
	if rest == 0 || rest >= blocks {
		return 0
	}
	if left := rows - (blocks-rest)*v.cols; (left+narrow.cols-1)/narrow.cols*across <= units {
		return left
	}
	return 0
}

// left is leftRows of the product at hand in tiles of v, and the tiles to which they are left;
// nothing of one in pieces.
func (b *bind) left(p product, part piece, v *matrixVariant) (int, *matrixVariant) {
	narrow := narrower[v.name]
	if b.d.opt.Invariant || narrow == nil || b.program == nil || part.count != p.w.Rows() {
		return 0, nil
	}
	across := (p.x.Shape.Rows() + v.rows - 1) / v.rows
	return leftRows(b.beside(v, across), part.count, across, b.d.units, v, narrow), narrow
}

// beside counts the tiles of v of the product at hand and of those before it that run side by side
// with it; 0: there is such a product behind it.
func (b *bind) beside(v *matrixVariant, across int) (tiles int) {
	x := &b.l.In[0]
	for j := max(0, b.number-foldWindow); j < min(len(b.program.Launches), b.number+foldWindow); j++ {
		l := &b.program.Launches[j]
		k, ok := l.Kernel.(*kernel)
		if !ok || !isProduct(l.Node) || k.variant != v && (k.variant != nil || v != softwareTile) ||
			l.In[0].Buffer != x.Buffer || l.In[0].Offset != x.Offset ||
			l.In[0].Shape.Elems() != x.Shape.Elems() ||
			backends.LastWriter(b.program.Launches[min(j, b.number):max(j, b.number)], x) >= 0 {
			continue
		}
		if j > b.number {
			return 0
		}
		tiles += across * ((l.In[1].Shape.Rows() + v.cols - 1) / v.cols)
	}
	return tiles
}

// due is what a product's result still lacks: sums for count columns from first on, the last ones,
// in dense rows. The launch that reads the result next adds them.
type due struct {
	launch       int
	first, count int
	sums         *buffer
}

// halfDue leaves what y lacks to the launch that reads it, or adds it where that cannot.
func (b *bind) halfDue(y *backends.Operand, x due) {
	if x.launch = b.adder(y, &x); x.launch > 0 {
		b.copies.due = &x
		return
	}
	c := b.call("join")
	vy := b.floats(c, y, true)
	b.lacked(c, x)
	c.spec = []uint32{workgroup}
	c.push = []uint32{vy.n, uint32(x.count / 4), (vy.off + uint32(x.first)) / 4, vy.stride / 4}
	b.run(c, groups(int(vy.n)*x.count/4, workgroup), 1)
}

// adder is the launch that adds what y lacks when it reads it, before another product wants memory for sums; 0: none.
func (b *bind) adder(y *backends.Operand, x *due) int {
	for j := b.number + 1; j < len(b.program.Launches) && !b.d.plain; j++ {
		l := &b.program.Launches[j]
		for n := range l.In {
			if l.In[n].Overlaps(y) {
				if b.adds(j, n, y, x) {
					return j
				}
				return 0
			}
		}
		if isProduct(l.Node) || l.Writes(y) {
			return 0
		}
	}
	return 0
}

// adds says whether launch j adds what y lacks, its operand n: a norm, which writes y as it should
// be, or what alone reads it.
func (b *bind) adds(j, n int, y *backends.Operand, x *due) bool {
	l := &b.program.Launches[j]
	o := &l.In[n]
	if o.Buffer != y.Buffer || o.Offset != y.Offset || o.Shape.Elems() != y.Shape.Elems() || o.Rows() != y.Rows() ||
		o.Stride != y.Stride {
		return false
	}
	only := backends.ReadOnlyBy(b.program.Launches, b.number, y, func(k, operand int) bool {
		return k == j && operand == n
	})
	switch l.Node.Op {
	case ops.RMSNorm:
		return n == 0 && x.first == 0 && len(o.Shape) == 2 && !l.Out[0].Overlaps(o) && b.d.normsWide(l)
	case ops.SwiGLU, ops.GeGLU:
		z := &l.Out[0]
		next := &bind{d: b.d, l: l, number: j, program: b.program}
		return n == 1 && only && len(o.Shape) == 2 && o.Shape.Last()%4 == 0 && wholeRows(l.In, l.Out) &&
			next.wanted(z, z.Shape.Last()) == halves
	case ops.Push:
		return n == 1 && only && len(o.Shape) == 3 && b.d.storesRows(o, &l.In[0])
	}
	return false
}

// lacking gives what is due at the launch at hand: it must add it.
func (b *bind) lacking() (x due) {
	if d := b.copies.due; d != nil && d.launch == b.number {
		x, b.copies.due = *d, nil
	}
	return
}

// lacked binds the sums that a result lacks, a placeholder where it lacks none.
func (b *bind) lacked(c *dispatch, x due) {
	if x.sums == nil {
		b.none(c)
		return
	}
	b.temporary(c, x.sums, false)
}
