//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"unsafe"

	"github.com/greta-project/greta/backends/vulkan/vk"
)

// hooks let tests put faults between the backend and the driver, and look at what the
// driver compiled. A nil one changes nothing.
type hooks struct {
	loader  []string             // names of the loader's library, in place of the usual ones
	replace func(c *vk.Commands) // may change addresses of commands: of the instance, then of the device
	// inspect is told of each pipeline when it is made; the device then enables what
	// asking the driver for its statistics needs.
	inspect func(shader string, spec []uint32, p vk.Pipeline)
	null    bool // nothing is compiled, and memory is zeros (nulldevice.go)
}

// isNull says whether nothing reads modules or what is written.
func (h *hooks) isNull() bool { return h != nil && h.null }

func (h *hooks) libraries() []string {
	if h == nil {
		return nil
	}
	return h.loader
}

func (h *hooks) tamper(c *vk.Commands) {
	if h != nil && h.replace != nil {
		h.replace(c)
	}
}

const statisticsExt = "VK_KHR_pipeline_executable_properties"

// statistics adds what inspecting pipelines needs to the features of a new device.
func (h *hooks) statistics(chain unsafe.Pointer, exts []string) (unsafe.Pointer, []string) {
	if h == nil || h.inspect == nil {
		return chain, exts
	}
	f := (&vk.PhysicalDevicePipelineExecutablePropertiesFeaturesKHR{PNext: chain, PipelineExecutableInfo: 1}).Init()
	return unsafe.Pointer(f), append(exts, statisticsExt)
}

// flags are those that a pipeline is made with.
func (h *hooks) flags() vk.PipelineCreateFlags {
	if h == nil || h.inspect == nil {
		return 0
	}
	return vk.PipelineCreateFlags(vk.VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR)
}

func (h *hooks) made(shader string, spec []uint32, p vk.Pipeline) {
	if h != nil && h.inspect != nil {
		h.inspect(shader, spec, p)
	}
}
