package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// ScaleAttr is the attribute of scale.
type ScaleAttr struct {
	By float64 `attr:"by,required"`
}

// Scale multiplies every element by a number: y = by * x.
var Scale = &graph.Op{
	Name:    "scale",
	Doc:     "y = by · x",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Attr:    func() any { return &ScaleAttr{} },
	Check: func(n *graph.Node) error {
		if by := graph.Attr[ScaleAttr](n).By; math.IsNaN(by) || math.IsInf(by, 0) {
			return fmt.Errorf("by=%g must be a finite number", by)
		}
		return nil
	},
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		by := graph.Attr[ScaleAttr](n).By
		return elementwise(func(v float64) float64 { return by * v })(n, in, out)
	},
	Cost: perElement(1),
}
