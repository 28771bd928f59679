package ops

import (
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Logprob is what a model thinks of tokens: x [R, V] and tokens i32[R, N] give y [R, N], the natural logarithms of the
// tokens' probabilities,
//
//	y[r, i] = x[r, v] − ln Σ_u exp x[r, u]   for v = tokens[r, i]
//
// and −∞ for what is no number of a token.
var Logprob = &graph.Op{
	Name: "logprob",
	Doc:  "y = of each token named, the logarithm of the row's softmax",
	Sig:  graph.MustSig("(x: T[R, V], tokens: i32[R, N]) -> (y: float[R, N])"),
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, tokens, y := in[0].F64(), in[1].I32(), out[0].F64()
		cols, n := in[0].Shape.Last(), in[1].Shape.Last()
		for r := range in[0].Shape[0] {
			LogprobRow(y[r*n:(r+1)*n], x[r*cols:(r+1)*cols], tokens[r*n:])
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost {
		return whole(n, 10*elems(n.In[0]))
	},
}

// LogprobRow is Logprob of a row.
func LogprobRow[F float32 | float64](y, x []F, tokens []int32) {
	top, sum := x[0], 0.0
	for _, v := range x {
		top = max(top, v)
	}
	for _, v := range x {
		sum += math.Exp(float64(v - top))
	}
	for i := range y {
		y[i] = F(math.Inf(-1))
		if v := tokens[i]; v >= 0 && int(v) < len(x) {
			y[i] = F(float64(x[v]-top) - math.Log(sum))
		}
	}
}
