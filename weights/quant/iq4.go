package quant

// iq4_nl and iq4_xs: 4-bit codes into a fixed, uneven list of levels, denser
// near zero where weights are.
//
//	iq4_nl   18 bytes for 32    0 d   2 qs[16]
//	iq4_xs  136 bytes for 256   0 d   2 high[2]   4 low[4]   8 qs[128]
//
//	y = d·level[q]                  iq4_nl
//	y = d·(scale − 32)·level[q]     iq4_xs, 8 sub-blocks of 32
//
// d is f16. Each 16 bytes of qs hold 32 elements, l in the low nibble of byte
// l and l + 16 in the high one. Scale s of iq4_xs has its lower four bits in
// nibble s of low and its upper two in bits 2s, 2s + 1 of the word high.

import "encoding/binary"

var iq4Levels = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// iq4Nearest gives the code of the level nearest to t, by 2(t + 128) rounded
// down: every middle between two levels is a multiple of one half.
var iq4Nearest = func() (table [512]byte) {
	code := 0
	for i := range table {
		t := float32(i)/2 - 128
		for code < 15 && t >= (iq4Levels[code]+iq4Levels[code+1])/2 {
			code++
		}
		table[i] = byte(code)
	}
	return table
}()

func iq4Code(t float32) byte {
	if t < -128 {
		t = -128
	}
	if t > 127 {
		t = 127
	}
	return iq4Nearest[int32(2*(t+128))&511]
}

func iq4Block(y *[32]float32, qs *[16]byte, d float32) {
	var level [16]float32
	for i, v := range iq4Levels {
		level[i] = d * v
	}
	for j, q := range qs {
		y[j] = level[q&15]
		y[j+16] = level[q>>4]
	}
}

func decodeIQ4NL(dst []float32, src []byte) {
	for len(dst) >= 32 && len(src) >= 18 {
		iq4Block((*[32]float32)(dst), (*[16]byte)(src[2:]), halfAt(src[0], src[1]))
		dst, src = dst[32:], src[18:]
	}
}

func decodeIQ4XS(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 136 {
		d := halfAt(src[0], src[1])
		high, low := binary.LittleEndian.Uint16(src[2:]), binary.LittleEndian.Uint32(src[4:])
		for s := range 8 {
			scale := int(low>>(4*s)&15) | int(high>>(2*s)&3)<<4
			iq4Block((*[32]float32)(dst[32*s:]), (*[16]byte)(src[8+16*s:]), d*float32(scale-32))
		}
		dst, src = dst[256:], src[136:]
	}
}

func encodeIQ4NL(dst []byte, x, w []float32) {
	d := putUnit(dst, fitIQ4(x, w))
	packIQ4(dst[2:18], x, d)
}

func encodeIQ4XS(dst []byte, x, w []float32) {
	var scales [8]float32
	for s := range scales {
		scales[s] = fitIQ4(x[32*s:32*s+32], part(w, s, 32))
	}
	d := putUnit(dst, extreme(scales[:])/-32)
	inv := reciprocal(d)
	var high uint16
	var low uint32
	for s, v := range scales {
		xs := x[32*s : 32*s+32]
		near := int(nearest(v*inv, -32, 31)) - 32
		best, scale := float32(-1), 0
		for a := max(near-1, -32); a <= min(near+1, 31); a++ {
			if err := iq4Error(xs, part(w, s, 32), d*float32(a)); best < 0 || err < best {
				best, scale = err, a
			}
		}
		packIQ4(dst[8+16*s:], xs, d*float32(scale))
		low |= uint32(scale+32) & 15 << (4 * s)
		high |= uint16(scale+32) >> 4 << (2 * s)
	}
	binary.LittleEndian.PutUint16(dst[2:], high)
	binary.LittleEndian.PutUint32(dst[4:], low)
}

// packIQ4 stores the codes of 32 elements in 16 bytes.
func packIQ4(b []byte, x []float32, d float32) {
	inv := reciprocal(d)
	for j := range 16 {
		b[j] = iq4Code(x[j]*inv) | iq4Code(x[j+16]*inv)<<4
	}
}

func iq4Error(x, w []float32, d float32) float32 {
	if w != nil {
		return iq4WeightedError(x, w, d)
	}
	inv := reciprocal(d)
	var sum float32
	for _, v := range x {
		e := v - float32(d*iq4Levels[iq4Code(v*inv)&15])
		sum += float32(e * e)
	}
	return sum
}

// fitIQ4 finds d so that d·level is close to x; see fitSymmetric.
func fitIQ4(x, w []float32) float32 {
	if w != nil {
		return fitIQ4Weighted(x, w)
	}
	e := extreme(x)
	if abs(e) < tiny {
		return 0
	}
	var best float64
	var d float32
	try := func(inv float32) {
		var xq, qq float32
		for _, v := range x {
			q := iq4Levels[iq4Code(v*inv)&15]
			xq += float32(v * q)
			qq += float32(q * q)
		}
		if gain := float64(xq) * float64(xq) / float64(qq); gain > best {
			best, d = gain, xq/qq
		}
	}
	// The extreme element falls near −127 with d of the other sign, or near 113.
	for i := -9; i <= 9; i++ {
		try(float32(2*i-127) / e)
		try(float32(2*i+113) / e)
	}
	return d
}
