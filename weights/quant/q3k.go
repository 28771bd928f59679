package quant

// q3_K: 256 elements in 110 bytes, 16 sub-blocks of 16.
//
//	  0  high[32]    third bit of the codes: element 32k + l in bit k of byte l
//	 32  qs[64]      low two bits, laid out as in q2_K
//	 96  scales[12]  16 scales of 6 bits, stored plus 32
//	108  d           f16
//
//	y = d·scale·(q − 4)
//
// The low nibble of the scale of sub-block s is in byte s & 7 of scales, its
// low half for s < 8 and its high half otherwise. The upper two bits are in
// byte 8 + (s & 3), at bit 2(s / 4).

var minus4 = [8]float32{-4, -3, -2, -1, 0, 1, 2, 3}

func decodeQ3K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 110 {
		high, scales := (*[32]byte)(src), (*[12]byte)(src[96:])
		d := halfAt(src[108], src[109])
		for s := range 16 {
			sc := scales[s&7]>>(s>>3<<2)&15 | scales[8+s&3]>>(s>>2<<1)&3<<4
			dl := d * float32(int(sc)-32)
			var level [8]float32
			for i := range level {
				level[i] = dl * minus4[i]
			}
			y := (*[16]float32)(dst[16*s:])
			q := (*[16]byte)(src[32+s>>3<<5+s&1<<4:])
			h := (*[16]byte)(high[s&1<<4:])
			shift, bit := s>>1&3*2, s>>1
			for l, c := range q {
				y[l] = level[c>>(shift&7)&3|h[l]>>(bit&7)&1<<2]
			}
		}
		dst, src = dst[256:], src[110:]
	}
}

func encodeQ3K(dst []byte, x, w []float32) {
	f := fitSymmetricBlock(x, w, 4, 32, dst[108:])
	clear(dst[:32])
	clear(dst[96:108])
	for i, q := range f.q {
		dst[i&31] |= q >> 2 << (i >> 5)
	}
	packPairs(dst[32:96], &f.q)
	for s, sc := range f.scale {
		c := byte(sc + 32)
		dst[96+s&7] |= c & 15 << (s >> 3 << 2)
		dst[104+s&3] |= c >> 4 << (s >> 2 << 1)
	}
}
