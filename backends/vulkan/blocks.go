//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"slices"
	"unsafe"

	"greta/backends/vulkan/vk"
)

// Blocks: a device allows few allocations (4096 by the specification's minimum) and each
// is slow, so buffers lie side by side in large ones.

const (
	firstBlock = 16 << 20  // of a memory type; each further one is twice as large
	mostBlock  = 256 << 20 // up to this
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

// take finds room of a memory type, in a block that exists or in a new one. What
// is larger than half a block has an allocation of its own.
func (d *Device) take(kind uint32, size, align uint64) (place, error) {
	usual, n := uint64(firstBlock), 0
	for _, b := range d.blocks {
		if b.kind != kind {
			continue
		}
		n++
		if p, ok := b.take(size, align); ok {
			return p, nil
		}
	}
	heap := d.p.memory.MemoryHeaps[d.p.memory.MemoryTypes[kind].HeapIndex].Size
	usual = min(usual<<min(n, 8), mostBlock, max(heap/16, 1<<20), uint64(d.p.MaxAllocation))
	for _, bytes := range []uint64{usual, size} {
		if bytes < size || bytes == usual && size > usual/2 && size != usual {
			continue
		}
		b, err := d.newBlock(kind, bytes)
		if err == nil {
			p, _ := b.take(size, align)
			return p, nil
		}
		if bytes == size {
			return place{}, err
		}
	}
	return place{}, fmt.Errorf("no block of %d bytes", size) // not reached: the last size is the one asked for
}

func (d *Device) newBlock(kind uint32, size uint64) (*block, error) {
	b := &block{kind: kind, size: size, free: []gap{{0, size}}}
	info := (&vk.MemoryAllocateInfo{AllocationSize: size, MemoryTypeIndex: kind}).Init()
	if d.has.imports {
		info.PNext = unsafe.Pointer((&vk.MemoryAllocateFlagsInfo{Flags: vk.MemoryAllocateFlags(vk.VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT)}).Init())
	}
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
