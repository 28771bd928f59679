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
	splitNarrow  = 128 // elements of a head of which two blocks fit a multiprocessor
)

// splits is how many blocks divide the work, for heads of dh elements: as many as run at once.
func (dev *Device) splits(dh int) int {
	if dh > splitNarrow {
		return max(dev.units, 16)
	}
	return 2 * max(dev.units, 16)
}

// takesSplit says whether attention_split.hip computes a node, where there are its instructions.
func (dev *Device) takesSplit(n *graph.Node) bool {
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
	return (k.Type == tensor.F16 || k.Type == tensor.BF16) && v.Type == k.Type && dh == v.Shape.Last() && dh >= 64 &&
		dh <= 256 && dh%16 == 0 && dev.splitStages(dh) >= 2 && page%splitTile == 0 && q.Shape[0] <= splitRows
}

// usesSplit says whether a node goes to attention_split.hip.
func (dev *Device) usesSplit(n *graph.Node) bool {
	return !dev.invariant && dev.d.vendor() == nvidia && hasMatrixCores(dev.info.Level) && dev.on(pathMatrix) &&
		dev.takesSplit(n)
}

// splitScratch is room for the sums of the first and the last row and head of each block.
func (dev *Device) splitScratch(n *graph.Node) int {
	if !dev.usesSplit(n) {
		return 0
	}
	dh := n.In[1].Shape.Last()
	return 4 * 2 * dev.splits(dh) * splitMost * (dh + 4)
}

// splitStage is how many bytes of shared memory the waves' tiles of keys and values take.
func splitStage(dh int) int {
	lines := dh / 8
	if lines%8 != 0 {
		lines |= 1
	}
	return splitWaves * 2 * splitTile * lines * 16
}

// splitStages is how many tiles of a wave are in shared memory, for heads of dh elements; less than
// 2: there is no room.
func (dev *Device) splitStages(dh int) int {
	room, wide := 64<<10, 0
	switch dev.info.Level { // their multiprocessors have room for more
	case "sm_80":
		room, wide = 96<<10, 144<<10
	case "sm_90":
		room, wide = 96<<10, 192<<10
	}
	if dh > splitNarrow {
		room = wide
	}
	return min(room/splitStage(dh), 6)
}

// splitProgram is attention_split.hip for heads of dh elements of a type; page: positions of a page, 0 for one cache.
func splitProgram(dh int, cache tensor.Type, page, stages int, capped bool) program {
	return newProgram("attention_split.hip", define("DH", dh), onOff("BF16", cache == tensor.BF16), define("PAGE", page),
		define("STAGES", stages), onOff("CAP", capped))
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
	stages := b.dev.splitStages(dh)
	prog := splitProgram(dh, k.Type, page, stages, a.Softcap > 0)
	d := b.start(prog, "attention_split", splitThreads, b.dev.splits(dh), 1, 1).
		ptr(y, b.pointer(q)).u32(q.Stride/4).ptr(kAt).u32(k.Stride/2).ptr(vAt).u32(v.Stride/2).
		ptr(b.dense(b.in(3))).u32(k.Shape[0], q.Shape[0], heads, groups).
		f32(a.ScaleOf(dh)).f32(a.Softcap).u32(a.Window).ptr(seq, table).u32(lines, width, pages).
		ptr(b.scratch(), counters)
	d.shared = stages * splitStage(dh)
	b.status(d)
	return true
}
