//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"strings"
	"unsafe"

	"github.com/greta-project/greta/backends/vulkan/vk"
)

// What devices may have beside Vulkan 1.2, and which kernels may use it.

const dotExt, matrix2Ext = "VK_KHR_shader_integer_dot_product", "VK_NV_cooperative_matrix2"

// features are what was enabled when the device was opened.
type features struct {
	halves bool // 16-bit storage and f16 arithmetic
	bytes  bool // 8-bit storage
	dots   bool // products of four signed bytes, added to 32 bits
	sizes  bool // a pipeline can ask for a size of subgroups
	matrix bool // products of f16 matrices of a subgroup
	// bfloats: matrices may be of bf16; which sizes they have is listed with those of f16
	bfloats bool
	// elements: matrices of flexible size, functions of their elements, sums over rows, and sums that
	// become factors; shared: matrices of a workgroup.
	elements, shared bool
}

// enable asks what the device has of the features that kernels use, and gives the
// chain that enables it, with the extensions that it belongs to.
func (d *Device) enable() (chain unsafe.Pointer, exts []string) {
	p := d.p
	newer := !strings.HasPrefix(p.API, "1.2.") // 1.3 or later: integer dot products are core
	f11 := (&vk.PhysicalDeviceVulkan11Features{}).Init()
	f12 := (&vk.PhysicalDeviceVulkan12Features{PNext: unsafe.Pointer(f11)}).Init()
	dot := (&vk.PhysicalDeviceShaderIntegerDotProductFeatures{}).Init()
	matrix := (&vk.PhysicalDeviceCooperativeMatrixFeaturesKHR{}).Init()
	matrix2 := (&vk.PhysicalDeviceCooperativeMatrix2FeaturesNV{}).Init()
	size := (&vk.PhysicalDeviceSubgroupSizeControlFeatures{}).Init()
	head := unsafe.Pointer(f12)
	if newer || p.exts[dotExt] {
		dot.PNext, head = head, unsafe.Pointer(dot)
	}
	if p.exts[matrixExt] {
		matrix.PNext, head = head, unsafe.Pointer(matrix)
	}
	if newer && p.exts[matrix2Ext] { // whose shaders are of Vulkan 1.3
		matrix2.PNext, head = head, unsafe.Pointer(matrix2)
	}
	if newer || p.exts[subgroupExt] {
		size.PNext, head = head, unsafe.Pointer(size)
	}
	bfloat := d.askBFloats(&head)
	d.in.c.GetPhysicalDeviceFeatures2(p.handle, (&vk.PhysicalDeviceFeatures2{PNext: head}).Init())

	f := &d.has
	f.halves = f11.StorageBuffer16BitAccess != 0 && f12.ShaderFloat16 != 0
	f.bytes = f12.StorageBuffer8BitAccess != 0 && f12.ShaderInt8 != 0
	f.dots = dot.ShaderIntegerDotProduct != 0
	f.sizes = size.SubgroupSizeControl != 0 && size.ComputeFullSubgroups != 0
	f.matrix = f.halves && f12.VulkanMemoryModel != 0 && matrix.CooperativeMatrix != 0
	f.bfloats = f.matrix && bfloat.Type != 0 && bfloat.Matrices != 0
	f.elements = f.matrix && matrix2.CooperativeMatrixFlexibleDimensions != 0 &&
		matrix2.CooperativeMatrixReductions != 0 &&
		matrix2.CooperativeMatrixConversions != 0 && matrix2.CooperativeMatrixPerElementOperations != 0
	f.shared = f.elements && matrix2.CooperativeMatrixWorkgroupScope != 0

	// Only what is used is enabled.
	w11 := (&vk.PhysicalDeviceVulkan11Features{StorageBuffer16BitAccess: f11.StorageBuffer16BitAccess}).Init()
	w12 := (&vk.PhysicalDeviceVulkan12Features{PNext: unsafe.Pointer(w11), TimelineSemaphore: 1,
		ShaderFloat16:           f12.ShaderFloat16,
		StorageBuffer8BitAccess: f12.StorageBuffer8BitAccess, ShaderInt8: f12.ShaderInt8,
		VulkanMemoryModel: f12.VulkanMemoryModel, VulkanMemoryModelDeviceScope: f12.VulkanMemoryModelDeviceScope}).Init()
	chain = unsafe.Pointer(w12)
	if f.dots {
		dot = (&vk.PhysicalDeviceShaderIntegerDotProductFeatures{PNext: chain, ShaderIntegerDotProduct: 1}).Init()
		chain = unsafe.Pointer(dot)
		if !newer {
			exts = append(exts, dotExt)
		}
	}
	if f.matrix {
		matrix = (&vk.PhysicalDeviceCooperativeMatrixFeaturesKHR{PNext: chain, CooperativeMatrix: 1}).Init()
		chain = unsafe.Pointer(matrix)
		exts = append(exts, matrixExt)
	}
	if f.bfloats {
		chain, exts = bfloat.enable(chain), append(exts, bfloatExt)
	}
	if f.elements {
		matrix2 = (&vk.PhysicalDeviceCooperativeMatrix2FeaturesNV{PNext: chain,
			CooperativeMatrixWorkgroupScope:     matrix2.CooperativeMatrixWorkgroupScope,
			CooperativeMatrixFlexibleDimensions: 1, CooperativeMatrixReductions: 1, CooperativeMatrixConversions: 1,
			CooperativeMatrixPerElementOperations: 1}).Init()
		chain = unsafe.Pointer(matrix2)
		exts = append(exts, matrix2Ext)
	}
	if f.sizes {
		size = (&vk.PhysicalDeviceSubgroupSizeControlFeatures{PNext: chain, SubgroupSizeControl: 1,
			ComputeFullSubgroups: 1}).Init()
		chain = unsafe.Pointer(size)
		if !newer {
			exts = append(exts, subgroupExt)
		}
	}
	return chain, exts
}

func has(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
}
