//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"slices"

	"greta/backends"
	"greta/graph"
)

// The sizes of matrix.comp's tiles that can be chosen from, by name.
var matrixTiles = map[string]int{"tile=128": 128, "tile=64": 64}

// Variants names the configurations of a node's kernel, the default first.
func (d *Device) Variants(n *graph.Node) []string {
	if !d.on.matrix || d.core().size != 16 || !isLinear(n) || !d.takesMatrix(n.In[1].Type, n.In[0].Shape.Rows()) {
		return nil
	}
	if n.In[0].Shape.Rows() <= 64 {
		return []string{"tile=64", "tile=128"}
	}
	return []string{"tile=128", "tile=64"}
}

// Choose sets what is asked for a node's variant.
func (d *Device) Choose(f func(n *graph.Node) string) { d.chosen = f }

// tileOf is the tile size of a node's variant, 0 where it has none.
func (d *Device) tileOf(n *graph.Node) (int, error) {
	list := d.Variants(n)
	if len(list) == 0 {
		return 0, nil
	}
	name := list[0]
	if d.chosen != nil {
		if v := d.chosen(n); v != "" {
			name = v
		}
	}
	if !slices.Contains(list, name) {
		return 0, fmt.Errorf("vulkan: %v has no variant %q; there are %v", n, name, list)
	}
	return matrixTiles[name], nil
}

var _ backends.Tunable = (*Device)(nil)
