//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"slices"

	"greta/backends"
	"greta/graph"
	"greta/ops"
	"greta/tensor"
)

// matrixVariant is a configuration of matrix.comp: its module, rows of x and of w in a
// tile, and the subgroups of a workgroup.
type matrixVariant struct {
	name       string
	module     int
	rows, cols int
	subgroups  int
}

// The first is the default for many rows.
var matrixVariants = []matrixVariant{
	{"tile=128", 128, 128, 128, 8},
	{"tile=128x192", 192, 128, 192, 8}, // of f16
	{"tile=64", 64, 64, 64, 4},
}

// wideTiles is the number of tiles of 128x192 from which on they are faster than more of
// 128x128: in products beside which others run, so that all units have some at any time.
const wideTiles = 64

// nvidia is the vendor on whose card that was measured; AMD's compiler spills registers of the wide tiles.
const nvidia = 0x10de

// wideShared is the bytes of shared memory of their workgroups.
const wideShared = (128 + 192) * 9 * 16

// Variants names the configurations of a node's kernel, the default first.
func (d *Device) Variants(n *graph.Node) []string {
	if !d.on.matrix || d.core().size != 16 || !isProduct(n) || !d.takesMatrix(n.In[1].Type, n.In[0].Shape.Rows()) {
		return nil
	}
	var names []string
	for _, v := range matrixVariants {
		if v.module != 192 || n.In[1].Type == tensor.F16 && d.p.Shared >= wideShared {
			names = append(names, v.name)
		}
	}
	rows := n.In[0].Shape.Rows()
	switch {
	case rows <= 64: // large tiles would be half empty
		slices.Reverse(names)
	case len(names) == 3 && d.p.vendor == nvidia && n.Op != ops.LinearResidual && (rows+127)/128*((n.In[1].Shape.Rows()+191)/192) >= wideTiles:
		names[0], names[1] = names[1], names[0]
	}
	return names
}

// Choose sets what is asked for a node's variant.
func (d *Device) Choose(f func(n *graph.Node) string) { d.chosen = f }

// variantOf is a node's variant, nil where it has none.
func (d *Device) variantOf(n *graph.Node) (*matrixVariant, error) {
	list := d.Variants(n)
	if len(list) == 0 {
		return nil, nil
	}
	name := list[0]
	if d.chosen != nil {
		if v := d.chosen(n); v != "" {
			name = v
		}
	}
	if !slices.Contains(list, name) {
		return nil, fmt.Errorf("vulkan: %v has no variant %q; there are %v", n, name, list)
	}
	return &matrixVariants[slices.IndexFunc(matrixVariants, func(v matrixVariant) bool { return v.name == name })], nil
}

var _ backends.Tunable = (*Device)(nil)
