package hip

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// TestPlanesOfTypes: each part of each block lies in its plane, rows beginning at multiples of 16 bytes, zeros up to
// there, and behind the planes the rows' factors; whatever the ranges of rows that were packed.
func TestPlanesOfTypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for typ, list := range parts {
		elems, size := typ.Block()
		shape := tensor.Shape{2, 5, 3 * elems} // ten rows
		const rows, row = 10, 3
		src := make([]byte, rows*row*size)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		at, end := planes(typ, shape)
		want := make([]byte, planesSize(typ, shape))
		for i, p := range list {
			for r := range rows {
				for b := range row {
					copy(want[at[i]+r*planeRow(row, p)+b*p.size:][:p.size], src[(r*row+b)*size+p.at:])
				}
			}
		}
		if bound := bounds[typ]; bound != nil {
			for r := range rows {
				top := float32(0)
				for b := range row {
					top = max(top, bound(src[(r*row+b)*size:]))
				}
				binary.LittleEndian.PutUint32(want[end+4*r:], rowFactor(top))
			}
		}
		got := make([]byte, len(want))
		for _, r := range [][2]int{{7, 10}, {0, 1}, {1, 7}} {
			if err := packPlanes(got, src, typ, shape, r[0], r[1]); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes", typ)
		}
	}
}

func BenchmarkPlanes(b *testing.B) {
	for _, typ := range []tensor.Type{tensor.Q4_0, tensor.Q4_K, tensor.Q6_K, tensor.Q8_0} {
		b.Run(typ.String(), func(b *testing.B) {
			shape := tensor.Shape{32, 14336}
			src := make([]byte, 32*typ.RowBytes(14336))
			dst := make([]byte, planesSize(typ, shape))
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := packPlanes(dst, src, typ, shape, 0, 32); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
