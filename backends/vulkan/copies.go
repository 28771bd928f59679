//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	mathbits "math/bits"

	"greta/backends"
)

// Fast products want their activations in another form. A form is made once
// for all launches of a program that read the same version of the same tensor; it
// lies in temporary memory of the device, which programs share: they run one
// after another.

// form is how activations are held.
type form string

// The forms.
const (
	halves form = "halves" // f16 with a scale a row (halves.comp)
	dots   form = "dots"   // signed bytes with a scale per 32 (dots.comp)
)

// origin is a range of rows that has been brought into a form.
type origin struct {
	form          form
	buffer        *buffer
	offset, cols  int
	n, inner      uint32
	stride, extra uint32
}

// converted is where a form of an origin lies.
type converted struct {
	origin
	from         span // the origin's bytes
	data, scales *buffer
	pitch        uint32 // of data, in the units of its kernels
}

// copies are the forms that hold at a point of a program.
type copies struct{ list []converted }

// wrote forgets what dispatches have made void: copies of what they wrote.
func (c *copies) wrote(list []dispatch) {
	for i := range list {
		for _, s := range list[i].used {
			if s.write {
				c.forget(func(x *converted) bool { return x.from.overlaps(&s) })
			}
		}
	}
}

func (c *copies) forget(void func(*converted) bool) {
	keep := c.list[:0]
	for _, x := range c.list {
		if !void(&x) {
			keep = append(keep, x)
		}
	}
	c.list = keep
}

func (c *copies) find(o origin) *converted {
	for i := range c.list {
		if c.list[i].origin == o {
			return &c.list[i]
		}
	}
	return nil
}

// temporary gives device memory for what lives inside a program only. Sizes are
// rounded to powers of two, so that few buffers serve all programs.
func (d *Device) temporary(what string, size int) (*buffer, error) {
	size = 1 << mathbits.Len(uint(max(size, 256)-1))
	key := fmt.Sprint(what, size)
	if b := d.temporaries[key]; b != nil {
		return b, nil
	}
	b, err := d.newBuffer(size, d.types.local, "converted activations")
	if err != nil {
		return nil, err
	}
	if d.temporaries == nil {
		d.temporaries = map[string]*buffer{}
	}
	d.temporaries[key] = b
	return b, nil
}

// origin describes an operand.
func (b *bind) origin(f form, o *backends.Operand) (origin, bool) {
	buf, err := b.d.own(o.Buffer, o.Offset, extent(o))
	if err != nil {
		b.fail(err)
		return origin{}, false
	}
	inner := uint32(1)
	if len(o.Shape) > 1 {
		inner = uint32(max(1, o.Shape[1:len(o.Shape)-1].Elems()))
	}
	return origin{form: f, buffer: buf, offset: o.Offset, cols: o.Shape.Last(), n: uint32(o.Shape.Rows()), inner: inner, stride: uint32(o.Stride)}, true
}

// convert gives an operand in a form, which it makes unless it is there.
func (b *bind) convert(f form, o *backends.Operand) *converted {
	at, ok := b.origin(f, o)
	if !ok {
		return nil
	}
	if x := b.copies.find(at); x != nil {
		return x
	}
	x := b.reserve(at, o)
	if x == nil {
		return nil
	}
	c := b.call(string(f))
	v := b.floats(c, o, false)
	b.temporary(c, x.data, true)
	b.temporary(c, x.scales, true)
	c.spec = []uint32{b.d.rowGroup(int(v.cols)), flag(v.off%4 == 0 && v.stride%4 == 0 && v.cols%4 == 0)}
	c.push = []uint32{v.n, v.cols, v.inner, v.off, v.stride, x.pitch}
	b.run(c, int(v.n), 1)
	return x
}

// reserve finds memory for a form; what lay there is forgotten.
func (b *bind) reserve(at origin, o *backends.Operand) *converted {
	x := converted{origin: at, from: span{at.buffer, uint64(o.Offset), uint64(o.Offset + extent(o)), false}}
	x.pitch = uint32(at.cols+63) &^ 63
	size, scales := 2*int(x.pitch), 4
	if at.form == dots {
		size, scales = int(x.pitch), 8*int(x.pitch)/32
	}
	x.pitch /= 4
	var err error
	if x.data, err = b.d.temporary(string(at.form), int(at.n)*size); err == nil {
		x.scales, err = b.d.temporary(string(at.form)+" scales", int(at.n)*scales)
	}
	if err != nil {
		b.fail(err)
		return nil
	}
	b.copies.forget(func(old *converted) bool { return old.data == x.data || old.scales == x.scales })
	b.copies.list = append(b.copies.list, x)
	return &b.copies.list[len(b.copies.list)-1]
}

// temporary binds a temporary buffer.
func (b *bind) temporary(x *dispatch, t *buffer, write bool) {
	x.bound = append(x.bound, span{b: t, to: t.bytes})
	x.used = append(x.used, span{t, 0, t.bytes, write})
}
