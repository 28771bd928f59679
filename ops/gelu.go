package ops

import (
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// GELUAttr is the attribute of gelu and geglu.
type GELUAttr struct {
	Form string `attr:"form" words:"erf|tanh"`
}

// The default is the form that most families with a gelu mean: Gemma, GPT-2,
// Phi. GPT-NeoX writes form=erf.
func newGELUAttr() any { return &GELUAttr{Form: "tanh"} }

// GELU weighs x by the normal distribution (Hendrycks and Gimpel, arXiv 1606.08415):
//
//	erf:  y = x/2 (1 + erf(x/√2))
//	tanh: y = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))
var GELU = &graph.Op{
	Name:    "gelu",
	Doc:     "y = x·Φ(x): form=tanh, x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), or form=erf, x/2·(1 + erf(x/√2))",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Attr:    newGELUAttr,
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		f := geluTanh
		if graph.Attr[GELUAttr](n).Form == "erf" {
			f = geluErf
		}
		return elementwise(f)(n, in, out)
	},
	Cost: perElement(9),
}

func geluErf(v float64) float64 { return v / 2 * (1 + math.Erf(v/math.Sqrt2)) }

func geluTanh(v float64) float64 {
	return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
}

// GeGLU gates u by gelu(g), both [..., N] (Shazeer, arXiv 2002.05202).
var GeGLU = &graph.Op{
	Name:    "geglu",
	Doc:     "y = gelu(g) · u",
	Sig:     graph.MustSig("(g: T[*, N], u: T[*, N]) -> (y: float[*, N])"),
	RowWise: true,
	Attr:    newGELUAttr,
	Body:    "y: gelu(g) * u",
	Cost:    perElement(10),
}
