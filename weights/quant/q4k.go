package quant

// q4_K and q5_K: 256 elements, 8 sub-blocks of 32.
//
//	q4_K  144 bytes   0 d   2 m   4 scales[12]   16 qs[128]
//	q5_K  176 bytes   0 d   2 m   4 scales[12]   16 high[32]   48 qs[128]
//
//	y = d·scale·q − m·offset
//
// d and m are f16. Sub-blocks 2k and 2k + 1 share bytes 32k … 32k + 31 of qs,
// in the low and the high nibble. The fifth bit of element l of sub-block s is
// bit s of high[l].
//
// scales holds 8 scales and 8 offsets of 6 bits. Byte s < 4 has scale s in its
// low six bits, byte 4 + s has offset s. Byte 8 + s has the low nibbles of
// scale 4 + s (low) and of offset 4 + s (high); their upper two bits are the
// upper two bits of bytes s and 4 + s.

// unpackScales gives scale and offset of sub-block s < 8.
func unpackScales(b *[12]byte, s int) (scale, low byte) {
	if s < 4 {
		return b[s] & 63, b[s+4] & 63
	}
	return b[s+4]&15 | b[s-4]>>6<<4, b[s+4]>>4 | b[s]>>6<<4
}

func packScales(b []byte, f *affineFit) {
	for s := range 4 {
		sc, mn := f.scale[4+s], f.low[4+s]
		b[s] = f.scale[s] | sc>>4<<6
		b[4+s] = f.low[s] | mn>>4<<6
		b[8+s] = sc&15 | mn&15<<4
	}
}

func decodeQ4K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 144 {
		scales := (*[12]byte)(src[4:])
		d, m := halfAt(src[0], src[1]), halfAt(src[2], src[3])
		for k := range 4 {
			q, y := (*[32]byte)(src[16+32*k:]), (*[64]float32)(dst[64*k:])
			sc, mn := unpackScales(scales, 2*k)
			d0, m0 := d*float32(sc), float32(m*float32(mn))
			sc, mn = unpackScales(scales, 2*k+1)
			d1, m1 := d*float32(sc), float32(m*float32(mn))
			var low, high [16]float32
			for i := range low {
				low[i] = float32(d0*float32(i)) - m0
				high[i] = float32(d1*float32(i)) - m1
			}
			for l, c := range q {
				y[l] = low[c&15]
				y[l+32] = high[c>>4]
			}
		}
		dst, src = dst[256:], src[144:]
	}
}

func decodeQ5K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 176 {
		scales, fifth := (*[12]byte)(src[4:]), (*[32]byte)(src[16:])
		d, m := halfAt(src[0], src[1]), halfAt(src[2], src[3])
		for k := range 4 {
			q, y := (*[32]byte)(src[48+32*k:]), (*[64]float32)(dst[64*k:])
			sc, mn := unpackScales(scales, 2*k)
			d0, m0 := d*float32(sc), float32(m*float32(mn))
			sc, mn = unpackScales(scales, 2*k+1)
			d1, m1 := d*float32(sc), float32(m*float32(mn))
			for l, c := range q {
				h := fifth[l] >> (2 * k & 7)
				y[l] = float32(d0*float32(int32(c&15|h&1<<4))) - m0
				y[l+32] = float32(d1*float32(int32(c>>4|h&2<<3))) - m1
			}
		}
		dst, src = dst[256:], src[176:]
	}
}

func encodeQ4K(dst []byte, x, w []float32) {
	f := fitAffineBlock(x, w, 32, 15, 63, dst, dst[2:])
	packScales(dst[4:], &f)
	packNibbles(dst[16:], &f.q)
}

func encodeQ5K(dst []byte, x, w []float32) {
	f := fitAffineBlock(x, w, 32, 31, 63, dst, dst[2:])
	packScales(dst[4:], &f)
	clear(dst[16:48])
	for i, q := range f.q {
		dst[16+i&31] |= q >> 4 << (i >> 5)
	}
	packNibbles(dst[48:], &f.q)
}

// packNibbles stores the low four bits of 256 codes as q4_K and q5_K do.
func packNibbles(b []byte, q *[256]byte) {
	for k := range 4 {
		for l := range 32 {
			b[32*k+l] = q[64*k+l]&15 | q[64*k+32+l]&15<<4
		}
	}
}
