package synthetic

import (
	"encoding/binary"
	"math"

	"github.com/greta-project/greta/tensor"
)

// Formats of lattices and of floating-point codes. Mean squares of the lattices' points are
// numbers of iqgrids.bin; see weights/quant.

// oddSquares is the mean square of scale·s + offset, s in 0 … n-1.
func oddSquares(scale, offset float64, n int) float64 {
	sum := 0.0
	for s := range n {
		v := float64(scale*float64(s)) + offset
		sum += float64(v * v)
	}
	return sum / float64(n)
}

var codeLayouts = map[tensor.Type]layout{
	tensor.IQ2_XXS: {dmin: -1, unit: math.Sqrt(534.43017578125 * oddSquares(.25, .125, 16))},
	tensor.IQ2_XS:  {dmin: -1, unit: math.Sqrt(586.47607421875 * oddSquares(.25, .125, 16))},
	tensor.IQ2_S:   {dmin: -1, unit: math.Sqrt(596.8416748046875 * oddSquares(.25, .125, 16))},
	tensor.IQ3_XXS: {dmin: -1, unit: math.Sqrt(951.640625 * oddSquares(.5, .25, 16))},
	tensor.IQ3_S:   {dmin: -1, unit: math.Sqrt(57.671875 * oddSquares(2, 1, 16))},
	tensor.IQ1_S:   {dmin: -1, unit: math.Sqrt((0.59417724609375 + 1./64) * oddSquares(2, 1, 8))},
	tensor.IQ1_M:   {dmin: -1, unit: math.Sqrt((0.59417724609375 + 1./64) * oddSquares(2, 1, 8)), put: putIQ1M},
	tensor.MXFP4:   {dmin: -1, unit: math.Sqrt(274. / 8), put: putMXFP4},
	tensor.NVFP4:   {dmin: -1, unit: math.Sqrt(274. / 8), put: putNVFP4},
	tensor.NF4:     {dmin: -1, unit: math.Sqrt(0.2675), put: putF32},
	tensor.F8E4M3_B32: {dmin: -1, unit: math.Sqrt(e4m3Squares()), put: func(block []byte, wanted float64, r uint64) {
		putF32(block, wanted, r)
		for i := range block[4:] {
			block[4+i] &^= 0x40 // below 2: no NaN, and none that outweighs all others
		}
	}},
}

func e4m3Squares() float64 {
	sum := 0.0
	for c := range 64 {
		v := float64(tensor.F8ToF32(tensor.F8E4M3, uint8(c)))
		sum += float64(v * v)
	}
	return sum / 64
}

func putF32(block []byte, wanted float64, _ uint64) {
	binary.LittleEndian.PutUint32(block, math.Float32bits(float32(wanted)))
}

// putIQ1M shares the bits of an f16 out over four words.
func putIQ1M(block []byte, wanted float64, _ uint64) {
	d := tensor.F32ToF16(float32(wanted))
	for i := range 4 {
		block[49+2*i] = block[49+2*i]&15 | byte(d>>(4*i)&15)<<4
	}
}

// between picks code or code + 1, whose scales are lo and hi, so that the mean square is that of wanted.
func between(code int, lo, hi, wanted float64, r uint64) byte {
	p := (float64(wanted*wanted) - float64(lo*lo)) / (float64(hi*hi) - float64(lo*lo))
	if float64(r>>8&0xffff)/65536 < p {
		code++
	}
	return byte(code)
}

func putMXFP4(block []byte, wanted float64, r uint64) {
	wanted = math.Abs(wanted)
	_, e := math.Frexp(wanted) // 2^(e-1) ≤ wanted < 2^e
	lo := math.Ldexp(1, e-1)
	block[0] = between(max(0, min(253, e-1+128)), lo, 2*lo, wanted, r)
}

func putNVFP4(block []byte, wanted float64, r uint64) {
	scale := func(c int) float64 { return float64(tensor.F8ToF32(tensor.F8E4M3, uint8(c))) / 2 }
	wanted = math.Abs(wanted)
	code := 0
	for code < 124 && scale(code+1) <= wanted {
		code++
	}
	for i := range 4 {
		block[i] = between(code, scale(code), scale(code+1), wanted, r)
		r = mix(r)
	}
}
