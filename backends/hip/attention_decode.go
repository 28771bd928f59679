package hip

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Attention of one token by clusters of blocks, with the token's rotations and
// stores where a program has them just before: see attention_decode.hip.

const (
	attendThreads = 256
	attendCluster = 8 // blocks that divide the positions
	attendLine    = 16
	attendCaches  = 4096 // positions of the longest caches: behind as many the other kernel is as fast
	attendMost    = 640  // queries of a block times elements, as shared memory holds them
)

// folding is the rotations and stores of a token that its attention does itself.
type folding struct {
	rope, key, value *backends.Launch
	number           int // of the launch that reports bad positions
}

// attend binds an attention to attention_decode.hip, where that computes it.
func (b *binder) attend(f *folding) bool {
	n := b.l.Node
	block := b.dev.attendBlock(n)
	if block == 0 {
		return false
	}
	a := graph.Attr[ops.AttentionAttr](n)
	q, k, v, pos := b.in(0), b.in(1), b.in(2), b.in(3)
	kAt, vAt := b.pointer(k), b.pointer(v)
	if kAt%attendLine != 0 || vAt%attendLine != 0 || k.Stride%attendLine != 0 || v.Stride%attendLine != 0 {
		return false
	}
	heads, dh, groups := q.Shape[1], q.Shape[2], k.Shape[1]
	_, size := k.Type.Block()
	number, early := b.number, false
	var knew, vnew, table, factors uintptr
	half, pair, ftype, m := 0, 0, 0, 1.0
	at := b.pointer(q)
	if f != nil {
		own, ok := pos.Buffer.(*buffer)
		early = ok && own.use == backends.Step
		number = f.number
		at, knew, vnew = b.pointer(&f.rope.In[0]), b.pointer(&f.key.In[1]), b.pointer(&f.value.In[1])
		table, half, pair, m = b.turns(f.rope.Node, dh)
		if len(f.rope.In) > 2 {
			factors, ftype = b.plain(&f.rope.In[2])
			early = early && !f.rope.In[2].Changes()
		}
	}
	sinks := ops.Beyond(n) != "" // nothing else that is beyond the plain form comes here
	prog := newProgram("attention_decode.hip", define("DH", dh), define("KT", plainTypes[k.Type]-1),
		define("VE", attendLine/size), define("QB", block),
		onOff("CAP", a.Softcap > 0), define("CLUSTER", attendCluster), onOff("FOLD", f != nil), onOff("EARLY", early),
		onOff("SINKS", sinks))
	d := b.start(prog, "attend", attendThreads, attendCluster*ceil(heads/groups, block), groups, 1).
		ptr(b.out(0), at, kAt).u32(k.Stride/size).ptr(vAt).u32(v.Stride/size).
		ptr(b.dense(pos)).u32(k.Shape[0], heads, groups).
		f32(a.ScaleOf(dh)).f32(a.Softcap).u32(a.Window).
		ptr(knew, vnew, table, factors).u32(ftype, half, pair).f32(m).ptr(b.dev.statusAt).u32(number)
	if sinks {
		at, typ := b.plain(b.in(4))
		d.ptr(at).u32(typ)
	}
	d.cluster = attendCluster
	return true
}

// turns gives a rotation's table of frequencies, its pairs, whether those are
// neighbours, and its factor.
func (b *binder) turns(n *graph.Node, dh int) (table uintptr, half, pair int, m float64) {
	a := graph.Attr[ops.RoPEAttr](n)
	freqs, m := ops.RopeFrequencies(a, dh)
	table, err := b.dev.table(fmt.Sprintf("rope %+v %d", *a, dh), func() []byte { return tensor.Bytes(freqs) })
	if err != nil {
		b.failf("%w", err)
	}
	if a.Layout == "pair" {
		pair = 1
	}
	return table, len(freqs), pair, m
}
