package quant

// mxfp4, nvfp4, nf4 and f8e4m3_b32: floating-point codes under a scale.
//
//	mxfp4        17 bytes for 32   0 e   1 qs[16]
//	nvfp4        36 bytes for 64   0 scales[4]   4 qs[4][8]
//	nf4          36 bytes for 64   0 d   4 qs[32]
//	f8e4m3_b32   36 bytes for 32   0 d   4 q[32]
//
//	y = 2^(e − 127)·e2m1[q]      mxfp4; element l in the low nibble of byte l, l + 16 in the high one
//	y = scale·e2m1[q]            nvfp4, groups of 16 laid out likewise; scales are e4m3 without a sign
//	y = d·nf4[q]                 nf4: d is f32; elements 2l and 2l + 1 in the low and the high nibble of byte l
//	y = d·e4m3[q]                d is f32
//
// The first two are GGUF's. The levels of e2m1 (OCP's four-bit float) are ±0, ½, 1, 1½, 2, 3, 4, 6; those of nf4
// divide a normal distribution evenly (Dettmers et al., QLoRA).

import (
	"encoding/binary"
	"math"

	"github.com/greta-project/greta/tensor"
)

// fp4Levels are those of e2m1 doubled, so that scales are halved.
var fp4Levels = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// NF4Levels are nf4's.
var NF4Levels = [16]float32{-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
	-0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
	0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1}

// halfPower is 2^(e − 128).
func halfPower(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// halfE4M3 gives half of the scale that an e4m3 code without a sign stands for.
func halfE4M3(c byte) float32 {
	if c&127 == 127 {
		return 0
	}
	return 0.5 * tensor.F8ToF32(tensor.F8E4M3, c&127)
}

// levelBlock writes d·level of 2·len(qs) codes, low nibbles before high ones.
func levelBlock(y []float32, qs []byte, d float32, levels *[16]float32) {
	var level [16]float32
	for i, v := range levels {
		level[i] = d * v
	}
	n := len(qs)
	y = y[:2*n]
	for j, q := range qs {
		y[j] = level[q&15]
		y[j+n] = level[q>>4]
	}
}

func decodeMXFP4(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 17 {
		levelBlock(dst, src[1:17], halfPower(src[0]), &fp4Levels)
		dst, src = dst[32:], src[17:]
	}
}

func decodeNVFP4(dst []float32, src []byte) {
	for len(dst) >= 64 && len(src) >= 36 {
		for g := range 4 {
			levelBlock(dst[16*g:], src[4+8*g:12+8*g], halfE4M3(src[g]), &fp4Levels)
		}
		dst, src = dst[64:], src[36:]
	}
}

func decodeNF4(dst []float32, src []byte) {
	for len(dst) >= 64 && len(src) >= 36 {
		d := math.Float32frombits(binary.LittleEndian.Uint32(src))
		var level [16]float32
		for i, v := range NF4Levels {
			level[i] = d * v
		}
		for j, q := range src[4:36] {
			dst[2*j], dst[2*j+1] = level[q&15], level[q>>4]
		}
		dst, src = dst[64:], src[36:]
	}
}

func decodeF8Block(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 36 {
		d := math.Float32frombits(binary.LittleEndian.Uint32(src))
		for j, q := range src[4:36] {
			dst[j] = d * tensor.F8ToF32(tensor.F8E4M3, q)
		}
		dst, src = dst[32:], src[36:]
	}
}

// nearestLevel gives the code of the level nearest to t.
func nearestLevel(levels *[16]float32, t float32) byte {
	best, at := abs(t-levels[0]), 0
	for i, v := range levels[1:] {
		if e := abs(t - v); e < best {
			best, at = e, i+1
		}
	}
	return byte(at)
}

// levelError is the squared error of rounding x to d·level.
func levelError(levels *[16]float32, x []float32, d float32) float32 {
	inv := reciprocal(d)
	var sum float32
	for _, v := range x {
		e := v - float32(d*levels[nearestLevel(levels, v*inv)])
		sum += float32(e * e)
	}
	return sum
}

// putLevels writes codes, low nibbles before high ones.
func putLevels(qs []byte, x []float32, d float32) {
	inv, n := reciprocal(d), len(qs)
	for j := range qs {
		qs[j] = nearestLevel(&fp4Levels, x[j]*inv) | nearestLevel(&fp4Levels, x[j+n]*inv)<<4
	}
}

// encodeMXFP4 tries the power of two that just covers the block, and the two below.
func encodeMXFP4(dst []byte, x []float32) {
	var best float32
	for i := range 3 {
		_, e := math.Frexp(float64(abs(extreme(x))) / 6)
		c := byte(max(0, min(254, e+127-i)))
		if err := levelError(&fp4Levels, x, halfPower(c)); i == 0 || err < best {
			best, dst[0] = err, c
		}
	}
	putLevels(dst[1:17], x, halfPower(dst[0]))
}

func encodeNF4(dst []byte, x []float32) {
	d := abs(extreme(x))
	inv := reciprocal(d)
	binary.LittleEndian.PutUint32(dst, math.Float32bits(d))
	for j := range 32 {
		dst[4+j] = nearestLevel(&NF4Levels, x[2*j]*inv) | nearestLevel(&NF4Levels, x[2*j+1]*inv)<<4
	}
}

func encodeF8Block(dst []byte, x []float32) {
	d := abs(extreme(x)) / 448
	inv := reciprocal(d)
	binary.LittleEndian.PutUint32(dst, math.Float32bits(d))
	for j, v := range x {
		dst[4+j] = tensor.F32ToF8(tensor.F8E4M3, v*inv)
	}
}
