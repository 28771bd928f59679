//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

func bindEmbed(b *bind) error {
	norm, next := b.folds.norm(b.number)
	if next || b.places != nil && b.d.embedsOne(b.l) {
		b.embedOne(norm)
		return nil
	}
	return b.gather(b.placed(&b.l.In[1]), &b.l.In[0], &b.l.Out[0])
}

// embedsOne says whether a launch is the embedding of one token by embed.comp.
func (d *Device) embedsOne(l *backends.Launch) bool {
	k, ok := l.Kernel.(*kernel)
	if !ok || l.Node.Op != ops.Embed || l.In[0].Shape.Elems() != 1 || l.In[1].Shape.Last()%8 != 0 ||
		len(l.Out[0].Shape) != 2 {
		return false
	}
	b := &bind{d: d, kernel: k.name}
	return len(b.pieces(b.placed(&l.In[1]))) == 1
}

// embedOne runs embed.comp, norm is the launch of the norm that y goes to, -1: none.
func (b *bind) embedOne(norm int) {
	l := b.l
	w, y := b.placed(&l.In[1]), &l.Out[0]
	cols := w.RowElems()
	c := b.call("embed_" + w.Type.String())
	woff := b.weights(c, w, piece{0, w.Rows()})
	atoff := b.ints(c, &l.In[0])
	vy := b.floats(c, y, true)
	b.status(c)
	goff := uint32(0)
	if norm >= 0 {
		to := b.normed(norm)
		if to == nil {
			return
		}
		b.temporary(c, to.data, true)
		b.temporary(c, to.scales, true)
		b.temporary(c, to.squares, true)
		goff, _ = b.vector(c, &b.program.Launches[norm].In[1])
	} else {
		for range 4 {
			b.none(c)
		}
	}
	b.hand(c, b.places != nil, y, nil, nil)
	c.spec = []uint32{flag(norm >= 0), aligned(w, cols, w.Stride), flag(b.places != nil)}
	c.push = []uint32{uint32(cols), woff, uint32(w.Stride), uint32(w.Rows()), atoff, vy.off, goff, uint32(b.number), 0}
	b.run(c, (cols+127)/128, 1)
}

func bindRows(b *bind) error { return b.gather(&b.l.In[0], &b.l.In[1], &b.l.Out[0]) }

// piece is a range of an operand's rows (of dimension 0) that one binding can hold.
type piece struct{ first, count int }

// pieces cuts a weight so that each part fits the device's storage ranges.
func (b *bind) pieces(o *backends.Operand) []piece {
	limit := int(b.d.p.limits.MaxStorageBufferRange)
	if w, ok := o.Buffer.(*buffer); ok && w.parts != nil {
		limit = min(limit, w.lap)
	}
	limit -= 512 // the ends are rounded
	per := o.Rows()
	if o.Stride > 0 {
		per = max(1, limit/o.Stride)
	}
	var list []piece
	for first := 0; first < o.Rows(); first += per {
		list = append(list, piece{first, min(per, o.Rows()-first)})
	}
	return list
}

// weights binds a piece of an operand and gives its offset in bytes.
func (b *bind) weights(x *dispatch, o *backends.Operand, p piece) uint32 {
	e, size := o.Type.Block()
	if e == 1 && (o.Offset%size != 0 || o.Stride%size != 0) || o.Offset%2 != 0 && e > 1 {
		b.fail(fmt.Errorf("offset %d and stride %d are not multiples of %s's %d bytes", o.Offset, o.Stride, o.Type, size))
	}
	n := (p.count-1)*o.Stride + rowBytes(o)*(o.RowElems()/max(1, o.Shape.Last()))
	return b.bytes(x, o.Buffer, o.Offset+p.first*o.Stride, n, false)
}

// aligned says whether rows of a plain type can be read 16 bytes at a time.
func aligned(o *backends.Operand, row, stride int) uint32 {
	return flag(row%8 == 0 && o.Offset%16 == 0 && stride%16 == 0)
}

// unitOf is the number of elements that decode.glsl decodes at once.
func unitOf(t tensor.Type) int {
	if t.IsBlock() {
		return 32
	}
	return 8
}

func (b *bind) gather(w, ids, y *backends.Operand) error {
	cols := w.RowElems()
	units := (cols + unitOf(w.Type) - 1) / unitOf(w.Type)
	n := ids.Shape.Elems() * units
	for _, p := range b.pieces(w) {
		c := b.call("gather_" + w.Type.String())
		woff := b.weights(c, w, p)
		atoff := b.ints(c, ids)
		o := *y // all of an index as one row
		o.Shape = tensor.Shape{y.Rows(), y.RowElems()}
		vy := b.floats(c, &o, true)
		b.status(c)
		c.spec = []uint32{64, aligned(w, cols, w.Stride)}
		c.push = []uint32{uint32(n), uint32(cols), uint32(units), woff, uint32(w.Stride), uint32(p.first), uint32(p.count),
			uint32(w.Rows()), atoff, vy.off, vy.stride, uint32(b.number)}
		b.run(c, groups(n, 64), 1)
	}
	return nil
}
