//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"slices"

	"greta/backends"
	"greta/graph"
)

// matrixVariant is a configuration of matrix.comp: its module, the size of its
// tiles, and the subgroups of a workgroup.
type matrixVariant struct {
	name            string
	module          int
	tile, subgroups int
}

// The first is the default for many rows.
var matrixVariants = []matrixVariant{
	{"tile=128", 128, 128, 8},
	{"tile=64", 64, 64, 4},
}

// Variants names the configurations of a node's kernel, the default first.
func (d *Device) Variants(n *graph.Node) []string {
	if !d.on.matrix || d.core().size != 16 || !isProduct(n) || !d.takesMatrix(n.In[1].Type, n.In[0].Shape.Rows()) {
		return nil
	}
	var names []string
	for _, v := range matrixVariants {
		names = append(names, v.name)
	}
	if n.In[0].Shape.Rows() <= 64 { // large tiles would be half empty
		slices.Reverse(names)
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
