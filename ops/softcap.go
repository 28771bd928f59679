package ops

import (
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// SoftcapAttr is the attribute of softcap.
type SoftcapAttr struct {
	Cap float64 `attr:"cap,required"`
}

// Softcap bounds x smoothly: y = cap * tanh(x / cap) (Gemma 2's logits).
var Softcap = &graph.Op{
	Name:    "softcap",
	Doc:     "y = cap · tanh(x / cap)",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Attr:    func() any { return &SoftcapAttr{} },
	Check:   func(n *graph.Node) error { return positive("cap", graph.Attr[SoftcapAttr](n).Cap) },
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		c := graph.Attr[SoftcapAttr](n).Cap
		return elementwise(func(v float64) float64 { return c * math.Tanh(v/c) })(n, in, out)
	},
	Cost: perElement(3),
}
