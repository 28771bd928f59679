package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"sync"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/backends/vulkan/spvpack"
)

// vulkanGPU is a device through Vulkan. Its kernels come with the program.
type vulkanGPU struct {
	raw *vulkan.Raw
}

func newVulkan(dev *vulkan.Device) (gpuDevice, error) {
	raw, err := dev.Raw()
	if err != nil {
		return nil, err
	}
	return &vulkanGPU{raw: raw}, nil
}

func (v *vulkanGPU) close() error { return v.raw.Close() }
func (v *vulkanGPU) forget()      {}

// limits are Vulkan's, and where HIP's drivers know the same device, what they
// say of its clocks, units and widths, which Vulkan has no words for.
func (v *vulkanGPU) limits() (limits, error) {
	r := v.raw.Limits()
	l := limits{name: r.Name, wave: r.Subgroup, free: r.Free, mostBuffer: r.MaxBuffer, mostBlock: r.Invocations,
		pci: r.Location}
	if h, ok := hip.Attributes(r.Location); ok && r.Location != "" {
		x := fromHIP(h)
		l.arch, l.units, l.clockMHz, l.memoryGBs, l.l2 = x.arch, x.units, x.clockMHz, x.memoryGBs, x.l2
		l.sharedPerUnit, l.threadsPerUnit = x.sharedPerUnit, x.threadsPerUnit
	}
	return l, nil
}

// vulkanMemory adds what Vulkan's memory lacks: an address.
type vulkanMemory struct{ *vulkan.RawMemory }

func (vulkanMemory) Address() uint64 { return 0 }

func (v *vulkanGPU) alloc(bytes int, kind memoryKind) (memory, error) {
	if kind == managed {
		return nil, &Missing{"Vulkan has no memory that moves by itself"}
	}
	m, err := v.raw.Alloc(bytes, kind == pinned)
	if err != nil {
		return nil, err
	}
	return vulkanMemory{m}, nil
}

// shaders are those that make.sh made.
var shaders = sync.OnceValues(func() (*spvpack.Archive, error) {
	dir, err := fs.Sub(kernelFiles, "kernels/spirv")
	if err != nil {
		return nil, err
	}
	return spvpack.OpenArchive(dir)
})

// module names a kernel of shaders.
func (c code) module() string {
	name := c.file + "_" + c.function
	for _, m := range c.macros {
		name += "_" + strings.Replace(m, "=", "", 1)
	}
	return name
}

func (v *vulkanGPU) bind(c code, grid, _ int, args ...any) (launch, error) {
	name := c.module()
	shaders, err := shaders()
	if err != nil {
		return nil, err
	}
	if shaders.Hash(name) == "" {
		return nil, &Missing{fmt.Sprintf("there is no shader %s for Vulkan", name)}
	}
	words, err := shaders.Words(name)
	if err != nil {
		return nil, err
	}
	var buffers []*vulkan.RawMemory
	var push []uint32
	for i, a := range args {
		switch a := a.(type) {
		case vulkanMemory:
			buffers = append(buffers, a.RawMemory)
		case uint32:
			push = append(push, a)
		case float32:
			push = append(push, math.Float32bits(a))
		default:
			return nil, fmt.Errorf("%s: argument %d is a %T", name, i, a)
		}
	}
	shader := vulkan.RawShader{Name: name, Code: spvpack.Bytes(words), Constants: []uint32{uint32(c.block)}}
	return v.raw.Bind(shader, grid, buffers, push)
}

// resident is not known: Vulkan says nothing of it.
func (v *vulkanGPU) resident(code, int) (int, error) { return 0, nil }

func (v *vulkanGPU) sequence(how submission, n int, list ...launch) (sampler, func() error, error) {
	launches := make([]*vulkan.RawLaunch, len(list))
	for i, l := range list {
		launches[i] = l.(*vulkan.RawLaunch)
	}
	c, err := v.raw.Record(launches, n, how == inStream)
	if err != nil {
		return nil, nil, err
	}
	return c.Run, c.Close, nil
}

func (v *vulkanGPU) trips(l launch, n int) (sampler, func() error, error) {
	c, err := v.raw.Record([]*vulkan.RawLaunch{l.(*vulkan.RawLaunch)}, 1, false)
	if err != nil {
		return nil, nil, err
	}
	run, _, err := hostTimed(func() error {
		_, _, err := c.Run()
		return err
	})(n)
	return run, c.Close, err
}

func (v *vulkanGPU) copies(to, from memory, bytes, n int) (sampler, func() error, error) {
	a, ok1 := to.(vulkanMemory)
	b, ok2 := from.(vulkanMemory)
	if !ok1 || !ok2 {
		return nil, nil, errors.New("memory of another device")
	}
	c, err := v.raw.RecordCopies(a.RawMemory, b.RawMemory, bytes, n)
	if err != nil {
		return nil, nil, err
	}
	return c.Run, c.Close, nil
}

func (v *vulkanGPU) noPageable() string {
	return "Vulkan copies only memory that it has allocated"
}

func (v *vulkanGPU) noGridBarrier() string {
	return "Vulkan does not promise that workgroups run at the same time, so that none may wait for another"
}

func (v *vulkanGPU) noType(name string) string {
	if name == "f64" {
		return "the shaders compute in f32: f64 is not asked of the device"
	}
	return ""
}

func (v *vulkanGPU) wholes() string { return "uint2" }
