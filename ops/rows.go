package ops

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Rows picks rows: x [S, ...], at i32[R] gives y [R, ...] with y[r] = x[at[r]]. An
// index outside [0, S) is an error.
var Rows = &graph.Op{
	Name: "rows",
	Doc:  "y[r] = x[at[r]]",
	Sig:  graph.MustSig("(x: T[S, *], at: i32[R]) -> (y: T[R, *])"),
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, y := in[0].F64(), out[0].F64()
		row := in[0].Shape[1:].Elems()
		for r, at := range in[1].I32() {
			if err := inRange("at", r, at, in[0].Shape[0]); err != nil {
				return err
			}
			copy(y[r*row:(r+1)*row], x[int(at)*row:])
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost {
		y := float64(n.Out[0].Bytes())
		return graph.Cost{Read: y + float64(n.In[1].Bytes()), Write: y}
	},
}
