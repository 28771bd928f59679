package quant

// q2_K: 256 elements in 84 bytes, 16 sub-blocks of 16.
//
//	 0  scales[16]  of sub-block s: scale in the low nibble, offset in the high
//	16  qs[64]      2-bit codes
//	80  d           f16, unit of the scales
//	82  m           f16, unit of the offsets
//
//	y = d·scale·q − m·offset
//
// Each half of 128 elements has 32 bytes of qs: element 32k + l of the half is
// in bits 2k, 2k + 1 of byte l.

func decodeQ2K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 84 {
		scales := (*[16]byte)(src)
		d, m := halfAt(src[80], src[81]), halfAt(src[82], src[83])
		for s, sc := range scales {
			dl, ml := float32(d*float32(sc&15)), float32(m*float32(sc>>4))
			level := [4]float32{float32(0*dl) - ml, float32(1*dl) - ml, float32(2*dl) - ml, float32(3*dl) - ml}
			y := (*[16]float32)(dst[16*s:])
			q := (*[16]byte)(src[16+s>>3<<5+s&1<<4:])
			shift := s >> 1 & 3 * 2
			for l, c := range q {
				y[l] = level[c>>(shift&7)&3]
			}
		}
		dst, src = dst[256:], src[84:]
	}
}

func encodeQ2K(dst []byte, x, w []float32) {
	f := fitAffineBlock(x, w, 16, 3, 15, dst[80:], dst[82:])
	for s := range 16 {
		dst[s] = f.scale[s] | f.low[s]<<4
	}
	packPairs(dst[16:80], &f.q)
}

// packPairs stores the low two bits of 256 codes as q2_K and q3_K do.
func packPairs(b []byte, q *[256]byte) {
	for h := range 2 {
		for l := range 32 {
			c := q[128*h+l:]
			b[32*h+l] = c[0]&3 | c[32]&3<<2 | c[64]&3<<4 | c[96]&3<<6
		}
	}
}
