//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// The choice from a vocabulary: a topk of few long rows, by two kernels.

const (
	pickLeast = 4096 // columns from which on one workgroup a row is too few
	pickPart  = 2048 // columns of a workgroup
	// pickMost is the k up to which the choice is made here. Each of the k turns reads
	// a part again, from the nearest cache.
	pickMost = 64
)

// picked says whether a topk is a choice from a vocabulary.
func picked(n *graph.Node) bool {
	a := graph.Attr[ops.TopKAttr](n)
	return a.Softmax == "none" && a.Groups <= 1 && a.K <= pickMost && n.In[0].Shape.Last() >= pickLeast
}

func pickParts(cols int) int { return (cols + pickPart - 1) / pickPart }

// pickScratch is room for the k best of each part: their order and their index.
func pickScratch(_ *Device, n *graph.Node) int {
	if !picked(n) {
		return 0
	}
	x := n.In[0].Shape
	return 8 * x.Rows() * pickParts(x.Last()) * graph.Attr[ops.TopKAttr](n).K
}

func bindPick(b *bind) error {
	l, k := b.l, graph.Attr[ops.TopKAttr](b.l.Node).K
	cols := l.In[0].Shape.Last()
	parts, size := pickParts(cols), pickScratch(b.d, l.Node)
	found := backends.Operand{Buffer: l.Scratch.Buffer, Offset: l.Scratch.Offset}
	if b.places != nil {
		found = backends.Operand{Buffer: b.places.take(size)}
	}
	for join := range uint32(2) {
		c := b.call("pick")
		x := b.floats(c, &l.In[0], false)
		soff := b.bytes(c, found.Buffer, found.Offset, size, join == 0) / 8
		p := b.floats(c, &l.Out[0], true)
		eoff, estride := b.operand(c, &l.Out[1], true)/4, uint32(l.Out[1].Stride/4)
		if len(l.Out[1].Shape) == 1 {
			estride = 0
		}
		b.status(c)
		from := &l.In[0]
		if join == 1 {
			from = &found
		}
		b.hand(c, b.places != nil, &found, buffersOf(from), nil)
		if join == 1 {
			c.says = false // who reads these waits for nothing
		}
		c.spec = []uint32{workgroup, join, flag(b.places != nil)}
		c.push = []uint32{uint32(cols), pickPart, uint32(parts), uint32(k), x.inner, x.off, x.stride, soff, p.off, p.stride,
			eoff, estride,
			uint32(b.number), 0}
		groups := parts
		if join == 1 {
			groups = 1
		}
		b.run(c, groups, int(x.n))
	}
	return nil
}
