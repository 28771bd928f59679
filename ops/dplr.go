package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// DPLRAttr is the attribute of dplr.
type DPLRAttr struct {
	Before bool `attr:"before"` // results are of the state as it was before the token
}

// DPLR is linear attention whose state is multiplied by a diagonal plus a matrix of rank one (Peng et al., arXiv
// 2404.05892 without that matrix, 2503.14456 with it): q, k [S, H, K], v [S, H, V], log decays g [S, H, J], where J is
// K or 1, a and b [S, H, K], the state [H, K, V]:
//
//	h = diag(exp(g)) h + b (aᵀh) + k vᵀ,   y = qᵀh
//
// aᵀh is of the state before the token, and with before=true y is too. Without a and b their product is left out.
var DPLR = &graph.Op{
	Name: "dplr",
	Doc:  "h = exp(g)·h + b⊗(aᵀh) + k⊗v, y = qᵀh, for each head; before=true: y of the h before",
	Sig: graph.MustSig("(state: T[L, Z], q: Q[S, H, K], keys: U[S, H, K], values: V[S, H, DV], decays: G[S, H, J], " +
		"pos: i32[S], a?: A[S, H, K], b?: B[S, H, K], slot?: i32[S]) -> (next: T[L, Z], y: float[S, H, DV])"),
	Kind: graph.Update,
	Attr: func() any { return &DPLRAttr{} },
	Check: func(n *graph.Node) error {
		if DPLRRank(n) != (len(n.In) > 7 && n.In[7] != nil) {
			return fmt.Errorf("a and b are given together, or neither is")
		}
		return checkDecays(n)
	},
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		q, k, v, g, y := in[1].F64(), in[2].F64(), in[3].F64(), in[4].F64(), out[1].F64()
		a, b := floats(in, 6), floats(in, 7)
		heads, dk, dv, dg := in[2].Shape[1], in[2].Shape[2], in[3].Shape[2], in[4].Shape[2]
		before := graph.Attr[DPLRAttr](n).Before
		return onSlot(n, in, out, in[5].I32(), func(s int, state []float64) {
			for h := range heads {
				at, m := s*heads+h, state[h*dk*dv:][:dk*dv]
				for j := range dv {
					seen, sum := 0.0, 0.0
					for i := range dk {
						if a != nil {
							seen += a[at*dk+i] * m[i*dv+j]
						}
						if before {
							sum += q[at*dk+i] * m[i*dv+j]
						}
					}
					for i := range dk {
						e := math.Exp(g[at*dg+i%dg])*m[i*dv+j] + k[at*dk+i]*v[at*dv+j]
						if b != nil {
							e += b[at*dk+i] * seen
						}
						m[i*dv+j] = e
						if !before {
							sum += q[at*dk+i] * e
						}
					}
					y[at*dv+j] = sum
				}
			}
		})
	},
	Cost: recurrenceCost(7),
}

// DPLRRank says whether a dplr has the operands a and b.
func DPLRRank(n *graph.Node) bool { return len(n.In) > 6 && n.In[6] != nil }
