package quant

// tq1_0 and tq2_0: 256 elements of −1, 0 or 1 times one scale, for networks
// trained so.
//
//	tq1_0  54 bytes   0 qs[48]   48 high[4]   52 d
//	tq2_0  66 bytes   0 qs[64]   64 d
//
//	y = (q − 1)·d
//
// d is f16. tq2_0 has 2-bit codes: each 32 bytes hold 128 elements, element
// 32k + l in bits 2k, 2k + 1 of byte l.
//
// tq1_0 has base-3 digits. The number 81·q0 + 27·q1 + 9·q2 + 3·q3 + q4 < 243 is
// stored as ⌈number·256/243⌉, a fraction of 256: multiplying the byte by 3^n
// (modulo 256) drops n digits, and multiplying by 3 once more carries the next
// digit out. Bytes 0 … 31 hold elements 0 … 159, digit n of byte l being
// element 32n + l; bytes 32 … 47 hold 160 … 239, element 160 + 16n + l; the
// four bytes of high hold four digits each, element 240 + 4n + l.

import "slices"

func decodeTQ1(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 54 {
		level := ternaryLevels(src[52], src[53])
		trits(dst[:160], src[:32], &level)
		trits(dst[160:240], src[32:48], &level)
		trits(dst[240:256], src[48:52], &level)
		dst, src = dst[256:], src[54:]
	}
}

// trits decodes len(dst)/len(src) digits of each byte.
func trits(dst []float32, src []byte, level *[4]float32) {
	for power := byte(1); len(dst) >= len(src); power *= 3 {
		y := dst[:len(src)]
		for l, b := range src {
			y[l] = level[uint16(b*power)*3>>8&3]
		}
		dst = dst[len(src):]
	}
}

func decodeTQ2(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 66 {
		level := ternaryLevels(src[64], src[65])
		for k := range 8 {
			y, q := (*[32]float32)(dst[32*k:]), (*[32]byte)(src[k>>2<<5:])
			shift := k & 3 * 2
			for l, b := range q {
				y[l] = level[b>>(shift&7)&3]
			}
		}
		dst, src = dst[256:], src[66:]
	}
}

// ternaryLevels gives (q − 1)·d. Code 3 is not written by encoders.
func ternaryLevels(lo, hi byte) [4]float32 {
	d := halfAt(lo, hi)
	return [4]float32{-1 * d, 0 * d, 1 * d, 2 * d}
}

func encodeTQ1(dst []byte, x []float32) {
	inv := reciprocal(putHalf(dst[52:], fitTernary(x)))
	pack := func(b []byte, x []float32, digits int) {
		for l := range b {
			number := 0
			for n := range 5 {
				number *= 3
				if n < digits {
					number += int(nearest(x[n*len(b)+l]*inv, -1, 1))
				}
			}
			b[l] = byte((number*256 + 242) / 243)
		}
	}
	pack(dst[:32], x, 5)
	pack(dst[32:48], x[160:], 5)
	pack(dst[48:52], x[240:], 4)
}

func encodeTQ2(dst []byte, x []float32) {
	inv := reciprocal(putHalf(dst[64:], fitTernary(x)))
	clear(dst[:64])
	for i, v := range x {
		dst[i>>7<<5+i&31] |= nearest(v*inv, -1, 1) << (i >> 5 & 3 * 2)
	}
}

// fitTernary finds the best scale exactly. Keeping the k largest magnitudes
// takes (their sum)²/k from the squared error, with their mean as the scale,
// so only 256 choices of k need be compared. Ternary weights come back as they
// were, and zeros do not count: k stops where they begin.
func fitTernary(x []float32) float32 {
	var mag [256]float32
	for i, v := range x {
		mag[i] = abs(v)
	}
	slices.Sort(mag[:])
	var sum, best, d float64
	for i := range mag {
		k := float64(i + 1)
		sum += float64(mag[255-i])
		if gain := sum * sum / k; gain > best {
			best, d = gain, sum/k
		}
	}
	if d < tiny {
		return 0
	}
	return float32(d)
}
