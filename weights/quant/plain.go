package quant

// Plain types: little-endian IEEE 754 f64, f32 and f16, bf16 (the upper half
// of an f32), and the four 8-bit floats of package tensor.
//
//	f64 8 bytes   sign 1, exponent 11, mantissa 52
//	f32 4 bytes   sign 1, exponent 8,  mantissa 23
//	f16 2 bytes   sign 1, exponent 5,  mantissa 10
//	bf16 2 bytes  sign 1, exponent 8,  mantissa 7
//	f8* 1 byte    see tensor.Type

import (
	"encoding/binary"
	"math"

	"greta/tensor"
)

// half widens IEEE half precision exactly, NaNs made quiet. Normal numbers,
// nearly all there are, only have the exponent's bias moved from 15 to 127;
// written so that this path is inlined.
func half(h uint16) float32 {
	if e := h & 0x7c00; e == 0 || e == 0x7c00 {
		return halfRare(h)
	}
	return math.Float32frombits(uint32(h&0x8000)<<16 | (uint32(h&0x7fff)<<13 + (127-15)<<23))
}

func halfRare(h uint16) float32 {
	sign, man := uint32(h&0x8000)<<16, uint32(h&0x3ff)
	switch {
	case h&0x7c00 == 0: // man × 2^-24 is exact in f32
		return math.Float32frombits(sign | math.Float32bits(float32(man)*(1.0/(1<<24))))
	case man != 0:
		return math.Float32frombits(sign | 0x7fc00000 | man<<13)
	}
	return math.Float32frombits(sign | 0x7f800000)
}

// halfAt reads the f16 in a block's bytes lo, hi.
func halfAt(lo, hi byte) float32 { return half(uint16(lo) | uint16(hi)<<8) }

// putHalf stores a finite scale as f16, saturating instead of overflowing, and
// gives back what a decoder will read.
func putHalf(b []byte, v float32) float32 {
	h := tensor.F32ToF16(max(-MaxBlockValue, min(MaxBlockValue, v)))
	binary.LittleEndian.PutUint16(b, h)
	return half(h)
}

func decodeF64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src)))
		src = src[8:]
	}
}

func widenF64(dst []float64, src []byte) {
	for i := range dst {
		dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(src))
		src = src[8:]
	}
}

func encodeF64(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(float64(v)))
	}
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src))
		src = src[4:]
	}
}

func encodeF32(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

func decodeF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = half(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func encodeF16(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], tensor.F32ToF16(v))
	}
}

func decodeBF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func encodeBF16(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], tensor.F32ToBF16(v))
	}
}

func float8Codec(t tensor.Type) codec {
	var table [256]float32
	for c := range table {
		table[c] = tensor.F8ToF32(t, uint8(c))
	}
	return codec{
		decode: func(dst []float32, src []byte) {
			src = src[:len(dst)]
			for i, c := range src {
				dst[i] = table[c]
			}
		},
		encode: func(dst []byte, src []float32) {
			for i, v := range src {
				dst[i] = tensor.F32ToF8(t, v)
			}
		},
	}
}
