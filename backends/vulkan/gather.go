//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"greta/backends"
	"greta/tensor"
)

func bindEmbed(b *bind) error { return b.gather(b.placed(&b.l.In[1]), &b.l.In[0], &b.l.Out[0]) }

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
