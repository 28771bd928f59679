//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Products with weights of bf16 by cooperative matrices of it. Their kernels are those of f16, which move what they
// multiply as it lies and compute with nothing of 16 bits but matrices: where their one type of 16 bits is said to be
// bf16, they multiply that. glslc 2025.2 has no word for it, so a module becomes the other as it is loaded.

const (
	// bfloatModule begins the name of a module of f16 that is wanted with bf16 in its place.
	bfloatModule = "bf16:"
	// bfloatVersion is that of what bfloatWords makes of a module.
	bfloatVersion = ".1"
	bfloatExt     = "VK_KHR_shader_bfloat16"
)

// bfloatFeatures is VkPhysicalDeviceShaderBfloat16FeaturesKHR, which the pinned registry is too old for.
type bfloatFeatures struct {
	SType                      vk.StructureType
	PNext                      unsafe.Pointer
	Type, DotProduct, Matrices uint32
}

const bfloatFeaturesType, bfloatComponent = 1000141000, 1000141000

// askBFloats puts the question for them before a chain of such, unless the device does not know them or the validation
// layer is there: one of the pinned registry's age knows neither the features nor the modules.
func (d *Device) askBFloats(chain *unsafe.Pointer) *bfloatFeatures {
	f := &bfloatFeatures{SType: bfloatFeaturesType}
	if d.p.exts[bfloatExt] && !d.opt.Validate {
		f.PNext, *chain = *chain, unsafe.Pointer(f)
	}
	return f
}

// enable puts what kernels need before a chain.
func (f *bfloatFeatures) enable(chain unsafe.Pointer) unsafe.Pointer {
	*f = bfloatFeatures{SType: bfloatFeaturesType, PNext: chain, Type: 1, Matrices: 1}
	return unsafe.Pointer(f)
}

// bfloats says whether the device has cooperative matrices of bf16 in the size of those of f16 that modules are
// compiled for.
func (d *Device) bfloats() bool {
	n := d.core().size
	return n > 0 && d.has.bfloats && has(d.p.Matrices, fmt.Sprintf("%dx%dx%d bf16·bf16+f32→f32", n, n, n))
}

// takesBFloats says whether they multiply so many rows by weights of a type.
func (d *Device) takesBFloats(t tensor.Type, rows int) bool {
	return rows > matVecRows && t == tensor.BF16
}

// takesBFloat says whether they compute a node.
func (d *Device) takesBFloat(n *graph.Node) bool {
	return isProduct(n) && d.takesBFloats(n.In[1].Type, d.rows(n.In[0].Shape.Rows()))
}

// Numbers of SPIR-V.
const (
	opExtension, opCapability = 10, 17
	float16Capability         = 9
	bfloatType, bfloatMatrix  = 5116, 5118
	bfloatEncoding            = 0
	spirvHeader               = 5
)

// spirvText is a text in a module's words.
func spirvText(s string) []uint32 {
	words := make([]uint32, len(s)/4+1)
	for i := range len(s) {
		words[i/4] |= uint32(s[i]) << (8 * (i % 4))
	}
	return words
}

// bfloatWords gives a module with bf16 for f16 (SPV_KHR_bfloat16). What is of f16 must be cooperative matrices: of
// another use of the type its error says so.
func bfloatWords(words []uint32) ([]uint32, error) {
	name := spirvText("SPV_KHR_bfloat16")
	extension := append([]uint32{uint32(len(name)+1)<<16 | opExtension}, name...)
	out, half := slices.Clone(words[:spirvHeader]), uint32(0)
	for i := spirvHeader; i < len(words); {
		n := int(words[i] >> 16)
		x := words[i : i+n]
		switch op := x[0] & 0xffff; {
		case op == opCapability && x[1] == float16Capability:
			out = append(out, x[0], bfloatType, x[0], bfloatMatrix)
		case op == opExtension:
			out = append(append(out, extension...), x...)
			extension = nil
		case op == opTypeFloat && x[2] == 16:
			half = x[1]
			out = append(out, 4<<16|opTypeFloat, half, 16, bfloatEncoding)
		case op == opTypeVector && x[2] == half:
			return nil, errors.New("it has vectors of f16, which cannot become bf16")
		default:
			out = append(out, x...)
		}
		i += n
	}
	if half == 0 {
		return nil, errors.New("it has nothing of f16 that could become bf16")
	}
	return out, nil
}
