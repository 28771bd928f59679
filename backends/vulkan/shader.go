//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/backends/vulkan/vk"
)

// What a user's module asks of a device. A driver need not look at it: beyond its limits it may crash, or compute
// something. Numbers are those of SPIR-V's specification.

// shaderNeeds are a workgroup's sizes along x, y and z, and its bytes of shared memory.
type shaderNeeds struct {
	group  [3]uint64
	shared uint64
}

// needs reads them of a compute entry, with specialization constants filled in. What it cannot compute is left at 0:
// sizes that come from arithmetic beyond sums and products, and shared memory of modules before version 1.4 with
// several entries, which do not say whose a variable is.
func needs(words []uint32, entry string, spec []uint32) shaderNeeds {
	m := readModule(words, entry, spec)
	var need shaderNeeds
	for i := range need.group {
		switch {
		case len(m.groupParts) == 3:
			need.group[i] = m.values[m.groupParts[i]]
		case len(m.groupIDs) == 3:
			need.group[i] = m.values[m.groupIDs[i]]
		case len(m.group) == 3:
			need.group[i] = uint64(m.group[i])
		}
	}
	for _, v := range m.shared {
		if words[1] >= 0x10400 && slices.Contains(m.interfaces, v.id) || words[1] < 0x10400 && m.entries == 1 {
			need.shared = add(need.shared, m.sizes[v.of])
		}
	}
	return need
}

// exceeds says which limit is exceeded, with both numbers; "" where none is.
func (n shaderNeeds) exceeds(l *vk.PhysicalDeviceLimits) string {
	threads := mul(mul(max(n.group[0], 1), max(n.group[1], 1)), max(n.group[2], 1))
	for i, most := range l.MaxComputeWorkGroupSize {
		if most > 0 && n.group[i] > uint64(most) {
			return fmt.Sprintf("its workgroup has %d threads along %c, it runs at most %d", n.group[i], "xyz"[i], most)
		}
	}
	if threads > uint64(l.MaxComputeWorkGroupInvocations) {
		return fmt.Sprintf("its workgroup has %d×%d×%d = %d threads, it runs at most %d", n.group[0], n.group[1], n.group[2],
			threads, l.MaxComputeWorkGroupInvocations)
	}
	if n.shared > uint64(l.MaxComputeSharedMemorySize) {
		return fmt.Sprintf("it has %d bytes of shared memory, a workgroup gets at most %d", n.shared,
			l.MaxComputeSharedMemorySize)
	}
	return ""
}

type sharedVariable struct{ id, of uint32 }

// module is what of a module says what it needs.
type module struct {
	name            string // the entry's
	entry           uint32
	entries         int
	interfaces      []uint32 // of the entry
	group, groupIDs []uint32 // LocalSize, LocalSizeId
	groupID         uint32   // the constant that says the workgroup's size instead, of
	groupParts      []uint32
	specs           map[uint32]uint32 // numbers of specialization constants
	values          map[uint32]uint64 // of constants
	sizes, aligns   map[uint32]uint64 // of types, in bytes; a pointer's size is that of what it points to
	shared          []sharedVariable
	constants       []uint32 // what specialization constants 0, 1, … are given
}

// readModule reads a module that moduleWords has found whole.
func readModule(words []uint32, entry string, constants []uint32) *module {
	m := &module{name: entry, constants: constants, specs: map[uint32]uint32{}, values: map[uint32]uint64{},
		sizes: map[uint32]uint64{}, aligns: map[uint32]uint64{}}
	for i := 5; i < len(words); {
		n := int(words[i] >> 16)
		op, x := words[i]&0xffff, words[i+1:i+n]
		if op == opFunction { // what follows are bodies
			break
		}
		// Operands that a damaged instruction lacks are 0, which is no id.
		m.instruction(op, append(slices.Clone(x), 0, 0, 0, 0), x)
		i += n
	}
	return m
}

const (
	opEntryPoint, opExecutionMode, opExecutionModeID          = 15, 16, 331
	opTypeBool, opTypeInt, opTypeFloat, opTypeVector          = 20, 21, 22, 23
	opTypeMatrix, opTypeArray, opTypeStruct, opTypePointer    = 24, 28, 30, 32
	opConstant, opConstantComposite                           = 43, 44
	opSpecConstant, opSpecConstantComposite, opSpecConstantOp = 50, 51, 52
	opFunction, opVariable, opDecorate                        = 54, 59, 71
	glCompute, localSize, localSizeID                         = 5, 17, 38
	decorationSpecID, decorationBuiltIn, builtInWorkgroupSize = 1, 11, 25
	storageWorkgroup                                          = 4
)

// instruction takes one with its operands: o has zeros behind them.
func (m *module) instruction(op uint32, o, operands []uint32) {
	switch op {
	case opEntryPoint:
		m.entries++
		if name, rest := entryName(operands[min(2, len(operands)):]); o[0] == glCompute && name == m.name {
			m.entry, m.interfaces = o[1], rest
		}
	case opExecutionMode, opExecutionModeID:
		if o[0] == m.entry && o[1] == localSize && op == opExecutionMode {
			m.group = o[2:5]
		} else if o[0] == m.entry && o[1] == localSizeID && op == opExecutionModeID {
			m.groupIDs = o[2:5]
		}
	case opDecorate:
		if o[1] == decorationSpecID {
			m.specs[o[0]] = o[2]
		} else if o[1] == decorationBuiltIn && o[2] == builtInWorkgroupSize {
			m.groupID = o[0]
		}
	case opConstant, opSpecConstant:
		m.values[o[1]] = uint64(o[2])
		if number, has := m.specs[o[1]]; has && op == opSpecConstant && int(number) < len(m.constants) {
			m.values[o[1]] = uint64(m.constants[number])
		}
	case opConstantComposite, opSpecConstantComposite:
		if o[1] == m.groupID && len(operands) == 5 {
			m.groupParts = operands[2:]
		}
	case opSpecConstantOp:
		a, b := m.values[o[3]], m.values[o[4]]
		if f := constantOps[o[2]]; f != nil {
			m.values[o[1]] = f(a, b)
		}
	case opVariable:
		if o[2] == storageWorkgroup {
			m.shared = append(m.shared, sharedVariable{o[1], o[0]})
		}
	default:
		m.typ(op, o, operands)
	}
}

// constantOps are those of OpSpecConstantOp that sizes are made with: IAdd, ISub, IMul, UDiv, SDiv and shifts to the
// right and left.
var constantOps = map[uint32]func(a, b uint64) uint64{
	128: add, 130: func(a, b uint64) uint64 { return a - min(a, b) }, 132: mul,
	134: func(a, b uint64) uint64 { return a / max(b, 1) }, 135: func(a, b uint64) uint64 { return a / max(b, 1) },
	194: func(a, b uint64) uint64 { return a >> b }, 196: func(a, b uint64) uint64 { return a << b },
}

// typ keeps what a type takes of shared memory, by the rules of storage buffers, which the limit counts by.
func (m *module) typ(op uint32, o, operands []uint32) {
	size, align := uint64(0), uint64(1)
	switch op {
	case opTypeBool:
		size, align = 4, 4
	case opTypeInt, opTypeFloat:
		size, align = uint64(o[1]/8), uint64(o[1]/8)
	case opTypeVector:
		size = mul(uint64(o[2]), m.sizes[o[1]])
		align = m.sizes[o[1]] * uint64(o[2]+o[2]&1) // of three: as of four
	case opTypeMatrix, opTypeArray:
		count := uint64(o[2])
		if op == opTypeArray {
			count = m.values[o[2]]
		}
		align = max(m.aligns[o[1]], 1)
		size = mul(count, roundUp(m.sizes[o[1]], align))
	case opTypeStruct:
		for _, member := range operands[min(1, len(operands)):] {
			a := max(m.aligns[member], 1)
			size, align = add(roundUp(size, a), m.sizes[member]), max(align, a)
		}
		size = roundUp(size, align)
	case opTypePointer:
		m.sizes[o[0]] = m.sizes[o[2]]
		return
	default:
		return
	}
	m.sizes[o[0]], m.aligns[o[0]] = size, align
}

// entryName divides the name of an entry, which ends with a zero, from the ids behind it.
func entryName(words []uint32) (name string, rest []uint32) {
	var text []byte
	for i, w := range words {
		text = binary.LittleEndian.AppendUint32(text, w)
		if end := bytes.IndexByte(text, 0); end >= 0 {
			return string(text[:end]), words[i+1:]
		}
	}
	return string(text), nil
}

// Sums and products stay at the largest number: sizes are a module's, which may say anything.
func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

func mul(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}

func roundUp(n, to uint64) uint64 {
	if n > math.MaxUint64-to {
		return n
	}
	return (n + to - 1) / to * to
}
