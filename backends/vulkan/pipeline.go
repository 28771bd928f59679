//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/plainfile"
)

// layout is what pipelines of as many storage buffers share.
type layout struct {
	set      vk.DescriptorSetLayout
	pipeline vk.PipelineLayout
}

// pipeline is a kernel with its constants filled in.
type pipeline struct {
	name   string
	handle vk.Pipeline
	layout *layout
}

const computeStage = vk.ShaderStageFlags(vk.VK_SHADER_STAGE_COMPUTE_BIT)

func (d *Device) layout(bindings int) (*layout, error) {
	if l := d.layouts[bindings]; l != nil {
		return l, nil
	}
	list := make([]vk.DescriptorSetLayoutBinding, bindings)
	for i := range list {
		list[i] = vk.DescriptorSetLayoutBinding{Binding: uint32(i), DescriptorType: vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
			DescriptorCount: 1, StageFlags: computeStage}
	}
	l := &layout{}
	info := (&vk.DescriptorSetLayoutCreateInfo{BindingCount: uint32(bindings), PBindings: &list[0]}).Init()
	if r := d.c.CreateDescriptorSetLayout(d.handle, info, nil, &l.set); r != vk.VK_SUCCESS {
		return nil, failed("vkCreateDescriptorSetLayout", r)
	}
	push := &vk.PushConstantRange{StageFlags: computeStage, Size: pushBytes}
	pinfo := (&vk.PipelineLayoutCreateInfo{SetLayoutCount: 1, PSetLayouts: &l.set, PushConstantRangeCount: 1,
		PPushConstantRanges: push}).Init()
	if r := d.c.CreatePipelineLayout(d.handle, pinfo, nil, &l.pipeline); r != vk.VK_SUCCESS {
		d.c.DestroyDescriptorSetLayout(d.handle, l.set, nil)
		return nil, failed("vkCreatePipelineLayout", r)
	}
	d.layouts[bindings] = l
	return l, nil
}

// words gives a module's; of a device that compiles nothing only the first.
func (d *Device) words(name string) ([]uint32, error) {
	if d.opt.hooks.isNull() && modules().Hash(strings.TrimPrefix(name, bfloatModule)) != "" {
		return []uint32{0x07230203}, nil
	}
	return spirv(name)
}

// pipeline compiles a kernel, entered by the name entry, for specialization constants 0, 1, … once. Its
// subgroups have the given size, 0: any.
func (d *Device) pipeline(name, entry string, bindings int, spec []uint32, subgroup int) (*pipeline, error) {
	key := fmt.Sprint(name, entry, bindings, spec, subgroup)
	if p := d.pipelines[key]; p != nil {
		return p, nil
	}
	code, err := d.custom[name], error(nil)
	if code == nil {
		if code, err = d.words(name); err != nil {
			return nil, err
		}
	}
	l, err := d.layout(bindings)
	if err != nil {
		return nil, err
	}
	var module vk.ShaderModule
	minfo := (&vk.ShaderModuleCreateInfo{CodeSize: uintptr(4 * len(code)), PCode: &code[0]}).Init()
	if r := d.c.CreateShaderModule(d.handle, minfo, nil, &module); r != vk.VK_SUCCESS {
		return nil, d.check(r, "vkCreateShaderModule", name)
	}
	defer d.c.DestroyShaderModule(d.handle, module, nil)
	var size unsafe.Pointer
	var flags vk.PipelineShaderStageCreateFlags
	if subgroup > 0 && d.has.sizes {
		size = unsafe.Pointer((&vk.PipelineShaderStageRequiredSubgroupSizeCreateInfo{RequiredSubgroupSize: uint32(
			subgroup)}).Init())
		flags = vk.PipelineShaderStageCreateFlags(vk.VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT)
	}
	var constants *vk.SpecializationInfo // without any, a module has those that it names itself
	if len(spec) > 0 {
		entries := make([]vk.SpecializationMapEntry, len(spec))
		for i := range entries {
			entries[i] = vk.SpecializationMapEntry{ConstantID: uint32(i), Offset: uint32(4 * i), Size: 4}
		}
		constants = &vk.SpecializationInfo{MapEntryCount: uint32(len(entries)), PMapEntries: &entries[0],
			DataSize: uintptr(4 * len(spec)), PData: unsafe.Pointer(&spec[0])}
	}
	stage := (&vk.PipelineShaderStageCreateInfo{PNext: size, Flags: flags, Stage: vk.VK_SHADER_STAGE_COMPUTE_BIT,
		Module: module, PName: vk.CString(entry),
		PSpecializationInfo: constants}).Init()
	info := (&vk.ComputePipelineCreateInfo{Flags: d.opt.hooks.flags(), Stage: *stage, Layout: l.pipeline}).Init()
	p := &pipeline{name: name, layout: l}
	if r := d.c.CreateComputePipelines(d.handle, d.cache.handle, 1, info, nil, &p.handle); r != vk.VK_SUCCESS {
		return nil, d.check(r, "vkCreateComputePipelines", fmt.Sprintf("%s with constants %v", name, spec))
	}
	d.opt.hooks.made(name, spec, p.handle)
	d.pipelines[key] = p
	d.cache.grown = true
	return p, nil
}

// pipelineCache keeps what a driver compiled in a file per device and driver.
type pipelineCache struct {
	handle vk.PipelineCache
	path   string
	grown  bool
}

func (c *pipelineCache) open(d *Device) error {
	info := (&vk.PipelineCacheCreateInfo{}).Init()
	if d.opt.Cache != "" {
		c.path = filepath.Join(d.opt.Cache, "vulkan-"+d.p.UUID+"-"+d.p.cacheID+".pipelines")
		if data := readCache(c.path); len(data) > 0 {
			info.InitialDataSize, info.PInitialData = uintptr(len(data)), unsafe.Pointer(&data[0])
		}
	}
	if r := d.c.CreatePipelineCache(d.handle, info, nil, &c.handle); r != vk.VK_SUCCESS {
		return failed("vkCreatePipelineCache", r)
	}
	return nil
}

// readCache gives the data of a file that starts with the digest of the rest:
// drivers trust what they are given. Anything else is as good as no file.
func readCache(path string) []byte {
	b, err := plainfile.Read(path)
	if err != nil || len(b) < sha256.Size {
		return nil
	}
	if sum := sha256.Sum256(b[sha256.Size:]); string(sum[:]) != string(b[:sha256.Size]) {
		return nil
	}
	return b[sha256.Size:]
}

// close writes the file where something was compiled. A cache that cannot be
// written costs time at the next start, nothing else.
func (c *pipelineCache) close(d *Device) {
	if c.handle == 0 {
		return
	}
	defer d.c.DestroyPipelineCache(d.handle, c.handle, nil)
	if c.path == "" || !c.grown || d.lost != nil {
		return
	}
	var n uintptr
	if d.c.GetPipelineCacheData(d.handle, c.handle, &n, nil) != vk.VK_SUCCESS || n == 0 {
		return
	}
	data := make([]byte, n)
	if d.c.GetPipelineCacheData(d.handle, c.handle, &n, unsafe.Pointer(&data[0])) != vk.VK_SUCCESS {
		return
	}
	sum := sha256.Sum256(data[:n])
	if os.MkdirAll(filepath.Dir(c.path), 0o755) != nil {
		return
	}
	_ = atomicfile.Write(c.path, append(sum[:], data[:n]...), 0o644)
}
