package hip

import (
	"github.com/greta-project/greta/ops"
)

// Functions of single elements that models state by name.

var generalFile = newProgram("general.hip")

// generalFunctions are the kernels of general.hip by operator. Names of C's library have another there.
var generalFunctions = map[string]string{
	"relu": "relu", "relu2": "relu2", "exp": "exp_of", "log": "log_of", "tanh": "tanh_of", "softplus": "softplus",
	"reciprocal": "reciprocal", "abs": "abs_of", "floor": "floor_of", "affine": "affine", "clamp": "clamp_of",
	"sqrt": "sqrt_of", "pow": "pow_of",
}

func init() {
	for name := range generalFunctions {
		table[name] = only("general", pairwise, bindGeneral)
	}
}

func bindGeneral(b *binder) {
	n, x := b.l.Node, b.in(0)
	p, q := ops.UnaryParams(n)
	count := x.Shape.Elems()
	row, stride := spread(x)
	b.start(generalFile, generalFunctions[n.Op.Name], 256, ceil(count, 256), 1, 1).
		ptr(b.out(0), b.pointer(x)).u32(count, row, stride).f32(p).f32(q)
}

// flagged passes a condition.
func flagged(on bool) int {
	if on {
		return 1
	}
	return 0
}
