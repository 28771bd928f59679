package hip

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// attentionShape is how an attention is divided.
type attentionShape struct {
	queries int // of a key/value head: tokens times the query heads that share it
	block   int // queries of a block
	parts   int // of the positions, at most
	least   int // positions of a part at least
}

const (
	attentionLanes = 16   // of a position, as in attention.hip
	attentionMost  = 1024 // elements of a head
	attentionPart  = 32   // positions of a part at least
	// The same of an invariant device, and how many parts there are at most, so that a row's own length alone says how
	// its positions are cut. Sums of parts lie in memory for each row and head, so that there are few.
	invariantPart, invariantParts = 256, 16
)

// partsOf is into how many parts so many positions are cut at most where there are so many blocks of queries, and the
// positions of a part at least.
func (dev *Device) partsOf(positions, blocks int) (parts, least int) {
	if dev.invariant {
		return min(ceil(positions, invariantPart), invariantParts), invariantPart
	}
	if want := 4 * max(dev.units, 16); blocks < want {
		return min(ceil(want, blocks), ceil(positions, 2*attentionPart), 32), attentionPart
	}
	return 1, attentionPart
}

// checkAttention says whether caches can be read and heads held in registers.
func checkAttention(n *graph.Node) error {
	for _, v := range n.In[1:3] {
		switch v.Type {
		case tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3, tensor.Q8_0:
		default:
			return fmt.Errorf("%s: caches of f32, f16, bf16, f8e4m3 and q8_0 can be read", v)
		}
		if v.Shape[2] > attentionMost {
			return fmt.Errorf("%s: heads have up to %d elements here", v, attentionMost)
		}
	}
	return nil
}

func (dev *Device) attentionShape(n *graph.Node) attentionShape {
	q, k, v := n.In[0].Shape, n.In[1].Shape, n.In[2].Shape
	s := attentionShape{queries: q[0] * q[1] / k[1], block: 4}
	// Registers hold a query's elements and its sums, shared memory the sums of all groups.
	lines := ceil(q[2], attentionLanes) + ceil(v[2], attentionLanes)
	for s.block > 1 && (s.block*lines > 96 || s.block*(v[2]+2) > 1400 || s.block/2 >= s.queries ||
		dev.invariant && q[1]/k[1]%s.block != 0) { // then a block's queries are of one token
		s.block /= 2
	}
	s.parts, s.least = dev.partsOf(k[0], k[1]*ceil(s.queries, s.block))
	return s
}

func attentionScratch(dev *Device, n *graph.Node) int {
	s, split := dev.attentionShape(n), dev.splitScratch(n)
	if s.parts == 1 {
		return split
	}
	return max(split, 4*n.In[1].Shape[1]*s.queries*s.parts*(n.In[2].Shape[2]+2))
}

// Attention on tensor cores: see flash.hip.

const (
	flashQueries, flashTile = 64, 64 // QUERIES and TILE in flash.hip
)

func (b *binder) flash(kAt, vAt uintptr) {
	n := b.l.Node
	a := graph.Attr[ops.AttentionAttr](n)
	q, k, v, pos := b.in(0), b.in(1), b.in(2), b.in(3)
	dh, dv, groups := q.Shape[2], v.Shape[2], k.Shape[1]
	queries := q.Shape[0] * q.Shape[1] / groups
	async := hasHalves(b.dev.info.Level) && dh%64 == 0 && dv%64 == 0
	sinks := ops.Beyond(n) != "" // nothing else that is beyond the plain form comes here
	prog := newProgram("flash.hip", define("DH", dh), define("DV", dv), onOff("CAP", a.Softcap > 0), onOff("ASYNC", async),
		onOff("SINKS", sinks))
	d := b.start(prog, "flash", 128, groups, ceil(queries, flashQueries), 1).
		ptr(b.out(0), b.pointer(q)).u32(q.Stride/4).ptr(kAt).u32(k.Stride/2).ptr(vAt).u32(v.Stride/2).
		ptr(b.dense(pos)).u32(k.Shape[0], q.Shape[0], q.Shape[1], groups).
		f32(a.ScaleOf(dh)).f32(a.Softcap).u32(a.Window)
	atOnce := 0
	if async && groups*ceil(queries, flashQueries) <= 2*b.dev.units {
		atOnce = 1
	}
	d.u32(atOnce)
	d.shared = 2 * flashTile * (2*dh + 16 + 2*dv + 16) // two stages, rows with a line of 16 bytes more
	if async {
		d.shared = 2*flashTile*(2*dh+2*dv) + 2*flashQueries*dh + 1024 // with low parts of queries, aligned to 1024
	}
	b.status(d)
	if sinks {
		at, typ := b.plain(b.in(4))
		d.ptr(at).u32(typ)
	}
}

func bindAttention(b *binder) {
	n := b.l.Node
	if b.attend(nil) {
		return
	}
	a := graph.Attr[ops.AttentionAttr](n)
	q, k, v, pos := b.in(0), b.in(1), b.in(2), b.in(3)
	s := b.dev.attentionShape(n)
	dh, dv, groups := q.Shape[2], v.Shape[2], k.Shape[1]
	kAt, vAt := b.pointer(k), b.pointer(v)
	if b.dev.usesFlash(n) && kAt%16 == 0 && vAt%16 == 0 && k.Stride%16 == 0 && v.Stride%16 == 0 && b.pointer(q)%8 == 0 &&
		q.Stride%8 == 0 && b.out(0)%8 == 0 {
		b.flash(kAt, vAt)
		return
	}
	if b.split(k, v, kAt, vAt) {
		return
	}
	line := cacheLine(k, v, kAt, vAt)
	prog := attentionProgram(dh, dv, cacheCode(k.Type), cacheCode(v.Type), line, s, a.Softcap > 0, moreOf(n))
	var scratch, counters uintptr
	if s.parts > 1 {
		var err error
		if counters, err = b.dev.zeroed(groups * ceil(s.queries, s.block)); err != nil {
			b.failf("%w", err)
		}
		b.common = append(b.common, span{counters, counters + 1, true})
		scratch = b.scratch()
	}
	d := b.start(prog, "attention", 128, ceil(s.queries, s.block), groups, s.parts).
		ptr(b.out(0), b.pointer(q)).u32(q.Stride/4).ptr(kAt).u32(cacheStride(k)).ptr(vAt).u32(cacheStride(v)).
		ptr(b.dense(pos)).u32(k.Shape[0], q.Shape[0], q.Shape[1], groups).
		f32(a.ScaleOf(dh)).f32(a.Softcap).u32(a.Window).ptr(scratch, counters)
	b.status(d)
	if ops.Beyond(n) != "" {
		sinks, typ := b.plain(b.in(4))
		d.ptr(sinks).u32(typ, a.Chunk, flagged(a.Both)).f32(a.ALiBi).f32(a.SlopeFactor()).
			ptr(b.dense(b.in(5)))
		b.distances(d, n)
	}
}

// distances hands over an attention's tables of distances.
func (b *binder) distances(d *dispatch, n *graph.Node) {
	_, heads := ops.Distances(n)
	first := ops.Place(n, "bias")
	for i := range 3 {
		table, typ := b.plain(b.in(first + i))
		d.ptr(table).u32(typ)
	}
	d.u32(heads).f32(graph.Attr[ops.AttentionAttr](n).Reach)
}

// cacheCode is the number of a cache's type in cache.h.
func cacheCode(t tensor.Type) int {
	if t == tensor.Q8_0 {
		return 7
	}
	return int(plainTypes[t]) - 1
}

// cacheStride is how far apart a cache's rows lie, in elements; those of q8_0 in bytes.
func cacheStride(o *backends.Operand) int {
	if o.Type == tensor.Q8_0 {
		return o.Stride
	}
	_, size := o.Type.Block()
	return o.Stride / size
}

// cacheLine is how many elements of a head are loaded at once.
func cacheLine(k, v *backends.Operand, kAt, vAt uintptr) int {
	fits := func(o *backends.Operand, at uintptr, line int) bool {
		_, size := o.Type.Block()
		if o.Type == tensor.Q8_0 { // pairs of bytes, whatever lies before
			return at%2 == 0
		}
		bytes := line * size
		return bytes <= 16 && o.Shape.Last()%line == 0 && at%uintptr(bytes) == 0 && o.Stride%bytes == 0
	}
	for _, line := range []int{8, 4} {
		if fits(k, kAt, line) && fits(v, vAt, line) {
			return line
		}
	}
	return 1
}

// attentionProgram is attention.hip for heads of dh and dv elements, caches of types, and loads of line elements; more:
// with what goes beyond the plain form (moreOf).
func attentionProgram(dh, dv, kt, vt, line int, s attentionShape, capped bool, more []string) program {
	options := []string{define("DH", dh), define("DV", dv), define("KT", kt), define("VT", vt), define("VE", line),
		define("QB", s.block), onOff("CAP", capped), define("G_PARTS", s.parts), define("G_PART", s.least)}
	return newProgram("attention.hip", append(options, more...)...)
}

// moreOf is what attention.hip must know of a node that goes beyond the plain form (ops.Beyond), nil where it does not.
func moreOf(n *graph.Node) []string {
	if ops.Beyond(n) == "" {
		return nil
	}
	count, _ := ops.Distances(n)
	if count == 0 {
		return []string{"MORE=1"}
	}
	return []string{"MORE=1", define("COUNT", count), define("APART", graph.Attr[ops.AttentionAttr](n).ApartCode())}
}
