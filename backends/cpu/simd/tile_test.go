package simd

import (
	"fmt"
	"math"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// TestSpreadRows: rows lie in panels of columns, the last one filled up, and what is not finite is seen.
func TestSpreadRows(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(31)
		for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16} {
			for _, cols := range []int{1, 3, 11, 12, 13, 17, 40, 64, 130} {
				for _, n := range []int{1, 2, 7, 32} {
					m, want := randMatrix(r, typ, n+2, cols, n%3)
					size := k.Panels(cols) * n * k.nr
					y := newBanded(size, n%5)
					room := y.all[y.from : y.from+size+16]
					if !k.SpreadRows(room, m, 1, n) {
						t.Fatalf("%s, %d by %d: numbers are said not to be finite", typ, n, cols)
					}
					y.check(t, "SpreadRows")
					for i := range size {
						row, c := i/k.nr%n, i/k.nr/n*k.nr+i%k.nr
						w := 0.0
						if c < cols {
							w = want[(row+1)*cols+c]
						}
						if float64(room[i]) != w {
							t.Fatalf("%s, %d by %d: row %d, column %d is %v, want %v", typ, n, cols, row, c, room[i], w)
						}
					}
					for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
						for c := range cols {
							b := append([]byte(nil), m.Data...)
							at := (1+c%n)*m.stride() + typ.RowBytes(c)
							switch v := float32(bad); typ {
							case tensor.F32:
								tensor.View[float32](b)[at/4] = v
							case tensor.F16:
								tensor.View[uint16](b)[at/2] = tensor.F32ToF16(v)
							default:
								tensor.View[uint16](b)[at/2] = tensor.F32ToBF16(v)
							}
							spoilt := m
							spoilt.Data = b
							if k.SpreadRows(room, spoilt, 1, n) {
								t.Fatalf("%s, %d by %d: %v in column %d goes unseen", typ, n, cols, bad, c)
							}
						}
					}
				}
			}
		}
	})
}

// TestMulPanel: a tile's width of packed rows times packed rows, and added to what is there.
func TestMulPanel(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(32)
		for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16} {
			for _, cols := range []int{1, 5, 16, 40, 300} {
				for _, s := range []int{1, k.nr - 1, k.nr, 2*k.nr + 1} {
					rows := 1 + (cols+s)%k.mr
					m, w := randMatrix(r, typ, rows+1, cols, 0)
					x := randVector(r, s*cols, 0)
					wp, xp, y := newBanded(cols*k.mr, 3), make([]float32, k.PackedLen(s, cols)), newBanded(s*k.mr, 5)
					k.PackTile(wp.v, m, 1, rows, k.mr)
					wp.check(t, "PackTile")
					xm := Matrix{Type: tensor.F32, Rows: s, Cols: cols, Data: tensor.Bytes(x.v)}
					for p := 0; p < s; p += k.nr {
						k.PackTile(xp[p*cols:], xm, p, min(k.nr, s-p), k.nr)
					}
					for _, times := range []float64{1, 2} {
						k.MulPanel(y.v, wp.v, xp, cols, k.nr*cols, s, times > 1)
						y.check(t, "MulPanel")
						for i, got := range y.v {
							var want, mag float64
							for c := range cols {
								if i%k.mr < rows {
									p := times * w[(1+i%k.mr)*cols+c] * float64(x.v[i/k.mr*cols+c])
									want += p
									mag += math.Abs(p)
								}
							}
							near(t, fmt.Sprintf("%s, %d columns, %d rows of %d", typ, cols, s, rows), got, want, mag, 2e-6)
						}
					}
				}
			}
		}
	})
}

// TestSoftmaxTile takes columns of scores in two parts, and scales what was summed by the first.
func TestSoftmaxTile(t *testing.T) {
	const none = -math.MaxFloat32
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(33)
		for n := range 40 {
			most, sum, change := newBanded(k.mr, 1), newBanded(k.mr, 2), newBanded(k.mr, 3)
			all := make([][]float64, k.mr) // scores of a column
			for i := range k.mr {
				most.v[i], sum.v[i] = none/4, 0
			}
			for part := range 3 {
				s, before := randVector(r, n*k.mr, part), append([]float32(nil), most.v...)
				for i := range s.v {
					s.v[i] *= 20
					if part == 2 { // no maximum changes
						s.v[i] = most.v[i%k.mr] - 1 - float32(i)
					} else if i%5 == 0 || i%k.mr == 1 && part == 0 {
						s.v[i] = none
					}
					all[i%k.mr] = append(all[i%k.mr], float64(s.v[i]))
				}
				scores := append([]float32(nil), s.v...)
				changed := k.SoftmaxTile(s.v, most.v, sum.v, change.v)
				for _, b := range []*banded{s, most, sum, change} {
					b.check(t, "SoftmaxTile")
				}
				rose := false
				for i, m := range most.v {
					want, top := 0.0, float64(none/4)
					for _, v := range all[i] {
						top = max(top, v)
					}
					for _, v := range all[i] {
						want += math.Exp(v - top)
					}
					if float64(m) != float64(float32(top)) {
						t.Fatalf("%d rows, part %d, column %d: maximum %v, want %v", n, part, i, m, top)
					}
					near(t, fmt.Sprintf("%d rows, part %d, column %d: sum", n, part, i), sum.v[i], want, want, 2e-6)
					f := math.Exp(float64(before[i] - m))
					near(t, "change", change.v[i], f, f+1e-26, 3e-7)
					rose = rose || m > before[i]
				}
				if changed != rose {
					t.Fatalf("%d rows, part %d: changed is %v", n, part, changed)
				}
				for i, got := range s.v {
					d := scores[i] - most.v[i%k.mr]
					want := math.Exp(float64(d))
					if d < -60 {
						want = 0
					}
					near(t, fmt.Sprintf("%d rows, part %d, e^%v", n, part, d), got, want, want, 2.4e-7)
				}
			}
			y, f := randVector(r, n*k.mr, 1), randVector(r, k.mr, 2)
			old := append([]float32(nil), y.v...)
			k.ScaleTile(y.v, f.v)
			y.check(t, "ScaleTile")
			for i, got := range y.v {
				if got != old[i]*f.v[i%k.mr] {
					t.Fatalf("ScaleTile: element %d is %v, want %v", i, got, old[i]*f.v[i%k.mr])
				}
			}
		}
		nan := float32(math.NaN())
		most, sum, change, s := make([]float32, k.mr), make([]float32, k.mr), make([]float32, k.mr), make([]float32, 3*k.mr)
		s[k.mr] = nan
		k.SoftmaxTile(s, most, sum, change)
		if s[k.mr] == s[k.mr] || sum[0] == sum[0] || most[0] != 0 || sum[1] != 3 {
			t.Errorf("a NaN among the scores: maximum %v, power %v, sum %v; beside it %v", most[0], s[k.mr], sum[0], sum[1])
		}
	})
}
