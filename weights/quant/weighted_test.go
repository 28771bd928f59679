package quant

import (
	"math/rand/v2"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// With importance, the weighted error is smaller than without, for every format whose encoder has a choice; with equal
// weights it is about as small; and weights of nothing are as none.
func TestEncodeWeighted(t *testing.T) {
	const row, rows = 512, 24
	x := normal(row*rows, 31)
	r := rand.New(rand.NewPCG(9, 9))
	w, even := make([]float32, row), make([]float32, row)
	for i := range w {
		even[i] = 1
		if w[i] = float32(r.ExpFloat64() * r.ExpFloat64()); i%17 == 0 {
			w[i] *= 30
		}
	}
	cost := func(typ tensor.Type, by, measure []float32) float64 {
		b := make([]byte, typ.RowBytes(len(x)))
		if err := EncodeWeighted(typ, b, x, row, by); err != nil {
			t.Fatal(typ, err)
		}
		y := make([]float32, len(x))
		if err := Decode(typ, y, b); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i := range x {
			e := float64(x[i] - y[i])
			sum += float64(measure[i%row]) * e * e
		}
		return sum
	}
	for _, typ := range []tensor.Type{tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q2_K, tensor.Q3_K,
		tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.IQ4_NL, tensor.IQ4_XS} {
		plain, weighted := cost(typ, nil, w), cost(typ, w, w)
		if !(weighted < 0.97*plain) {
			t.Errorf("%s: the weighted error is %.4g with importance, %.4g without", typ, weighted, plain)
		}
		if a, b := cost(typ, nil, even), cost(typ, even, even); !(b < 1.02*a) {
			t.Errorf("%s: equal weights make an error of %.4g, none %.4g", typ, b, a)
		}
		if a, b := cost(typ, nil, even), cost(typ, make([]float32, row), even); a != b {
			t.Errorf("%s: weights of nothing change the result", typ)
		}
	}
}
