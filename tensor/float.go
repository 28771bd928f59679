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
	ieee           bool  // infinities and NaNs as in IEEE 754
	fnuz           bool  // no negative zero; its code is the only NaN
	last           uint8 // code of the largest finite number
}

var float8s = [numTypes]float8{
	F8E4M3:     {4, 3, 7, false, false, 0x7e},
	F8E5M2:     {5, 2, 15, true, false, 0x7b},
	F8E4M3FNUZ: {4, 3, 8, false, true, 0x7f},
	F8E5M2FNUZ: {5, 2, 16, false, true, 0x7f},
}

var f8tables = func() (t [numTypes]*[256]float32) {
	for typ, f := range float8s {
		if f.last == 0 {
			continue
		}
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
	f := &float8s[t]
	if v != v {
		if f.fnuz {
			return 0x80
		}
		return 0x7f
	}
	b := math.Float32bits(v)
	sign := uint8(b >> 24 & 0x80)
	b &= 1<<31 - 1
	var code uint32
	if least := uint32(128-f.bias) << 23; b < least { // steps of the smallest subnormal number
		// A sum with 2²³ steps has their number in its last bits, rounded to even.
		steps := math.Float32frombits(uint32(127+23+1-f.bias-f.man) << 23)
		code = math.Float32bits(math.Float32frombits(b)+steps) & (1<<23 - 1)
	} else {
		cut := 23 - f.man // bits that go
		b += 1<<(cut-1) - 1 + b>>cut&1
		code = min(b>>cut-uint32(127-f.bias)<<f.man, uint32(f.last))
	}
	if f.fnuz && code == 0 {
		return 0
	}
	return sign | uint8(code)
}
