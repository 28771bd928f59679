//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"unsafe"

	"greta/backends"
	"greta/backends/vulkan/vk"
)

// Kernels in PTX, the language of NVIDIA's processors, for instructions that SPIR-V has no word for. VK_NVX_binary_import
// launches them in command buffers beside pipelines: memory, queue and barriers are Vulkan's. A kernel takes one structure: the
// addresses of what is bound, then the words of the dispatch's constants.

const importExt = "VK_NVX_binary_import"

// imported is a kernel in PTX.
type imported struct {
	module   vk.CuModuleNVX
	function vk.CuFunctionNVX
}

// hopper is a program for Hopper and nothing else, whose own instructions are in no earlier nor later processor.
const hopper = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry probe() { ret; }\n"

// findHopper asks the driver, which compiles PTX for its device alone, whether that is a Hopper.
func (d *Device) findHopper() {
	if d.has.imports && d.opt.FP16 != backends.Off {
		k, err := d.newImported("probe", []byte(hopper))
		d.hopper = err == nil
		k.destroy(d)
	}
}

// imported compiles the kernel of a module in PTX once.
func (d *Device) imported(module, kernel string) (*imported, error) {
	if k := d.imports[module]; k != nil {
		return k, nil
	}
	text, err := modules.ReadFile(module + ".ptx")
	if err != nil {
		return nil, err
	}
	k, err := d.newImported(kernel, text)
	if err != nil {
		k.destroy(d)
		return nil, err
	}
	d.imports[module] = k
	return k, nil
}

// newImported compiles a kernel of a text, and gives what there is of it with an error too.
func (d *Device) newImported(kernel string, text []byte) (*imported, error) {
	k := &imported{}
	text = append(text[:len(text):len(text)], 0) // the driver takes text that ends so
	module := (&vk.CuModuleCreateInfoNVX{DataSize: uintptr(len(text)), PData: unsafe.Pointer(&text[0])}).Init()
	if r := d.c.CreateCuModuleNVX(d.handle, module, nil, &k.module); r != vk.VK_SUCCESS {
		k.module = 0
		return k, d.check(r, "vkCreateCuModuleNVX", kernel)
	}
	function := (&vk.CuFunctionCreateInfoNVX{Module: k.module, PName: vk.CString(kernel)}).Init()
	if r := d.c.CreateCuFunctionNVX(d.handle, function, nil, &k.function); r != vk.VK_SUCCESS {
		k.function = 0
		return k, d.check(r, "vkCreateCuFunctionNVX", kernel)
	}
	return k, nil
}

func (k *imported) destroy(d *Device) {
	if k != nil && k.function != 0 {
		d.c.DestroyCuFunctionNVX(d.handle, k.function, nil)
	}
	if k != nil && k.module != 0 {
		d.c.DestroyCuModuleNVX(d.handle, k.module, nil)
	}
}

// launch finishes a dispatch of a kernel in PTX: blocks of so many threads.
func (b *bind) launch(x *dispatch, kernel string, blocks, threads int) {
	if b.err != nil || blocks == 0 {
		return
	}
	if limit := b.d.p.limits.MaxComputeWorkGroupCount[0]; uint32(blocks) > limit {
		b.fail(fmt.Errorf("%s wants %d blocks, %s runs %d", x.shader, blocks, b.d.p.Name, limit))
		return
	}
	x.groups, x.threads = [3]uint32{uint32(blocks), 1, 1}, uint32(threads)
	var err error
	if x.imported, err = b.d.imported(x.shader, kernel); err != nil {
		b.fail(err)
		return
	}
	b.list = append(b.list, *x)
}

// launch records a dispatch of a kernel in PTX.
func (r *recorder) launch(x *dispatch) {
	n := len(x.bound)
	words := make([]uint64, n+(len(x.push)+1)/2)
	for i, s := range x.bound {
		at := (&vk.BufferDeviceAddressInfo{Buffer: s.b.handle}).Init()
		words[i] = r.d.c.GetBufferDeviceAddress(r.d.handle, at) + s.b.base + s.from
	}
	copy(unsafe.Slice((*uint32)(unsafe.Pointer(&words[n])), len(x.push)), x.push)
	argument := unsafe.Pointer(&words[0])
	r.d.c.CmdCuLaunchKernelNVX(r.cb, (&vk.CuLaunchInfoNVX{Function: x.imported.function, GridDimX: x.groups[0], GridDimY: x.groups[1], GridDimZ: x.groups[2],
		BlockDimX: x.threads, BlockDimY: 1, BlockDimZ: 1, ParamCount: 1, PParams: &argument}).Init())
}
