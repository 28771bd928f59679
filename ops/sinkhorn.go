package ops

import (
	"fmt"

	"github.com/greta-project/greta/graph"
)

// SinkhornAttr are the attributes of sinkhorn.
type SinkhornAttr struct {
	Iters int     `attr:"iters,required"` // how often columns are divided by their sums; rows once less
	Eps   float64 `attr:"eps"`            // added to each sum
}

// Sinkhorn brings matrices of positive numbers near ones whose rows and columns have sums of one: x [S, N, N] gives y
// [S, N, N]. Columns are divided by their sums, then rows and columns again, iters-1 times. (Sinkhorn and Knopp,
// Pacific J. Math. 21, 1967.)
var Sinkhorn = &graph.Op{
	Name:    "sinkhorn",
	Doc:     "y = x, its columns divided by their sums + eps, then rows and columns by turns, until that was iters times",
	Sig:     graph.MustSig("(x: T[S, N, N]) -> (y: float[S, N, N])"),
	RowWise: true,
	Attr:    func() any { return &SinkhornAttr{} },
	Check: func(n *graph.Node) error {
		if a := graph.Attr[SinkhornAttr](n); a.Iters < 1 || a.Iters > 1000 {
			return fmt.Errorf("iters=%d must be 1 to 1000", a.Iters)
		}
		return nil
	},
	Body: "c: x / ((mix(x, 0*(sum(x) as [S, N]) + 1) as [S, 1, N]) + eps)\n" +
		"y: sinkhorn(c / (sum(c) + eps), iters=iters-1) if iters > 1 else c",
	Cost: func(n *graph.Node, _ int) graph.Cost {
		return whole(n, 4*float64(graph.Attr[SinkhornAttr](n).Iters)*elems(n.In[0]))
	},
}
