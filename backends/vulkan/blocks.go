//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"github.com/greta-project/greta/backends/vulkan/vk"
)

// Blocks: a device allows few allocations (4096 by the specification's minimum) and each
// is slow, so buffers lie side by side in large ones.

const (
	firstBlock  = 16 << 20 // of a memory type
	blockGrowth = 8        // each further one is so many times as large
	// mostBlock is up to what. NVIDIA's driver seems to map allocations of this size by pages of their own: from
	// blocks of half the size a token's weights are read up to 5 % slower, from larger ones no faster.
	mostBlock = 512 << 20
	hostBlock = 64 << 20 // the like of the host's memory
	// of a buffer for which that matters: in the first block halves of activations lay such that
	// products read them 3 % slower
	leastRead = 1 << 20
)

// block is one allocation of a device.
type block struct {
	memory vk.DeviceMemory
	kind   uint32 // memory type
	size   uint64
	mapped []byte // nil where the host cannot reach it
	free   []gap  // by offset; no two touch
}

// gap is a free range of a block.
type gap struct{ from, to uint64 }

// place is a buffer's part of a block.
type place struct {
	block    *block
	from, to uint64
}

// take gives a range of the block, false where none is free.
func (b *block) take(size, align uint64) (place, bool) {
	for i, g := range b.free {
		from := (g.from + align - 1) / align * align
		if from+size > g.to {
			continue
		}
		var left []gap
		if from > g.from {
			left = append(left, gap{g.from, from})
		}
		if from+size < g.to {
			left = append(left, gap{from + size, g.to})
		}
		b.free = slices.Replace(b.free, i, i+1, left...)
		return place{b, from, from + size}, true
	}
	return place{}, false
}

// give makes a range free again, joined with its neighbours.
func (b *block) give(p place) {
	i, _ := slices.BinarySearchFunc(b.free, p.from, func(g gap, at uint64) int {
		if g.from < at {
			return -1
		}
		return 1
	})
	g, from, to := gap{p.from, p.to}, i, i
	if i > 0 && b.free[i-1].to == g.from {
		g.from, from = b.free[i-1].from, i-1
	}
	if i < len(b.free) && b.free[i].from == g.to {
		g.to, to = b.free[i].to, i+1
	}
	b.free = slices.Replace(b.free, from, to, g)
}

// empty says whether nothing of the block is in use.
func (b *block) empty() bool { return len(b.free) == 1 && b.free[0] == gap{0, b.size} }

// blockSizes are those of the block that is made for a buffer where n exist, the first that can be had: room
// for more like it, then its own size. most is the largest usual one, limit, which is no less, the
// largest at all. What is larger than half a usual block has its own, of whole pages where blocks
// are of the largest kind.
func blockSizes(n int, size, most, limit uint64) []uint64 {
	usual := uint64(firstBlock)
	for ; usual < most && (n > 0 || usual < 2*size); n-- {
		usual *= blockGrowth
	}
	switch usual = min(usual, most); {
	case usual == mostBlock:
		usual = (size + mostBlock - 1) / mostBlock * mostBlock
	case usual < 2*size:
		return []uint64{size}
	}
	if usual > limit {
		return []uint64{size}
	}
	return []uint64{usual, size}
}

// take finds room of a memory type, in a block that exists or in a new one.
func (d *Device) take(kind uint32, size, align uint64) (place, error) {
	var same []*block
	for _, b := range d.blocks {
		if b.kind == kind {
			same = append(same, b)
		}
	}
	n := len(same)
	if size >= leastRead { // the largest ones first
		slices.SortStableFunc(same, func(a, b *block) int { return cmp.Compare(b.size, a.size) })
	}
	for _, b := range same {
		if p, ok := b.take(size, align); ok {
			return p, nil
		}
	}
	t := d.p.memory.MemoryTypes[kind]
	most, limit := uint64(hostBlock), uint64(d.p.MaxAllocation)
	if t.PropertyFlags&local != 0 {
		most = mostBlock
	}
	most = min(most, limit, max(d.p.memory.MemoryHeaps[t.HeapIndex].Size/16, 1<<20))
	var b *block
	var err error
	for _, bytes := range blockSizes(n, size, most, limit) {
		if b, err = d.newBlock(kind, bytes); err == nil {
			p, _ := b.take(size, align)
			return p, nil
		}
	}
	return place{}, err
}

func (d *Device) newBlock(kind uint32, size uint64) (*block, error) {
	b := &block{kind: kind, size: size, free: []gap{{0, size}}}
	info := (&vk.MemoryAllocateInfo{AllocationSize: size, MemoryTypeIndex: kind}).Init()
	if r := d.c.AllocateMemory(d.handle, info, nil, &b.memory); r != vk.VK_SUCCESS {
		return nil, failed(fmt.Sprintf("vkAllocateMemory of type %d", kind), r)
	}
	if d.p.memory.MemoryTypes[kind].PropertyFlags&(visible|coherent) == visible|coherent {
		var p unsafe.Pointer
		if r := d.c.MapMemory(d.handle, b.memory, 0, forever, 0, &p); r != vk.VK_SUCCESS {
			d.c.FreeMemory(d.handle, b.memory, nil)
			return nil, failed("vkMapMemory", r)
		}
		b.mapped = unsafe.Slice((*byte)(p), size)
	}
	d.blocks = append(d.blocks, b)
	return b, nil
}

// giveBack frees a buffer's part, and its block where that was the last and
// another one is left for what comes next.
func (d *Device) giveBack(p place) {
	b := p.block
	b.give(p)
	same := 0
	for _, o := range d.blocks {
		if o.kind == b.kind {
			same++
		}
	}
	if b.empty() && (same > 1 || b.size > firstBlock) {
		d.dropBlock(b)
	}
}

func (d *Device) dropBlock(b *block) {
	d.c.FreeMemory(d.handle, b.memory, nil)
	d.blocks = slices.DeleteFunc(d.blocks, func(o *block) bool { return o == b })
}
