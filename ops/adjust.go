package ops

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Adjust changes some numbers of rows of logits, as penalties for tokens that came and biases do: x [R, V], tokens
// i32[R, N], by [R, N] and plus [R, N] give y [R, V], which is x but for the tokens that a row names,
//
//	y[r, v] = x[r, v] / by[r, i] + plus[r, i]   for v = tokens[r, i], where x[r, v] > 0
//	y[r, v] = x[r, v] by[r, i] + plus[r, i]     where it is not
//
// A row names a token once at most; what is no number of a token, such as −1, names none. by is the repetition penalty
// (Keskar et al., "CTRL", arXiv 1909.05858), 1 for none; plus is a bias less frequency and presence penalties.
var Adjust = &graph.Op{
	Name: "adjust",
	Doc:  "y = x; of the tokens named x / by + plus where x > 0, x by + plus elsewhere",
	Sig:  graph.MustSig("(x: T[R, V], tokens: i32[R, N], by: T[R, N], plus: T[R, N]) -> (y: float[R, V])"),
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, tokens, by, plus, y := in[0].F64(), in[1].I32(), in[2].F64(), in[3].F64(), out[0].F64()
		cols, n := in[0].Shape.Last(), in[1].Shape.Last()
		for r := range in[0].Shape[0] {
			of := func(list []float64) []float64 { return list[r*n : (r+1)*n] }
			AdjustRow(y[r*cols:(r+1)*cols], x[r*cols:], tokens[r*n:(r+1)*n], of(by), of(plus))
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost {
		return whole(n, 2*elems(n.In[1]))
	},
}

// AdjustRow is Adjust of a row.
func AdjustRow[F float32 | float64](y, x []F, tokens []int32, by, plus []F) {
	copy(y, x)
	for i, v := range tokens {
		switch {
		case v < 0 || int(v) >= len(y):
		case x[v] > 0:
			y[v] = x[v]/by[i] + plus[i]
		default:
			y[v] = F(x[v]*by[i]) + plus[i]
		}
	}
}
