package hip

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Attention of one token behind a long context, and of rows of many sequences: see attention_split.hip.

const (
	splitThreads = 128
	splitWaves   = 4   // WAVES in attention_split.hip
	splitTile    = 16  // positions of a tile
	splitMost    = 8   // queries of a block
	splitRows    = 512 // rows of a launch at most
)

// splits is how many blocks divide the work: as many as run at once.
func (dev *Device) splits() int { return 2 * max(dev.units, 16) }

// takesSplit says whether attention_split.hip computes a node, where there are its instructions.
func takesSplit(n *graph.Node) bool {
	if n.Op != ops.Attention && n.Op != ops.PagedAttention || ops.Beyond(n) != "" {
		return false
	}
	q, k, v := n.In[0], n.In[1], n.In[2]
	dh, page := k.Shape.Last(), splitTile
	if n.Op == ops.PagedAttention {
		page = k.Shape[1]
	} else if q.Shape[0] != 1 {
		return false
	}
	return k.Type == tensor.F16 && v.Type == tensor.F16 && dh == v.Shape.Last() && dh == 128 &&
		page%splitTile == 0 && q.Shape[0] <= splitRows
}

// usesSplit says whether a node goes to attention_split.hip.
func (dev *Device) usesSplit(n *graph.Node) bool {
	return dev.d.vendor() == nvidia && hasMatrixCores(dev.info.Level) && dev.on(pathMatrix) && takesSplit(n)
}

// splitScratch is room for the sums of the first and the last row and head of each block.
func (dev *Device) splitScratch(n *graph.Node) int {
	if !dev.usesSplit(n) {
		return 0
	}
	return 4 * 2 * dev.splits() * splitMost * (n.In[1].Shape.Last() + 4)
}

// splitStages is how many tiles of a wave are in shared memory.
func (dev *Device) splitStages() int {
	if dev.info.Level == "sm_80" || dev.info.Level == "sm_90" { // their multiprocessors have room for more
		return 3
	}
	return 2
}

// splitProgram is attention_split.hip for heads of dh elements; page: positions of a page, 0 for one cache.
func splitProgram(dh, page, stages int, capped bool) program {
	return newProgram("attention_split.hip", define("DH", dh), define("PAGE", page), define("STAGES", stages),
		onOff("CAP", capped))
}

// split binds an attention to attention_split.hip, where that computes it. k and v are one cache
// each, of all pages where they lie in pages.
func (b *binder) split(k, v *backends.Operand, kAt, vAt uintptr) bool {
	n := b.l.Node
	if !b.dev.usesSplit(n) {
		return false
	}
	a := graph.Attr[ops.AttentionAttr](n)
	q, y := b.in(0), b.out(0)
	if (kAt|vAt)%16 != 0 || (k.Stride|v.Stride)%16 != 0 || b.pointer(q)%8 != 0 || q.Stride%8 != 0 || y%16 != 0 {
		return false
	}
	heads, dh, groups := q.Shape[1], q.Shape[2], k.Shape[1]
	var seq, table uintptr
	page, lines, width, pages := 0, 0, 0, 0
	if n.Op == ops.PagedAttention {
		t := b.in(5)
		seq, table, lines, width = b.dense(b.in(4)), b.dense(t), t.Shape[0], t.Shape[1]
		pages, page = n.In[1].Shape[0], n.In[1].Shape[1]
	}
	counters, err := b.dev.zeroed(q.Shape[0] * groups * ceil(heads/groups, splitMost))
	if err != nil {
		b.failf("%w", fmt.Errorf("counters of parts: %w", err))
	}
	b.common = append(b.common, span{counters, counters + 1, true})
	stages := b.dev.splitStages()
	d := b.start(splitProgram(dh, page, stages, a.Softcap > 0), "attention_split", splitThreads, b.dev.splits(), 1, 1).
		ptr(y, b.pointer(q)).u32(q.Stride/4).ptr(kAt).u32(k.Stride/2).ptr(vAt).u32(v.Stride/2).
		ptr(b.dense(b.in(3))).u32(k.Shape[0], q.Shape[0], heads, groups).
		f32(a.ScaleOf(dh)).f32(a.Softcap).u32(a.Window).ptr(seq, table).u32(lines, width, pages).
		ptr(b.scratch(), counters)
	d.shared = splitWaves * stages * 2 * splitTile * dh * 2
	b.status(d)
	return true
}
