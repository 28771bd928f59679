package quant

// iq1 to iq3: 256 elements, of which each group of eight (iq1, iq2) or four (iq3) is a point of a
// lattice: a code names the point, signs stand beside it.
//
//	iq2_xxs   66 bytes   0 d   2 codes, signs and scales in 8 × 8
//	iq2_xs    74 bytes   0 d   2 codes[32] of 16 bits   66 scales[8]
//	iq2_s     82 bytes   0 d   2 codes[32]   34 signs[32]   66 high[8]   74 scales[8]
//	iq3_xxs   98 bytes   0 d   2 codes[64]   66 signs and scales in 8 × 4
//	iq3_s    110 bytes   0 d   2 codes[64]   66 high[8]   74 signs[32]   106 scales[4]
//	iq1_s     50 bytes   0 d   2 codes[32]   34 high[8] of 16 bits
//	iq1_m     56 bytes   0 codes[32]   32 high[16]   48 scales[4] of 16 bits, with d
//
//	y = d·(scale + ½)/4·point·sign     iq2; iq3_xxs: /2
//	y = d·(2·scale + 1)·point·sign     iq3_s
//	y = d·(2·scale + 1)·(point ± ⅛)    iq1
//
// Seven bits hold the signs of eight elements where their product is positive: the eighth is the
// parity of the others. Signs and high bits count from the lowest bit. The lattices are
// iqgrids.bin, which tools/gen_iq_grids.py writes.

import (
	_ "embed"
	"encoding/binary"
	"math/bits"
)

//go:embed iqgrids.bin
var iqGridCodes []byte

// point8 and point4 are points of lattices.
type (
	point8 [8]float32
	point4 [4]float32
)

var (
	iq2xxsGrid [256]point8
	iq2xsGrid  [512]point8
	iq2sGrid   [1024]point8
	iq1Grid    [2048]point8
	iq3xxsGrid [256]point4
	iq3sGrid   [512]point4
)

func init() {
	codes := iqGridCodes
	fill8 := func(grid []point8, levels [3]float32) {
		for i := range grid {
			w := binary.LittleEndian.Uint16(codes)
			for j := range 8 {
				grid[i][j] = levels[w>>(2*j)&3]
			}
			codes = codes[2:]
		}
	}
	fill4 := func(grid []point4, levels [8]float32) {
		for i := range grid {
			w := binary.LittleEndian.Uint16(codes)
			for j := range 4 {
				grid[i][j] = levels[w>>(4*j)&7]
			}
			codes = codes[2:]
		}
	}
	for _, grid := range [][]point8{iq2xxsGrid[:], iq2xsGrid[:], iq2sGrid[:]} {
		fill8(grid, [3]float32{8, 25, 43})
	}
	fill8(iq1Grid[:], [3]float32{-1, 0, 1})
	fill4(iq3xxsGrid[:], [8]float32{4, 12, 20, 28, 36, 44, 52, 62})
	fill4(iq3sGrid[:], [8]float32{1, 3, 5, 7, 9, 11, 13, 15})
}

// sevenSigns completes seven signs by the eighth.
func sevenSigns(s uint32) byte {
	s &= 127
	return byte(s) | byte(bits.OnesCount32(s)&1)<<7
}

// signed8 writes db·point with the signs' bits.
func signed8(y []float32, db float32, p *point8, signs byte) {
	y = y[:8]
	for j := range y {
		v := db * p[j]
		if signs>>j&1 != 0 {
			v = -v
		}
		y[j] = v
	}
}

func signed4(y []float32, db float32, p *point4, signs byte) {
	y = y[:4]
	for j := range y {
		v := db * p[j]
		if signs>>j&1 != 0 {
			v = -v
		}
		y[j] = v
	}
}

func decodeIQ2XXS(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 66 {
		d := halfAt(src[0], src[1])
		for s := range 8 {
			q := src[2+8*s:]
			aux := binary.LittleEndian.Uint32(q[4:])
			db := float32(d*(0.5+float32(aux>>28))) * 0.25
			for l := range 4 {
				signed8(dst[32*s+8*l:], db, &iq2xxsGrid[q[l]], sevenSigns(aux>>(7*l)))
			}
		}
		dst, src = dst[256:], src[66:]
	}
}

func decodeIQ2XS(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 74 {
		d := halfAt(src[0], src[1])
		for g := range 32 {
			q := binary.LittleEndian.Uint16(src[2+2*g:])
			scale := src[66+g/4] >> (g / 2 % 2 * 4) & 15
			db := float32(d*(0.5+float32(scale))) * 0.25
			signed8(dst[8*g:], db, &iq2xsGrid[q&511], sevenSigns(uint32(q>>9)))
		}
		dst, src = dst[256:], src[74:]
	}
}

func decodeIQ2S(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 82 {
		d := halfAt(src[0], src[1])
		for g := range 32 {
			q := int(src[2+g]) | int(src[66+g/4]>>(g%4*2)&3)<<8
			scale := src[74+g/4] >> (g / 2 % 2 * 4) & 15
			db := float32(d*(0.5+float32(scale))) * 0.25
			signed8(dst[8*g:], db, &iq2sGrid[q], src[34+g])
		}
		dst, src = dst[256:], src[82:]
	}
}

func decodeIQ3XXS(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 98 {
		d := halfAt(src[0], src[1])
		for s := range 8 {
			aux := binary.LittleEndian.Uint32(src[66+4*s:])
			db := float32(d*(0.5+float32(aux>>28))) * 0.5
			for l := range 4 {
				q, signs := src[2+8*s+2*l:], sevenSigns(aux>>(7*l))
				signed4(dst[32*s+8*l:], db, &iq3xxsGrid[q[0]], signs)
				signed4(dst[32*s+8*l+4:], db, &iq3xxsGrid[q[1]], signs>>4)
			}
		}
		dst, src = dst[256:], src[98:]
	}
}

func decodeIQ3S(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 110 {
		d := halfAt(src[0], src[1])
		for g := range 64 {
			q := int(src[2+g]) | int(src[66+g/8]>>(g%8)&1)<<8
			scale := src[106+g/16] >> (g / 8 % 2 * 4) & 15
			db := d * float32(1+2*int(scale))
			signed4(dst[4*g:], db, &iq3sGrid[q], src[74+g/2]>>(g%2*4))
		}
		dst, src = dst[256:], src[110:]
	}
}

// iq1Delta moves all points of a group.
const iq1Delta = 0.125

func shifted8(y []float32, dl, delta float32, p *point8) {
	y = y[:8]
	for j := range y {
		y[j] = dl * (p[j] + delta)
	}
}

func decodeIQ1S(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 50 {
		d := halfAt(src[0], src[1])
		for s := range 8 {
			high := binary.LittleEndian.Uint16(src[34+2*s:])
			dl, delta := d*float32(2*(high>>12&7)+1), float32(iq1Delta)
			if high&0x8000 != 0 {
				delta = -iq1Delta
			}
			for l := range 4 {
				q := int(src[2+4*s+l]) | int(high>>(3*l)&7)<<8
				shifted8(dst[32*s+8*l:], dl, delta, &iq1Grid[q])
			}
		}
		dst, src = dst[256:], src[50:]
	}
}

func decodeIQ1M(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 56 {
		var sc [4]uint16
		for i := range sc {
			sc[i] = binary.LittleEndian.Uint16(src[48+2*i:])
		}
		d := half(sc[0]>>12 | sc[1]>>8&0xf0 | sc[2]>>4&0xf00 | sc[3]&0xf000)
		for g := range 32 {
			high := src[32+g/2] >> (g % 2 * 4)
			q := int(src[g]) | int(high&7)<<8
			delta := float32(iq1Delta)
			if high&8 != 0 {
				delta = -iq1Delta
			}
			dl := d * float32(2*(sc[g/8]>>(g/2%4*3)&7)+1)
			shifted8(dst[8*g:], dl, delta, &iq1Grid[q])
		}
		dst, src = dst[256:], src[56:]
	}
}
