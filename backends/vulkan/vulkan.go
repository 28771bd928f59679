// Package vulkan runs programs on any device with Vulkan 1.2, without cgo.
// Activations are float32; weights are read as files store them, in 32-bit words,
// so that no feature for narrow types is needed; caches are f32, f16 or bf16.
//
// A launch is bound once, at capture, to dispatches: a pipeline, the ranges of
// buffers that it reads and writes, and its constants. Capture records them in a
// command buffer with barriers where ranges overlap; replay submits that buffer.
// Kernels are in GLSL, in .comp files beside their launchers, with their
// compiled modules in spirv (make.sh). Nothing depends on the size of a subgroup.
package vulkan

import (
	"github.com/greta-project/greta/backends"
)

// Options say which device to open, and how.
type Options struct {
	// Device chooses by index, by UUID, or by a part of the name. Empty: the first
	// discrete device, else the first integrated or virtual one. Software devices are
	// opened only when they are named, or with Software.
	Device   string
	Software bool // also consider software devices, after all others
	Validate bool // load the validation layer, with synchronization checks
	// Bounds makes the layer look for accesses out of bounds too, by code that it adds
	// to every kernel (GPU-assisted validation); slow.
	Bounds bool
	// Message is told what the validation layer says.
	Message func(text string)
	// Cache is a folder for compiled pipelines; empty: none is kept.
	Cache string
	// FP16 is On where the device opens with its paths of half precision on; see
	// backends.Pathed and docs/health.md.
	FP16 backends.Choice
	// Tiled forces (1) or forbids (-1) products from shared memory; 0: as the device suggests.
	Tiled int
	// Invariant makes results of a row the same, bit for bit, whatever rows are beside it in a step: kernels of products
	// are chosen as for backends.InvariantRows rows, and attention goes through the positions of each row by itself.
	Invariant bool

	hooks *hooks // of tests; nil: none
}

// Kind is the kind of a device.
type Kind string

// The kinds, in the order of preference.
const (
	Discrete   Kind = "discrete"
	Integrated Kind = "integrated"
	Virtual    Kind = "virtual"
	Other      Kind = "other"
	Software   Kind = "software"
)

// Description tells of a device what choosing and reports need.
type Description struct {
	Index       int
	Name        string
	Kind        Kind
	UUID        string // 32 hexadecimal digits
	Location    string // PCI address, "0000:c1:00.0"; empty where the driver does not say
	API         string // "1.3.230"
	Driver      string // name and version, as the driver says
	Subgroup    int    // invocations
	MinSubgroup int    // where the size can vary, else as Subgroup
	MaxSubgroup int
	Limits
	Features []string // of those that kernels may use: "f16 arithmetic", "integer dot product"
	Heaps    []Heap
	Unified  bool     // all memory is the device's and the host's
	Matrices []string // shapes of cooperative matrices: "16x16x16 f16·f16+f32→f32"
	Reason   string   // why the device cannot be used; empty: it can
}

// Memory is what this process may still use of the device's largest memory, bytes.
func (d *Description) Memory() int {
	most := 0
	for _, h := range d.Heaps {
		switch {
		case !h.Device:
		case h.Budget > 0:
			most = max(most, h.Budget)
		default:
			most = max(most, h.Size)
		}
	}
	return most
}

// Default is the index of the device that New opens where none is named: of the
// discrete devices the first, else of the integrated ones; never a software device.
// -1: there is none.
func Default(list []Description) int {
	for _, kind := range []Kind{Discrete, Integrated, Virtual, Other} {
		for i := range list {
			if list[i].Kind == kind && list[i].Reason == "" {
				return list[i].Index
			}
		}
	}
	return -1
}

// Limits are those of a device that decide on kernels and memory.
type Limits struct {
	Shared        int    `json:"shared_bytes"`        // memory of a workgroup
	Invocations   int    `json:"invocations"`         // of a workgroup, at most
	Groups        [3]int `json:"groups"`              // workgroups of a dispatch, at most
	PushConstants int    `json:"push_constant_bytes"` //
	MaxRange      int    `json:"storage_range_bytes"` // that a storage descriptor covers
	MaxAllocation int    `json:"allocation_bytes"`    // of one allocation
	Allocations   int    `json:"allocations"`         // at a time
	Align         int    `json:"storage_align_bytes"` // of a storage descriptor's offset
	// Tick is the unit of timestamps, nanoseconds; 0: there are none.
	Tick float64 `json:"timestamp_ns,omitempty"`
}

// Heap is one of a device's memories.
type Heap struct {
	Size   int  `json:"bytes"`
	Budget int  `json:"budget_bytes,omitempty"` // that this process may still use, 0 where unknown
	Device bool `json:"device"`                 // near the device
}

// noDevice says that no device can be opened, and why.
func noDevice(reason string) error { return &backends.NoDevice{Kind: "Vulkan", Reason: reason} }
