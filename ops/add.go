package ops

import (
	"fmt"

	"greta/graph"
	"greta/tensor"
)

// Add sums two tensors: x [..., N], and y of the same shape or [N], which is
// then added to every row.
var Add = binary("add", "z = x + y; y has x's shape or that of its rows", func(a, b float64) float64 { return a + b })

// Mul multiplies element by element, with operands as Add has them.
var Mul = binary("mul", "z = x · y; y has x's shape or that of its rows", func(a, b float64) float64 { return a * b })

func binary(name, doc string, f func(a, b float64) float64) *graph.Op {
	return &graph.Op{
		Name:    name,
		Doc:     doc,
		Sig:     graph.MustSig("(x: T[*A, N], y: U[*B, N]) -> (z: float[*A, N])"),
		RowWise: true,
		Check: func(n *graph.Node) error {
			x, y := n.In[0], n.In[1]
			if len(y.Shape) != 1 && !y.Shape.Equal(x.Shape) {
				return fmt.Errorf("%s must have the shape of %s, or only its last dimension", y, x)
			}
			return plainFloat("y", y)
		},
		Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
			x, y, z := in[0].F64(), in[1].F64(), out[0].F64()
			for i, v := range x {
				z[i] = f(v, y[i%len(y)])
			}
			return nil
		},
		Cost: perElement(1),
	}
}
