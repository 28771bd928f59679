//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/errlist"
)

// A null device: a driver that takes every command, has memory without an end, compiles nothing and runs nothing. What
// the backend chooses for a class of devices can be read from programs that are captured on it.

// nullClasses are the classes of devices that choose apart from each other, with what decides on it.
var nullClasses = map[string]func(p *physical, f *features){
	// Vulkan 1.2 and not a feature more, as an old card's driver has it.
	"basic": func(p *physical, _ *features) {
		p.Kind, p.Subgroup, p.MinSubgroup, p.MaxSubgroup = Discrete, 32, 32, 32
	},
	// A processor that is a Vulkan device (lavapipe of Mesa 22).
	"software": func(p *physical, f *features) {
		p.Kind, p.Subgroup, p.MinSubgroup, p.MaxSubgroup, p.shuffle = Software, 8, 8, 8, true
		p.limits.MaxStorageBufferRange = 1 << 27
		f.halves, f.bytes, f.dots, f.sizes = true, true, true, true
	},
	// An APU or a card without matrices, with subgroups of 32 or 64.
	"int8": func(p *physical, f *features) {
		p.Kind, p.Subgroup, p.MinSubgroup, p.MaxSubgroup, p.Shared, p.shuffle = Integrated, 64, 32, 64, 64<<10, true
		f.halves, f.bytes, f.dots, f.sizes = true, true, true, true
	},
	// A Radeon with cooperative matrices (RDNA3 and later).
	"radeon": func(p *physical, f *features) {
		p.Kind, p.Subgroup, p.MinSubgroup, p.MaxSubgroup, p.Shared = Discrete, 64, 32, 64, 64<<10
		p.shuffle = true
		f.halves, f.bytes, f.dots, f.sizes, f.matrix = true, true, true, true, true
		p.Matrices = []string{"16x16x16 f16·f16+f32→f32"}
	},
	// A card of NVIDIA's with its own driver (an H100).
	"nvidia": func(p *physical, f *features) {
		p.Kind, p.Subgroup, p.MinSubgroup, p.MaxSubgroup, p.Shared = Discrete, 32, 32, 32, 48<<10
		p.vendor, p.inOrder, p.units, p.shuffle = nvidia, true, 132, true
		p.Matrices = []string{"16x16x16 f16·f16+f32→f32", "16x16x16 bf16·bf16+f32→f32"}
		f.halves, f.bytes, f.dots, f.sizes, f.matrix, f.elements, f.shared = true, true, true, true, true, true, true
		f.bfloats = true
		p.flexible = []vk.CooperativeMatrixFlexibleDimensionsPropertiesNV{{Scope: vk.VK_SCOPE_WORKGROUP_KHR,
			WorkgroupInvocations: 256,
			AType:                vk.VK_COMPONENT_TYPE_FLOAT16_KHR, BType: vk.VK_COMPONENT_TYPE_FLOAT16_KHR,
			CType:      vk.VK_COMPONENT_TYPE_FLOAT32_KHR,
			ResultType: vk.VK_COMPONENT_TYPE_FLOAT32_KHR, MGranularity: 16, NGranularity: 16, KGranularity: 16}}
	},
}

// NullClasses are the names of the classes that NewNull knows.
func NullClasses() []string { return slices.Sorted(maps.Keys(nullClasses)) }

// NewNull opens a null device of a class, with its fast paths off.
func NewNull(class string) (*Device, error) {
	describe, ok := nullClasses[class]
	if !ok {
		return nil, fmt.Errorf("%q is no class of Vulkan devices; there are %s", class, strings.Join(NullClasses(), ", "))
	}
	p := &physical{handle: 1, exts: map[string]bool{}, api: 1<<22 | 3<<12, stamps: true,
		Description: Description{Name: "null " + class, API: "1.3.0"}}
	p.limits = vk.PhysicalDeviceLimits{MaxComputeWorkGroupCount: [3]uint32{1<<31 - 1, 65535, 65535},
		MaxComputeWorkGroupInvocations:  1024,
		MinStorageBufferOffsetAlignment: 16, MaxStorageBufferRange: 1<<32 - 1, MaxPerStageDescriptorStorageBuffers: 1 << 20,
		MaxMemoryAllocationCount: 4096, MaxPushConstantsSize: 256, MaxComputeSharedMemorySize: 32 << 10, TimestampPeriod: 1}
	d := newDevice(&instance{c: nullCommands(), handle: 1}, Options{hooks: &hooks{null: true}})
	p.Limits = describeLimits(&p.limits)
	p.MaxAllocation = 1<<32 - 1<<20
	describe(p, &d.has)
	p.limits.MaxComputeSharedMemorySize = uint32(p.Shared)
	d.p = p
	d.in.memories(p)
	if err := d.start(nil, nil); err != nil {
		return nil, errlist.Join(err, d.Close())
	}
	return d, nil
}

// nullDriver answers commands with success, and those that give something with handles and memory. There is one in a
// process, as addresses that the driver's callers jump to are never given back.
type nullDriver struct {
	mu     sync.Mutex
	next   uint64
	sizes  map[uint64]uint64 // of buffers and of memory
	memory map[uint64][]byte // that was mapped
}

// nullHeap is the size of the device's memory and of the host's.
const nullHeap = 1 << 40

// give makes a handle.
func (n *nullDriver) give(to *uint64, size uint64) uintptr {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next += 16
	*to = n.next
	if size > 0 {
		n.sizes[*to] = size
	}
	return 0
}

// nullCommands is the table of the driver's commands.
var nullCommands = sync.OnceValue(func() *vk.Commands {
	n := &nullDriver{sizes: map[uint64]uint64{}, memory: map[uint64][]byte{}}
	c := &vk.Commands{}
	done := purego.NewCallback(func() uintptr { return 0 })
	fields := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetUint(uint64(done))
	}
	third := purego.NewCallback(func(_, _ uintptr, out *uint64) uintptr { return n.give(out, 0) })
	fourth := purego.NewCallback(func(_, _, _ uintptr, out *uint64) uintptr { return n.give(out, 0) })
	for _, at := range []*uintptr{&c.CreateDeviceAddr, &c.GetDeviceQueueAddr, &c.CreateShaderModuleAddr,
		&c.CreateDescriptorSetLayoutAddr,
		&c.CreatePipelineLayoutAddr, &c.CreatePipelineCacheAddr, &c.CreateDescriptorPoolAddr, &c.CreateCommandPoolAddr,
		&c.CreateQueryPoolAddr, &c.CreateSemaphoreAddr, &c.CreateFenceAddr} {
		*at = fourth
	}
	c.AllocateDescriptorSetsAddr, c.AllocateCommandBuffersAddr = third, third
	c.CreateComputePipelinesAddr = purego.NewCallback(func(_, _, _, _, _ uintptr, out *uint64) uintptr {
		return n.give(out, 0)
	})
	c.AllocateMemoryAddr = purego.NewCallback(func(_ uintptr, info *vk.MemoryAllocateInfo, _ uintptr,
		out *uint64) uintptr {
		return n.give(out, info.AllocationSize)
	})
	c.CreateBufferAddr = purego.NewCallback(func(_ uintptr, info *vk.BufferCreateInfo, _ uintptr, out *uint64) uintptr {
		return n.give(out, info.Size)
	})
	c.GetBufferMemoryRequirements2Addr = purego.NewCallback(func(_ uintptr, info *vk.BufferMemoryRequirementsInfo2,
		out *vk.MemoryRequirements2) uintptr {
		n.mu.Lock()
		defer n.mu.Unlock()
		out.MemoryRequirements = vk.MemoryRequirements{Size: n.sizes[uint64(info.Buffer)], Alignment: 256, MemoryTypeBits: 3}
		return 0
	})
	c.MapMemoryAddr = purego.NewCallback(func(_ uintptr, memory uint64, _, _, _ uintptr, out *unsafe.Pointer) uintptr {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.memory[memory] == nil { // pages that nobody touches are none
			b, err := unix.Mmap(-1, 0, int(n.sizes[memory]), unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
			if err != nil {
				failed := vk.VK_ERROR_MEMORY_MAP_FAILED
				return uintptr(failed)
			}
			n.memory[memory] = b
		}
		*out = unsafe.Pointer(unsafe.SliceData(n.memory[memory]))
		return 0
	})
	c.FreeMemoryAddr = purego.NewCallback(func(_ uintptr, memory uint64) uintptr {
		n.mu.Lock()
		defer n.mu.Unlock()
		if b := n.memory[memory]; b != nil {
			_ = unix.Munmap(b)
		}
		delete(n.memory, memory)
		delete(n.sizes, memory)
		return 0
	})
	c.GetSemaphoreCounterValueAddr = purego.NewCallback(func(_, _ uintptr, value *uint64) uintptr {
		*value = forever >> 1
		return 0
	})
	c.GetPipelineCacheDataAddr = purego.NewCallback(func(_, _ uintptr, size *uint64, _ uintptr) uintptr {
		*size = 0
		return 0
	})
	c.GetPhysicalDeviceMemoryProperties2Addr = purego.NewCallback(func(_ uintptr,
		out *vk.PhysicalDeviceMemoryProperties2) uintptr {
		m := &out.MemoryProperties
		m.MemoryTypeCount, m.MemoryHeapCount = 2, 2
		m.MemoryTypes[0] = vk.MemoryType{PropertyFlags: local, HeapIndex: 0}
		m.MemoryTypes[1] = vk.MemoryType{PropertyFlags: visible | coherent | cached, HeapIndex: 1}
		m.MemoryHeaps[0] = vk.MemoryHeap{Size: nullHeap, Flags: vk.MemoryHeapFlags(vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)}
		m.MemoryHeaps[1] = vk.MemoryHeap{Size: nullHeap}
		return 0
	})
	byName := map[string]uintptr{}
	for i := range fields.NumField() {
		byName["vk"+strings.TrimSuffix(fields.Type().Field(i).Name, "Addr")] = uintptr(fields.Field(i).Uint())
	}
	c.GetDeviceProcAddrAddr = purego.NewCallback(func(_ uintptr, name *byte) uintptr {
		return byName[vk.GoStringAt(name)]
	})
	return c
})
