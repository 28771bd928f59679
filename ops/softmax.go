package ops

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Softmax normalises each row of the last dimension: y = exp(x - max) / Σ exp(x - max).
var Softmax = &graph.Op{
	Name:    "softmax",
	Doc:     "y = exp(x - max(x)) / Σ exp(x - max(x))",
	Sig:     graph.MustSig("(x: T[*, N]) -> (y: float[*, N])"),
	RowWise: true,
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		y, n := out[0].F64(), in[0].Shape.Last()
		copy(y, in[0].F64())
		for at := 0; at < len(y); at += n {
			softmax(y[at : at+n])
		}
		return nil
	},
	Cost: perElement(4),
}
