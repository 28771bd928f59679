package cpu

import (
	"fmt"

	"greta/backends"
	"greta/backends/cpu/simd"
	"greta/graph"
	"greta/internal/pool"
	"greta/ops"
	"greta/tensor"
)

// packing gives the layout in which a product wants its weights; nil: as
// stored. It depends on nothing but the weight's type, so that decode and
// prefill share one copy.
func (d *Device) packing(n *graph.Node) *backends.Packing {
	switch n.Op {
	case ops.Linear, ops.LinearBias, ops.LinearResidual, ops.LinearID:
	default:
		return nil
	}
	w := n.In[1]
	if w.Kind != graph.Weight || len(w.Shape) < 2 || !simd.Packable(w.Type) || d.exact && simd.RoundsActivations(w.Type) {
		return nil
	}
	return &backends.Packing{
		ID:   simd.PanelLayout + "/" + w.Type.String(),
		Size: packedSize,
		Pack: pack,
		Unit: simd.PanelRows,
	}
}

// matrices gives how many matrices a tensor holds, and the size of each.
func matrices(shape tensor.Shape) (count, rows, cols int) {
	rows, cols = shape[len(shape)-2], shape.Last()
	return shape[:len(shape)-2].Elems(), rows, cols
}

// packedSize is the size of a tensor in panels; no panel has rows of two matrices.
func packedSize(t tensor.Type, shape tensor.Shape) int {
	count, rows, cols := matrices(shape)
	return count * simd.PanelCount(rows) * simd.PanelBytes(t, cols)
}

// pack packs the panels whose first row is in [from, to), counting the rows of
// all matrices one after another.
func pack(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error {
	count, rows, cols := matrices(shape)
	if rows == 0 {
		return nil
	}
	row, size, panels := t.RowBytes(cols), simd.PanelBytes(t, cols), simd.PanelCount(rows)
	if len(src) != count*rows*row || len(dst) < count*panels*size || from < 0 || to > count*rows {
		return fmt.Errorf("rows %d to %d of %s%v: packing %d bytes into %d, %d into %d are wanted", from, to, t, shape, len(src), len(dst), count*rows*row, count*panels*size)
	}
	for e := from / rows; e < count && e*rows < to; e++ {
		first := max(0, from-e*rows)
		for p := (first + simd.PanelRows - 1) / simd.PanelRows; p < panels && e*rows+p*simd.PanelRows < to; p++ {
			r := e*rows + p*simd.PanelRows
			in := src[r*row : min(r+simd.PanelRows, (e+1)*rows)*row]
			if err := simd.PackPanel(dst[(e*panels+p)*size:(e*panels+p+1)*size], in, t, cols); err != nil {
				return err
			}
		}
	}
	return nil
}

// panelsOf sees a packed operand as panels, those of matrix e.
func panelsOf(o *backends.Operand, e int) (*simd.Panels, error) {
	_, rows, cols := matrices(o.Shape)
	size := simd.PanelCount(rows) * simd.PanelBytes(o.Type, cols)
	b, err := hostRange(o.Buffer, o.Offset+e*size, size)
	if err != nil {
		return nil, err
	}
	m := &simd.Panels{Type: o.Type, Rows: rows, Cols: cols, Data: b}
	return m, m.Check()
}

// rounded is the memory for activations in eight bits, one for all launches.
// While a program is captured it is known what it will hold at each launch, so
// that products with the same activations round them once.
type rounded struct {
	memory []byte
	holds  *roundX          // the last region that writes it
	source backends.Operand // what that rounds
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

// roundX is the region that rounds activations to eight bits.
type roundX struct {
	d    *Device
	x    rows
	q    simd.Quants
	skip bool // a launch before this one did it
}

// bindRounding prepares the rounding of an operand into groups of rows.
func (d *Device) bindRounding(o *backends.Operand, x rows, group int) *roundX {
	h := &d.rounded
	if p := h.holds; p != nil && p.q.Group == group && p.x.n == x.n && p.x.cols == x.cols && p.x.inner == x.inner && p.x.stride == x.stride &&
		h.source.Buffer == o.Buffer && h.source.Offset == o.Offset {
		return &roundX{d: d, x: x, q: p.q, skip: true}
	}
	size := simd.QuantsLen(x.n, x.cols, group)
	if len(h.memory) < size {
		h.memory = make([]byte, size)
	}
	r := &roundX{d: d, x: x, q: simd.Quants{N: x.n, Cols: x.cols, Group: group, Data: h.memory[:size]}}
	h.holds, h.source = r, *o
	return r
}

func (r *roundX) run(p *pool.Pool) {
	if r.skip {
		return
	}
	if r.x.n == 1 { // a microsecond: not worth a region
		r.d.k.Quantise(&r.q, 0, r.x.row(0))
		return
	}
	p.Run(r, (r.x.n+7)/8)
}

func (r *roundX) Do(_, chunk int) {
	for i := 8 * chunk; i < min(8*chunk+8, r.x.n); i++ {
		r.d.k.Quantise(&r.q, i, r.x.row(i))
	}
}
