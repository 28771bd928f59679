//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"maps"
	mathbits "math/bits"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Fast products want their activations in another form. A form is made once
// for all launches of a program that read the same version of the same tensor; it
// lies in temporary memory of the device, which programs share: they run one
// after another.

// form is how activations are held.
type form string

// The forms, which forms.glsl writes.
const (
	halves  form = "halves"  // f16 with a scale a row
	bfloats form = "bfloats" // bf16 so
	dots    form = "dots"    // signed bytes with a scale per 32
)

// forms are all of them, in the order of their numbers from 1 on.
var forms = []form{dots, halves, bfloats}

// number is what forms.glsl calls a form.
func (f form) number() uint32 { return uint32(slices.Index(forms, f) + 1) }

// region is a range of rows that has been brought into a form.
type region struct {
	form         form
	buffer       *buffer
	offset, cols int
	n, inner     uint32
	stride       uint32
}

// converted is where a form of an region lies.
type converted struct {
	region
	from         span // the region's bytes
	data, scales *buffer
	pitch        uint32 // of data, in groups of four elements
	maker        int    // the launch that wrote region and form alike, -1: none
	// squares are sums of squares of a norm's operand, where the form is of its product with
	// the norm's weight, and who reads it divides by the root of their mean plus eps. Its
	// maker is the norm.
	squares *buffer
	eps     float64
}

// copies are the forms that hold at a point of a program.
type copies struct {
	list  []converted
	norms []folded
	// normed are the first launches that computed them, by the norm's launch
	normed map[int]int
	ahead  []converted // of norms that come later
	// absent are results of which only a form was written. If a dispatch reads one of them
	// nevertheless, missed is set, and the program is bound anew with all results written.
	absent      []absent
	all, missed bool
	due         *due // halves that a launch adds when it reads them
}

// absent is the range of a result that its launch did not write.
type absent struct {
	span
	maker int
}

// start makes forms hold that were made for a norm which is launch i.
func (c *copies) start(i int) {
	for _, x := range c.ahead {
		if x.maker == i {
			c.forget(func(old *converted) bool { return old.from.overlaps(&x.from) }) // of the operand as it was
			c.list = append(c.list, x)
		}
	}
	c.ahead = slices.DeleteFunc(c.ahead, func(x converted) bool { return x.maker == i })
}

// wrote forgets what the dispatches of a launch have made void: copies of what they
// wrote, unless they wrote the copy too. It sees whether they read what is absent.
func (c *copies) wrote(launch int, list []dispatch) {
	for i := range list {
		for _, s := range list[i].used {
			if !s.write {
				c.missed = c.missed || slices.ContainsFunc(c.absent, func(a absent) bool { return a.overlaps(&s) })
			} else {
				c.absent = slices.DeleteFunc(c.absent, func(a absent) bool { return a.maker != launch && a.overlaps(&s) })
				c.norms = slices.DeleteFunc(c.norms, func(n folded) bool {
					return n.y.Buffer == s.b && uint64(n.y.Offset) < s.to && s.from < uint64(n.y.Offset+n.y.Extent())
				})
				c.forget(func(x *converted) bool { return x.maker != launch && x.from.overlaps(&s) })
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

func (c *copies) find(o region) *converted {
	for i := range c.list {
		if c.list[i].region == o {
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
	b, err := d.newBuffer(size, d.types.local, "activations ("+what+")")
	if err != nil {
		return nil, err
	}
	if d.temporaries == nil {
		d.temporaries = map[string]*buffer{}
	}
	d.temporaries[key] = b
	return b, nil
}

// region describes an operand.
func (b *bind) region(f form, o *backends.Operand) (region, bool) {
	buf, err := b.d.own(o.Buffer, o.Offset, o.Extent())
	if err != nil {
		b.fail(err)
		return region{}, false
	}
	inner := uint32(1)
	if len(o.Shape) > 1 {
		inner = uint32(max(1, o.Shape[1:len(o.Shape)-1].Elems()))
	}
	at := region{form: f, buffer: buf, offset: o.Offset, cols: o.Shape.Last(), n: uint32(o.Shape.Rows()), inner: inner,
		stride: uint32(o.Stride)}
	if row := 4 * at.cols; o.Type == tensor.F32 && o.Stride == int(inner)*row {
		at.inner, at.stride = 1, uint32(row) // rows without gaps, whatever they belong to
	}
	if at.n == at.inner {
		at.stride = 0 // of one index
	}
	return at, true
}

// reads is the form in which a launch reads its first operand, empty: f32, or it is no product.
func (d *Device) reads(k *kernel, l *backends.Launch) form {
	switch {
	case isLinear(l.Node):
		return d.formOf(k.on, &l.In[1], d.rows(l.In[0].Shape.Rows()))
	case l.Node.Op == ops.LinearID:
		b := &bind{d: d, on: k.on}
		c, _ := b.experts(b.placed(&l.In[1]), &l.In[2])
		return c.form
	}
	return ""
}

// wanted says in which form later launches of the program read what this one
// writes to o, seen as rows of cols elements; empty: in none, or not next. The kernel
// that computes o can then write the form as well.
func (b *bind) wanted(o *backends.Operand, cols int) form {
	for i := b.number + 1; b.program != nil && i < len(b.program.Launches); i++ {
		l := &b.program.Launches[i]
		k, ok := l.Kernel.(*kernel)
		if x := at(l.In, 0); ok && x != nil && x.Buffer == o.Buffer && x.Offset == o.Offset && x.Shape.Last() == cols &&
			x.Shape.Elems() == o.Shape.Elems() && x.Dense() && o.Dense() {
			if f := b.d.reads(k, l); f != "" {
				return f
			}
		}
		for j := range l.Out {
			if w := &l.Out[j]; w.Overlaps(o) {
				return ""
			}
		}
	}
	return ""
}

// filled gives device memory as temporary does, filled with a word where it is new: who uses it leaves it so.
func (d *Device) filled(what string, size int, word uint32) (*buffer, error) {
	have := len(d.temporaries)
	b, err := d.temporary(what, size)
	if err != nil || len(d.temporaries) == have {
		return b, err
	}
	if err := d.once("filling "+what, func(r *recorder) {
		d.c.CmdFillBuffer(r.cb, b.handle, 0, forever, word)
	}); err != nil {
		maps.DeleteFunc(d.temporaries, func(_ string, o *buffer) bool { return o == b })
		b.release()
		return nil, err
	}
	return b, nil
}

// counters is zeroed memory that kernels leave zeroed.
func (d *Device) counters(n int) (*buffer, error) { return d.filled("counters", 4*n, 0) }

// convert gives an operand in a form, which it makes unless it is there.
func (b *bind) convert(f form, o *backends.Operand) *converted {
	at, ok := b.region(f, o)
	if !ok {
		return nil
	}
	if x := b.copies.find(at); x != nil {
		return x
	}
	x := b.reserve(at, o, -1, nil)
	if x == nil {
		return nil
	}
	b.form(x, o, nil, nil, opCopy)
	return x
}

// normed gives memory for the bytes of y g, for the norm that is launch i, and for sums of
// squares of y.
func (b *bind) normed(i int) *converted {
	n := &b.program.Launches[i]
	at, ok := b.region(dots, &n.Out[0])
	if !ok {
		return nil
	}
	o := &n.Out[0]
	x := converted{region: at, maker: i, from: span{at.buffer, uint64(o.Offset), uint64(o.Offset + o.Extent()), false},
		pitch: uint32(at.cols+63) &^ 63 / 4, eps: graph.Attr[ops.NormAttr](n.Node).Eps}
	for _, t := range []struct {
		to    **buffer
		what  string
		bytes int
	}{{&x.data, "normed", 4 * int(x.pitch)}, {&x.scales, "normed scales", int(x.pitch)},
		{&x.squares, "squares", int(x.pitch) / 2}} {
		var err error
		if *t.to, err = b.reserved(t.what, t.bytes); err != nil {
			b.fail(err)
			return nil
		}
	}
	b.copies.ahead = append(b.copies.ahead, x)
	return &b.copies.ahead[len(b.copies.ahead)-1]
}

// form fills x with o, or with z = op(o, y), which it stores too where it is read.
func (b *bind) form(x *converted, o, y, z *backends.Operand, op uint32) {
	store := op != opCopy && !b.unread(x, z)
	c := b.call("form")
	lacks := b.lacking()
	vx := b.floats(c, o, false)
	var vy, vz rows
	if op != opCopy {
		vy, vz = b.floats(c, y, false), b.floats(c, z, true)
	} else {
		b.none(c)
		b.none(c)
	}
	b.temporary(c, x.data, true)
	b.temporary(c, x.scales, true)
	b.lacked(c, lacks)
	whole := vx.cols%4 == 0
	for _, v := range []rows{vx, vy, vz} {
		whole = whole && v.off%4 == 0 && v.stride%4 == 0
	}
	size, parts := b.d.rowGroup(int(vx.cols)), 1
	if x.form == dots {
		size = min(size, 256)
		parts = (int(x.pitch) + int(size) - 1) / int(size)
	}
	c.spec = []uint32{size, flag(whole), x.form.number(), op, flag(store), flag(lacks.sums != nil)}
	c.push = []uint32{vx.cols, vx.inner, vx.off, vx.stride, vy.off, vy.stride, vz.off, vz.stride, x.pitch,
		uint32(lacks.first / 4), uint32(lacks.count / 4)}
	b.run(c, int(vx.n), parts)
}

// written gives memory for the form in which later launches want a result of this
// one, seen as rows of cols elements; nil where they want another, or none. What the launch
// reads meanwhile, if anything, lies elsewhere.
func (b *bind) written(f form, o *backends.Operand, cols int, reads *converted) *converted {
	if cols == 0 || b.wanted(o, cols) != f {
		return nil
	}
	flat := *o
	flat.Shape = tensor.Shape{o.Shape.Elems() / cols, cols}
	flat.Stride = 4 * cols
	at, ok := b.region(f, &flat)
	if !ok {
		return nil
	}
	return b.reserve(at, &flat, b.number, reads)
}

// unread says whether nobody reads o itself, of which this launch writes the form x: all that reads
// it are products that take the form. Its kernel then writes the form alone.
func (b *bind) unread(x *converted, o *backends.Operand) bool {
	if x == nil || b.copies.all || !backends.ReadOnlyBy(b.program.Launches, b.number, o, func(j, operand int) bool {
		l := &b.program.Launches[j]
		k, ok := l.Kernel.(*kernel)
		return ok && operand == 0 && b.d.reads(k, l) == x.form
	}) {
		return false
	}
	b.copies.absent = append(b.copies.absent, absent{x.from, b.number})
	return true
}

// reserve finds memory for a form, beside that of a form that is read meanwhile; what lay
// there is forgotten.
func (b *bind) reserve(at region, o *backends.Operand, maker int, reads *converted) *converted {
	x := converted{region: at, maker: maker, from: span{at.buffer, uint64(o.Offset), uint64(o.Offset + o.Extent()), false}}
	x.pitch = uint32(at.cols+63) &^ 63
	size, scales := 2*int(x.pitch), 4
	if at.form == dots {
		size, scales = int(x.pitch), 8*int(x.pitch)/32
	}
	x.pitch /= 4
	for _, what := range []string{string(at.form), string(at.form) + " beside"} {
		var err error
		if x.data, err = b.reserved(what, int(at.n)*size); err == nil {
			x.scales, err = b.reserved(what+" scales", int(at.n)*scales)
		}
		if err != nil {
			b.fail(err)
			return nil
		}
		if reads == nil || x.data != reads.data && x.scales != reads.scales {
			break
		}
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
