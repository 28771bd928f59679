//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"errors"
	"fmt"
	"unsafe"

	"greta/backends"
	"greta/backends/vulkan/vk"
)

// Memory: a buffer is one VkBuffer in an allocation of its own. Device-local
// memory that the host can also reach (integrated and software devices) stays
// mapped; elsewhere bytes go through staging buffers. Step memory of a discrete
// device has two sides: kernels use the device's, Write and Read the host's, and
// a program copies what it reads before it starts, and what it wrote at its end.

const (
	local    = vk.MemoryPropertyFlags(vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)
	visible  = vk.MemoryPropertyFlags(vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
	coherent = vk.MemoryPropertyFlags(vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
	cached   = vk.MemoryPropertyFlags(vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT)
)

// memoryTypes are candidates in the order of preference.
type memoryTypes struct {
	local   []uint32 // for kernels
	read    []uint32 // for what the host reads back
	write   []uint32 // for what the host only writes
	unified bool     // local and read are the same
}

func chooseTypes(m *vk.PhysicalDeviceMemoryProperties) memoryTypes {
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
		return memoryTypes{all, all, all, true}
	}
	return memoryTypes{
		local: find([2]vk.MemoryPropertyFlags{local, visible}, [2]vk.MemoryPropertyFlags{local, none}),
		read:  find([2]vk.MemoryPropertyFlags{host | cached, none}, [2]vk.MemoryPropertyFlags{host, none}),
		write: find([2]vk.MemoryPropertyFlags{host, local}, [2]vk.MemoryPropertyFlags{host, none}),
	}
}

// buffer is memory of a device.
type buffer struct {
	d      *Device
	size   int // as asked for
	bytes  uint64
	handle vk.Buffer
	memory vk.DeviceMemory
	mapped []byte  // nil where the host cannot reach it
	mirror *buffer // the host's side of Step memory
}

func (b *buffer) Size() int { return b.size }

// Free gives the memory back. The device must not be using it.
func (b *buffer) Free() error {
	if b.mirror != nil {
		b.mirror.release()
	}
	b.release()
	return nil
}

func (b *buffer) release() {
	if b.d == nil {
		return
	}
	b.d.c.DestroyBuffer(b.d.handle, b.handle, nil)
	b.d.c.FreeMemory(b.d.handle, b.memory, nil)
	b.d, b.mapped = nil, nil
}

// newBuffer allocates in the first of types that the buffer allows. Kernels
// read whole words of 16 bytes, so a buffer is a multiple of that.
func (d *Device) newBuffer(size int, types []uint32, what string) (*buffer, error) {
	b := &buffer{d: d, size: size, bytes: uint64(max(size, 16)+15) &^ 15}
	if b.bytes > uint64(d.p.MaxAllocation) {
		return nil, &OutOfMemory{size, what, fmt.Errorf("%s allocates at most %d bytes at once", d.p.Name, d.p.MaxAllocation)}
	}
	info := (&vk.BufferCreateInfo{Size: b.bytes, Usage: vk.BufferUsageFlags(vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
		vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT)}).Init()
	if r := d.c.CreateBuffer(d.handle, info, nil, &b.handle); r != vk.VK_SUCCESS {
		return nil, &OutOfMemory{size, what, failed("vkCreateBuffer", r)}
	}
	need := (&vk.MemoryRequirements2{}).Init()
	d.c.GetBufferMemoryRequirements2(d.handle, (&vk.BufferMemoryRequirementsInfo2{Buffer: b.handle}).Init(), need)
	var errs []error
	for _, t := range types {
		if need.MemoryRequirements.MemoryTypeBits&(1<<t) == 0 {
			continue
		}
		alloc := (&vk.MemoryAllocateInfo{AllocationSize: need.MemoryRequirements.Size, MemoryTypeIndex: t}).Init()
		if r := d.c.AllocateMemory(d.handle, alloc, nil, &b.memory); r != vk.VK_SUCCESS {
			errs = append(errs, failed(fmt.Sprintf("vkAllocateMemory of type %d", t), r))
			continue
		}
		if err := b.attach(t); err != nil {
			b.release()
			return nil, fmt.Errorf("%d bytes of %s: %w", size, what, err)
		}
		return b, nil
	}
	d.c.DestroyBuffer(d.handle, b.handle, nil)
	return nil, &OutOfMemory{size, what, errors.Join(errs...)}
}

func (b *buffer) attach(t uint32) error {
	d := b.d
	bind := (&vk.BindBufferMemoryInfo{Buffer: b.handle, Memory: b.memory}).Init()
	if r := d.c.BindBufferMemory2(d.handle, 1, bind); r != vk.VK_SUCCESS {
		return failed("vkBindBufferMemory2", r)
	}
	if d.p.memory.MemoryTypes[t].PropertyFlags&(visible|coherent) == visible|coherent {
		var p unsafe.Pointer
		if r := d.c.MapMemory(d.handle, b.memory, 0, ^uint64(0), 0, &p); r != vk.VK_SUCCESS {
			return failed("vkMapMemory", r)
		}
		b.mapped = unsafe.Slice((*byte)(p), b.bytes)
	}
	return nil
}

// Alloc gives zeroed memory.
func (d *Device) Alloc(bytes int, use backends.Use) (backends.Buffer, error) {
	if d.lost != nil {
		return nil, d.lost
	}
	if bytes < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes", bytes)
	}
	b, err := d.newBuffer(bytes, d.types.local, use.String())
	if err != nil {
		return nil, err
	}
	if use == backends.Step && b.mapped == nil {
		if b.mirror, err = d.newBuffer(bytes, d.types.read, "the host's side of "+use.String()); err != nil {
			b.release()
			return nil, err
		}
		clear(b.mirror.mapped)
	}
	if b.mapped != nil {
		clear(b.mapped)
		return b, nil
	}
	if err := d.once("zeroing "+use.String(), func(r *recorder) { d.c.CmdFillBuffer(r.cb, b.handle, 0, ^uint64(0), 0) }); err != nil {
		return nil, errors.Join(err, b.Free())
	}
	return b, nil
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
