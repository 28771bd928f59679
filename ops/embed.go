package ops

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Embed looks up a row per token: ids i32[S], w [V, D] gives y [S, D] with
// y[s] = w[ids[s]]. An id outside [0, V) is an error.
var Embed = &graph.Op{
	Name:    "embed",
	Doc:     "y[s] = w[ids[s]]",
	Sig:     graph.MustSig("(ids: i32[S], w: W[V, D]) -> (y: float[S, D])"),
	RowWise: true,
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		w, y := in[1].F64(), out[0].F64()
		v, d := in[1].Shape[0], in[1].Shape[1]
		for s, id := range in[0].I32() {
			if err := inRange("ids", s, id, v); err != nil {
				return err
			}
			copy(y[s*d:(s+1)*d], w[int(id)*d:])
		}
		return nil
	},
	// Only the rows that are looked up are read.
	Cost: func(n *graph.Node, _ int) graph.Cost {
		rows := elems(n.In[0])
		return graph.Cost{Read: float64(n.In[0].Bytes()) + rows*rowBytes(n.In[1]), Write: float64(n.Out[0].Bytes())}
	},
}
