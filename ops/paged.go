package ops

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Caches of many sequences lie in a pool of pages: pool [A, P, G, Dh] has A pages of P positions. A table says
// which pages a sequence has: its position j lies in page table[seq, j/P], row j%P. Lowering makes these operators of
// push and attention for a batch of rows of several sequences; model files do not name them.

// PagedPush stores the keys or values of a batch's rows in a pool: pool [A, P, G, Dh], x [S, G, Dh], slot i32[S]
// gives the pool with row slot[s]%P of page slot[s]/P replaced by x[s]. A slot of −1 stores its row nowhere: it pads
// the batch. Any other outside [0, A·P) is an error; no two may be the same.
var PagedPush = &graph.Op{
	Name: "paged_push",
	Doc:  "pool[slot[s]/P, slot[s]%P] = x[s], nothing where slot[s] = −1",
	Sig:  graph.MustSig("(cache: C[A, P, G, Dh], x: T[S, G, Dh], slot: i32[S]) -> (y: C[A, P, G, Dh])"),
	Kind: graph.Update,
	Check: func(n *graph.Node) error {
		return cacheType("cache", n.In[0])
	},
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		pool, x := out[0].F64(), in[1].F64()
		row := in[1].Shape[1:].Elems()
		for s, p := range in[2].I32() { // all checked first: an error leaves the pool as it was
			if p == -1 {
				continue
			}
			if err := inRange("slot", s, p, out[0].Shape[0]*out[0].Shape[1]); err != nil {
				return err
			}
		}
		for s, p := range in[2].I32() {
			if p >= 0 {
				copy(pool[int(p)*row:(int(p)+1)*row], x[s*row:])
			}
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost {
		x, slot, pool := n.In[1], n.In[2], n.In[0]
		row := pool.Type.RowBytes(pool.Shape[2:].Elems())
		return graph.Cost{Read: float64(x.Bytes() + slot.Bytes()), Write: float64(x.Shape[0] * row)}
	},
}

// PagedAttention is Attention for rows of several sequences: row s is a token at pos[s] of the sequence that line
// seq[s] of the table describes, and sees what attention of that sequence alone would. A seq of −1 pads the batch:
// its result is zero. What no row sees of the table is never read. The operands behind table are those of attention.
// (Kwon et al., arXiv 2309.06180.)
var PagedAttention = &graph.Op{
	Name: "paged_attention",
	Doc:  "attention of row s over the pages table[seq[s]], 0 where seq[s] = −1",
	Sig: graph.MustSig("(q: T[S, H, Dh], k: K[A, P, G, Dh], v: V[A, P, G, Dv], pos: i32[S], seq: i32[S], " +
		"table: i32[B, M], sinks?: N[H], bias?: M[N, H], far_k?: A[N, J, Dh], far_q?: E[N, J, Dh]) -> " +
		"(y: float[S, H, Dv])"),
	Attr: func() any { return &AttentionAttr{Apart: "each"} },
	Check: func(n *graph.Node) error {
		if p := n.In[1].Shape[1]; p == 0 {
			return fmt.Errorf("%s has pages of no positions", n.In[1])
		}
		one := *n
		one.In = append([]*graph.Value{n.In[0], flat(n.In[1]), flat(n.In[2])}, n.In[3:]...)
		return Attention.Check(&one)
	},
	Ref: pagedReference,
	// As many positions a row: rows of one sequence may share its reads, which is not counted.
	Cost: func(n *graph.Node, kv int) graph.Cost {
		q, k, v, a := n.In[0], n.In[1], n.In[2], graph.Attr[AttentionAttr](n)
		kv = min(kv, n.In[5].Shape[1]*k.Shape[1])
		if a.Window > 0 {
			kv = min(kv, a.Window)
		}
		row := k.Type.RowBytes(k.Shape[2:].Elems()) + v.Type.RowBytes(v.Shape[2:].Elems())
		seen := float64(q.Shape[0]) * float64(kv)
		return graph.Cost{
			Flops: seen * float64(q.Shape[1]*(2*q.Shape[2]+2*v.Shape[3]+4)),
			Read:  float64(q.Bytes()+n.In[3].Bytes()+n.In[4].Bytes()) + seen*float64(row),
			Write: float64(n.Out[0].Bytes()),
		}
	},
}

// flat sees a pool as one cache of all its rows.
func flat(pool *graph.Value) *graph.Value {
	v := *pool
	v.Shape = append(tensor.Shape{pool.Shape[0] * pool.Shape[1]}, pool.Shape[2:]...)
	return &v
}

// rowOf is one row of a tensor.
func rowOf(t tensor.Tensor, x []float64) tensor.Tensor {
	return tensor.Tensor{Type: tensor.F64, Shape: append(tensor.Shape{1}, t.Shape[1:]...), Data: tensor.Bytes(x)}
}

// pagedReference gathers each row's cache and lets attention look at it.
func pagedReference(n *graph.Node, in, out []tensor.Tensor) error {
	q, y := in[0].F64(), out[0].F64()
	wide, values := in[0].Shape[1:].Elems(), out[0].Shape[1:].Elems()
	pages, size, table := in[1].Shape[0], in[1].Shape[1], in[5].I32()
	lines, most := in[5].Shape[0], in[5].Shape[1]
	for s, pos := range in[3].I32() {
		result := rowOf(out[0], y[s*values:(s+1)*values])
		line := in[4].I32()[s]
		if line == -1 {
			clear(result.F64())
			continue
		}
		if err := inRange("seq", s, line, lines); err != nil {
			return err
		}
		if err := inRange("pos", s, pos, most*size); err != nil {
			return err
		}
		a, first := graph.Attr[AttentionAttr](n), 0
		if a.Window > 0 {
			first = max(0, int(pos)-a.Window+1) // pages before it may be gone
		}
		caches := [2]tensor.Tensor{}
		for i, pool := range in[1:3] {
			row := pool.Shape[2:].Elems()
			c := tensor.New(tensor.F64, append(tensor.Shape{int(pos) + 1}, pool.Shape[2:]...)...)
			for j := first; j <= int(pos); j++ {
				at := int(line)*most + j/size
				if err := inRange("table", at, table[at], pages); err != nil {
					return err
				}
				from := (int(table[at])*size + j%size) * row
				copy(c.F64()[j*row:(j+1)*row], pool.F64()[from:from+row])
			}
			caches[i] = c
		}
		query := rowOf(in[0], q[s*wide:(s+1)*wide])
		at := tensor.Tensor{Type: tensor.I32, Shape: tensor.Shape{1}, Data: tensor.Bytes([]int32{pos})}
		one := make([]tensor.Tensor, len(Attention.Sig.In))
		copy(one, []tensor.Tensor{query, caches[0], caches[1], at})
		for i := range in[6:] { // as they are called
			name := n.Op.Sig.In[6+i].Name
			one[slices.IndexFunc(Attention.Sig.In, func(o graph.Operand) bool { return o.Name == name })] = in[6+i]
		}
		if err := Attention.Ref(n, one, []tensor.Tensor{result}); err != nil {
			return err
		}
	}
	return nil
}
