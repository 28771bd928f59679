package cpu

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/tensor"
)

// rounded is the memory for activations in another form, one for all launches.
// While a program is captured it is known what it will hold at each launch, so
// that products with the same activations bring them to it once.
type rounded struct {
	memory *pages
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
	for i := range out {
		if out[i].Overlaps(&h.source) {
			h.forget()
			return
		}
	}
}

// form is how a product wants activations: in eight bits, in groups of so many
// rows; in so many parts for the matrix unit; in tiles of bf16; or else in f32, in panels.
type form struct {
	group, parts int
	bf16         bool
}

// roundX is the region that brings activations to another form.
type roundX struct {
	d      *Device
	x      rows
	form   form
	memory *pages      // of what follows: x
	q      simd.Quants // in eight bits,
	s      simd.Split  // in parts,
	packed []float32   // or in tiles or panels
	of     *roundX     // a launch before this one that does the same; may be nil
	made   bool        // the launch that makes x does it (making)
}

// bindRounding prepares the rounding of an operand.
func (d *Device) bindRounding(o *backends.Operand, x rows, f form) *roundX {
	h := &d.rounded
	if p := h.holds; p != nil && p.form == f && p.x.n == x.n && p.x.cols == x.cols && p.x.inner == x.inner &&
		p.x.stride == x.stride &&
		h.source.Buffer == o.Buffer && h.source.Offset == o.Offset {
		same := *p
		same.of = p.first()
		return &same
	}
	r := &roundX{d: d, x: x, form: f}
	size := 0
	switch {
	case f.parts > 0:
		size = simd.SplitLen(x.n, x.cols, f.parts)
	case f.group > 0:
		size = (simd.QuantsLen(x.n, x.cols, f.group) + 3) / 4
	case f.bf16:
		size = simd.BF16Tiles(x.n) * simd.BF16TileFloats(x.cols)
	default:
		size = d.k.PackedLen(x.n, x.cols)
	}
	if h.memory == nil || len(h.memory.data) < size {
		h.memory = newPages(size)
	}
	r.memory = h.memory
	memory := h.memory.data[:size]
	switch {
	case f.parts > 0:
		r.s = simd.Split{N: x.n, Cols: x.cols, Parts: f.parts, Data: memory}
	case f.group > 0:
		r.q = simd.Quants{N: x.n, Cols: x.cols, Group: f.group, Data: tensor.Bytes(memory)}
	default:
		r.packed = memory
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
	if (r.of != nil || r.made) && *now == r.first() {
		return
	}
	*now = r.first()
	if r.form.group > 0 && r.x.n == 1 { // a microsecond: not worth a region
		r.d.k.Quantise(&r.q, 0, r.x.row(0))
		return
	}
	p.Run(r, r.parts())
}

// together is how many rows are brought to the form at once, by one worker.
func (r *roundX) together() int {
	switch {
	case r.form.parts > 0:
		return simd.SplitRows
	case r.form.group > 0:
		return 8
	case r.form.bf16:
		return simd.BF16Rows
	}
	return r.d.k.PanelRows()
}

// parts is the number of groups of rows that are brought to the form at once.
func (r *roundX) parts() int { return (r.x.n + r.together() - 1) / r.together() }

func (r *roundX) Do(_, part int) {
	first := part * r.together()
	ld, _ := r.x.lead()
	switch {
	case r.form.parts > 0:
		r.d.k.Put(&r.s, r.x.data, ld, part)
	case r.form.group > 0:
		for i := first; i < min(first+8, r.x.n); i++ {
			r.d.k.Quantise(&r.q, i, r.x.row(i))
		}
	default:
		r.put(part, r.x.data[first*ld:], ld)
	}
}

// put brings a part of the rows, which lie at x, ld floats apart, to tiles or panels.
func (r *roundX) put(part int, x []float32, ld int) {
	if r.form.bf16 {
		r.d.k.PackBF16(r.packed, x, ld, r.x.n, r.x.cols, part)
	} else {
		r.d.k.PackX(r.packed, x, ld, r.x.n, r.x.cols, part)
	}
}
