package cpu

import (
	"greta/backends"
	"greta/backends/cpu/simd"
	"greta/internal/pool"
	"greta/tensor"
)

// rounded is the memory for activations in another form, one for all launches.
// While a program is captured it is known what it will hold at each launch, so
// that products with the same activations bring them to it once.
type rounded struct {
	memory []float32
	holds  *roundX          // the last region that writes it
	source backends.Operand // what that rounds
	now    *roundX          // the region that wrote it last, in this run of a program
}

func (h *rounded) forget() { h.holds = nil }

// written tells of a launch's results: what was rounded may no longer be in memory.
func (h *rounded) written(out []backends.Operand) {
	if h.holds == nil {
		return
	}
	from, to := extent(&h.source)
	for i := range out {
		if a, b := extent(&out[i]); out[i].Buffer == h.source.Buffer && a < to && from < b {
			h.forget()
			return
		}
	}
}

// extent is the range of bytes between an operand's first and last.
func extent(o *backends.Operand) (from, to int) {
	if o.Rows() == 0 {
		return o.Offset, o.Offset
	}
	return o.Offset, o.Offset + (o.Rows()-1)*o.Stride + o.Type.RowBytes(o.RowElems())
}

// form is how a product wants activations: in eight bits, in groups of so many
// rows, or in so many parts for the matrix unit.
type form struct{ group, parts int }

// roundX is the region that brings activations to another form.
type roundX struct {
	d    *Device
	x    rows
	form form
	q    simd.Quants // in eight bits
	s    simd.Split  // or in parts
	of   *roundX     // a launch before this one that does the same; may be nil
}

// bindRounding prepares the rounding of an operand.
func (d *Device) bindRounding(o *backends.Operand, x rows, f form) *roundX {
	h := &d.rounded
	if p := h.holds; p != nil && p.form == f && p.x.n == x.n && p.x.cols == x.cols && p.x.inner == x.inner && p.x.stride == x.stride &&
		h.source.Buffer == o.Buffer && h.source.Offset == o.Offset {
		same := *p
		same.of = p.first()
		return &same
	}
	r := &roundX{d: d, x: x, form: f}
	size := 0
	if f.parts > 0 {
		size = simd.SplitLen(x.n, x.cols, f.parts)
	} else {
		size = (simd.QuantsLen(x.n, x.cols, f.group) + 3) / 4
	}
	if len(h.memory) < size {
		h.memory = simd.AlignedFloats(size)
	}
	if f.parts > 0 {
		r.s = simd.Split{N: x.n, Cols: x.cols, Parts: f.parts, Data: h.memory[:size]}
	} else {
		r.q = simd.Quants{N: x.n, Cols: x.cols, Group: f.group, Data: tensor.Bytes(h.memory[:size])}
	}
	h.holds, h.source = r, *o
	return r
}

// first is the region that rounds for r, which may be r itself.
func (r *roundX) first() *roundX {
	if r.of != nil {
		return r.of
	}
	return r
}

func (r *roundX) run(p *pool.Pool) {
	// Launches run in another order than they are bound in (sequence): the memory may hold something else.
	now := &r.d.rounded.now
	if r.of != nil && *now == r.of {
		return
	}
	*now = r.first()
	switch {
	case r.form.parts > 0:
		p.Run(r, r.s.Groups())
	case r.x.n == 1: // a microsecond: not worth a region
		r.d.k.Quantise(&r.q, 0, r.x.row(0))
	default:
		p.Run(r, (r.x.n+7)/8)
	}
}

func (r *roundX) Do(_, chunk int) {
	if r.form.parts > 0 {
		ld, _ := r.x.lead()
		r.d.k.Put(&r.s, r.x.data, ld, chunk)
		return
	}
	for i := 8 * chunk; i < min(8*chunk+8, r.x.n); i++ {
		r.d.k.Quantise(&r.q, i, r.x.row(i))
	}
}
