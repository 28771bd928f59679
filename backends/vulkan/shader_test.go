//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/vulkan/vk"
)

// assemble makes a module of instructions: an operation, then its operands.
func assemble(version uint32, instructions ...[]uint32) []uint32 {
	words := []uint32{spirvMagic, version, 0, 100, 0}
	for _, x := range instructions {
		words = append(append(words, uint32(len(x))<<16|x[0]), x[1:]...)
	}
	return words
}

// What a module asks for is read however it is said, with specialization constants, and held against the limits with
// both numbers.
func TestShaderNeeds(t *testing.T) {
	const entry, mainName = 1, 'm' | 'a'<<8 | 'i'<<16 | 'n'<<24
	const u32, vec3, array, pointer, shared, n, twice = 10, 11, 12, 13, 14, 15, 16
	const eight, one, group, f32, boolean, record = 17, 18, 19, 20, 21, 22
	limits := &vk.PhysicalDeviceLimits{MaxComputeWorkGroupSize: [3]uint32{1024, 1024, 64},
		MaxComputeWorkGroupInvocations: 1024, MaxComputeSharedMemorySize: 32768}
	begin := []uint32{opEntryPoint, glCompute, entry, mainName, 0, shared}
	size := func(x, y, z uint32) []uint32 { return []uint32{opExecutionMode, entry, localSize, x, y, z} }
	numbers := [][]uint32{{opDecorate, n, decorationSpecID, 1},
		{opDecorate, group, decorationBuiltIn, builtInWorkgroupSize},
		{opTypeInt, u32, 32, 0}, {opTypeFloat, f32, 32}, {opTypeVector, vec3, f32, 3}, {opTypeBool, boolean},
		{opConstant, u32, eight, 8}, {opConstant, u32, one, 1}, {opSpecConstant, u32, n, 64},
		{opSpecConstantOp, u32, twice, 132, n, eight}}
	array8 := func(of uint32) [][]uint32 { // of 8 n elements
		return append(numbers, []uint32{opTypeArray, array, of, twice},
			[]uint32{opTypePointer, pointer, storageWorkgroup, array},
			[]uint32{opVariable, pointer, shared, storageWorkgroup})
	}
	made := func(version uint32, parts ...[][]uint32) []uint32 {
		all := [][]uint32{begin}
		for _, p := range parts {
			all = append(all, p...)
		}
		return assemble(version, all...)
	}
	const v13, v15 = 0x10300, 0x10500
	one3 := [][]uint32{size(1, 1, 1)}
	for _, c := range []struct {
		name  string
		words []uint32
		spec  []uint32
		want  shaderNeeds
		says  string
	}{
		{"fits", made(v15, [][]uint32{size(64, 16, 1)}), nil, shaderNeeds{group: [3]uint64{64, 16, 1}}, ""},
		{"threads", made(v15, [][]uint32{size(64, 32, 1)}), nil, shaderNeeds{group: [3]uint64{64, 32, 1}},
			"its workgroup has 64×32×1 = 2048 threads, it runs at most 1024"},
		{"threads along z", made(v15, [][]uint32{size(1, 1, 65)}), nil, shaderNeeds{group: [3]uint64{1, 1, 65}},
			"its workgroup has 65 threads along z, it runs at most 64"},
		{"threads by ids", made(v15, [][]uint32{{opExecutionModeID, entry, localSizeID, n, eight, one}}, numbers),
			[]uint32{0, 256}, shaderNeeds{group: [3]uint64{256, 8, 1}}, "256×8×1 = 2048 threads"},
		{"threads by a constant", made(v15, one3, numbers, [][]uint32{{opSpecConstantComposite, u32, group, n, one, one}}),
			[]uint32{0, 2000}, shaderNeeds{group: [3]uint64{2000, 1, 1}}, "its workgroup has 2000 threads along x"},
		{"shared", made(v15, one3, array8(f32)), []uint32{7, 1025}, shaderNeeds{[3]uint64{1, 1, 1}, 32800},
			"it has 32800 bytes of shared memory, a workgroup gets at most 32768"},
		{"shared, as the module has it", made(v15, one3, array8(f32)), nil, shaderNeeds{[3]uint64{1, 1, 1}, 2048}, ""},
		{"shared, three take the room of four", made(v15, one3, array8(vec3)), nil,
			shaderNeeds{[3]uint64{1, 1, 1}, 8192}, ""},
		{"shared, a record", made(v15, one3, numbers, [][]uint32{{opTypeStruct, record, boolean, vec3, f32},
			{opTypePointer, pointer, storageWorkgroup, record}, {opVariable, pointer, shared, storageWorkgroup}}), nil,
			shaderNeeds{[3]uint64{1, 1, 1}, 32}, ""},
		{"shared, of an old module", made(v13, one3, array8(f32)), nil, shaderNeeds{[3]uint64{1, 1, 1}, 2048}, ""},
		{"shared, of another entry", made(v15, [][]uint32{{opEntryPoint, glCompute, 2, 'x', shared + 50}}, one3,
			array8(f32)), nil, shaderNeeds{[3]uint64{1, 1, 1}, 2048}, ""},
		{"shared, too much to count", made(v15, one3, array8(vec3)), []uint32{0, 1<<32 - 1},
			shaderNeeds{[3]uint64{1, 1, 1}, (1<<32 - 1) * 8 * 16}, "shared memory"},
		{"cut off", made(v15, [][]uint32{{opTypeArray}, {opVariable}, {opEntryPoint}, {opTypeStruct}}), nil,
			shaderNeeds{}, ""},
	} {
		got := needs(c.words, "main", c.spec)
		if says := got.exceeds(limits); got != c.want || says != c.says && (c.says == "" || !strings.Contains(says, c.says)) {
			t.Errorf("%s: %+v, %q; wanted are %+v, %q", c.name, got, says, c.want, c.says)
		}
	}
}

// What is read of greta's own modules is within what every device has.
func TestShaderNeedsOfModules(t *testing.T) {
	least := &vk.PhysicalDeviceLimits{MaxComputeWorkGroupSize: [3]uint32{1024, 1024, 64},
		MaxComputeWorkGroupInvocations: 1024, MaxComputeSharedMemorySize: 64 << 10}
	for _, name := range moduleNames() {
		words, err := spirv(name)
		if err != nil {
			t.Fatal(err)
		}
		if need := needs(words, "main", nil); need.group[0] == 0 || need.exceeds(least) != "" {
			t.Errorf("%s: %+v %s", name, need, need.exceeds(least))
		}
	}
}
