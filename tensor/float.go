package tensor

import (
	"math"

	"github.com/x448/float16"
)

// F16ToF32 widens IEEE 754 half precision exactly.
func F16ToF32(h uint16) float32 { return float16.Frombits(h).Float32() }

// F32ToF16 rounds to nearest even; overflow gives an infinity.
func F32ToF16(f float32) uint16 { return float16.Fromfloat32(f).Bits() }

// BF16ToF32 widens bfloat16 exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to nearest even and keeps NaNs quiet.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// float8 describes one of the four 8-bit formats.
type float8 struct {
	exp, man, bias int
	ieee           bool // infinities and NaNs as in IEEE 754
	fnuz           bool // no negative zero; its code is the only NaN
}

var float8s = map[Type]float8{
	F8E4M3:     {4, 3, 7, false, false},
	F8E5M2:     {5, 2, 15, true, false},
	F8E4M3FNUZ: {4, 3, 8, false, true},
	F8E5M2FNUZ: {5, 2, 16, false, true},
}

var f8tables = func() (t [numTypes]*[256]float32) {
	for typ, f := range float8s {
		t[typ] = new([256]float32)
		for c := range 256 {
			t[typ][c] = f.decode(uint8(c))
		}
	}
	return t
}()

func (f float8) decode(c uint8) float32 {
	sign := 1.0
	if c&0x80 != 0 {
		sign = -1
	}
	e, m := int(c&0x7f)>>f.man, int(c)&(1<<f.man-1)
	top := e == 1<<f.exp-1
	switch {
	case f.fnuz && c == 0x80:
		return float32(math.NaN())
	case f.ieee && top && m == 0:
		return float32(math.Inf(int(sign)))
	case f.ieee && top, !f.ieee && !f.fnuz && top && m == 1<<f.man-1:
		return float32(math.NaN())
	case e == 0:
		return float32(sign * math.Ldexp(float64(m), 1-f.bias-f.man))
	}
	return float32(sign * math.Ldexp(float64(m+1<<f.man), e-f.bias-f.man))
}

// F8ToF32 decodes one code of an 8-bit float type.
func F8ToF32(t Type, c uint8) float32 { return f8tables[t][c] }

// F32ToF8 rounds to the nearest code of an 8-bit float type, ties to even,
// and saturates at the largest finite value. NaN gives the type's NaN.
func F32ToF8(t Type, v float32) uint8 {
	tab, f := f8tables[t], float8s[t]
	if v != v {
		if f.fnuz {
			return 0x80
		}
		return 0x7f
	}
	sign := uint8(0)
	if math.Signbit(float64(v)) {
		sign, v = 0x80, -v
	}
	last := uint8(0x7f) // largest finite code
	for tab[last] != tab[last] || math.IsInf(float64(tab[last]), 0) {
		last--
	}
	lo, hi := uint8(0), last // tab is increasing over the positive codes
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		if tab[mid] <= v {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if lo < last {
		down, up := v-tab[lo], tab[lo+1]-v
		if up < down || up == down && lo&1 == 1 {
			lo++
		}
	}
	if f.fnuz && lo == 0 {
		return 0
	}
	return sign | lo
}
