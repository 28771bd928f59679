package hip

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Caches of many sequences: paged_push and paged_attention, by paged.hip.

// checkPaged says whether pools can be read and heads held in registers.
func checkPaged(n *graph.Node) error {
	one := *n
	one.In = []*graph.Value{n.In[0], flatValue(n.In[1]), flatValue(n.In[2])}
	return checkAttention(&one)
}

// flatValue sees a pool as one cache of all its rows.
func flatValue(v *graph.Value) *graph.Value {
	f := *v
	f.Shape = append(tensor.Shape{v.Shape[0] * v.Shape[1]}, v.Shape[2:]...)
	return &f
}

// pool binds a pool as one cache of all its rows.
func (b *binder) pool(i int) (o backends.Operand, at uintptr) {
	p := b.in(i)
	at = b.dense(p)
	o = *p
	o.Shape = append(tensor.Shape{p.Shape[0] * p.Shape[1]}, p.Shape[2:]...)
	o.Stride = o.Type.RowBytes(o.RowElems())
	return o, at
}

// pagedShape divides the attention of each row: heads of a block, and parts of the positions at most.
func (dev *Device) pagedShape(n *graph.Node) attentionShape {
	q, k, v := n.In[0].Shape, n.In[1].Shape, n.In[2].Shape
	share := q[1] / k[2]
	s := attentionShape{queries: share, block: 4}
	lines := ceil(q[2], attentionLanes) + ceil(v[3], attentionLanes)
	for s.block > 1 && (s.block*lines > 96 || s.block*(v[3]+2) > 1400 || s.block/2 >= share) {
		s.block /= 2
	}
	s.parts, s.least = dev.partsOf(n.In[5].Shape[1]*k[1], q[0]*k[2]*ceil(share, s.block))
	return s
}

func pagedScratch(dev *Device, n *graph.Node) int {
	s, split := dev.pagedShape(n), dev.splitScratch(n)
	if s.parts == 1 {
		return split
	}
	return max(split, 4*n.In[0].Shape[0]*n.In[0].Shape[1]*s.parts*(n.In[2].Shape[3]+2))
}

// pagedProgram is the source of both kernels; what a push does not need of it is given too.
func pagedProgram(dh, dv, kt, vt, line int, s attentionShape, softcap bool, page int, more []string) program {
	options := []string{define("DH", dh), define("DV", dv), define("KT", kt), define("VT", vt),
		define("VE", line), define("QB", s.block), onOff("CAP", softcap), define("G_PARTS", s.parts),
		define("G_PART", s.least), define("PAGE", page)}
	return newProgram("paged.hip", append(options, more...)...)
}

func bindPagedPush(b *binder) {
	pool, at := b.pool(0)
	x := b.in(1)
	prog := pagedProgram(1, 1, 0, 0, 1, attentionShape{block: 1, parts: 1, least: attentionPart}, false, 1, nil)
	across := min(ceil(x.RowElems(), 128), 8)
	d := b.start(prog, "paged_push", 128, x.Shape[0], across, 1).
		ptr(at).u32(cacheCode(pool.Type), pool.Shape[0]).ptr(b.pointer(x)).u32(x.Stride/4, x.RowElems()).
		ptr(b.dense(b.in(2))).u32(across)
	b.status(d)
}

func bindPagedAttention(b *binder) {
	n := b.l.Node
	a := graph.Attr[ops.AttentionAttr](n)
	q, pos, seq, table := b.in(0), b.in(3), b.in(4), b.in(5)
	k, kAt := b.pool(1)
	v, vAt := b.pool(2)
	if b.err != nil || b.split(&k, &v, kAt, vAt) {
		return
	}
	s := b.dev.pagedShape(n)
	dh, dv, groups := q.Shape[2], v.Shape[2], k.Shape[1]
	line := cacheLine(&k, &v, kAt, vAt)
	prog := pagedProgram(dh, dv, cacheCode(k.Type), cacheCode(v.Type), line, s, a.Softcap > 0,
		n.In[1].Shape[1], moreOf(n))
	blocks := q.Shape[0] * ceil(s.queries, s.block)
	var scratch, counters uintptr
	if s.parts > 1 {
		var err error
		if counters, err = b.dev.zeroed(groups * blocks); err != nil {
			b.failf("%w", fmt.Errorf("counters of parts: %w", err))
		}
		b.common = append(b.common, span{counters, counters + 1, true})
		scratch = b.scratch()
	}
	d := b.start(prog, "paged_attention", 128, blocks, groups, s.parts).
		ptr(b.out(0), b.pointer(q)).u32(q.Stride/4).ptr(kAt).u32(cacheStride(&k)).ptr(vAt).u32(cacheStride(&v)).
		ptr(b.dense(pos), b.dense(seq), b.dense(table)).
		u32(table.Shape[0], table.Shape[1], n.In[1].Shape[0], q.Shape[1], groups).
		f32(a.ScaleOf(dh)).f32(a.Softcap).u32(a.Window).ptr(scratch, counters)
	b.status(d)
	if ops.Beyond(n) != "" {
		sinks, typ := b.plain(b.in(6))
		d.ptr(sinks).u32(typ, a.Chunk).f32(a.ALiBi).f32(a.SlopeFactor())
		b.distances(d, n)
	}
}
