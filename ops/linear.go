package ops

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Linear multiplies by a weight that is stored row by output: x [..., K],
// w [N, K], b [N] gives y [..., N] with y[n] = sum over k of w[n][k] x[k], plus b[n].
var Linear = &graph.Op{
	Name:    "linear",
	Doc:     "y[n] = Σk w[n,k]·x[k] + b[n]",
	Sig:     graph.MustSig("(x: T[*, K], w: W[N, K], b?: V[N]) -> (y: float[*, N])"),
	RowWise: true,
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, w, b, y := in[0].F64(), in[1].F64(), floats(in, 2), out[0].F64()
		n, k := in[1].Shape[0], in[1].Shape[1]
		for r := range in[0].Shape.Rows() {
			for i := range n {
				v := dot(w[i*k:(i+1)*k], x[r*k:(r+1)*k])
				if b != nil {
					v += b[i]
				}
				y[r*n+i] = v
			}
		}
		return nil
	},
	Cost: linearCost,
}

// linearCost serves every operator with x at 0 and w at 1: two operations
// per weight and row, one more per output for a bias or a residual.
func linearCost(n *graph.Node, _ int) graph.Cost {
	flops := 2 * float64(n.In[0].Shape.Rows()) * elems(n.In[1])
	for _, v := range n.In[2:] {
		if v != nil {
			flops += elems(n.Out[0])
		}
	}
	return whole(n, flops)
}

// IsProduct says whether an operator multiplies activations, its operand 0, with a matrix of weights or one of
// a stack of them, its operand 1.
func IsProduct(op *graph.Op) bool {
	switch op {
	case Linear, LinearBias, LinearResidual, LinearScaled, LinearScaledBias, LinearScaledResidual, LinearID:
		return true
	}
	return false
}

// LinearBias is a linear whose bias a model file adds behind it.
var LinearBias = &graph.Op{
	Name:    "linear_bias",
	Doc:     "y = linear(x, w) + b",
	Sig:     graph.MustSig("(x: T[*, K], w: W[N, K], b: V[N]) -> (y: float[*, N])"),
	RowWise: true,
	Body:    "y: linear(x, w) + b",
	Cost:    linearCost,
}

// LinearResidual adds a linear to the stream r [..., N] that it came from. r
// comes third, so that x and w stand where linear has them.
var LinearResidual = &graph.Op{
	Name:    "linear_residual",
	Doc:     "y = r + linear(x, w, b)",
	Sig:     graph.MustSig("(x: T[*, K], w: W[N, K], r: R[*, N], b?: V[N]) -> (y: float[*, N])"),
	RowWise: true,
	Check:   func(n *graph.Node) error { return plainFloat("r", n.In[2]) },
	Body:    "y: r + linear(x, w, b)",
	Cost:    linearCost,
}

// LinearScaled is a linear whose weight has a factor for each of its rows, as
// checkpoints in 8-bit floats have: s [N], w's numbers are w[n][k] s[n].
var LinearScaled = &graph.Op{
	Name:    "linear_scaled",
	Doc:     "y = linear(x, w) * s",
	Sig:     graph.MustSig("(x: T[*, K], w: W[N, K], s: S[N]) -> (y: float[*, N])"),
	RowWise: true,
	Body:    "y: linear(x, w) * s",
	Cost:    linearCost,
}

// LinearScaledResidual adds a LinearScaled to the stream r [..., N] that it came from.
var LinearScaledResidual = &graph.Op{
	Name:    "linear_scaled_residual",
	Doc:     "y = r + linear(x, w) * s",
	Sig:     graph.MustSig("(x: T[*, K], w: W[N, K], s: S[N], r: R[*, N]) -> (y: float[*, N])"),
	RowWise: true,
	Check:   func(n *graph.Node) error { return plainFloat("r", n.In[3]) },
	Body:    "y: r + linear(x, w) * s",
	Cost:    linearCost,
}

// LinearScaledBias is a LinearScaled whose bias comes behind the factors.
var LinearScaledBias = &graph.Op{
	Name:    "linear_scaled_bias",
	Doc:     "y = linear(x, w) * s + b",
	Sig:     graph.MustSig("(x: T[*, K], w: W[N, K], s: S[N], b: V[N]) -> (y: float[*, N])"),
	RowWise: true,
	Body:    "y: linear(x, w) * s + b",
	Cost:    linearCost,
}
