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

	"github.com/greta-project/greta/tensor"
)

// half widens IEEE half precision exactly, NaNs made quiet.
func half(h uint16) float32 {
	if (h+0x400)&0x7800 == 0 { // exponent field 0 or 31
		return halfRare(h)
	}
	return halfNormal(h)
}

// halfNormal widens the normal numbers, nearly all there are: only the
// exponent's bias moves from 15 to 127. Sign extension brings the sign to bit
// 31 with the same shift.
func halfNormal(h uint16) float32 {
	return math.Float32frombits(uint32(int16(h))<<13&0x8fffe000 + (127-15)<<23)
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

// putUnit is putHalf for a scale that must reach the largest element: below
// 2^-14, where f16 has few bits left, it rounds away from zero.
func putUnit(b []byte, v float32) float32 {
	d := putHalf(b, v)
	if abs(v) < 1.0/(1<<14) && abs(d) < abs(v) {
		// Magnitudes are ordered like their bits; a zero needs the sign of v.
		h := binary.LittleEndian.Uint16(b) | uint16(math.Float32bits(v)>>16&0x8000)
		binary.LittleEndian.PutUint16(b, h+1)
		d = half(h + 1)
	}
	return d
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
	for len(dst) >= 2 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(w))
		dst[1] = math.Float32frombits(uint32(w >> 32))
		dst, src = dst[2:], src[8:]
	}
	if len(dst) > 0 {
		dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
	}
}

func encodeF32(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

func decodeF16(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		// In each 16 bits, adding 1 to the exponent field leaves its upper four
		// bits zero only for 0 and 31; the subtraction then clears the top bit.
		const lanes = 1<<48 | 1<<32 | 1<<16 | 1
		e := (w&(0x7c00*lanes) + 0x0400*lanes) & (0x7800 * lanes)
		if ((e|0x8000*lanes)-0x0800*lanes)&(0x8000*lanes) == 0x8000*lanes {
			dst[0] = halfNormal(uint16(w))
			dst[1] = halfNormal(uint16(w >> 16))
			dst[2] = halfNormal(uint16(w >> 32))
			dst[3] = halfNormal(uint16(w >> 48))
		} else {
			dst[0] = half(uint16(w))
			dst[1] = half(uint16(w >> 16))
			dst[2] = half(uint16(w >> 32))
			dst[3] = half(uint16(w >> 48))
		}
		dst, src = dst[4:], src[8:]
	}
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
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(w) << 16)
		dst[1] = math.Float32frombits(uint32(w) & 0xffff0000)
		dst[2] = math.Float32frombits(uint32(w>>32) << 16)
		dst[3] = math.Float32frombits(uint32(w>>32) & 0xffff0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func encodeBF16(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], tensor.F32ToBF16(v))
	}
}

// float8Values has a row for each of the 8-bit floats, in the order of their types.
var float8Values = func() (tables [tensor.F8E5M2FNUZ - tensor.F8E4M3 + 1][256]float32) {
	for t := range tables {
		for c := range tables[t] {
			tables[t][c] = tensor.F8ToF32(tensor.F8E4M3+tensor.Type(t), uint8(c))
		}
	}
	return tables
}()

func decodeF8(t tensor.Type, dst []float32, src []byte) {
	table := &float8Values[t-tensor.F8E4M3]
	src = src[:len(dst)]
	for i, c := range src {
		dst[i] = table[c]
	}
}

func encodeF8(t tensor.Type, dst []byte, src []float32) {
	for i, v := range src {
		dst[i] = tensor.F32ToF8(t, v)
	}
}
