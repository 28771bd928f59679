// Package vulkan runs programs on any device with Vulkan 1.2, without cgo.
// Activations are float32; weights are read as files store them, in 32-bit words,
// so that no feature for narrow types is needed; caches are f32, f16 or bf16.
//
// A launch is bound once, at capture, to dispatches: a pipeline, the ranges of
// buffers that it reads and writes, and its constants. Capture records them in a
// command buffer with barriers where ranges overlap; replay submits that buffer.
// Kernels are in GLSL, in .comp files beside their launchers, with their
// compiled .spv (make.sh). Nothing depends on the size of a subgroup.
package vulkan

import (
	"fmt"

	"greta/backends"
)

// Options say which device to open, and how.
type Options struct {
	// Device chooses by index, by UUID, or by a part of the name. Empty: the first
	// discrete device, else the first integrated or virtual one. Software devices are
	// opened only when they are named, or with Software.
	Device   string
	Software bool // also consider software devices, after all others
	Validate bool // load the validation layer, with synchronization checks
	// Message is told what the validation layer says.
	Message func(text string)
	// Cache is a folder for compiled pipelines; empty: none is kept.
	Cache string
	// FP16 is On where the device opens with its paths of half precision on; see
	// backends.Pathed and docs/health.md.
	FP16 backends.Choice
	// Tiled forces (1) or forbids (-1) products from shared memory; 0: as the device suggests.
	Tiled int
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
	Index         int
	Name          string
	Kind          Kind
	UUID          string // 32 hexadecimal digits
	API           string // "1.3.230"
	Driver        string // name and version, as the driver says
	Subgroup      int    // invocations
	MinSubgroup   int    // where the size can vary, else as Subgroup
	MaxSubgroup   int
	Shared        int // bytes of shared memory of a workgroup
	Invocations   int // of a workgroup, at most
	MaxRange      int // bytes that a storage descriptor covers
	MaxAllocation int // bytes of one allocation
	Heaps         []Heap
	Unified       bool     // all memory is the device's and the host's
	Matrices      []string // shapes of cooperative matrices
	Reason        string   // why the device cannot be used; empty: it can
}

// Heap is one of a device's memories.
type Heap struct {
	Size   int // bytes
	Budget int // bytes that this process may use, 0 where unknown
	Device bool
}

// NoDevice says that no device can be opened, and why. Programs exit with code 3.
type NoDevice struct{ Reason string }

func (e *NoDevice) Error() string { return "no Vulkan device: " + e.Reason }

// OutOfMemory says that an allocation failed. Programs exit with code 6.
type OutOfMemory struct {
	Bytes int
	What  string
	Err   error
}

func (e *OutOfMemory) Error() string {
	return fmt.Sprintf("out of device memory: %d bytes of %s: %v", e.Bytes, e.What, e.Err)
}

func (e *OutOfMemory) Unwrap() error { return e.Err }
