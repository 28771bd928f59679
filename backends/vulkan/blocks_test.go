//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends/vulkan/vk"
)

// TestBlock takes and gives ranges at random: they are aligned and never overlap,
// and a block whose ranges all came back is whole.
func TestBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := &block{size: 1 << 16, free: []gap{{0, 1 << 16}}}
	owner := make([]int, b.size)
	var held []place
	refused := 0
	for i := 1; i < 20000; i++ {
		if len(held) > 0 && rng.IntN(2) == 0 {
			k := rng.IntN(len(held))
			p := held[k]
			for j := p.from; j < p.to; j++ {
				owner[j] = 0
			}
			b.give(p)
			held[k] = held[len(held)-1]
			held = held[:len(held)-1]
			continue
		}
		align := uint64(1) << rng.IntN(9)
		p, ok := b.take(1+uint64(rng.IntN(3000)), align)
		if !ok {
			refused++
			continue
		}
		if p.from%align != 0 || p.to > b.size {
			t.Fatalf("range %d to %d, aligned to %d", p.from, p.to, align)
		}
		for j := p.from; j < p.to; j++ {
			if owner[j] != 0 {
				t.Fatalf("byte %d was given twice", j)
			}
			owner[j] = i
		}
		held = append(held, p)
	}
	for i := 1; i < len(b.free); i++ {
		if b.free[i-1].to >= b.free[i].from {
			t.Fatalf("gaps touch: %v", b.free)
		}
	}
	for _, p := range held {
		b.give(p)
	}
	if !b.empty() || refused == 0 {
		t.Errorf("at the end %v is free; %d requests were refused", b.free, refused)
	}
}

// TestBlockSizes: blocks grow to whole pages, which large buffers round up to; small heaps and the host's memory
// give large buffers what they need.
func TestBlockSizes(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		n                 int
		size, most, limit uint64
		want              []uint64
	}{
		{0, 1, mostBlock, 4 << 30, []uint64{16 * mb, 1}},
		{0, 8 * mb, mostBlock, 4 << 30, []uint64{16 * mb, 8 * mb}},
		{0, 9 * mb, mostBlock, 4 << 30, []uint64{128 * mb, 9 * mb}},
		{1, 9 * mb, mostBlock, 4 << 30, []uint64{128 * mb, 9 * mb}},
		{2, 1, mostBlock, 4 << 30, []uint64{512 * mb, 1}},
		{0, 65 * mb, mostBlock, 4 << 30, []uint64{512 * mb, 65 * mb}},
		{9, 512 * mb, mostBlock, 4 << 30, []uint64{512 * mb, 512 * mb}},
		{9, 513 * mb, mostBlock, 4 << 30, []uint64{1024 * mb, 513 * mb}},
		{9, 4095 * mb, mostBlock, 4095 * mb, []uint64{4095 * mb}},
		{9, 1, 256 * mb, 256 * mb, []uint64{256 * mb, 1}},
		{9, 129 * mb, 256 * mb, 256 * mb, []uint64{129 * mb}},
		{9, 60 * mb, 100 * mb, 4 << 30, []uint64{60 * mb}},
		{9, 50 * mb, 100 * mb, 4 << 30, []uint64{100 * mb, 50 * mb}},
		{1, 40 * mb, hostBlock, 4 << 30, []uint64{40 * mb}},
		{0, 1, mb, 4 << 30, []uint64{mb, 1}},
		{0, mb, mb, 4 << 30, []uint64{mb}},
	} {
		if got := blockSizes(c.n, c.size, c.most, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%d blocks, %d bytes, most %d, limit %d: %v, want %v", c.n, c.size, c.most, c.limit, got, c.want)
		}
	}
}

// TestMemoryTypes: which memory is used for what, on memories as drivers list them.
func TestMemoryTypes(t *testing.T) {
	host := visible | coherent
	for _, c := range []struct {
		name  string
		kind  Kind
		flags []vk.MemoryPropertyFlags
		want  memoryTypes
	}{
		{"a card", Discrete, []vk.MemoryPropertyFlags{0, local, host, host | cached, local | host},
			memoryTypes{local: []uint32{1, 4}, step: []uint32{1, 4}, near: []uint32{4}, read: []uint32{3, 2, 4}}},
		{"a card without memory of its own alone", Discrete, []vk.MemoryPropertyFlags{local | host, host | cached},
			memoryTypes{local: []uint32{0}, step: []uint32{0}, near: []uint32{0}, read: []uint32{1, 0}}},
		{"an APU, mapped without caches", Integrated, []vk.MemoryPropertyFlags{local, host, local | host, host | cached},
			memoryTypes{local: []uint32{2, 0}, step: []uint32{3, 1, 2}, read: []uint32{3, 1, 2}}},
		{"an APU with one memory", Integrated, []vk.MemoryPropertyFlags{local, local | host | cached},
			memoryTypes{local: []uint32{1}, step: []uint32{1}, read: []uint32{1}}},
		{"a software device", Software, []vk.MemoryPropertyFlags{local | host | cached},
			memoryTypes{local: []uint32{0}, step: []uint32{0}, read: []uint32{0}}},
	} {
		m := &vk.PhysicalDeviceMemoryProperties{MemoryTypeCount: uint32(len(c.flags))}
		for i, f := range c.flags {
			m.MemoryTypes[i].PropertyFlags = f
		}
		if got := chooseTypes(m, c.kind); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
