package ops

import (
	"cmp"
	"fmt"
	"slices"

	"greta/graph"
	"greta/tensor"
)

// TopKAttr are the attributes of topk.
type TopKAttr struct {
	K       int    `attr:"k,required"`
	Softmax string `attr:"softmax" words:"none|before|after"`
}

// TopK chooses experts: x [..., E] gives p [..., k] and e i32[..., k], the k
// largest of each row in falling order, of equal ones the lower index first. p holds
// them as they are (softmax=none), taken from the softmax of the whole row (before), or
// put through a softmax among themselves (after).
var TopK = &graph.Op{
	Name:    "topk",
	Doc:     "p, e = the k largest of each row and their indices; softmax=none, before or after the choice",
	Sig:     graph.MustSig("(x: T[*, E]) -> (p: float[*, @k], e: i32[*, @k])"),
	RowWise: true,
	Attr:    func() any { return &TopKAttr{Softmax: "none"} },
	Check: func(n *graph.Node) error {
		if k, x := graph.Attr[TopKAttr](n).K, n.In[0]; k > x.Shape.Last() {
			return fmt.Errorf("k=%d is more than the %d to choose from in %s", k, x.Shape.Last(), x)
		}
		return nil
	},
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		x, p, e := in[0].F64(), out[0].F64(), out[1].I32()
		count, a := in[0].Shape.Last(), graph.Attr[TopKAttr](n)
		order := make([]int32, count)
		for r := range in[0].Shape.Rows() {
			row := slices.Clone(x[r*count : (r+1)*count])
			for i := range order {
				order[i] = int32(i)
			}
			slices.SortStableFunc(order, func(i, j int32) int { return cmp.Compare(row[j], row[i]) })
			if a.Softmax == "before" {
				softmax(row)
			}
			chosen := p[r*a.K : (r+1)*a.K]
			for i := range chosen {
				e[r*a.K+i] = order[i]
				chosen[i] = row[order[i]]
			}
			if a.Softmax == "after" {
				softmax(chosen)
			}
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost { return whole(n, 4*elems(n.In[0])) },
}
