package cpu

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// packing gives the layout in which a product wants its weights; nil: as
// stored. It depends on the weight and the level, not on the step, so that decode and
// prefill share one copy.
func (d *Device) packing(n *graph.Node) *backends.Packing {
	if !ops.IsProduct(n.Op) {
		return nil
	}
	w := n.In[1]
	if w.Kind != graph.Weight || len(w.Shape) < 2 || !simd.Packable(w.Type) || d.exact && simd.RoundsActivations(w.Type) {
		return nil
	}
	if d.compacts(n) {
		return &backends.Packing{ID: compactID(w.Type), Size: compactSize, Pack: packCompact, Unit: simd.PanelRows}
	}
	return &backends.Packing{
		ID:   simd.PanelLayout(w.Type),
		Size: packedSize,
		Pack: pack,
		Unit: simd.PanelRows,
	}
}

// compacts says whether a product's weights, which are packed, go into compact panels. Those of F16 take so much
// arithmetic that memory has to be kept busy meanwhile: they win on Zen 5, where every line is
// asked for, lose on Zen 4, and are left out elsewhere. Experts' products of several rows expand no
// F16.
func (d *Device) compacts(n *graph.Node) bool {
	w := n.In[1]
	if w.Type == tensor.F16 && (d.k.Far() != simd.FarAll || n.Op == ops.LinearID) {
		return false
	}
	return d.k.Compacts(w.Type, w.Shape.Last())
}

// compactID names the layout of compact panels.
func compactID(t tensor.Type) string { return simd.CompactLayout + "/" + t.String() }

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

// compactSize is the size of a tensor in compact panels.
func compactSize(t tensor.Type, shape tensor.Shape) int {
	count, rows, cols := matrices(shape)
	return count * simd.CompactBytes(t, rows, cols)
}

// pack packs the panels whose first row is in [from, to), counting the rows of
// all matrices one after another.
func pack(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error {
	_, rows, cols := matrices(shape)
	size, panels := simd.PanelBytes(t, cols), simd.PanelCount(rows)
	return eachPanel(dst, src, t, shape, from, to, packedSize(t, shape), func(e, p int, in []byte) error {
		return simd.PackPanel(dst[(e*panels+p)*size:(e*panels+p+1)*size], in, t, cols)
	})
}

// packCompact is pack for compact panels.
func packCompact(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error {
	_, rows, cols := matrices(shape)
	size, scratch := simd.CompactBytes(t, rows, cols), make([]byte, simd.PanelBytes(t, cols))
	return eachPanel(dst, src, t, shape, from, to, compactSize(t, shape), func(e, p int, in []byte) error {
		m, err := simd.CompactPanels(t, rows, cols, dst[e*size:(e+1)*size])
		if err != nil {
			return err
		}
		return m.PackCompact(p, in, scratch)
	})
}

// eachPanel calls f with the rows of each panel whose first row is in [from, to): panel p of matrix e.
func eachPanel(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to, size int,
	f func(e, p int, in []byte) error) error {
	count, rows, cols := matrices(shape)
	if rows == 0 {
		return nil
	}
	row := t.RowBytes(cols)
	if len(src) != count*rows*row || len(dst) < size || from < 0 || to > count*rows {
		return fmt.Errorf("rows %d to %d of %s%v: packing %d bytes into %d, %d into %d are wanted", from, to, t, shape,
			len(src), len(dst), count*rows*row, size)
	}
	for e := from / rows; e < count && e*rows < to; e++ {
		first := max(0, from-e*rows)
		for p := (first + simd.PanelRows - 1) / simd.PanelRows; p*simd.PanelRows < rows && e*rows+p*simd.PanelRows < to; p++ {
			r := e*rows + p*simd.PanelRows
			if err := f(e, p, src[r*row:min(r+simd.PanelRows, (e+1)*rows)*row]); err != nil {
				return err
			}
		}
	}
	return nil
}

// panelsOf sees a packed operand as panels, those of matrix e.
func panelsOf(o *backends.Operand, e int) (*simd.Panels, error) {
	_, rows, cols := matrices(o.Shape)
	compact := o.Packing == compactID(o.Type)
	size := simd.PanelCount(rows) * simd.PanelBytes(o.Type, cols)
	if compact {
		size = simd.CompactBytes(o.Type, rows, cols)
	}
	b, err := hostRange(o.Buffer, o.Offset+e*size, size)
	if err != nil {
		return nil, err
	}
	if compact {
		return simd.CompactPanels(o.Type, rows, cols, b)
	}
	m := &simd.Panels{Type: o.Type, Rows: rows, Cols: cols, Data: b}
	return m, m.Check()
}
