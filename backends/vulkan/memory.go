//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/errlist"
)

// Memory: a buffer is one VkBuffer in a part of a block (blocks.go). Device-local
// memory that the host can also reach (integrated and software devices) stays
// mapped; elsewhere bytes go through staging buffers. Step memory of a discrete
// device has two sides: kernels use the device's, Write and Read the host's, and
// a program copies what it reads before it starts, and what it wrote at its end. Where the host
// reaches the device's side of a small one it writes both, and nothing is copied before the start.
//
// A weight larger than the largest allocation lies in several buffers that overlap,
// so that a row, or an expert, is always whole in one of them.

const (
	local    = vk.MemoryPropertyFlags(vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)
	visible  = vk.MemoryPropertyFlags(vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
	coherent = vk.MemoryPropertyFlags(vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
	cached   = vk.MemoryPropertyFlags(vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT)
)

// mostNear is the most Step memory that the host writes past the bus: of a token's step, but not
// activations of many rows.
const mostNear = 2 << 20

// memoryTypes are candidates in the order of preference.
type memoryTypes struct {
	local []uint32 // for kernels
	step  []uint32 // for Step memory
	near  []uint32 // of a card, for small Step memory, which the host writes past the bus
	read  []uint32 // for staging, and for the host's side of Step memory
}

// chooseTypes prefers memory that both sides reach at full speed. An integrated device
// may have its own memory mapped without the host's caches: good for weights, which the
// host writes once; what it reads back lies in cached memory then. On a card kernels
// use memory that the host cannot reach, if there is some.
func chooseTypes(m *vk.PhysicalDeviceMemoryProperties, kind Kind) memoryTypes {
	find := func(wants ...[2]vk.MemoryPropertyFlags) (out []uint32) { // has all of the first, none of the second
		seen := [32]bool{}
		for _, w := range wants {
			for i, t := range m.MemoryTypes[:m.MemoryTypeCount] {
				if t.PropertyFlags&w[0] == w[0] && t.PropertyFlags&w[1] == 0 && !seen[i] {
					seen[i] = true
					out = append(out, uint32(i))
				}
			}
		}
		return out
	}
	none := vk.MemoryPropertyFlags(0)
	host := visible | coherent
	if all := find([2]vk.MemoryPropertyFlags{local | host | cached, none}); len(all) > 0 {
		return memoryTypes{local: all, step: all, read: all}
	}
	read := find([2]vk.MemoryPropertyFlags{host | cached, none}, [2]vk.MemoryPropertyFlags{host, none})
	own := find([2]vk.MemoryPropertyFlags{local, visible}, [2]vk.MemoryPropertyFlags{local, none})
	if mapped := find([2]vk.MemoryPropertyFlags{local | host, none},
		[2]vk.MemoryPropertyFlags{local, none}); kind == Integrated && len(mapped) > 0 {
		return memoryTypes{local: mapped, step: read, read: read}
	}
	return memoryTypes{local: own, step: own, near: find([2]vk.MemoryPropertyFlags{local | host, none}), read: read}
}

// buffer is memory of a device.
type buffer struct {
	d      *Device
	size   int // as asked for
	bytes  uint64
	handle vk.Buffer
	base   uint64 // of a place in another's memory, whose handle it has (overlap.go)
	place  place
	mapped []byte  // nil where the host cannot reach it
	mirror *buffer // the host's side of Step memory, which it also reads where mapped is written by it
	use    backends.Use
	// fresh memory is zeroed when it is first used, unless it is first overwritten
	// as a whole, as weights are.
	fresh bool
	parts []part // of a weight that no single allocation holds; handle is 0 then
	lap   int    // bytes that neighbouring parts share
}

// part holds bytes [from, from+buffer.size) of a large weight.
type part struct {
	*buffer
	from int
}

func (b *buffer) Size() int         { return b.size }
func (b *buffer) Use() backends.Use { return b.use }

// Bytes is the buffer's memory where the host can reach it, else nil.
func (b *buffer) Bytes() []byte {
	if b.mapped == nil || b.mirror != nil {
		return nil
	}
	b.fresh = false
	clear(b.mapped[b.size:])
	return b.mapped[:b.size]
}

// Free gives the memory back. No program that uses it may be under way.
func (b *buffer) Free() error {
	if b.d == nil {
		return nil
	}
	err := b.d.drain()                                // a copy to it may be under way,
	if b.d.p.tells && err == nil && b.d.lost == nil { // or a program that has told its end
		err = b.d.clock.wait(b.d, b.d.clock.given, time.Millisecond, "freeing memory")
	}
	if b.mirror != nil {
		b.mirror.release()
	}
	b.release()
	return err
}

func (b *buffer) release() {
	if b.d == nil {
		return
	}
	for _, p := range b.parts {
		p.release()
	}
	if b.handle != 0 {
		b.d.c.DestroyBuffer(b.d.handle, b.handle, nil)
		b.d.giveBack(b.place)
	}
	b.d, b.mapped, b.parts = nil, nil, nil
}

// newBuffer allocates in the first of types that the buffer allows. Kernels
// noMemory says that there is none for what somebody asked for.
func noMemory(bytes int, what string, err error) error {
	return &backends.OutOfMemory{Need: int64(bytes), What: what, Err: err}
}

// read whole words of 16 bytes, so a buffer is a multiple of that.
func (d *Device) newBuffer(size int, types []uint32, what string) (*buffer, error) {
	b := &buffer{d: d, size: size, bytes: uint64(max(size, 16)+15) &^ 15}
	if b.bytes > uint64(d.p.MaxAllocation) {
		return nil, noMemory(size, what, fmt.Errorf("%s allocates at most %d bytes at once", d.p.Name, d.p.MaxAllocation))
	}
	info := (&vk.BufferCreateInfo{Size: b.bytes, Usage: vk.BufferUsageFlags(vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
		vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT)}).Init()
	if r := d.c.CreateBuffer(d.handle, info, nil, &b.handle); r != vk.VK_SUCCESS {
		return nil, noMemory(size, what, failed("vkCreateBuffer", r))
	}
	need := (&vk.MemoryRequirements2{}).Init()
	d.c.GetBufferMemoryRequirements2(d.handle, (&vk.BufferMemoryRequirementsInfo2{Buffer: b.handle}).Init(), need)
	m := &need.MemoryRequirements
	var errs []error
	for _, t := range types {
		if m.MemoryTypeBits&(1<<t) == 0 {
			continue
		}
		at, err := d.take(t, m.Size, max(m.Alignment, 1))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		bind := (&vk.BindBufferMemoryInfo{Buffer: b.handle, Memory: at.block.memory, MemoryOffset: at.from}).Init()
		if r := d.c.BindBufferMemory2(d.handle, 1, bind); r != vk.VK_SUCCESS {
			d.c.DestroyBuffer(d.handle, b.handle, nil)
			d.giveBack(at)
			return nil, noMemory(size, what, failed("vkBindBufferMemory2", r))
		}
		if b.place = at; at.block.mapped != nil {
			b.mapped = at.block.mapped[at.from : at.from+b.bytes : at.from+b.bytes]
		}
		return b, nil
	}
	d.c.DestroyBuffer(d.handle, b.handle, nil)
	return nil, noMemory(size, what, errlist.Join(errs...))
}

// newParts allocates a weight that is larger than the device allocates at once.
func (d *Device) newParts(size int, what string) (*buffer, error) {
	most := d.mostWeight &^ 255
	b := &buffer{d: d, size: size, bytes: uint64(size+15) &^ 15, lap: d.lap &^ 255}
	if b.lap == 0 {
		return nil, noMemory(size, what, fmt.Errorf("%s allocates at most %d bytes at once", d.p.Name, d.mostWeight))
	}
	d.parted++
	for from := 0; ; from += most - b.lap {
		p, err := d.newBuffer(min(most, size-from), d.types.local, what)
		if err != nil {
			b.release()
			return nil, err
		}
		if d.distant {
			p.mapped = nil
		}
		b.parts = append(b.parts, part{p, from})
		if from+p.size >= size {
			return b, nil
		}
	}
}

// Alloc gives zeroed memory.
func (d *Device) Alloc(bytes int, use backends.Use) (backends.Buffer, error) {
	if d.lost != nil {
		return nil, d.lost
	}
	if bytes < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes", bytes)
	}
	var b *buffer
	var err error
	switch {
	case use == backends.Weights && bytes > d.mostWeight&^15:
		b, err = d.newParts(bytes, use.String())
	case use == backends.Step && bytes <= mostNear && len(d.types.near) > 0:
		if b, err = d.newBuffer(bytes, d.types.near, use.String()); err == nil {
			break
		}
		fallthrough
	case use == backends.Step:
		b, err = d.newBuffer(bytes, d.types.step, use.String())
	default:
		b, err = d.newBuffer(bytes, d.types.local, use.String())
	}
	if err != nil {
		return nil, err
	}
	b.use = use
	if d.distant {
		b.mapped = nil
	}
	if use == backends.Step && (b.mapped == nil || len(d.types.near) > 0) {
		if b.mirror, err = d.newBuffer(bytes, d.types.read, "the host's side of "+use.String()); err != nil {
			b.release()
			return nil, err
		}
		if !d.opt.hooks.isNull() {
			clear(b.mirror.mapped)
		}
	}
	b.fresh = true
	return b, nil
}

// zero clears fresh memory.
func (b *buffer) zero() error {
	if !b.fresh {
		return nil
	}
	b.fresh = false
	for _, p := range b.parts {
		p.fresh = true
		if err := p.zero(); err != nil {
			return err
		}
	}
	switch {
	case b.parts != nil || b.d.opt.hooks.isNull():
		return nil
	case b.mapped != nil:
		clear(b.mapped)
		return nil
	}
	return b.d.once("zeroing memory", func(r *recorder) {
		r.d.c.CmdFillBuffer(r.cb, b.handle, 0, forever, 0)
		r.barrier(transferStage, shaderStage|transferStage|hostStage)
	})
}

// whole finds the buffer that holds bytes [from, to) of b, and where it starts.
func (b *buffer) whole(from, to uint64) (*buffer, uint64, error) {
	if b.parts == nil {
		return b, 0, nil
	}
	for _, p := range b.parts {
		if start := uint64(p.from); start <= from && to <= start+p.bytes {
			return p.buffer, start, nil
		}
	}
	return nil, 0, fmt.Errorf("bytes %d to %d lie in no allocation: parts of %d share %d bytes", from, to, b.parts[0].size,
		b.lap)
}

// own gives bytes [offset, offset+n) of a buffer of this device as its own type.
func (d *Device) own(b backends.Buffer, offset, n int) (*buffer, error) {
	o, ok := b.(*buffer)
	if !ok || o.d != d {
		return nil, fmt.Errorf("a buffer of another device, or one that was freed (%T)", b)
	}
	if offset < 0 || n < 0 || offset > o.size || n > o.size-offset {
		return nil, fmt.Errorf("bytes %d to %d of a buffer of %d", offset, offset+n, o.size)
	}
	return o, nil
}
