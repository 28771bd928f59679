package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// ViewAttr is the attribute of view.
type ViewAttr struct {
	Shape []int `attr:"shape,required"`
}

// View sees a tensor's elements, in their order, under another shape of as
// many elements. Model files write it "x as [S, H, Dh]".
var View = &graph.Op{
	Name: "view",
	Doc:  "y = x's elements as shape",
	Sig:  graph.MustSig("(x: any[*]) -> (y: any[*])"),
	Kind: graph.View,
	Attr: func() any { return &ViewAttr{} },
	Results: func(n *graph.Node) ([]graph.Result, error) {
		x, shape := n.In[0], tensor.Shape(graph.Attr[ViewAttr](n).Shape)
		count := 1
		for _, d := range shape {
			if d <= 0 || count > math.MaxInt/d {
				return nil, fmt.Errorf("the sizes of %v must be positive", shape)
			}
			count *= d
		}
		if count != x.Shape.Elems() {
			return nil, fmt.Errorf("%s has %d elements, it cannot be seen as %v, which has %d", x, x.Shape.Elems(), shape, count)
		}
		return []graph.Result{{Type: x.Type, Shape: append(tensor.Shape{}, shape...)}}, nil
	},
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		if in[0].Type.IsInt() {
			copy(out[0].I32(), in[0].I32())
			return nil
		}
		copy(out[0].F64(), in[0].F64())
		return nil
	},
	Cost: func(*graph.Node, int) graph.Cost { return graph.Cost{} },
}
