package ops

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// TopKAttr are the attributes of topk.
type TopKAttr struct {
	K       int    `attr:"k,required"`
	Softmax string `attr:"softmax" words:"none|before|after"`
	Groups  int    `attr:"groups"` // equal parts of the row, of which only the best keep are chosen from; 0: no parts
	Keep    int    `attr:"keep"`
	By      string `attr:"by" words:"max|top2"` // what a part is worth: its largest element, or the sum of its two
}

// TopK chooses experts: x [..., E] gives p [..., k] and e i32[..., k], the k
// largest of each row in falling order, of equal ones the lower index first. p holds
// them as they are (softmax=none), taken from the softmax of the whole row (before), or
// put through a softmax among themselves (after). With groups the choice is among the keep best parts of the row alone
// (DeepSeek-AI, arXiv 2405.04434 and 2412.19437).
var TopK = &graph.Op{
	Name:    "topk",
	Doc:     "p, e = the k largest of each row and their indices; softmax=none, before or after the choice",
	Sig:     graph.MustSig("(x: T[*, E]) -> (p: float[*, @k], e: i32[*, @k])"),
	RowWise: true,
	Attr:    func() any { return &TopKAttr{Softmax: "none", By: "max"} },
	Check: func(n *graph.Node) error {
		if k, x := graph.Attr[TopKAttr](n).K, n.In[0]; k > x.Shape.Last() {
			return fmt.Errorf("k=%d is more than the %d to choose from in %s", k, x.Shape.Last(), x)
		}
		return checkGroups(n)
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
			hidden := a.Hidden(row)
			slices.SortStableFunc(order, func(i, j int32) int {
				if hidden != nil && hidden[i] != hidden[j] {
					return cmp.Compare(boolInt(hidden[i]), boolInt(hidden[j]))
				}
				return cmp.Compare(row[j], row[i])
			})
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

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func checkGroups(n *graph.Node) error {
	a, x := graph.Attr[TopKAttr](n), n.In[0]
	count := x.Shape.Last()
	switch {
	case a.Groups == 0:
		return nil
	case a.Groups < 0 || count%a.Groups != 0:
		return fmt.Errorf("groups=%d must divide the %d of %s", a.Groups, count, x)
	case a.Keep < 1 || a.Keep > a.Groups:
		return fmt.Errorf("keep=%d must be 1 to groups=%d", a.Keep, a.Groups)
	case a.By == "top2" && count/a.Groups < 2:
		return fmt.Errorf("by=top2 needs groups of 2 at least, %d groups of %s have %d", a.Groups, x, count/a.Groups)
	case a.K > count/a.Groups*a.Keep:
		return fmt.Errorf("k=%d is more than the %d of %d groups", a.K, count/a.Groups*a.Keep, a.Keep)
	}
	return nil
}

// Hidden says which elements of a row no choice may fall on, as their group is not kept; nil: none.
func (a *TopKAttr) Hidden(row []float64) []bool {
	if a.Groups <= 1 || a.Keep == a.Groups {
		return nil
	}
	size := len(row) / a.Groups
	worth := make([]float64, a.Groups)
	order := make([]int, a.Groups)
	for g := range worth {
		part := slices.Clone(row[g*size : (g+1)*size])
		slices.SortFunc(part, func(x, y float64) int { return cmp.Compare(y, x) })
		worth[g], order[g] = part[0], g
		if a.By == "top2" {
			worth[g] += part[1]
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(worth[j], worth[i]) })
	hidden := make([]bool, len(row))
	for _, g := range order[a.Keep:] {
		for i := range size {
			hidden[g*size+i] = true
		}
	}
	return hidden
}
