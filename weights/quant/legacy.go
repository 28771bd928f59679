package quant

// The formats with 32 elements a block and one scale. d and m are f16,
// little-endian. Element j < 16 is in the low nibble of qs[j], element j + 16
// in the high one; qh is a little-endian word whose bit j is the fifth bit of
// element j.
//
//	q4_0  18 bytes   0 d   2 qs[16]                     y = d·(q − 8)
//	q4_1  20 bytes   0 d   2 m   4 qs[16]               y = d·q + m
//	q5_0  22 bytes   0 d   2 qh[4]   6 qs[16]           y = d·(q − 16)
//	q5_1  24 bytes   0 d   2 m   4 qh[4]   8 qs[16]     y = d·q + m
//	q8_0  34 bytes   0 d   2 qs[32], signed             y = d·q
//
// Here and in the other files every product is converted to float32 before it
// enters a sum, which in Go is what keeps a machine from fusing the two and
// rounding once: the bits are the same everywhere.

import (
	"encoding/binary"
	"math"
	"slices"
)

// minus8 is q − 8 for a nibble q.
var minus8 = [16]float32{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}

func decodeQ4_0(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 18 {
		y, qs := (*[32]float32)(dst), (*[16]byte)(src[2:])
		d := halfAt(src[0], src[1])
		for j, q := range qs {
			y[j] = minus8[q&15] * d
			y[j+16] = minus8[q>>4] * d
		}
		dst, src = dst[32:], src[18:]
	}
}

func decodeQ4_1(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 20 {
		y, qs := (*[32]float32)(dst), (*[16]byte)(src[4:])
		d, m := halfAt(src[0], src[1]), halfAt(src[2], src[3])
		var level [16]float32
		for i := range level {
			level[i] = float32(float32(i)*d) + m
		}
		for j, q := range qs {
			y[j] = level[q&15]
			y[j+16] = level[q>>4]
		}
		dst, src = dst[32:], src[20:]
	}
}

func decodeQ5_0(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 22 {
		y, qs := (*[32]float32)(dst), (*[16]byte)(src[6:])
		d, high := halfAt(src[0], src[1]), binary.LittleEndian.Uint32(src[2:])
		for j, q := range qs {
			lo := uint32(q&15) | high>>j<<4&16
			hi := uint32(q>>4) | high>>(j+12)&16
			y[j] = float32(int32(lo)-16) * d
			y[j+16] = float32(int32(hi)-16) * d
		}
		dst, src = dst[32:], src[22:]
	}
}

func decodeQ5_1(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 24 {
		y, qs := (*[32]float32)(dst), (*[16]byte)(src[8:])
		d, m := halfAt(src[0], src[1]), halfAt(src[2], src[3])
		high := binary.LittleEndian.Uint32(src[4:])
		for j, q := range qs {
			lo := uint32(q&15) | high>>j<<4&16
			hi := uint32(q>>4) | high>>(j+12)&16
			y[j] = float32(float32(int32(lo))*d) + m
			y[j+16] = float32(float32(int32(hi))*d) + m
		}
		dst, src = dst[32:], src[24:]
	}
}

func decodeQ8_0(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 34 {
		y, qs := (*[32]float32)(dst), (*[32]byte)(src[2:])
		d := halfAt(src[0], src[1])
		for j, q := range qs {
			y[j] = float32(int8(q)) * d
		}
		dst, src = dst[32:], src[34:]
	}
}

func encodeQ4_0(dst []byte, x, w []float32) {
	d := putUnit(dst, fitSymmetric(x, w, 8))
	q := dst[2:18]
	inv := reciprocal(d)
	for j := range q {
		q[j] = nearest(x[j]*inv, -8, 7) | nearest(x[j+16]*inv, -8, 7)<<4
	}
}

func encodeQ5_0(dst []byte, x, w []float32) {
	d := putUnit(dst, fitSymmetric(x, w, 16))
	inv := reciprocal(d)
	packFive(dst[2:], func(j int) byte { return nearest(x[j]*inv, -16, 15) })
}

func encodeQ4_1(dst []byte, x, w []float32) {
	d, m := putAffine(dst, x, w, 15)
	inv := reciprocal(d)
	q := dst[4:20]
	for j := range q {
		q[j] = nearest((x[j]-m)*inv, 0, 15) | nearest((x[j+16]-m)*inv, 0, 15)<<4
	}
}

func encodeQ5_1(dst []byte, x, w []float32) {
	d, m := putAffine(dst, x, w, 31)
	inv := reciprocal(d)
	packFive(dst[4:], func(j int) byte { return nearest((x[j]-m)*inv, 0, 31) })
}

// putAffine finds and stores scale and offset for codes 0 … n.
func putAffine(b []byte, x, w []float32, n int) (d, m float32) {
	scale, low := fitAffine(x, w, n, false)
	m = putHalf(b[2:], low)
	// A rounded offset can push elements off the end: try to reach the highest.
	wide := putUnit(b, (slices.Max(x)-m)/float32(n))
	d = putUnit(b, scale)
	if wide > d && affineError(x, w, wide, -m, float32(n)) < affineError(x, w, d, -m, float32(n)) {
		d = putHalf(b, wide)
	}
	return d, m
}

// packFive writes qh and qs for 32 five-bit codes.
func packFive(b []byte, code func(int) byte) {
	var high uint32
	for j := range 16 {
		lo, hi := code(j), code(j+16)
		b[4+j] = lo&15 | hi&15<<4
		high |= uint32(lo>>4)<<j | uint32(hi>>4)<<(j+16)
	}
	binary.LittleEndian.PutUint32(b, high)
}

func encodeQ8_0(dst []byte, x []float32) {
	amax := float32(0)
	for _, v := range x {
		amax = max(amax, abs(v))
	}
	d := putUnit(dst, amax/127)
	inv := reciprocal(d)
	for j, v := range x {
		dst[2+j] = nearest(v*inv, -127, 127) - 127 // two's complement: nearest counts from −127
	}
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }
