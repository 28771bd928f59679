package ops

import (
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// NormAttr are the attributes of the norms.
type NormAttr struct {
	Eps float64 `attr:"eps"` // added to the mean square or variance
}

func checkEps(n *graph.Node) error { return nonNegative("eps", graph.Attr[NormAttr](n).Eps) }

// RMSNorm divides each row by its root mean square: x [..., D], w [D] gives
// y = x / sqrt(mean(x²) + eps) * w (Zhang and Sennrich, arXiv 1910.07467). Without
// w it only normalises. x [S, H, Dh] with w [Dh] is a norm per head.
var RMSNorm = &graph.Op{
	Name:    "rmsnorm",
	Doc:     "y = x / √(mean(x²) + eps) · w",
	Sig:     graph.MustSig("(x: T[*, D], w?: W[D]) -> (y: float[*, D])"),
	RowWise: true,
	Attr:    func() any { return &NormAttr{Eps: 1e-6} },
	Check:   checkEps,
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		x, w, y := in[0].F64(), floats(in, 1), out[0].F64()
		d, eps := in[0].Shape.Last(), graph.Attr[NormAttr](n).Eps
		for at := 0; at < len(x); at += d {
			row := x[at : at+d]
			r := 1 / math.Sqrt(dot(row, row)/float64(d)+eps)
			for i, v := range row {
				y[at+i] = scaled(v*r, w, i)
			}
		}
		return nil
	},
	Cost: perElement(4),
}

// scaled multiplies by w[i], or by one where there is no w.
func scaled(v float64, w []float64, i int) float64 {
	if w == nil {
		return v
	}
	return v * w[i]
}

// AddRMSNorm adds to the residual stream and normalises the sum; both are results.
var AddRMSNorm = &graph.Op{
	Name:    "add_rmsnorm",
	Doc:     "sum = x + r; y = rmsnorm(sum, w)",
	Sig:     graph.MustSig("(x: T[*, D], r: R[*, D], w?: W[D]) -> (sum: float[*, D], y: float[*, D])"),
	RowWise: true,
	Attr:    func() any { return &NormAttr{Eps: 1e-6} },
	Check: func(n *graph.Node) error {
		if err := plainFloat("r", n.In[1]); err != nil {
			return err
		}
		return checkEps(n)
	},
	Body: "sum: x + r\ny: rmsnorm(sum, w)",
	Cost: perElement(5),
}
