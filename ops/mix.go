package ops

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Mix sums what a token's experts gave: x [S, U, N], p [S, U] gives y [S, N] with
// y[s] = Σu p[s,u] x[s,u].
var Mix = &graph.Op{
	Name:    "mix",
	Doc:     "y[s] = Σu p[s,u]·x[s,u]",
	Sig:     graph.MustSig("(x: T[S, U, N], p: T[S, U]) -> (y: float[S, N])"),
	RowWise: true,
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, y, n := in[0].F64(), out[0].F64(), in[0].Shape[2]
		u := in[0].Shape[1]
		clear(y)
		for i, p := range in[1].F64() { // i is s*u + the expert's place
			row := y[i/u*n : (i/u+1)*n]
			for j, v := range x[i*n : (i+1)*n] {
				row[j] += p * v
			}
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost { return whole(n, 2*elems(n.In[0])) },
}
