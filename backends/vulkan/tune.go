//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// matrixVariant is a configuration of matrix.comp or regdecode.comp: its module, rows of x and of w in a
// tile, and the subgroups of a workgroup.
type matrixVariant struct {
	name       string
	module     string
	rows, cols int
	subgroups  int
	halves     bool // its module multiplies a range of columns of w (splitk.go)
	grouped    bool // and rows by groups (experts.go)
}

// The first is the default for many rows.
var matrixVariants = []matrixVariant{
	{"tile=128", "matrix_%s_128", 128, 128, 8, false, false},
	{wideTile, "matrix_%s_192", 128, 192, 8, false, false}, // of f16 and bf16
	{regDecodeTile, "regdecode_%s", 128, 256, 8, true, false},
	{"tile=64", "matrix_%s_64", 64, 64, 4, false, true},
}

// softwareTile is what software devices have in their place.
var softwareTile = &matrixVariant{module: "matrix_%s_32", rows: 32, cols: 32, subgroups: 4, halves: true,
	grouped: true}

// narrower are the tiles that take what is left of products in others (splitk.go); software
// devices, whose rounds only tests count, have one kind.
var narrower = map[string]*matrixVariant{
	wideTile: &matrixVariants[0],
	"":       softwareTile,
}

const wideTile, regDecodeTile = "tile=128x192", "regdecode=128x256"

// wideTiles is the number of tiles of 128x192 from which on they are faster than more of
// 128x128: in products beside which others run, so that all units have some at any time.
const wideTiles = 64

// regDecodeShared is the bytes of shared memory of its workgroups.
const regDecodeShared = 2*128*9*16 + 4*128

// regDecodeTiles is the number of its tiles from which on it is faster: where they keep all units busy by themselves;
// halvedTiles that from which on halves of them do (splitk.go).
const regDecodeTiles, halvedTiles = 128, 64

// regDecodeHalves are the formats of whose products halves are faster than more tiles of 128x128:
// where nothing runs beside, and, if true, also where other products do.
var regDecodeHalves = map[tensor.Type]bool{tensor.Q4_0: false, tensor.Q4_K: true, tensor.Q8_0: true}

// nvidia is the vendor on whose card that was measured; AMD's compiler spills registers of the wide tiles.
const nvidia = 0x10de

// tileShared is the bytes of shared memory of the first's workgroups, wideShared of the second's.
const tileShared, wideShared = (128+128)*9*16 + 4*128, (128+192)*9*16 + 4*128

// Variants names the configurations of a node's kernel, the default first.
func (d *Device) Variants(n *graph.Node) []string {
	if d.core().size != 16 || !isProduct(n) {
		return nil
	}
	n = d.like(n)
	w := n.In[1].Type
	on, plain := d.on.matrix, w == tensor.F16
	if d.on.bfloat && d.takesBFloats(w, n.In[0].Shape.Rows()) {
		on, plain = true, true
	} else if !d.takesMatrix(w, n.In[0].Shape.Rows()) {
		return nil
	}
	var names []string
	for _, v := range matrixVariants {
		var has bool
		switch v.name {
		case regDecodeTile:
			has = d.on.regDecode && d.takesRegDecode(n.In[1].Type, n.In[1].Shape.Last(), n.In[0].Shape.Rows())
		case wideTile:
			has = on && plain && d.p.Shared >= wideShared
		default:
			has = on && (v.rows < 128 || d.p.Shared >= tileShared)
		}
		if has {
			names = append(names, v.name)
		}
	}
	rows, tiles := n.In[0].Shape.Rows(), func(cols int) int {
		return (n.In[0].Shape.Rows() + 127) / 128 * ((n.In[1].Shape.Rows() + cols - 1) / cols)
	}
	first := ""
	switch {
	case rows <= 64: // large tiles would be half empty
		slices.Reverse(names)
	case slices.Contains(names, regDecodeTile) && d.takesHalves(n, tiles(256)):
		first = regDecodeTile
	case n.Op == ops.LinearResidual:
	case slices.Contains(names, regDecodeTile) && tiles(256) >= regDecodeTiles:
		first = regDecodeTile
	case d.p.vendor == nvidia && tiles(192) >= wideTiles && slices.Contains(names, wideTile):
		first = wideTile
	}
	if i := slices.Index(names, first); i > 0 {
		names[0], names[i] = names[i], names[0]
	}
	return names
}

// like is the product that a product's variant is chosen for.
func (d *Device) like(n *graph.Node) *graph.Node {
	if d.opt.Invariant && isProduct(n) {
		return backends.WithRows(n, backends.InvariantRows)
	}
	return n
}

// takesHalves says whether a product of so many tiles of regdecode.comp is faster by halves of them
// than by other tiles.
func (d *Device) takesHalves(n *graph.Node, tiles int) bool {
	beside, takes := regDecodeHalves[n.In[1].Type]
	return takes && d.units > 0 && tiles >= halvedTiles && n.In[1].Shape.Last() >= 2*halfColumns &&
		(beside || n.Op == ops.LinearResidual)
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
		if v := d.chosen(d.like(n)); v != "" {
			name = v
		}
	}
	if !slices.Contains(list, name) {
		return nil, fmt.Errorf("vulkan: %v has no variant %q; there are %v", n, name, list)
	}
	for i := range matrixVariants {
		if matrixVariants[i].name == name {
			return &matrixVariants[i], nil
		}
	}
	return nil, nil // not reached: the list is of these
}

var _ backends.Tunable = (*Device)(nil)
