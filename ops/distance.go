package ops

import (
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Spaced says whether a node is attention whose scores have parts for the distance from a query to a key.
func Spaced(n *graph.Node) bool {
	return named(n, "bias") != nil || named(n, "far_k") != nil || named(n, "far_q") != nil
}

// Distances is how many distances the tables of an attention tell apart, 0 where it has none, and how many heads
// far_k and far_q are for: each its own, or all one.
func Distances(n *graph.Node) (count, heads int) {
	heads = 1
	for _, name := range []string{"bias", "far_k", "far_q"} {
		if v := named(n, name); v != nil {
			count = v.Shape[0]
			if len(v.Shape) == 3 {
				heads = v.Shape[1]
			}
		}
	}
	return count, heads
}

// apartWords are those of AttentionAttr.Apart, in the order of their numbers in kernels.
var apartWords = []string{"each", "sides", "around"}

// ApartCode is the number by which kernels know how distances are told apart.
func (a *AttentionAttr) ApartCode() int { return max(0, slices.Index(apartWords, a.Apart)) }

// roundingSlack is what logarithms of distances may be wrong by.
const roundingSlack = 5e-5

// Distance gives the row of tables of n for a key that stands so many positions before the query, after it where
// back is negative:
//
//	each     n/2 + back; what lies beyond the table has its first or last row
//	sides    the first n/2 rows for keys up to the query, the others for those after it; of each half n/4 distances
//	         have their own row, larger ones, up to reach, share rows by their logarithm
//	         (Raffel et al., arXiv 1910.10683)
//	around   n/2 + back for distances up to n/4, beyond by their logarithm up to reach (He et al., arXiv 2006.03654)
func (a *AttentionAttr) Distance(back, n int) int {
	far := max(back, -back)
	switch a.Apart {
	case "sides":
		half, from := n/2, 0
		if back < 0 {
			from = half
		}
		if exact := half / 2; far >= exact {
			more := math.Log(float64(far)/float64(exact)) / math.Log(a.Reach/float64(exact)) * float64(half-exact)
			far = min(exact+int(more+roundingSlack), half-1)
		}
		return from + far
	case "around":
		if mid := n / 4; far > mid {
			more := math.Log(float64(far)/float64(mid)) / math.Log((a.Reach-1)/float64(mid)) * float64(mid-1)
			far = mid + int(math.Ceil(more-roundingSlack))
		}
		if back < 0 {
			far = -far
		}
		back = far
	}
	return min(max(n/2+back, 0), n-1)
}

// checkDistances checks the tables of an attention.
func checkDistances(n *graph.Node) error {
	a, h := graph.Attr[AttentionAttr](n), n.In[0].Shape[1]
	count, heads := Distances(n)
	for _, name := range []string{"bias", "far_k", "far_q"} {
		v := named(n, name)
		switch {
		case v == nil:
			continue
		case v.Shape[0] != count:
			return fmt.Errorf("%s: %s must have a row for each of %d distances", name, v, count)
		case len(v.Shape) == 3 && v.Shape[1] != h && v.Shape[1] != 1:
			return fmt.Errorf("%s: %s must be for one head or for each of %d", name, v, h)
		}
		if err := plainFloat(name, v); err != nil {
			return err
		}
	}
	k, q := named(n, "far_k"), named(n, "far_q")
	if q != nil && n.In[1].Shape[1] != h || k != nil && q != nil && k.Shape[1] != heads {
		return fmt.Errorf("far_q: each of the %d heads must have keys of its own, and as many heads of tables", h)
	}
	least := map[string]float64{"sides": float64(count/4) + 1, "around": float64(count/4) + 2}[a.Apart]
	if count > 0 && a.Apart != "each" && (count < 8 || a.Reach < least) {
		return fmt.Errorf("apart=%s, reach=%g: for %d distances, of which there must be 8, reach is %g or more", a.Apart,
			a.Reach, count, least)
	}
	return nil
}

// distances adds to the scores of the head of query s, which stands at pos, of keys from row first on, what their
// distances give.
func distances(n *graph.Node, in []tensor.Tensor, s, pos, head, first int, scale float64, scores []float64) {
	count, heads := Distances(n)
	if count == 0 {
		return
	}
	a, h, g, dh := graph.Attr[AttentionAttr](n), in[0].Shape[1], in[1].Shape[1], in[0].Shape[2]
	bias, farK, farQ := floats(in, 6), floats(in, 7), floats(in, 8)
	query, k := in[0].F64()[(s*h+head)*dh:][:dh], in[1].F64()
	for j := range scores {
		row := a.Distance(pos-first-j, count)
		at := (row*heads + head%heads) * dh
		if bias != nil {
			scores[j] += bias[row*h+head]
		}
		if farK != nil {
			scores[j] += scale * dot(query, farK[at:])
		}
		if farQ != nil {
			scores[j] += scale * dot(farQ[at:at+dh], k[((first+j)*g+head/(h/g))*dh:])
		}
	}
}
