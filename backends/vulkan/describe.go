//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"math"
	"unsafe"

	"github.com/greta-project/greta/backends/vulkan/vk"
)

// What a device is told to have, for people and for reports.

func describeLimits(l *vk.PhysicalDeviceLimits) Limits {
	d := Limits{Shared: int(l.MaxComputeSharedMemorySize), Invocations: int(l.MaxComputeWorkGroupInvocations),
		PushConstants: int(l.MaxPushConstantsSize), MaxRange: int(l.MaxStorageBufferRange),
		Allocations: int(l.MaxMemoryAllocationCount), Align: int(l.MinStorageBufferOffsetAlignment)}
	if tick := float64(l.TimestampPeriod); !math.IsInf(tick, 0) { // a null device's
		d.Tick = tick
	}
	for i, n := range l.MaxComputeWorkGroupCount {
		d.Groups[i] = int(n)
	}
	return d
}

// timelines are what every submission signals; Vulkan 1.2 demands them.
const timelines = "timeline semaphores"

// features names what the device has of the features that kernels may use.
func (in *instance) features(p *physical) []string {
	f11 := (&vk.PhysicalDeviceVulkan11Features{}).Init()
	f12 := (&vk.PhysicalDeviceVulkan12Features{PNext: unsafe.Pointer(f11)}).Init()
	head := unsafe.Pointer(f12)
	dot := (&vk.PhysicalDeviceShaderIntegerDotProductFeatures{}).Init()
	if p.newer() || p.exts[dotExt] {
		dot.PNext, head = head, unsafe.Pointer(dot)
	}
	matrix := (&vk.PhysicalDeviceCooperativeMatrixFeaturesKHR{}).Init()
	if p.exts[matrixExt] {
		matrix.PNext, head = head, unsafe.Pointer(matrix)
	}
	in.c.GetPhysicalDeviceFeatures2(p.handle, (&vk.PhysicalDeviceFeatures2{PNext: head}).Init())
	list := []string{}
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"16-bit storage", f11.StorageBuffer16BitAccess != 0}, {"8-bit storage", f12.StorageBuffer8BitAccess != 0},
		{"f16 arithmetic", f12.ShaderFloat16 != 0}, {"i8 arithmetic", f12.ShaderInt8 != 0},
		{"integer dot product", dot.ShaderIntegerDotProduct != 0}, {"cooperative matrix", matrix.CooperativeMatrix != 0},
		{"cooperative matrix 2", p.exts[matrix2Ext]}, {timelines, f12.TimelineSemaphore != 0},
		{"memory budget", p.exts[budgetExt]}, {"timestamps", p.Tick > 0},
	} {
		if f.has {
			list = append(list, f.name)
		}
	}
	return list
}

// newer says whether the device has Vulkan 1.3 or later.
func (p *physical) newer() bool { return p.api>>12&0x3ff >= 3 || p.api>>22 > 1 }

// Location is the device's PCI address, or its UUID.
func (d *Device) Location() string {
	if d.p.Location != "" {
		return d.p.Location
	}
	return d.p.UUID
}
