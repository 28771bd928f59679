package ops

import (
	"fmt"
	"math"

	"greta/graph"
	"greta/tensor"
)

// AttentionAttr are the attributes of attention.
type AttentionAttr struct {
	Scale   float64 `attr:"scale"`   // on the scores; 0: Dh^-0.5
	Window  int     `attr:"window"`  // how many positions back, the query's own included; 0: all
	Softcap float64 `attr:"softcap"` // scores become cap·tanh(score/cap); 0: as they are
}

// ScaleOf gives the factor on the scores for heads of dh elements.
func (a *AttentionAttr) ScaleOf(dh int) float64 {
	if a.Scale == 0 {
		return 1 / math.Sqrt(float64(dh))
	}
	return a.Scale
}

// Attention lets each token look at the cache: q [S, H, Dh], k [C, G, Dh], v [C, G,
// Dv], pos i32[S] gives y [S, H, Dv]. Head h reads key head h / (H/G); query s sees
// the positions j ≤ pos[s] and, with a window, j > pos[s] - window:
//
//	y[s,h] = Σj softmax(cap(scale q[s,h]·k[j]))[j] v[j]
//
// It is causal by meaning; what lies in the cache behind pos[s] is never read. (Vaswani
// et al., arXiv 1706.03762; grouped heads: Ainslie et al., arXiv 2305.13245.)
var Attention = &graph.Op{
	Name: "attention",
	Doc:  "y[s,h] = Σj softmax(scale·q[s,h]·k[j])·v[j], pos[s]-window < j ≤ pos[s]",
	Sig:  graph.MustSig("(q: T[S, H, Dh], k: K[C, G, Dh], v: V[C, G, Dv], pos: i32[S]) -> (y: float[S, H, Dv])"),
	Attr: func() any { return &AttentionAttr{} },
	Check: func(n *graph.Node) error {
		q, k, a := n.In[0], n.In[1], graph.Attr[AttentionAttr](n)
		if g := k.Shape[1]; g == 0 || q.Shape[1]%g != 0 {
			return fmt.Errorf("the %d heads of %s must be a multiple of the %d of %s", q.Shape[1], q, g, k)
		}
		for _, p := range []struct {
			name string
			v    float64
		}{{"scale", a.Scale}, {"window", float64(a.Window)}, {"softcap", a.Softcap}} {
			if err := nonNegative(p.name, p.v); err != nil {
				return err
			}
		}
		for i, name := range []string{"k", "v"} {
			if err := plainFloat(name, n.In[i+1]); err != nil {
				return err
			}
		}
		return nil
	},
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		q, k, v, y := in[0].F64(), in[1].F64(), in[2].F64(), out[0].F64()
		h, dh := in[0].Shape[1], in[0].Shape[2]
		c, g, dv := in[2].Shape[0], in[2].Shape[1], in[2].Shape[2]
		a := graph.Attr[AttentionAttr](n)
		scale := a.ScaleOf(dh)
		for s, pos := range in[3].I32() {
			if err := inRange("pos", s, pos, c); err != nil {
				return err
			}
			first := 0
			if a.Window > 0 {
				first = max(0, int(pos)-a.Window+1)
			}
			for head := range h {
				kv := head / (h / g)
				query := q[(s*h+head)*dh:][:dh]
				scores := make([]float64, int(pos)+1-first)
				for j := range scores {
					scores[j] = scale * dot(query, k[((first+j)*g+kv)*dh:])
					if a.Softcap > 0 {
						scores[j] = a.Softcap * math.Tanh(scores[j]/a.Softcap)
					}
				}
				softmax(scores)
				result := y[(s*h+head)*dv:][:dv]
				clear(result)
				for j, p := range scores {
					for i, e := range v[((first+j)*g+kv)*dv:][:dv] {
						result[i] += p * e
					}
				}
			}
		}
		return nil
	},
	// Both products over kv positions, and four operations a score for the softmax.
	Cost: func(n *graph.Node, kv int) graph.Cost {
		q, k, v, a := n.In[0], n.In[1], n.In[2], graph.Attr[AttentionAttr](n)
		kv = min(kv, k.Shape[0])
		reads := kv // cache rows that some query of the step sees
		if a.Window > 0 {
			reads = min(kv, a.Window+q.Shape[0]-1)
			kv = min(kv, a.Window)
		}
		scores := float64(q.Shape[0]) * float64(q.Shape[1]) * float64(kv)
		return graph.Cost{
			Flops: scores * float64(2*q.Shape[2]+2*v.Shape[2]+4),
			Read:  float64(q.Bytes()+n.In[3].Bytes()) + float64(reads)*(rowBytes(k)+rowBytes(v)),
			Write: float64(n.Out[0].Bytes()),
		}
	},
}

// plainFloat checks what a letter other than T leaves open: that the operand
// is no block format.
func plainFloat(name string, v *graph.Value) error {
	if !v.Type.IsFloat() {
		return fmt.Errorf("%s must hold plain floats, but it is %s", name, v)
	}
	return nil
}
