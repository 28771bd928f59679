package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// AttentionAttr are the attributes of attention.
type AttentionAttr struct {
	Scale   float64 `attr:"scale"`   // on the scores; 0: Dh^-0.5
	Window  int     `attr:"window"`  // how many positions back, the query's own included; 0: all
	Softcap float64 `attr:"softcap"` // scores become cap·tanh(score/cap); 0: as they are
	Chunk   int     `attr:"chunk"`   // positions are seen in the query's own chunk of so many alone; 0: all
	ALiBi   float64 `attr:"alibi"`   // the largest exponent of slopes on distances, usually 8; 0: none
	Slope   float64 `attr:"slope"`   // on alibi's slopes; 0: 1
	Both    bool    `attr:"both"`    // a query sees positions behind its own too, window of them on either side
	Reach   float64 `attr:"reach"`   // from which distance on all are alike
	// Which distances of a query and a key have rows of their own in bias, far_k and far_q; see Distance.
	Apart string `attr:"apart" words:"each|sides|around"`
}

// Sees gives the positions [from, end) that a query at pos sees of a cache of so many. A query that is not causal
// sees all of k, which then holds the step's tokens, row i being position i.
func (a *AttentionAttr) Sees(pos, capacity int) (from, end int) {
	end = pos + 1
	if a.Both {
		end = capacity
		if a.Window > 0 {
			end = min(end, pos+a.Window)
		}
	}
	if a.Window > 0 {
		from = max(0, pos+1-a.Window)
	}
	if a.Chunk > 0 {
		from = max(from, pos/a.Chunk*a.Chunk)
	}
	return from, end
}

// SeesOf gives the rows [from, end) of k that the query of a row sees where it belongs to the text of rows
// [first, behind): those of its text alone, and those behind its own only where it sees both ways.
func (a *AttentionAttr) SeesOf(row, first, behind int) (from, end int) {
	from, end = a.Sees(row-first, behind-first)
	return first + from, first + end
}

// SlopeFactor is that on all of alibi's slopes.
func (a *AttentionAttr) SlopeFactor() float64 {
	if a.Slope == 0 {
		return 1
	}
	return a.Slope
}

// SlopeOf is the factor on the distance between a query and a key for one of heads heads (Press et al., arXiv
// 2108.12409): 2^(-alibi·(h+1)/n) for n heads, n a power of two; for others those of the power below come first,
// and then every second one of the power above.
func (a *AttentionAttr) SlopeOf(head, heads int) float64 {
	n, by := 1, a.SlopeFactor()
	for 2*n <= heads {
		n *= 2
	}
	if head < n {
		return by * math.Exp2(-a.ALiBi*float64(head+1)/float64(n))
	}
	return by * math.Exp2(-a.ALiBi*float64(2*(head-n)+1)/float64(2*n))
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
// With span [S, 2] the step's rows are those of several texts, and k and v hold theirs: row s sees rows
// [span[s,0], span[s,1]) at most, which it is one of, and its position is counted from span[s,0]; pos is not read.
//
// With bias [N, H], far_k and far_q [N, H, Dh] or [N, 1, Dh], tables of n distances, a score is more by
//
//	bias[d,h] + scale (q[s,h]·far_k[d,h] + far_q[d,h]·k[j])   d = Distance(s - j, n)
//
// (Shaw et al., arXiv 1803.02155; Raffel et al., arXiv 1910.10683; He et al., arXiv 2006.03654).
//
// With sinks [H] each head's softmax has one more score, whose value is zero (Xiao et al., arXiv 2309.17453; gpt-oss).
// It is causal by meaning, unless both=true says otherwise; what lies in the cache behind pos[s] is
// never read. (Vaswani et al., arXiv 1706.03762; grouped heads: Ainslie et al., arXiv 2305.13245.)
var Attention = &graph.Op{
	Name: "attention",
	Doc:  "y[s,h] = Σj softmax(scale·q[s,h]·k[j])·v[j], pos[s]-window < j ≤ pos[s]",
	Sig: graph.MustSig("(q: T[S, H, Dh], k: K[C, G, Dh], v: V[C, G, Dv], pos: i32[S], sinks?: N[H], span?: " +
		"i32[S, B], bias?: M[N, H], far_k?: A[N, J, Dh], far_q?: E[N, J, Dh]) -> (y: float[S, H, Dv])"),
	Attr: func() any { return &AttentionAttr{Apart: "each"} },
	Check: func(n *graph.Node) error {
		q, k, a := n.In[0], n.In[1], graph.Attr[AttentionAttr](n)
		if g := k.Shape[1]; g == 0 || q.Shape[1]%g != 0 {
			return fmt.Errorf("the %d heads of %s must be a multiple of the %d of %s", q.Shape[1], q, g, k)
		}
		for _, p := range []struct {
			name string
			v    float64
		}{{"scale", a.Scale}, {"window", float64(a.Window)}, {"softcap", a.Softcap}, {"chunk", float64(a.Chunk)},
			{"alibi", a.ALiBi}, {"slope", a.Slope}, {"reach", a.Reach}} {
			if err := nonNegative(p.name, p.v); err != nil {
				return err
			}
		}
		if a.Softcap > 0 && Spaced(n) {
			return fmt.Errorf("softcap: scores with parts for distances are not capped")
		}
		if err := checkDistances(n); err != nil {
			return err
		}
		span := named(n, "span")
		if span != nil && span.Shape[1] != 2 {
			return fmt.Errorf("span: %s must hold two rows of k for each token, the first and that behind the last", span)
		}
		if (a.Both || span != nil) && k.Shape[0] != q.Shape[0] {
			return fmt.Errorf("both=true, or a span: %s must hold the keys of the step's own %d tokens", k, q.Shape[0])
		}
		for i, name := range []string{"k", "v"} {
			if err := cacheType(name, n.In[i+1]); err != nil {
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
		scale, sinks := a.ScaleOf(dh), floats(in, 4)
		var span []int32
		if len(in) > 5 && in[5].Data != nil {
			span = in[5].I32()
		}
		for s, pos := range in[3].I32() {
			var first, end int
			if span != nil {
				if err := CheckSpan(s, span[2*s], span[2*s+1], c); err != nil {
					return err
				}
				pos = int32(s)
				first, end = a.SeesOf(s, int(span[2*s]), int(span[2*s+1]))
			} else {
				if err := inRange("pos", s, pos, c); err != nil {
					return err
				}
				first, end = a.Sees(int(pos), c)
			}
			for head := range h {
				kv := head / (h / g)
				query := q[(s*h+head)*dh:][:dh]
				scores := make([]float64, end-first, end-first+1)
				for j := range scores {
					scores[j] = scale * dot(query, k[((first+j)*g+kv)*dh:])
					if a.Softcap > 0 {
						scores[j] = a.Softcap * math.Tanh(scores[j]/a.Softcap)
					}
					if a.ALiBi > 0 {
						scores[j] -= a.SlopeOf(head, h) * math.Abs(float64(int(pos)-first-j))
					}
				}
				distances(n, in, s, int(pos), head, first, scale, scores)
				if sinks != nil {
					scores = append(scores, sinks[head])
				}
				softmax(scores)
				scores = scores[:end-first]
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
		if a.Both || Spans(n) {
			kv, reads = k.Shape[0], k.Shape[0]
		}
		if a.Window > 0 {
			sides := 1
			if a.Both {
				sides = 2
			}
			reads = min(kv, a.Window+q.Shape[0]-1)
			kv = min(kv, sides*a.Window-sides+1)
		}
		scores := float64(q.Shape[0]) * float64(q.Shape[1]) * float64(kv)
		products, tables := 2, 0
		for _, name := range []string{"bias", "far_k", "far_q"} {
			if t := named(n, name); t != nil {
				products, tables = products+2*(len(t.Shape)-2), tables+t.Bytes()
			}
		}
		return graph.Cost{
			Flops: scores * float64(products*q.Shape[2]+2*v.Shape[2]+4),
			Read:  float64(q.Bytes()+n.In[3].Bytes()+tables) + float64(reads)*(rowBytes(k)+rowBytes(v)),
			Write: float64(n.Out[0].Bytes()),
		}
	},
}

// CheckSpan says by an error that row s is not one of the rows [first, behind) of rows rows in all.
func CheckSpan(s int, first, behind int32, rows int) error {
	if first < 0 || int(first) > s || int(behind) <= s || int(behind) > rows {
		return fmt.Errorf("span[%d] is [%d, %d): it must hold row %d and lie in the %d rows of k", s, first, behind, s, rows)
	}
	return nil
}

// plainFloat checks what a letter other than T leaves open: that the operand
// is no block format.
func plainFloat(name string, v *graph.Value) error {
	if !v.Type.IsFloat() {
		return fmt.Errorf("%s must hold plain floats, but it is %s", name, v)
	}
	return nil
}

// cacheType is plainFloat for caches, which may be of q8_0 too where heads are whole blocks.
func cacheType(name string, v *graph.Value) error {
	if v.Type != tensor.Q8_0 {
		return plainFloat(name, v)
	}
	if n, _ := v.Type.Block(); v.Shape.Last()%n != 0 {
		return fmt.Errorf(
			"%s is %s, whose heads of %d elements are no whole blocks of %d: caches of another type can hold it",
			name, v, v.Shape.Last(), n)
	}
	return nil
}
