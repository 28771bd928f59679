//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"slices"

	"github.com/greta-project/greta/ops"
)

// Functions of single elements that models state by name: general.comp.

// generalFunctions are those of general.comp, as it numbers them.
var generalFunctions = []string{"relu", "relu2", "exp", "log", "tanh", "softplus", "sqrt", "reciprocal", "abs", "floor",
	"affine", "clamp", "pow"}

func bindGeneral(b *bind) error {
	n := b.l.Node
	p, q := ops.UnaryParams(n)
	c := b.call("general")
	x, z := b.floats(c, &b.l.In[0], false), b.floats(c, &b.l.Out[0], true)
	count := z.n * z.cols
	c.spec = []uint32{workgroup, uint32(slices.Index(generalFunctions, n.Op.Name))}
	c.push = []uint32{count, z.cols, z.inner, x.off, x.stride, z.off, z.stride, bits(p), bits(q)}
	b.run(c, groups(int(count), workgroup), 1)
	return nil
}
