package quant

import (
	"math/rand/v2"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// One core decoding a row of 4096, which stays in the first-level cache.
func BenchmarkDecode(b *testing.B) {
	x := normal(4096, 1)
	y := make([]float32, len(x))
	for _, typ := range floatTypes() {
		b.Run(typ.String(), func(b *testing.B) {
			src := make([]byte, typ.RowBytes(len(x)))
			if err := Encode(typ, src, x, len(x)); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := Decode(typ, y, src); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(x))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Melem/s")
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	x := normal(4096, 1)
	for _, typ := range floatTypes() {
		b.Run(typ.String(), func(b *testing.B) {
			dst := make([]byte, typ.RowBytes(len(x)))
			for b.Loop() {
				if err := Encode(typ, dst, x, len(x)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(x))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Melem/s")
		})
	}
}

func floatTypes() (list []tensor.Type) {
	for _, typ := range tensor.Types() {
		if Encodable(typ) {
			list = append(list, typ)
		}
	}
	return list
}

func normal(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.02
	}
	return x
}
