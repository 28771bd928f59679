package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Recurrences: operators whose state has one size however long the sequence is. A state is f32[slots, N+1] with two
// slots at least: a slot holds N elements as they are behind some position, and that position + 1, or 0 where it
// holds none. A step at positions p … p+S-1 reads the slot of p-1 (at p = 0 the state is zero) and writes the oldest
// of the others, so that a step that is run again gives the same. A position that no slot leads to is an error:
// a recurrence cannot go back. Steps of one token and of many give the same results, up to rounding.
//
// Positions of a step follow each other.
//
// With the operand slot, i32[S], a step has rows of several sequences, each of which has one slot of its own, which
// changes in place: row s goes on from slot[s], which must hold the position before it (at position
// 0 what it holds does not count), and writes it. A slot of -1 pads the batch: its result is zero.
// Rows of one sequence follow each other. Lowering gives the operand; model files do not.

// StateSlots finds in state, rows of n+1 elements, the slot that a step from position first on reads, -1 where the
// sequence begins, and the one that it writes. It clears the marks of other slots where a sequence begins.
func StateSlots[F float32 | float64](state []F, n, first int) (read, write int, err error) {
	width, read := n+1, -1
	slots := len(state) / width
	mark := func(i int) *F { return &state[i*width+n] }
	if first == 0 {
		for i := range slots {
			*mark(i) = 0
		}
		return -1, 0, nil
	}
	for i := range slots {
		if *mark(i) == F(first) {
			read = i
		}
	}
	if read < 0 {
		return 0, 0, fmt.Errorf("the state holds no position %d, which a step from %d on goes on from: a recurrence cannot "+
			"go back; begin the sequence again", first-1, first)
	}
	write = -1
	for i := range slots { // what lies ahead is void, else the oldest goes
		void := func(k int) bool { return *mark(k) > F(first) }
		switch {
		case i == read:
		case write < 0, void(i) && !void(write), void(i) == void(write) && *mark(i) < *mark(write):
			write = i
		}
	}
	return read, write, nil
}

// SlotElems is how many elements a slot of a recurrence's state has, its mark left out, by the operands behind the
// state; 0: the operator is no recurrence.
func SlotElems(n *graph.Node) int {
	dim := func(operand, d int) int { return n.In[operand].Shape[d] }
	switch n.Op.Name {
	case "short_conv":
		return dim(1, 1) * (dim(2, 1) - 1)
	case "scan":
		return dim(2, 1)
	case "ssm":
		return dim(1, 1) * dim(1, 2) * dim(4, 2)
	case "delta", "dplr":
		return dim(2, 1) * dim(2, 2) * dim(3, 2)
	case "wkv":
		return 3 * dim(1, 1)
	}
	return 0
}

// checkSlots checks a recurrence's state: at least two slots of its elements and their mark.
func checkSlots(node *graph.Node) error {
	s, n := node.In[0], SlotElems(node)
	least := 2
	if SlotOperand(node) >= 0 {
		least = 1
	}
	if s.Shape[0] < least || s.Shape[1] != n+1 || s.Type != tensor.F32 && s.Type != tensor.F64 {
		return fmt.Errorf("%s must be a state f32[2, %d], or of more slots: %d elements and their mark", s, n+1, n)
	}
	return nil
}

// SlotOperand is the number of a recurrence's operand that says which slot each row has, -1 where it has none: all
// rows are of one sequence then.
func SlotOperand(n *graph.Node) int {
	i := len(n.Op.Sig.In) - 1
	if SlotElems(n) == 0 || len(n.In) <= i || n.In[i] == nil {
		return -1
	}
	return i
}

// SlotRuns calls do for each run of rows of one sequence, with its slot, -1 where rows pad the batch. It refuses slots
// that are not there or do not hold the position before. Slots have n elements and their mark.
func SlotRuns[F float32 | float64](state []F, n int, pos, slot []int32, do func(from, to, slot int)) error {
	slots := len(state) / (n + 1)
	for from := 0; from < len(pos); {
		at, first, to := slot[from], pos[from], from+1
		for to < len(pos) && slot[to] == at && (at < 0 || pos[to] == first+int32(to-from)) {
			to++
		}
		switch {
		case at == -1:
		case at < 0 || int(at) >= slots:
			return fmt.Errorf("slot[%d] is %d, the state has %d", from, at, slots)
		case first < 0:
			return fmt.Errorf("pos[%d] is %d", from, first)
		case first > 0 && state[int(at)*(n+1)+n] != F(first):
			return fmt.Errorf("slot %d holds no position %d, which row %d goes on from: a recurrence cannot go back",
				at, first-1, from)
		}
		do(from, to, int(at))
		if at >= 0 {
			state[int(at)*(n+1)+n] = F(int(first) + to - from)
		}
		from = to
	}
	return nil
}

// onSlots runs step for each row on its own sequence's state.
func onSlots(out []tensor.Tensor, pos, slot []int32, step func(s int, h []float64)) error {
	state, y := out[0].F64(), out[1].F64()
	n, row := out[0].Shape[1]-1, out[1].Shape[1:].Elems()
	return SlotRuns(state, n, pos, slot, func(from, to, at int) {
		if at < 0 {
			clear(y[from*row : to*row])
			return
		}
		h := state[at*(n+1):][:n]
		if pos[from] == 0 {
			clear(h)
		}
		for s := from; s < to; s++ {
			step(s, h)
		}
	})
}

// onSlot runs step for each token on a copy of the state, which it changes, and keeps the last.
func onSlot(node *graph.Node, in, out []tensor.Tensor, pos []int32, step func(s int, h []float64)) error {
	if len(pos) == 0 {
		return nil
	}
	if i := SlotOperand(node); i >= 0 {
		return onSlots(out, pos, in[i].I32(), step)
	}
	state := out[0].F64()
	n := out[0].Shape[1] - 1
	for s, p := range pos {
		if p < 0 || int(p) != int(pos[0])+s {
			return fmt.Errorf("pos[%d] is %d: positions of a recurrence follow each other", s, p)
		}
	}
	read, write, err := StateSlots(state, n, int(pos[0]))
	if err != nil {
		return err
	}
	h := make([]float64, n)
	if read >= 0 {
		copy(h, state[read*(n+1):])
	}
	for s := range pos {
		step(s, h)
	}
	copy(state[write*(n+1):], h)
	state[write*(n+1)+n] = float64(int(pos[0]) + len(pos))
	return nil
}

// recurrenceCost reads and writes the state once, and counts k operations for each of its elements and tokens.
func recurrenceCost(k float64) func(*graph.Node, int) graph.Cost {
	return func(n *graph.Node, _ int) graph.Cost {
		c := graph.Cost{Flops: k * float64(SlotElems(n)) * float64(n.In[1].Shape[0])}
		for _, v := range n.In[1:] {
			if v != nil {
				c.Read += float64(v.Bytes())
			}
		}
		c.Read += 4 * float64(SlotElems(n))
		c.Write = 4*float64(SlotElems(n)) + float64(n.Out[1].Bytes())
		return c
	}
}

// ShortConv is a causal convolution of each channel with its own last K tokens: x [S, D], w [D, K], b [D], the state
// holds the K-1 tokens before the step, [K-1, D]:
//
//	y[s,d] = b[d] + Σj w[d,j] x[s-K+1+j, d]
var ShortConv = &graph.Op{
	Name: "short_conv",
	Doc:  "y[s,d] = b[d] + Σj w[d,j]·x[s-K+1+j, d]; the state holds the K-1 tokens before",
	Sig: graph.MustSig("(state: H[L, N], x: T[S, D], w: W[D, K], pos: i32[S], b?: B[D], slot?: i32[S])" +
		" -> (next: H[L, N], y: float[S, D])"),
	Kind:  graph.Update,
	Check: checkSlots,
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		x, w, b, y := in[1].F64(), in[2].F64(), floats(in, 4), out[1].F64()
		d, k := in[2].Shape[0], in[2].Shape[1]
		return onSlot(n, in, out, in[3].I32(), func(s int, h []float64) {
			row := x[s*d : (s+1)*d]
			for c := range d {
				v := w[c*k+k-1] * row[c]
				for j := range k - 1 {
					v += w[c*k+j] * h[j*d+c]
				}
				if b != nil {
					v += b[c]
				}
				y[s*d+c] = v
			}
			copy(h, h[min(d, len(h)):])
			if k > 1 {
				copy(h[(k-2)*d:], row)
			}
		})
	},
	Cost: recurrenceCost(2),
}

// Scan is a linear recurrence of each channel: h[s] = a[s] h[s-1] + x[s], with a, x [S, D]; y is h. (Orvieto et al.,
// arXiv 2303.06349; De et al., arXiv 2402.19427.)
var Scan = &graph.Op{
	Name: "scan",
	Doc:  "y[s] = a[s]·y[s-1] + x[s]",
	Sig: graph.MustSig("(state: H[L, N], a: A[S, D], x: T[S, D], pos: i32[S], slot?: i32[S]) -> (next: H[L, N], y: " +
		"float[S, D])"),
	Kind:  graph.Update,
	Check: checkSlots,
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		a, x, y := in[1].F64(), in[2].F64(), out[1].F64()
		d := in[2].Shape[1]
		return onSlot(n, in, out, in[3].I32(), func(s int, h []float64) {
			for c := range d {
				h[c] = a[s*d+c]*h[c] + x[s*d+c]
				y[s*d+c] = h[c]
			}
		})
	},
	Cost: recurrenceCost(2),
}

// SSM is a selective state space (Gu and Dao, arXiv 2312.00752; Dao and Gu, arXiv 2405.21060): x [S, H, P], dt [S, H],
// a [H, M], where M is N or 1, b and c [S, G, N], head h reading group h/(H/G), the state [H, P, N]:
//
//	h[p,n] = exp(dt a[n]) h[p,n] + dt x[p] b[n],   y[p] = Σn h[p,n] c[n]
//
// Mamba 1 has a head for each channel, P = 1; Mamba 2 one a for each head, M = 1. With dt = 1 and a = ln γ it is a
// linear attention with a decay.
var SSM = &graph.Op{
	Name: "ssm",
	Doc:  "h[p,n] = exp(dt·a[n])·h[p,n] + dt·x[p]·b[n], y[p] = Σn h[p,n]·c[n], for each head",
	Sig: graph.MustSig("(state: T[L, Z], x: U[S, H, P], dt: D[S, H], a: A[H, J], into: B[S, G, N], out: C[S, G, N]," +
		" pos: i32[S], slot?: i32[S]) -> (next: T[L, Z], y: float[S, H, P])"),
	Kind: graph.Update,
	Check: func(n *graph.Node) error {
		x, a, b := n.In[1].Shape, n.In[3].Shape, n.In[4].Shape
		if a[1] != 1 && a[1] != b[2] {
			return fmt.Errorf("%s must have 1 column or the %d of %s", n.In[3], b[2], n.In[4])
		}
		if b[1] == 0 || x[1]%b[1] != 0 {
			return fmt.Errorf("the %d heads of %s must be a multiple of the %d groups of %s", x[1], n.In[1], b[1], n.In[4])
		}
		return checkSlots(n)
	},
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		x, dt, a, b, c, y := in[1].F64(), in[2].F64(), in[3].F64(), in[4].F64(), in[5].F64(), out[1].F64()
		heads, p, m := in[1].Shape[1], in[1].Shape[2], in[3].Shape[1]
		g, size := in[4].Shape[1], in[4].Shape[2]
		return onSlot(n, in, out, in[6].I32(), func(s int, state []float64) {
			for h := range heads {
				step := dt[s*heads+h]
				from := (s*g + h/(heads/g)) * size
				for i := range p {
					at := (s*heads+h)*p + i
					row := state[(h*p+i)*size:][:size]
					sum := 0.0
					for j := range row {
						row[j] = math.Exp(step*a[h*m+j%m])*row[j] + step*x[at]*b[from+j]
						sum += row[j] * c[from+j]
					}
					y[at] = sum
				}
			}
		})
	},
	Cost: recurrenceCost(6),
}

// checkDecays checks an operator whose heads have one log decay each, or as many as keys have elements.
func checkDecays(n *graph.Node) error {
	k, g := n.In[2].Shape, n.In[4].Shape
	if g[2] != 1 && g[2] != k[2] {
		return fmt.Errorf("%s must have 1 decay a head or the %d of %s", n.In[4], k[2], n.In[2])
	}
	return checkSlots(n)
}

// Delta is the gated delta rule (Yang et al., arXiv 2412.06464): q, k [S, H, K], v [S, H, V], log decays g [S, H, J],
// where J is K or 1, beta [S, H], the state [H, K, V]:
//
//	h = diag(exp(g)) h,   h += k (beta (v - kᵀh)),   y = qᵀh
var Delta = &graph.Op{
	Name: "delta",
	Doc:  "h = exp(g)·h; h += k⊗beta·(v - kᵀh); y = qᵀh, for each head",
	Sig: graph.MustSig("(state: T[L, Z], q: Q[S, H, K], keys: U[S, H, K], values: V[S, H, DV], decays: G[S, H, J], " +
		"beta: B[S, H]," +
		" pos: i32[S], slot?: i32[S]) -> (next: T[L, Z], y: float[S, H, DV])"),
	Kind:  graph.Update,
	Check: checkDecays,
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		q, k, v, g, beta, y := in[1].F64(), in[2].F64(), in[3].F64(), in[4].F64(), in[5].F64(), out[1].F64()
		heads, dk, dv, dg := in[2].Shape[1], in[2].Shape[2], in[3].Shape[2], in[4].Shape[2]
		seen := make([]float64, dv)
		return onSlot(n, in, out, in[6].I32(), func(s int, state []float64) {
			for h := range heads {
				at := s*heads + h
				m := state[h*dk*dv:][:dk*dv]
				clear(seen)
				for i := range dk {
					decay := math.Exp(g[at*dg+i%dg])
					for j := range dv {
						m[i*dv+j] *= decay
						seen[j] += k[at*dk+i] * m[i*dv+j]
					}
				}
				row := y[at*dv:][:dv]
				clear(row)
				for i := range dk {
					for j := range dv {
						m[i*dv+j] += k[at*dk+i] * beta[at] * (v[at*dv+j] - seen[j])
						row[j] += q[at*dk+i] * m[i*dv+j]
					}
				}
			}
		})
	},
	Cost: recurrenceCost(7),
}

// WKV is RWKV 4's weighted mean (Peng et al., arXiv 2305.13048): k, v [S, D], decay w [D] and bonus u [D] give
//
//	y[s] = (Σ(j<s) e^(-(s-1-j)w + k[j]) v[j] + e^(u+k[s]) v[s]) / (the same sum without v)
//
// with the decay as a positive number. The state, [3, D], is the numerator, the denominator and the exponent that
// both are divided by.
var WKV = &graph.Op{
	Name: "wkv",
	Doc:  "y[s] = (Σ(j<s) e^(-(s-1-j)·w + k[j])·v[j] + e^(u+k[s])·v[s]) / (the same without v)",
	Sig: graph.MustSig("(state: T[L, Z], keys: K[S, D], values: V[S, D], decay: W[D], bonus: U[D], pos: i32[S], slot?: " +
		"i32[S])" +
		" -> (next: T[L, Z], y: float[S, D])"),
	Kind:  graph.Update,
	Check: checkSlots,
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		k, v, w, u, y := in[1].F64(), in[2].F64(), in[3].F64(), in[4].F64(), out[1].F64()
		d := in[1].Shape[1]
		pos := in[5].I32()
		return onSlot(n, in, out, pos, func(s int, h []float64) {
			for c := range d {
				y[s*d+c] = WKVStep(h[c:], d, k[s*d+c], v[s*d+c], w[c], u[c], pos[s] == 0)
			}
		})
	},
	Cost: recurrenceCost(6),
}

// WKVNothing is the exponent of a sum of nothing in wkv's state.
const WKVNothing = -1e38

// WKVStep advances one channel of wkv, whose numerator, denominator and exponent lie stride elements apart.
func WKVStep(h []float64, stride int, k, v, w, u float64, first bool) float64 {
	num, den, top := h[0], h[stride], h[2*stride]
	if first {
		top = WKVNothing
	}
	m := max(top, u+k)
	old, now := math.Exp(top-m), math.Exp(u+k-m)
	y := (old*num + now*v) / (old*den + now)
	m = max(top-w, k)
	old, now = math.Exp(top-w-m), math.Exp(k-m)
	h[0], h[stride], h[2*stride] = old*num+now*v, old*den+now, m
	return y
}
