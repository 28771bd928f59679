//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"slices"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
)

// span is a range of a buffer that a dispatch touches.
type span struct {
	b        *buffer
	from, to uint64
	write    bool
}

func (s *span) overlaps(o *span) bool { return s.b == o.b && s.from < o.to && o.from < s.to }

// dispatch is one run of a pipeline.
type dispatch struct {
	kernel string // for messages
	pipe   *pipeline
	bound  []span // what each binding sees: offset is aligned as the device wants
	used   []span // what is touched: for barriers
	push   []uint32
	groups [3]uint32
	spec   []uint32
	shader string
	entry  string // by which the shader is entered; "": main
	// subgroup is the size that subgroups must have, 0: any
	subgroup int
	// waits: it can wait for the stage before by itself, says: what it writes says when it is there, handed: it does wait
	// (overlap.go)
	waits, says, handed bool
	asks                [2][]*buffer // what x and r lie in, for which it can wait
}

// schedule orders dispatches so that few barriers are needed: by the length of the
// longest chain of conflicts before each. Independent ones come together, and
// conflicting ones keep their order.
func schedule(list []dispatch) []int {
	level := backends.Levels(len(list), func(i, j int) bool { return conflict(list[i].used, list[j].used) })
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return level[a] - level[b] })
	return order
}

// conflict says whether two lists touch the same bytes, and not both read them.
func conflict(a, b []span) bool {
	for i := range a {
		for j := range b {
			if (a[i].write || b[j].write) && a[i].overlaps(&b[j]) {
				return true
			}
		}
	}
	return false
}

// stage is what dispatches touch that need nothing between them.
type stage struct{ touched []span }

// add says whether a dispatch must come behind those of the stage; it begins the next one then.
func (s *stage) add(x *dispatch) (next bool) {
	if next = conflict(x.used, s.touched); next {
		s.touched = s.touched[:0]
	}
	s.touched = append(s.touched, x.used...)
	return next
}

// recorder fills a command buffer with dispatches, with barriers between those
// that touch the same bytes and not both read them.
type recorder struct {
	d     *Device
	cb    vk.CommandBuffer
	pool  vk.DescriptorPool
	stage stage
	// apart makes every dispatch wait at a barrier
	apart bool
}

func (d *Device) newCommandBuffer() (vk.CommandBuffer, error) {
	var cb vk.CommandBuffer
	info := (&vk.CommandBufferAllocateInfo{CommandPool: d.commands, Level: vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
		CommandBufferCount: 1}).Init()
	if r := d.c.AllocateCommandBuffers(d.handle, info, &cb); r != vk.VK_SUCCESS {
		return 0, failed("vkAllocateCommandBuffers", r)
	}
	return cb, nil
}

func (d *Device) begin(cb vk.CommandBuffer) error {
	if r := d.c.BeginCommandBuffer(cb, (&vk.CommandBufferBeginInfo{}).Init()); r != vk.VK_SUCCESS {
		return failed("vkBeginCommandBuffer", r)
	}
	return nil
}

const (
	shaderStage   = vk.PipelineStageFlags(vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT)
	transferStage = vk.PipelineStageFlags(vk.VK_PIPELINE_STAGE_TRANSFER_BIT)
	hostStage     = vk.PipelineStageFlags(vk.VK_PIPELINE_STAGE_HOST_BIT)
)

// accesses are what the kernels and copies of stages do to memory.
func accesses(stages vk.PipelineStageFlags, read, write bool) (a vk.AccessFlags) {
	add := func(stage vk.PipelineStageFlags, on bool, bit vk.AccessFlags) {
		if stages&stage != 0 && on {
			a |= bit
		}
	}
	add(shaderStage, read, vk.VK_ACCESS_SHADER_READ_BIT)
	add(shaderStage, write, vk.VK_ACCESS_SHADER_WRITE_BIT)
	add(transferStage, read, vk.VK_ACCESS_TRANSFER_READ_BIT)
	add(transferStage, write, vk.VK_ACCESS_TRANSFER_WRITE_BIT)
	add(hostStage, read, vk.VK_ACCESS_HOST_READ_BIT)
	return a
}

// barrier orders what stages from did before it before what stages to do behind it.
func (r *recorder) barrier(from, to vk.PipelineStageFlags) {
	r.stage.touched = r.stage.touched[:0]
	r.order(from, to)
}

func (r *recorder) order(from, to vk.PipelineStageFlags) {
	m := (&vk.MemoryBarrier{SrcAccessMask: accesses(from, false, true), DstAccessMask: accesses(to, true, true)}).Init()
	r.d.c.CmdPipelineBarrier(r.cb, from, to, 0, 1, m, 0, nil, 0, nil)
}

// dispatch records one dispatch.
func (r *recorder) dispatch(x *dispatch) error {
	handed := x.handed && !r.apart
	if r.stage.add(x) && !handed && !r.d.careless {
		r.order(shaderStage, shaderStage)
	}
	var set vk.DescriptorSet
	d := r.d
	info := (&vk.DescriptorSetAllocateInfo{DescriptorPool: r.pool, DescriptorSetCount: 1,
		PSetLayouts: &x.pipe.layout.set}).Init()
	if err := d.check(d.c.AllocateDescriptorSets(d.handle, info, &set), "vkAllocateDescriptorSets", x.kernel); err != nil {
		return err
	}
	writes := make([]vk.WriteDescriptorSet, len(x.bound))
	for i, s := range x.bound {
		writes[i] = vk.WriteDescriptorSet{DstSet: set, DstBinding: uint32(i), DescriptorCount: 1,
			DescriptorType: vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
			PBufferInfo: &vk.DescriptorBufferInfo{Buffer: s.b.handle, Offset: s.b.base + s.from,
				Range: s.to - s.from - min(d.shorten, (s.to-s.from)/2)}}
		writes[i].Init()
	}
	d.c.UpdateDescriptorSets(d.handle, uint32(len(writes)), &writes[0], 0, nil)
	d.c.CmdBindPipeline(r.cb, vk.VK_PIPELINE_BIND_POINT_COMPUTE, x.pipe.handle)
	d.c.CmdBindDescriptorSets(r.cb, vk.VK_PIPELINE_BIND_POINT_COMPUTE, x.pipe.layout.pipeline, 0, 1, &set, 0, nil)
	push := x.push
	if x.handed && !handed {
		push = slices.Clone(push)
		clear(push[len(push)-handWords:])
	}
	d.c.CmdPushConstants(r.cb, x.pipe.layout.pipeline, computeStage, 0, uint32(4*len(push)), unsafe.Pointer(&push[0]))
	d.c.CmdDispatch(r.cb, x.groups[0], x.groups[1], x.groups[2])
	return nil
}

// copy records the copy of the same range between two buffers.
func (r *recorder) copy(dst, src *buffer, from, to uint64) {
	r.d.c.CmdCopyBuffer(r.cb, src.handle, dst.handle, 1, &vk.BufferCopy{SrcOffset: from, DstOffset: from, Size: to - from})
}

// descriptorPool makes room for the sets of dispatches.
func (d *Device) descriptorPool(list []dispatch) (vk.DescriptorPool, error) {
	n := 0
	for i := range list {
		n += len(list[i].bound)
	}
	size := &vk.DescriptorPoolSize{Type: vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, DescriptorCount: uint32(max(n, 1))}
	info := (&vk.DescriptorPoolCreateInfo{MaxSets: uint32(max(len(list), 1)), PoolSizeCount: 1, PPoolSizes: size}).Init()
	var pool vk.DescriptorPool
	if r := d.c.CreateDescriptorPool(d.handle, info, nil, &pool); r != vk.VK_SUCCESS {
		return 0, failed("vkCreateDescriptorPool", r)
	}
	return pool, nil
}
