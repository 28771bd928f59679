package synthetic

import (
	"encoding/binary"
	"math"

	"github.com/greta-project/greta/tensor"
)

// Block formats (see weights/quant for their layouts) get random codes, and
// scales chosen so that the decoded values have mean 0 and the wanted standard
// deviation. d, the f16 scale of a block, is jittered by a quarter; its sign
// is random where codes are not symmetric (q4_0's are -8…7), so that no mean
// is left over many blocks.
//
// Formats with minimums subtract the middle code: y = d·s·(q - mid), by
// dmin = d·mid and equal fields for scales and minimums.

// A layout says where the f16 scales of a block are, and what std d = 1 gives.
type layout struct {
	d    int     // offset of d
	dmin int     // offset of dmin, or of the minimum m of q4_1 and q5_1; -1: none
	mid  float64 // dmin or m in units of d
	unit float64 // standard deviation of the decoded values for d = 1
	fix  func(block []byte, r uint64)
	// put writes the scales of formats that have no f16 at one place; wanted is what d would be.
	put func(block []byte, wanted float64, r uint64)
}

// codeSquares is the mean square of codes lo … hi.
func codeSquares(lo, hi int) float64 {
	sum := 0
	for q := lo; q <= hi; q++ {
		sum += q * q
	}
	return float64(sum) / float64(hi-lo+1)
}

// iq4Values are the 16 values of iq4_nl and iq4_xs.
var iq4Values = [16]int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func iq4Squares() float64 {
	sum := 0
	for _, v := range iq4Values {
		sum += v * v
	}
	return float64(sum) / 16
}

// layoutOf gives a type's; unit is 0 where there is none. Uniform codes 0 … n-1 have the variance (n² - 1)/12.
func layoutOf(t tensor.Type) layout {
	switch t {
	case tensor.Q4_0:
		return layout{d: 0, dmin: -1, unit: math.Sqrt(codeSquares(-8, 7))}
	case tensor.Q4_1:
		return layout{d: 0, dmin: 2, mid: -7.5, unit: math.Sqrt(255. / 12)}
	case tensor.Q5_0:
		return layout{d: 0, dmin: -1, unit: math.Sqrt(codeSquares(-16, 15))}
	case tensor.Q5_1:
		return layout{d: 0, dmin: 2, mid: -15.5, unit: math.Sqrt(1023. / 12)}
	case tensor.Q8_0:
		return layout{d: 0, dmin: -1, unit: math.Sqrt(codeSquares(-128, 127))}
	case tensor.Q2_K:
		return layout{d: 80, dmin: 82, mid: 1.5, unit: math.Sqrt(15. / 12 * codeSquares(8, 15)), fix: scalesQ2K}
	case tensor.Q3_K:
		return layout{d: 108, dmin: -1, unit: math.Sqrt(codeSquares(-4, 3) * codeSquares(-32, 31))}
	case tensor.Q4_K:
		return layout{d: 0, dmin: 2, mid: 7.5, unit: math.Sqrt(255. / 12 * codeSquares(32, 47)), fix: scalesQ4K}
	case tensor.Q5_K:
		return layout{d: 0, dmin: 2, mid: 15.5, unit: math.Sqrt(1023. / 12 * codeSquares(32, 47)), fix: scalesQ4K}
	case tensor.Q6_K:
		return layout{d: 208, dmin: -1, unit: math.Sqrt(codeSquares(-32, 31) * codeSquares(32, 63)), fix: scalesQ6K}
	case tensor.IQ4_NL:
		return layout{d: 0, dmin: -1, unit: math.Sqrt(iq4Squares())}
	case tensor.IQ4_XS:
		return layout{d: 0, dmin: -1, unit: math.Sqrt(iq4Squares() * codeSquares(-32, 31))}
	case tensor.TQ1_0:
		return layout{d: 52, dmin: -1, unit: math.Sqrt(2. / 3)}
	case tensor.TQ2_0:
		return layout{d: 64, dmin: -1, unit: math.Sqrt(1. / 2), fix: codesTQ2}
	}
	return codeLayouts[t]
}

// scalesQ2K puts 8 … 15 into both halves of each of the 16 bytes of scales.
func scalesQ2K(block []byte, r uint64) {
	for i := 0; i < 16; i += 8 {
		n := r&0x0707070707070707 | 0x0808080808080808
		binary.LittleEndian.PutUint64(block[i:], n|n<<4)
		r = mix(r)
	}
}

// scalesQ4K puts 32 … 47 into the eight 6-bit scales and the same into the
// eight minimums: their upper bits are shared out over the 12 bytes.
func scalesQ4K(block []byte, r uint64) {
	s := block[4:16]
	lo := uint32(r)&0x0f0f0f0f | 0xa0a0a0a0 // fields 0-3; the top two bits belong to 4-7
	hi := uint32(r>>32) & 0x0f0f0f0f
	binary.LittleEndian.PutUint32(s, lo)
	binary.LittleEndian.PutUint32(s[4:], lo)
	binary.LittleEndian.PutUint32(s[8:], hi|hi<<4)
}

// scalesQ6K puts 32 … 63 into the 16 int8 scales.
func scalesQ6K(block []byte, r uint64) {
	const five, bit = 0x1f1f1f1f1f1f1f1f, 0x2020202020202020
	binary.LittleEndian.PutUint64(block[192:], r&five|bit)
	binary.LittleEndian.PutUint64(block[200:], mix(r)&five|bit)
}

// codesTQ2 turns the pairs of bits 3, which no ternary value has, into 1: a
// quarter -1, a half 0, a quarter 1.
func codesTQ2(block []byte, _ uint64) {
	for i := 0; i < 64; i += 8 {
		w := binary.LittleEndian.Uint64(block[i:])
		both := w & (w >> 1) & 0x5555555555555555
		binary.LittleEndian.PutUint64(block[i:], w&^(both<<1))
	}
}

// scalePair is d and dmin as their bits.
type scalePair struct{ d, dmin uint16 }

// blockFiller gives the function that fills a chunk of a block format.
func blockFiller(t tensor.Type, std float64) func(dst []byte, key uint64) {
	l := layoutOf(t)
	_, size := t.Block()
	// 256 jittered scales: steps of 1/254 from 0.75 to 1.25, half of them negative.
	var pairs [256]scalePair
	var wanted [256]float64
	square := 0.0
	for k := range 128 {
		j := 0.75 + float64(k)/254
		square += float64(j * j)
	}
	base := std / l.unit / math.Sqrt(square/128)
	for k := range pairs {
		d := float64(base * (0.75 + float64(k&127)/254))
		if k >= 128 {
			d = -d
		}
		wanted[k] = d
		pairs[k].d = tensor.F32ToF16(float32(d))
		pairs[k].dmin = tensor.F32ToF16(float32(d * l.mid))
	}
	return func(dst []byte, key uint64) {
		fillWords(dst, key)
		le := binary.LittleEndian
		scales := mix(key ^ gamma) // a stream of its own
		for len(dst) >= size {
			r := mix(scales)
			scales += gamma
			p := pairs[r>>56]
			if l.put != nil {
				l.put(dst[:size], wanted[r>>56], r)
				dst = dst[size:]
				continue
			}
			le.PutUint16(dst[l.d:], p.d)
			if l.dmin >= 0 {
				le.PutUint16(dst[l.dmin:], p.dmin)
			}
			if l.fix != nil {
				l.fix(dst[:size], mix(r))
			}
			dst = dst[size:]
		}
	}
}
