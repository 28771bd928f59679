package hip

import (
	"fmt"

	"greta/graph"
	"greta/ops"
	"greta/tensor"
)

var ropeFile = newProgram("rope.hip")

// checkCache says whether the state of a push can be written.
func checkCache(n *graph.Node) error {
	switch t := n.In[0].Type; t {
	case tensor.F32, tensor.F16, tensor.BF16:
		return nil
	default:
		return fmt.Errorf("a cache of %s; f32, f16 and bf16 can be written", t)
	}
}

// bindRoPE serves rope and rope_push, whose operands lie one further.
func bindRoPE(b *binder) {
	n := b.l.Node
	i, y, ytype, positions := 0, uintptr(0), 0, 0
	if n.Op.Name == "rope_push" {
		cache := b.in(0)
		i, y, ytype, positions = 1, b.dense(cache), int(plainTypes[cache.Type])-1, cache.Shape[0]
	} else {
		y = b.out(0)
	}
	x, pos := b.in(i), b.in(i+1)
	heads, dh := x.Shape[1], x.Shape[2]
	a := graph.Attr[ops.RoPEAttr](n)
	freqs, m := ops.RopeFrequencies(a, dh)
	table, err := b.dev.table(fmt.Sprintf("rope %+v %d", *a, dh), func() []byte { return tensor.Bytes(freqs) })
	if err != nil {
		b.failf("%w", err)
	}
	pair := 0
	if a.Layout == "pair" {
		pair = 1
	}
	factors, ftype := b.plain(b.in(i + 2))
	d := b.start(ropeFile, "rope", 64, x.Shape[0], heads, 1).
		ptr(y).u32(ytype, positions).ptr(b.pointer(x)).u32(x.Stride/4).ptr(b.dense(pos)).
		u32(x.Shape[0], heads, dh).ptr(table).u32(len(freqs), pair).ptr(factors).u32(ftype).f32(m)
	b.status(d)
}

func bindPush(b *binder) {
	cache, x, pos := b.in(0), b.in(1), b.in(2)
	d := b.start(ropeFile, "push", 64, x.Shape[0], x.Shape[1], 1).
		ptr(b.dense(cache)).u32(int(plainTypes[cache.Type])-1, cache.Shape[0]).
		ptr(b.pointer(x)).u32(x.Stride/4).ptr(b.dense(pos)).u32(x.Shape[0], x.Shape[1], x.Shape[2])
	b.status(d)
}
