package simd

import (
	"fmt"
	"math"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// alike fails where got is farther from want than rounding lets it be, in the Euclidean norm.
func alike(t *testing.T, what string, got, want []float32) {
	t.Helper()
	d, all := 0.0, float64(len(want)) // sums cancel
	for i, w := range want {
		d += math.Pow(float64(got[i])-float64(w), 2)
		all += float64(w) * float64(w)
	}
	if !(math.Sqrt(d) <= 1e-5*math.Sqrt(all)) {
		t.Fatalf("%s: %v of %v off", what, math.Sqrt(d), math.Sqrt(all))
	}
}

// TestSteps: tokens of recurrences give at each level what they give in Go, and write nothing else.
func TestSteps(t *testing.T) {
	plain, err := Select("go")
	if err != nil {
		t.Fatal(err)
	}
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(51)
		// both runs step on copies of a state and a result of so many elements.
		both := func(what string, state *banded, results int, step func(k *Kernels, y, h []float32)) {
			t.Helper()
			want, y, was := newBanded(results, 1), newBanded(results, 2), append([]float32(nil), state.v...)
			step(plain, want.v, was)
			step(k, y.v, state.v)
			alike(t, what+": y", y.v, want.v)
			alike(t, what+": h", state.v, was)
			y.check(t, what)
			state.check(t, what)
		}
		for _, n := range []int{0, 1, 3, 8, 15, 16, 17, 33, 70} {
			for _, m := range []int{1, 7, 16, 31, 64, 65, 130} {
				for does := range 8 {
					x := randVector(r, 5*n+m, 0)
					both(fmt.Sprintf("MatrixStep %dx%d, %d", n, m, does), randVector(r, n*m, 1), m,
						func(k *Kernels, y, h []float32) { k.MatrixStep(y, h, x.v, n, does, -0.3) })
				}
				x, w, a := randVector(r, 2*m, 0), randVector(r, 2*n, 3), randVector(r, m*n, 0)
				both(fmt.Sprintf("ChannelSteps %dx%d", n, m), randVector(r, n*m, 1), m,
					func(k *Kernels, y, h []float32) { k.ChannelSteps(y, h, a.v, x.v, w.v, n) })
				both(fmt.Sprintf("RowsStep %dx%d", n, m), randVector(r, n*m, 1), m,
					func(k *Kernels, y, h []float32) { k.RowsStep(y, h, x.v, w.v, n, 0.7) })
			}
			h, keys, values, w := randVector(r, 3*n+4, 1), randVector(r, n, 0), randVector(r, n, 0), randVector(r, 2*n, 0)
			for i := range n {
				h.v[n+2+i] = 1 + h.v[n+2+i]*h.v[n+2+i]
			}
			both(fmt.Sprintf("WKVStep %d", n), h, n, func(k *Kernels, y, h []float32) {
				k.WKVStep(y, h, keys.v, values.v, w.v, n+2)
			})
		}
	})
}

// TestMulTiles: products of panels, packed by rows and by columns, are those of their matrices.
func TestMulTiles(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(52)
		for _, s := range []int{1, k.nr, k.nr + 1, 3*k.nr - 1} {
			for _, n := range []int{1, k.mr - 1, k.mr, 2*k.mr + 3} {
				for _, cols := range []int{1, 9, 64} {
					ld, ldy := n+5, n+3
					x, w := randVector(r, s*cols, 0), randVector(r, cols*ld, 0)
					xp, wp := make([]float32, k.Panels(s)*k.nr*cols), make([]float32, k.Tiles(n)*k.mr*cols)
					for i := 0; i < s; i += k.nr {
						k.PackTile(xp[i*cols:], Matrix{Type: tensor.F32, Rows: s, Cols: cols, Data: tensor.Bytes(x.v)}, i,
							min(k.nr, s-i), k.nr)
					}
					k.PackColumns(wp, w.v, ld, cols, n)
					y := newBanded((s-1)*ldy+n, 1)
					for times := 1; times <= 2; times++ {
						k.MulTiles(y.v, ldy, n, wp, cols*k.mr, xp, cols*k.nr, s, cols, times > 1)
						y.check(t, "MulTiles")
						for j := range s {
							for i := range n {
								sum, scale := 0.0, 0.0
								for c := range cols {
									p := float64(x.v[j*cols+c]) * float64(w.v[c*ld+i])
									sum, scale = sum+p, scale+math.Abs(p)
								}
								near(t, fmt.Sprintf("%dx%dx%d, %d times: [%d, %d]", s, n, cols, times, j, i), y.v[j*ldy+i],
									float64(times)*sum, scale, 2e-6)
							}
							for i := n; i < ldy && j < s-1; i++ {
								if y.v[j*ldy+i] != guard {
									t.Fatalf("wrote between rows: %v", y.v[j*ldy+i])
								}
							}
						}
					}
				}
			}
		}
	})
}
