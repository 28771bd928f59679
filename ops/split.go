package ops

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// SplitAttr is the attribute of split.
type SplitAttr struct {
	Sizes []int `attr:"sizes,required"`
}

// Split cuts the last dimension in ranges: x [..., N] gives a tensor [..., size]
// for each of sizes, which sum to N. The results lie in x's memory where a row
// stride can express that: when x has at most two dimensions.
var Split = &graph.Op{
	Name:    "split",
	Doc:     "y0, y1, … = consecutive ranges of x's last dimension",
	Sig:     graph.MustSig("(x: T[*, N]) -> (y: T[*, N])"),
	Kind:    graph.View,
	RowWise: true,
	Attr:    func() any { return &SplitAttr{} },
	Results: func(n *graph.Node) ([]graph.Result, error) {
		x, sizes := n.In[0], graph.Attr[SplitAttr](n).Sizes
		var results []graph.Result
		rest := x.Shape.Last()
		for _, size := range sizes {
			if size <= 0 || size > rest {
				return nil, splitError(sizes, x)
			}
			rest -= size
			shape := append(tensor.Shape(nil), x.Shape...)
			shape[len(shape)-1] = size
			results = append(results, graph.Result{Type: x.Type, Shape: shape})
		}
		if rest != 0 {
			return nil, splitError(sizes, x)
		}
		return results, nil
	},
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, n := in[0].F64(), in[0].Shape.Last()
		at := 0
		for _, o := range out {
			y, size := o.F64(), o.Shape.Last()
			for r := range o.Shape.Rows() {
				copy(y[r*size:(r+1)*size], x[r*n+at:])
			}
			at += size
		}
		return nil
	},
	Cost: func(*graph.Node, int) graph.Cost { return graph.Cost{} },
}

func splitError(sizes []int, x *graph.Value) error {
	return fmt.Errorf("sizes=%v must be positive and sum to the last size, %d, of %s", tensor.Shape(sizes), x.Shape.Last(),
		x)
}
