package quant

// q6_K: 256 elements in 210 bytes, 16 sub-blocks of 16.
//
//	  0  low[128]    lower four bits of the codes
//	128  high[64]    upper two bits
//	192  scales[16]  signed bytes
//	208  d           f16
//
//	y = d·scale·(q − 32)
//
// Each half of 128 elements has 64 bytes of low and 32 of high. Element
// 32k + l of the half is in low[l + 32(k & 1)], the low nibble for k < 2, and
// in bits 2k, 2k + 1 of high[l].

func decodeQ6K(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 210 {
		scales := (*[16]byte)(src[192:])
		d := halfAt(src[208], src[209])
		for s := range 8 { // sub-blocks of 16 columns, k = 0 … 3 at once
			h := s >> 2               // which half
			c := s & 1                // which 16 of its 32 columns
			k := s >> 1 & 1           // and which byte of low, so k and k + 2
			at := 128*h + 32*k + 16*c // first element
			sub := 8*h + 2*k + c      // its sub-block
			d0 := d * float32(int8(scales[sub&15]))
			d2 := d * float32(int8(scales[(sub+4)&15]))
			y0, y2 := (*[16]float32)(dst[at:]), (*[16]float32)(dst[at+64:])
			low := (*[16]byte)(src[64*h+32*k+16*c:])
			high := (*[16]byte)(src[128+32*h+16*c:])
			for l, q := range low {
				u := high[l] >> (2 * k & 7)
				y0[l] = d0 * float32(int32(q&15|u&3<<4)-32)
				y2[l] = d2 * float32(int32(q>>4|u&0x30)-32)
			}
		}
		dst, src = dst[256:], src[210:]
	}
}

func encodeQ6K(dst []byte, x, w []float32) {
	f := fitSymmetricBlock(x, w, 32, 128, dst[208:])
	for s, sc := range f.scale {
		dst[192+s] = byte(sc)
	}
	for h := range 2 {
		q := f.q[128*h : 128*h+128]
		low, high := dst[64*h:], dst[128+32*h:]
		for l := range 32 {
			low[l] = q[l]&15 | q[l+64]&15<<4
			low[l+32] = q[l+32]&15 | q[l+96]&15<<4
			high[l] = q[l]>>4 | q[l+32]>>4<<2 | q[l+64]>>4<<4 | q[l+96]>>4<<6
		}
	}
}
