package simd

import (
	"encoding/binary"

	"github.com/greta-project/greta/tensor"
)

// Decoding of one block of a GGML format each, in Go. The layouts are
// described in weights/quant; csrc/cpu/blocks.h is the same in C.

func f16At(p []byte) float32 { return tensor.F16ToF32(binary.LittleEndian.Uint16(p)) }

// decQ8_0Go: f16 d, 32 signed bytes; v = d·q.
func decQ8_0Go(p []byte, dst []float32) {
	d := f16At(p)
	for i := range 32 {
		dst[i] = d * float32(int8(p[2+i]))
	}
}

// decQ4_0Go: f16 d, 16 bytes: low nibbles first, then high; v = d·(q-8).
func decQ4_0Go(p []byte, dst []float32) {
	d := f16At(p)
	for i := range 16 {
		dst[i] = d * float32(int(p[2+i]&15)-8)
		dst[16+i] = d * float32(int(p[2+i]>>4)-8)
	}
}

// scaleMinK4 gives the j-th 6-bit scale and minimum of a Q4_K block.
func scaleMinK4(s []byte, j int) (sc, m float32) {
	if j < 4 {
		return float32(s[j] & 63), float32(s[j+4] & 63)
	}
	return float32(s[j+4]&15 | s[j-4]>>6<<4), float32(s[j+4]>>4 | s[j]>>6<<4)
}

// decQ4_KGo: f16 d, f16 dmin, 12 bytes of scales, 128 bytes of nibbles;
// v = d·sc·q - dmin·m per 32 elements.
func decQ4_KGo(p []byte, dst []float32) {
	d, dmin := f16At(p), f16At(p[2:])
	for c := range 4 {
		sc0, m0 := scaleMinK4(p[4:16], 2*c)
		sc1, m1 := scaleMinK4(p[4:16], 2*c+1)
		for i, b := range p[16+32*c : 48+32*c] {
			dst[64*c+i] = d*sc0*float32(b&15) - dmin*m0
			dst[64*c+32+i] = d*sc1*float32(b>>4) - dmin*m1
		}
	}
}

// decQ6_KGo: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales,
// f16 d; v = d·sc·(q-32) per 16 elements.
func decQ6_KGo(p []byte, dst []float32) {
	d := f16At(p[208:])
	for half := range 2 {
		lo, hi := p[64*half:], p[128+32*half:]
		sc, out := p[192+8*half:], dst[128*half:]
		for i := range 32 {
			for g := range 4 {
				q := int(lo[i+32*(g&1)]>>(g>>1*4)&15) | int(hi[i]>>(2*g)&3)<<4
				out[32*g+i] = d * float32(int8(sc[2*g+i/16])) * float32(q-32)
			}
		}
	}
}
