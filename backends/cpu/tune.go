package cpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// Variants of products: how much a chunk takes, and whether mat-vecs ask for
// weights ahead. They change speed only. A variant is "key=value" pairs:
//
//	far=lines,chunk=1024 one row of activations: simd.Far, KiB of weights in a chunk
//	panels=8,rows=512    the matrix unit: panels of weights and rows of activations in a chunk
//	panels=4             other products over panels of block formats, or of bf16 by its dot products
//	rows=128             products in f32: rows of weights in a chunk
type variant struct {
	far                 simd.Far
	chunk, panels, rows int
}

func (v variant) String() string {
	switch {
	case v.chunk > 0:
		return fmt.Sprintf("far=%s,chunk=%d", v.far, v.chunk>>10)
	case v.panels > 0 && v.rows > 0:
		return fmt.Sprintf("panels=%d,rows=%d", v.panels, v.rows)
	case v.panels > 0:
		return fmt.Sprintf("panels=%d", v.panels)
	}
	return fmt.Sprintf("rows=%d", v.rows)
}

// variants gives those of a node, the default first.
func (d *Device) variants(n *graph.Node) []variant {
	switch n.Op {
	case ops.Linear, ops.LinearBias, ops.LinearResidual:
	default:
		return nil
	}
	w, rows := n.In[1], n.In[0].Shape.Rows()
	if d.packing(n) == nil || n.In[0].Type != d.info.Float {
		return nil
	}
	block := simd.RoundsActivations(w.Type)
	switch {
	case rows == 0:
		return nil
	case block && rows == 1 || !block && rows <= matVecRows:
		far := d.k.Far()
		all := []variant{{far: far, chunk: chunkBytes}}
		if d.pool.Size() > 1 { // else all is one chunk
			all = append(all, variant{far: far, chunk: chunkBytes / 4}, variant{far: far, chunk: 4 * chunkBytes})
		}
		for _, other := range d.k.Fars() {
			if other != far {
				all = append(all, variant{far: other, chunk: chunkBytes})
			}
		}
		return all
	case d.onUnit(rows):
		return []variant{{panels: simd.UnitPanels, rows: unitRows}, {panels: simd.UnitPanels / 2, rows: unitRows},
			{panels: simd.UnitPanels / 4, rows: unitRows}, {panels: simd.UnitPanels, rows: unitRows / 2}}
	case block || d.bf16Dots(w.Type):
		return []variant{{panels: chunkPanels}, {panels: chunkPanels / 2}, {panels: 2 * chunkPanels},
			{panels: 4 * chunkPanels}}
	}
	tile := d.k.TileRows()
	return []variant{{rows: tile}, {rows: tile / 4}, {rows: tile / 2}, {rows: 2 * tile}}
}

// Variants names the configurations of a node's kernel, the default first.
func (d *Device) Variants(n *graph.Node) []string {
	var names []string
	for _, v := range d.variants(n) {
		names = append(names, v.String())
	}
	return names
}

// Choose sets what is asked for a node's variant whenever Kernel is called.
func (d *Device) Choose(f func(n *graph.Node) string) { d.choose = f }

// chosen gives the variant of a node, and its name where that is not the default.
func (d *Device) chosen(n *graph.Node) (v variant, name string, err error) {
	if d.choose != nil {
		name = d.choose(n)
	}
	all := d.variants(n)
	if name == "" {
		if len(all) > 0 {
			v = all[0]
		}
		return v, "", nil
	}
	names := d.Variants(n)
	i := slices.Index(names, name)
	if i < 0 {
		return v, "", fmt.Errorf("%v: the kernel has no variant %q; it has %s", n, name, strings.Join(names, ", "))
	}
	if i == 0 {
		name = ""
	}
	return all[i], name, nil
}
