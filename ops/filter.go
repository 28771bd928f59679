package ops

import (
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Filter leaves the tokens of rows of logits that a choice may fall on: x [R, V], most i32[R], shares [R, 3] and
// allowed i32[R, W] with 32 W ≥ V give y [R, V], which is x where a token is left and −∞ elsewhere. Tokens whose bit
// v%32 of allowed[r, v/32] is not set are not left. Of the others four filters leave some, one after another, each of
// what the one before left; the mass of a token is exp(x):
//
//	most[r]       the so many largest; 0: all ("top-k": Fan, Lewis, Dauphin, arXiv 1805.04833)
//	shares[r, 0]  the fewest that come to this share of the mass, those first whose −ln of it is nearest to the mean by
//	              mass, of those as near the larger; 0 or 1: all ("typical": Meister et al., arXiv 2202.00666)
//	shares[r, 1]  the fewest that come to this share of the mass, the largest first; 0 or 1: all ("top-p": Holtzman et
//	              al., arXiv 1904.09751)
//	shares[r, 2]  those of at least this share of the largest's mass; 0: all ("min-p": Nguyen et al., arXiv 2407.01082)
//
// Of equal tokens those of the lower numbers come first. At least one is left. A row in which an allowed number is NaN
// or +∞ is not filtered, so that a choice sees it.
var Filter = &graph.Op{
	Name: "filter",
	Doc:  "y = x where allowed and left by most (top-k) and shares (typical, top-p, min-p); −∞ elsewhere",
	Sig:  graph.MustSig("(x: T[R, V], most: i32[R], shares: T[R, 3], allowed: i32[R, W]) -> (y: float[R, V])"),
	Check: func(n *graph.Node) error {
		if x, allowed := n.In[0], n.In[3]; 32*allowed.Shape.Last() < x.Shape.Last() {
			return fmt.Errorf("%s has too few bits for the %d of %s", allowed, x.Shape.Last(), x)
		}
		return nil
	},
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, most, shares, allowed, y := in[0].F64(), in[1].I32(), in[2].F64(), in[3].I32(), out[0].F64()
		cols, words := in[0].Shape.Last(), in[3].Shape.Last()
		for r, k := range most {
			FilterRow(y[r*cols:(r+1)*cols], x[r*cols:], int(k), [3]float64(shares[3*r:]), allowed[r*words:])
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost {
		return whole(n, 32*elems(n.Out[0]))
	},
}

// FilterRow is Filter of a row: y gets x where a token is left, −∞ elsewhere.
func FilterRow[F float32 | float64](y, x []F, most int, shares [3]float64, allowed []int32) {
	order, whole := make([]int, 0, len(y)), true
	for v := range y {
		switch {
		case uint32(allowed[v/32])>>(v%32)&1 == 0:
			y[v] = F(math.Inf(-1))
			continue
		case x[v] > F(math.Inf(-1)):
			order = append(order, v)
		}
		y[v] = x[v]
		whole = whole && x[v] == x[v] && !math.IsInf(float64(x[v]), 1)
	}
	if !whole || len(order) == 0 || !filtered(most, shares) {
		return
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case x[i] > x[j]:
			return -1
		case x[i] < x[j]:
			return 1
		}
		return 0
	})
	for v := range y {
		y[v] = F(math.Inf(-1))
	}
	if most > 0 {
		order = order[:min(most, len(order))]
	}
	for _, v := range left(order, x, shares) {
		y[v] = x[v]
	}
}

// filtered says whether a row has a filter.
func filtered(most int, shares [3]float64) bool {
	share := func(p float64) bool { return p > 0 && p < 1 }
	return most > 0 || share(shares[0]) || share(shares[1]) || shares[2] > 0
}

// left are those of the tokens, which come in order, that shares of the mass leave, in order.
func left[F float32 | float64](order []int, x []F, shares [3]float64) []int {
	far := func(v int) float64 { return float64(x[order[0]]) - float64(x[v]) } // from the largest
	fewest := func(list []int, p float64) []int {
		all, sum := 0.0, 0.0
		for _, v := range list {
			all += math.Exp(-far(v))
		}
		for i, v := range list {
			if sum += math.Exp(-far(v)); sum >= p*all {
				return list[:i+1]
			}
		}
		return list
	}
	if p := shares[0]; p > 0 && p < 1 {
		all, mean := 0.0, 0.0
		for _, v := range order {
			all += math.Exp(-far(v))
			mean += math.Exp(-far(v)) * far(v)
		}
		mean /= all
		near := slices.Clone(order)
		slices.SortStableFunc(near, func(i, j int) int {
			switch a, b := math.Abs(far(i)-mean), math.Abs(far(j)-mean); {
			case a < b:
				return -1
			case a > b:
				return 1
			}
			return 0
		})
		typical := make(map[int]bool, len(near))
		for _, v := range fewest(near, p) {
			typical[v] = true
		}
		order = slices.DeleteFunc(order, func(v int) bool { return !typical[v] })
	}
	if p := shares[1]; p > 0 && p < 1 {
		order = fewest(order, p)
	}
	for i, v := range order {
		if math.Exp(-far(v)) < shares[2] && i > 0 {
			return order[:i]
		}
	}
	return order
}
