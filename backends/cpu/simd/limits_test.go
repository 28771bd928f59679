package simd

import (
	"testing"

	"github.com/greta-project/greta/tensor"
)

// Peaks are finite, count what they do, and are told apart.
func TestPeaks(t *testing.T) {
	forLevels(t, func(t *testing.T, k *Kernels) {
		for _, c := range []struct {
			typ      tensor.Type
			rounded  bool
			products int // on the matrix unit
		}{{tensor.F32, false, 6}, {tensor.F16, false, 5}, {tensor.BF16, false, 3}, {tensor.BF16, true, 1},
			{tensor.Q4_K, true, 1}} {
			p := k.PeakOf(c.typ, c.rounded)
			want := 1
			if k.HasUnit() {
				want = c.products
			}
			if p.Products != want {
				t.Errorf("%s: %d products for one, want %d", c.typ, p.Products, want)
			}
			x := AlignedFloats(PeakFloats)
			for i := range x {
				x[i] = 1 / float32(1+i%7)
			}
			one, ten := p.Run(x, 1), p.Run(x, 10)
			if one <= 0 || ten != 10*one {
				t.Errorf("%s, %s: %d multiply-adds in a round, %d in ten", c.typ, p.Name, one, ten)
			}
			if i := x[0]; i-i != 0 && k.Name != "go" {
				t.Errorf("%s, %s: %v", c.typ, p.Name, i)
			}
		}
	})
}
