package quant

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// Every half is widened like tensor.F16ToF32 does it, in every one of the four
// places of the fast loop, beside normal numbers, and in the loop's tail.
func TestHalfExhaustive(t *testing.T) {
	var src [2 * 11]byte
	var dst [11]float32
	for place := range dst {
		for i := range dst {
			binary.LittleEndian.PutUint16(src[2*i:], 0x3c00)
		}
		for h := range 1 << 16 {
			binary.LittleEndian.PutUint16(src[2*place:], uint16(h))
			if err := Decode(tensor.F16, dst[:], src[:]); err != nil {
				t.Fatal(err)
			}
			for i, v := range dst {
				want := float32(1)
				if i == place {
					want = tensor.F16ToF32(uint16(h))
				}
				if math.Float32bits(v) != math.Float32bits(want) {
					t.Fatalf("half %#04x in place %d: element %d is %g, expected %g", h, place, i, v, want)
				}
			}
		}
	}
}
