package tensor

import (
	"math"
	"testing"
)

// TestRoundToF8 holds the codes of numbers against those found by looking at all finite ones.
func TestRoundToF8(t *testing.T) {
	for _, typ := range []Type{F8E4M3, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ} {
		var codes []uint8 // positive and finite, the numbers rising
		for c := range 128 {
			if v := F8ToF32(typ, uint8(c)); v == v && !math.IsInf(float64(v), 0) {
				codes = append(codes, uint8(c))
			}
		}
		nearest := func(v float64) (code uint8) {
			least := math.Inf(1)
			for _, c := range codes {
				d := math.Abs(v - float64(F8ToF32(typ, c)))
				if d < least || d == least && c&1 == 0 {
					code, least = c, d
				}
			}
			return code
		}
		for high := range uint32(1 << 15) { // all exponents, eight bits behind the point's, and what rounding looks at
			for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0xffff} {
				v := math.Float32frombits(high<<16 | low)
				if v != v {
					continue
				}
				want := nearest(min(float64(v), 1e6)) // beyond all
				if got := F32ToF8(typ, v); got != want {
					t.Fatalf("%s: code of %g is %#x, expected %#x", typ, v, got, want)
				}
				if want != 0 || typ == F8E4M3 || typ == F8E5M2 {
					want |= 0x80
				}
				if got := F32ToF8(typ, -v); got != want {
					t.Fatalf("%s: code of %g is %#x, expected %#x", typ, -v, got, want)
				}
			}
		}
		nan := F32ToF8(typ, float32(math.NaN()))
		if v := F8ToF32(typ, nan); v == v {
			t.Errorf("%s: NaN has code %#x, which is %g", typ, nan, v)
		}
	}
}
