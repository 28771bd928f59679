package ops

import (
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// LayerNorm takes off each row's mean and divides by its deviation: x [..., D],
// w [D], b [D] gives y = (x - mean) / sqrt(variance + eps) * w + b, the variance
// over D and not D-1 (Ba et al., arXiv 1607.06450).
var LayerNorm = &graph.Op{
	Name:    "layernorm",
	Doc:     "y = (x - mean(x)) / √(var(x) + eps) · w + b",
	Sig:     graph.MustSig("(x: T[*, D], w?: W[D], b?: V[D]) -> (y: float[*, D])"),
	RowWise: true,
	Attr:    func() any { return &NormAttr{Eps: 1e-5} },
	Check:   checkEps,
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		x, w, b, y := in[0].F64(), floats(in, 1), floats(in, 2), out[0].F64()
		d, eps := in[0].Shape.Last(), graph.Attr[NormAttr](n).Eps
		for at := 0; at < len(x); at += d {
			row := x[at : at+d]
			mean, variance := 0.0, 0.0
			for _, v := range row {
				mean += v
			}
			mean /= float64(d)
			for _, v := range row {
				variance += (v - mean) * (v - mean)
			}
			r := 1 / math.Sqrt(variance/float64(d)+eps)
			for i, v := range row {
				y[at+i] = scaled((v-mean)*r, w, i)
				if b != nil {
					y[at+i] += b[i]
				}
			}
		}
		return nil
	},
	Cost: perElement(8),
}
