package ops

import (
	"math"

	"github.com/greta-project/greta/graph"
)

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

// SiLU is y = x / (1 + exp(-x)), also called Swish (Elfwing et al., arXiv 1702.03118).
var SiLU = &graph.Op{
	Name:    "silu",
	Doc:     "y = x / (1 + exp(-x))",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Ref:     elementwise(func(v float64) float64 { return v * sigmoid(v) }),
	Cost:    perElement(4),
}

// SwiGLU gates u by silu(g), both [..., N] (Shazeer, arXiv 2002.05202).
var SwiGLU = &graph.Op{
	Name:    "swiglu",
	Doc:     "y = silu(g) · u",
	Sig:     graph.MustSig("(g: T[*, N], u: T[*, N]) -> (y: float[*, N])"),
	RowWise: true,
	Body:    "y: silu(g) * u",
	Cost:    perElement(5),
}
