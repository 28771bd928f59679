package ops

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// LinearID applies to each token the linears of its experts: x [S, A, K], w [E, N,
// K], e i32[S, U], b [E, N] gives y [S, U, N] with y[s,u] = w[e[s,u]] x[s,a] + b[e[s,u]].
// A is 1, one input for all of a token's experts, or U, one for each. An expert outside
// [0, E) is an error.
var LinearID = &graph.Op{
	Name:    "linear_id",
	Doc:     "y[s,u] = w[e[s,u]]·x[s,u] + b[e[s,u]]; x may have one row for all u",
	Sig:     graph.MustSig("(x: T[S, A, K], w: W[E, N, K], e: i32[S, U], b?: V[E, N]) -> (y: float[S, U, N])"),
	RowWise: true,
	Check: func(n *graph.Node) error {
		if x, e := n.In[0], n.In[2]; x.Shape[1] != 1 && x.Shape[1] != e.Shape[1] {
			return fmt.Errorf("%s must have 1 row a token, or %d as %s has", x, e.Shape[1], e)
		}
		return nil
	},
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, w, b, y := in[0].F64(), in[1].F64(), floats(in, 3), out[0].F64()
		a, k := in[0].Shape[1], in[0].Shape[2]
		count, n, u := in[1].Shape[0], in[1].Shape[1], in[2].Shape[1]
		for i, id := range in[2].I32() { // i is s*u + the expert's place
			if err := inRange("e", i, id, count); err != nil {
				return err
			}
			from := i / u
			if a == u {
				from = i
			}
			for j := range n {
				at := int(id)*n + j
				v := dot(w[at*k:(at+1)*k], x[from*k:(from+1)*k])
				if b != nil {
					v += b[at]
				}
				y[i*n+j] = v
			}
		}
		return nil
	},
	// Only chosen experts are read, each once at the least.
	Cost: func(n *graph.Node, _ int) graph.Cost {
		x, w, e, b := n.In[0], n.In[1], n.In[2], operand(n, 3)
		chosen := min(elems(e), float64(w.Shape[0]))
		c := graph.Cost{
			Flops: 2 * elems(e) * float64(w.Shape[1]*w.Shape[2]),
			Read:  float64(x.Bytes()+e.Bytes()) + chosen*rowBytes(w),
			Write: float64(n.Out[0].Bytes()),
		}
		if b != nil {
			c.Flops += elems(n.Out[0])
			c.Read += chosen * rowBytes(b)
		}
		return c
	},
}
