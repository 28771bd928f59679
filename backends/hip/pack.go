package hip

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// Block formats lie on the device as planes: the i-th part of every block
// together, so that a part of 16 bytes is aligned to 16. In each plane a row
// begins at a multiple of 16 bytes. weights.h reads them.

// part is a range of a block's bytes.
type part struct{ at, size int }

var parts = map[tensor.Type][]part{
	tensor.Q4_0:   {{2, 16}, {0, 2}},
	tensor.Q4_1:   {{4, 16}, {0, 4}},
	tensor.Q5_0:   {{6, 16}, {2, 4}, {0, 2}},
	tensor.Q5_1:   {{8, 16}, {4, 4}, {0, 4}},
	tensor.Q8_0:   {{2, 32}, {0, 2}},
	tensor.Q2_K:   {{16, 64}, {0, 16}, {80, 4}},
	tensor.Q3_K:   {{0, 32}, {32, 64}, {96, 12}, {108, 2}},
	tensor.Q4_K:   {{16, 128}, {0, 16}},
	tensor.Q5_K:   {{48, 128}, {16, 32}, {0, 16}},
	tensor.Q6_K:   {{0, 128}, {128, 64}, {192, 16}, {208, 2}},
	tensor.IQ4_NL: {{2, 16}, {0, 2}},
	tensor.IQ4_XS: {{8, 128}, {0, 8}},
	tensor.TQ1_0:  {{0, 48}, {48, 4}, {52, 2}},
	tensor.TQ2_0:  {{0, 64}, {64, 2}},
	tensor.MXFP4:  {{1, 16}, {0, 1}},
}

// weightNames are the types of weights as weights.h names them.
var weightNames = map[tensor.Type]string{
	tensor.F32: "W_F32", tensor.F16: "W_F16", tensor.BF16: "W_BF16",
	tensor.F8E4M3: "W_E4M3", tensor.F8E5M2: "W_E5M2", tensor.F8E4M3FNUZ: "W_E4M3Z", tensor.F8E5M2FNUZ: "W_E5M2Z",
	tensor.Q4_0: "W_Q4_0", tensor.Q4_1: "W_Q4_1", tensor.Q5_0: "W_Q5_0", tensor.Q5_1: "W_Q5_1", tensor.Q8_0: "W_Q8_0",
	tensor.Q2_K: "W_Q2_K", tensor.Q3_K: "W_Q3_K", tensor.Q4_K: "W_Q4_K", tensor.Q5_K: "W_Q5_K", tensor.Q6_K: "W_Q6_K",
	tensor.IQ4_NL: "W_IQ4_NL", tensor.IQ4_XS: "W_IQ4_XS", tensor.TQ1_0: "W_TQ1_0", tensor.TQ2_0: "W_TQ2_0",
	tensor.MXFP4: "W_MXFP4",
}

// packings are the layouts by type.
var packings = func() map[tensor.Type]*backends.Packing {
	all := map[tensor.Type]*backends.Packing{}
	for t := range parts {
		all[t] = &backends.Packing{ID: "planes3", Size: planesSize, Pack: packPlanes, Unit: 1}
	}
	return all
}()

// planes gives where each plane of a tensor begins, and their size in all.
// Every plane begins at a multiple of 256 bytes.
func planes(t tensor.Type, shape tensor.Shape) (at [4]int, size int) {
	elems, _ := t.Block()
	for i, p := range parts[t] {
		at[i] = size
		size += (shape.Rows()*planeRow(shape.Last()/elems, p) + 255) &^ 255
	}
	return at, size
}

// planeRow is the bytes from row to row of a plane.
func planeRow(blocks int, p part) int { return (blocks*p.size + 15) &^ 15 }

func planesSize(t tensor.Type, shape tensor.Shape) int {
	_, size := planes(t, shape)
	if bounds[t] != nil {
		size += 4 * shape.Rows()
	}
	return size
}

// bounds give what no element of a block is larger than, by what its codes can be,
// for types whose rows are scaled as they are multiplied: behind the planes lies
// for each row the factor that undoes a scaling by 2^n, with which its largest
// element would be in [2^13, 2^14).
var bounds = map[tensor.Type]func(block []byte) float32{
	tensor.Q4_0: func(b []byte) float32 { return 8 * half(b) },
	tensor.Q8_0: func(b []byte) float32 { return 128 * half(b) },
	tensor.Q4_K: func(b []byte) float32 { return 945*half(b) + 63*half(b[2:]) },
	tensor.Q6_K: func(b []byte) float32 { return 4096 * half(b[208:]) },
}

// half is the magnitude of a number in half precision.
func half(b []byte) float32 { return tensor.F16ToF32(binary.LittleEndian.Uint16(b) & 0x7fff) }

// rowFactor is the factor of a row whose elements are no larger than top, kept a
// normal number whose inverse is one, as scale_for has it in scale.h.
func rowFactor(top float32) uint32 { return (min(max(math.Float32bits(top)>>23, 30), 250) - 13) << 23 }

// packPlanes moves the blocks of rows [from, to) to their planes.
func packPlanes(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error {
	elems, bytes := t.Block()
	at, size := planes(t, shape)
	row := shape.Last() / elems // blocks
	if len(dst) < planesSize(t, shape) || len(src) < shape.Elems()/elems*bytes || from < 0 || to > shape.Rows() {
		return fmt.Errorf("hip: packing rows %d to %d of %s%v from %d to %d bytes", from, to, t, shape, len(src), len(dst))
	}
	for r := from; r < to; r++ {
		for i, p := range parts[t] {
			stride := planeRow(row, p)
			line := dst[at[i]+r*stride:][:stride]
			copyPart(line, src[r*row*bytes:(r+1)*row*bytes], bytes, p)
			clear(line[row*p.size:])
		}
	}
	if bound := bounds[t]; bound != nil {
		for r := from; r < to; r++ {
			top := float32(0)
			for b := range row {
				top = max(top, bound(src[(r*row+b)*bytes:]))
			}
			binary.LittleEndian.PutUint32(dst[size+4*r:], rowFactor(top))
		}
	}
	return nil
}

// copyPart copies a part of each of a row's blocks. Of a few bytes a call for each takes twice as long as
// moves that the compiler knows the size of.
func copyPart(dst, src []byte, block int, p part) {
	n := len(src) / block
	src = src[p.at:]
	switch p.size {
	case 1:
		for b := range n {
			dst[b] = src[b*block]
		}
	case 2:
		for b := range n {
			*(*[2]byte)(dst[b*2:]) = *(*[2]byte)(src[b*block:])
		}
	case 4:
		for b := range n {
			*(*[4]byte)(dst[b*4:]) = *(*[4]byte)(src[b*block:])
		}
	case 16:
		for b := range n {
			*(*[16]byte)(dst[b*16:]) = *(*[16]byte)(src[b*block:])
		}
	default:
		for b := range n {
			copy(dst[b*p.size:][:p.size], src[b*block:])
		}
	}
}

// rowFactors is where the factors of a packed weight's rows lie.
func (b *binder) rowFactors(o *backends.Operand) uintptr {
	_, size := planes(o.Type, o.Shape)
	return uintptr(b.weightWords(o)[0]) + uintptr(size)
}

// weights passes a struct Weights for rows of k elements, n rows in all.
func (b *binder) weights(d *dispatch, o *backends.Operand) { d.args.add(b.weightWords(o)...) }

// weightWords are the words of a struct Weights.
func (b *binder) weightWords(o *backends.Operand) []uint64 {
	k := o.Shape.Last()
	b.waits = b.waits || o.Changes()
	if !o.Type.IsBlock() {
		_, size := o.Type.Block()
		row := k
		if len(o.Shape) == 2 {
			row = o.Stride / size
		} else if !o.Dense() {
			b.failf("a stack of matrices with gaps")
		}
		return []uint64{uint64(b.pointer(o)), 0, 0, 0, uint64(row), uint64(uint32(k))}
	}
	if o.Packing != "planes3" {
		b.failf("a weight of %s%v in the layout %q, not planes3", o.Type, o.Shape, o.Packing)
		return make([]uint64, 6)
	}
	elems, _ := o.Type.Block()
	at, _ := planes(o.Type, o.Shape)
	p, err := b.dev.where(o.Buffer, o.Offset, planesSize(o.Type, o.Shape))
	if err != nil {
		b.failf("%w", err)
	}
	if p%16 != 0 {
		b.failf("weights at an address that is no multiple of 16")
	}
	return []uint64{uint64(p), uint64(at[1]), uint64(at[2]), uint64(at[3]), uint64(k / elems), uint64(uint32(k))}
}

// scalar says whether a weight's rows must be read element by element: plain
// floats whose rows do not begin at multiples of 16 bytes.
func (b *binder) scalar(o *backends.Operand) bool {
	if o.Type.IsBlock() {
		return false
	}
	row := o.Type.RowBytes(o.Shape.Last())
	return row%16 != 0 || o.Stride%16 != 0 || b.pointer(o)%16 != 0
}
