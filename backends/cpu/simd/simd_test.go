package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// sizes are odd on purpose: every tail of every vector length, and the edges
// of the unrolled loops.
func sizes() []int {
	var all []int
	for n := range 71 {
		all = append(all, n)
	}
	return append(all, 127, 128, 129, 255, 256, 257, 1000, 4097, callElements+3)
}

// forLevels runs f for each level of this machine.
func forLevels(t *testing.T, f func(t *testing.T, k *Kernels)) {
	for _, k := range Levels() {
		t.Run(k.Name, func(t *testing.T) { f(t, k) })
	}
}

// bytesOnly says that a level is neon but for products of bytes, which forVectors leaves out.
func bytesOnly(k *Kernels) bool { return k.Name == "i8mm" || k.Name == "dotprod" }

// forVectors runs f for each level of this machine that has kernels of its own besides
// products of bytes.
func forVectors(t *testing.T, f func(t *testing.T, k *Kernels)) {
	for _, k := range Levels() {
		if !bytesOnly(k) {
			t.Run(k.Name, func(t *testing.T) { f(t, k) })
		}
	}
}

const guard = float32(-12345.678)

// banded is a vector between guard bands, at any alignment of its elements.
type banded struct {
	all  []float32
	from int
	v    []float32
}

func newBanded(n, shift int) *banded {
	b := &banded{all: make([]float32, n+64), from: 24 + shift}
	for i := range b.all {
		b.all[i] = guard
	}
	b.v = b.all[b.from : b.from+n : b.from+n]
	return b
}

func (b *banded) check(t *testing.T, what string) {
	t.Helper()
	for i, v := range b.all {
		if (i < b.from || i >= b.from+len(b.v)) && v != guard {
			t.Fatalf("%s: wrote %v at element %d of %d", what, v, i-b.from, len(b.v))
		}
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func randVector(r *rand.Rand, n, shift int) *banded {
	b := newBanded(n, shift)
	for i := range b.v {
		b.v[i] = float32(r.NormFloat64())
	}
	return b
}

// near fails where got is farther from want than tol·scale, scale being the
// sum of the magnitudes that went into it.
func near(t *testing.T, what string, got float32, want, scale, tol float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= tol*scale+1e-37) {
		t.Fatalf("%s: got %v, want %v (error %.3g of %.3g allowed)", what, got, want, math.Abs(float64(got)-want), tol*scale)
	}
}

func TestSelect(t *testing.T) {
	all := Levels()
	if all[len(all)-1].Name != "go" {
		t.Errorf("the last level is %s, want go", all[len(all)-1].Name)
	}
	for _, k := range all {
		got, err := Select(k.Name)
		if err != nil || got.Name != k.Name {
			t.Errorf("Select(%q) = %v, %v", k.Name, got, err)
		}
	}
	if best, err := Select(""); err != nil || best.Name != all[0].Name {
		t.Errorf("Select of nothing = %v, %v, want %s", best, err, all[0].Name)
	}
	_, err := Select("mmx")
	if err == nil || !strings.Contains(err.Error(), `"mmx"`) || !strings.Contains(err.Error(), "go") {
		t.Errorf("Select(mmx): error %v, want one that names it and what there is", err)
	}
}

func TestAlignedFloats(t *testing.T) {
	for n := range 40 {
		b := AlignedFloats(n)
		if len(b) != n || uintptr(ptr(b))%64 != 0 && n > 0 {
			t.Fatalf("AlignedFloats(%d): %d floats at %p", n, len(b), ptr(b))
		}
	}
}

func TestReductions(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(1)
		for _, n := range sizes() {
			a, b := randVector(r, n, n%3), randVector(r, n, n%5)
			var dot, mag, sq float64
			top := math.Inf(-1)
			for i := range n {
				p := float64(a.v[i]) * float64(b.v[i])
				dot += p
				mag += math.Abs(p)
				sq += float64(a.v[i]) * float64(a.v[i])
				top = math.Max(top, float64(a.v[i]))
			}
			name := fmt.Sprintf("n=%d", n)
			near(t, name+" Dot", k.Dot(a.v, b.v), dot, mag, 2e-6)
			near(t, name+" SumSquares", k.SumSquares(a.v), sq, sq, 2e-6)
			if got := k.Max(a.v); float64(got) != top {
				t.Fatalf("%s Max: got %v, want %v", name, got, top)
			}
		}
		if got := k.Max([]float32{float32(math.NaN()), 2, float32(math.NaN())}); got != 2 {
			t.Errorf("Max passes NaNs over: got %v, want 2", got)
		}
	})
}

// ulps gives the distance of got from want in units of want's last place.
func ulps(got float32, want float64) float64 {
	if math.IsNaN(want) && got != got || float64(got) == want || float32(want) == got {
		return 0
	}
	w := math.Abs(want)
	unit := float64(math.Nextafter32(float32(w), float32(math.Inf(1)))) - float64(float32(w))
	return math.Abs(float64(got)-want) / unit
}

func TestElementwise(t *testing.T) {
	phi := func(x float64) float64 { return x * 0.5 * math.Erfc(-x/math.Sqrt2) }
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	tanh := func(x float64) float64 {
		return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	cases := []struct {
		name string
		run  func(k *Kernels, y, a, b []float32)
		want func(a, b float64) float64
		ulps float64
	}{
		{"add", func(k *Kernels, y, a, b []float32) { k.Add(y, a, b) }, func(a, b float64) float64 { return a + b }, 0.51},
		{"mul", func(k *Kernels, y, a, b []float32) { k.Mul(y, a, b) }, func(a, b float64) float64 { return a * b }, 0.51},
		{"scale", func(k *Kernels, y, a, b []float32) {
			k.Scale(y, 1.7, a)
		}, func(a, b float64) float64 { return float64(float32(1.7)) * a }, 0.51},
		{"scale_mul", func(k *Kernels, y, a, b []float32) {
			k.ScaleMul(y, 1.7, a, b)
		}, func(a, b float64) float64 { return float64(float32(1.7)) * a * b }, 1.6},
		{"exp", func(k *Kernels, y, a, b []float32) { k.Exp(y, a) }, func(a, b float64) float64 { return math.Exp(a) }, 2},
		{"silu", func(k *Kernels, y, a, b []float32) { k.SiLU(y, a, nil) }, func(a, b float64) float64 { return silu(a) }, 4},
		{"silu·u", func(k *Kernels, y, a, b []float32) {
			k.SiLU(y, a, b)
		}, func(a, b float64) float64 { return silu(a) * b }, 5},
		{"gelu_tanh", func(k *Kernels, y, a, b []float32) {
			k.GELUTanh(y, a, nil)
		}, func(a, b float64) float64 { return tanh(a) }, 160},
		{"gelu_tanh·u", func(k *Kernels, y, a, b []float32) {
			k.GELUTanh(y, a, b)
		}, func(a, b float64) float64 { return tanh(a) * b }, 160},
		{"gelu_erf", func(k *Kernels, y, a, b []float32) {
			k.GELUErf(y, a, nil)
		}, func(a, b float64) float64 { return phi(a) }, 160},
		{"gelu_erf·u", func(k *Kernels, y, a, b []float32) {
			k.GELUErf(y, a, b)
		}, func(a, b float64) float64 { return phi(a) * b }, 160},
	}
	forVectors(t, func(t *testing.T, k *Kernels) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				r := newRand(2)
				worst := 0.0
				for _, n := range sizes() {
					a, b, y := randVector(r, n, n%3), randVector(r, n, n%5), newBanded(n, n%7)
					for i := range a.v {
						a.v[i] *= 2.5 // into the tails of the gates
					}
					c.run(k, y.v, a.v, b.v)
					y.check(t, c.name)
					for i, got := range y.v {
						want := c.want(float64(a.v[i]), float64(b.v[i]))
						u := ulps(got, want)
						if math.Abs(float64(got)-want) < 1e-37 { // next to nothing: gates flush to zero
							u = 0
						}
						if c.name == "add" && math.Abs(want) < 1e-3 { // cancellation is exact in f32
							continue
						}
						if worst = max(worst, u); u > c.ulps {
							t.Fatalf("n=%d: element %d of (%v, %v): got %v, want %v, %.1f ulp", n, i, a.v[i], b.v[i], got, want, u)
						}
					}
					c.run(k, a.v, a.v, b.v) // in place
					for i := range y.v {
						if a.v[i] != y.v[i] {
							t.Fatalf("n=%d: in place, element %d is %v, elsewhere %v", n, i, a.v[i], y.v[i])
						}
					}
				}
				t.Logf("worst %.2f ulp", worst)
			})
		}
	})
}

func TestTurns(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(34)
		for _, n := range sizes() {
			x, c, s, y := randVector(r, 2*n, n%3), randVector(r, n, n%5), randVector(r, n, n%2), newBanded(2*n, n%7)
			turned := func(what string, lo, hi func(i int) int) {
				t.Helper()
				y.check(t, what)
				for i := range n {
					a, b, co, si := float64(x.v[lo(i)]), float64(x.v[hi(i)]), float64(c.v[i]), float64(s.v[i])
					near(t, what, y.v[lo(i)], a*co-b*si, math.Abs(a*co)+math.Abs(b*si), 1.3e-7)
					near(t, what, y.v[hi(i)], a*si+b*co, math.Abs(a*si)+math.Abs(b*co), 1.3e-7)
				}
			}
			k.TurnHalves(y.v, x.v, c.v, s.v)
			turned("TurnHalves", func(i int) int { return i }, func(i int) int { return n + i })
			same := append([]float32(nil), x.v...)
			k.TurnHalves(same, same, c.v, s.v)
			if !slices.Equal(same, y.v) {
				t.Fatalf("TurnHalves of %d in place differs", n)
			}
			both, signed := newBanded(2*n, 1), newBanded(2*n, 2)
			for i := range n {
				both.v[2*i], both.v[2*i+1], signed.v[2*i], signed.v[2*i+1] = c.v[i], c.v[i], -s.v[i], s.v[i]
			}
			k.TurnPairs(y.v, x.v, both.v, signed.v)
			turned("TurnPairs", func(i int) int { return 2 * i }, func(i int) int { return 2*i + 1 })
			copy(same, x.v)
			k.TurnPairs(same, same, both.v, signed.v)
			if !slices.Equal(same, y.v) {
				t.Fatalf("TurnPairs of %d in place differs", n)
			}
		}
	})
}

func TestAxpy(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(3)
		for _, n := range sizes() {
			x, y := randVector(r, n, n%3), randVector(r, n, n%7)
			before := append([]float32(nil), y.v...)
			k.Axpy(y.v, -0.3, x.v)
			y.check(t, "axpy")
			for i := range y.v {
				p := float64(float32(-0.3)) * float64(x.v[i])
				near(t, "axpy", y.v[i], float64(before[i])+p, math.Abs(p)+math.Abs(float64(before[i])), 1.2e-7)
			}
		}
	})
}

// The exponential over its whole range: subnormals, limits and specials.
func TestExpRange(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	var x []float32
	for v := -110.0; v < 95; v += 0.00613 {
		x = append(x, float32(v))
	}
	x = append(x, 0, -inf, inf, nan, -103.97208, 88.72283, 88.72284, -87.33655, 1e-30, -1e30, 1e30)
	forVectors(t, func(t *testing.T, k *Kernels) {
		y := make([]float32, len(x))
		k.Exp(y, x)
		worst := 0.0
		for i, v := range x {
			want := math.Exp(float64(v))
			if want > math.MaxFloat32 {
				if w32 := float32(want); w32 == inf && y[i] != inf {
					t.Errorf("exp(%v) = %v, want +Inf", v, y[i])
				}
				continue
			}
			u := ulps(y[i], want)
			if worst = max(worst, u); !(u <= 2) {
				t.Fatalf("exp(%v) = %v, want %v: %.2f ulp", v, y[i], want, u)
			}
		}
		t.Logf("worst %.2f ulp", worst)
	})
}

func TestExpSum(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(4)
		for _, n := range sizes() {
			x, y := randVector(r, n, n%3), newBanded(n, n%5)
			m := float32(1.25)
			for i := range x.v {
				if i%7 == 3 {
					x.v[i] -= []float32{58, 62, 95, 1000}[i/7%4]
				}
			}
			got := k.ExpSum(y.v, x.v, m)
			y.check(t, "ExpSum")
			want := 0.0
			for i, v := range x.v {
				e := math.Exp(float64(v - m))
				want += e
				if v-m < -60 {
					e = 0
				}
				near(t, "ExpSum element", y.v[i], e, e, 2.4e-7)
			}
			near(t, fmt.Sprintf("n=%d ExpSum", n), got, want, want, 2e-6)
		}
	})
}

func TestGateSpecials(t *testing.T) {
	inf := float32(math.Inf(1))
	x := []float32{0, 100, -100, 1e30, -1e30, inf, float32(math.NaN())}
	forVectors(t, func(t *testing.T, k *Kernels) {
		for name, f := range map[string]func(y, x, u []float32){"silu": k.SiLU, "gelu_tanh": k.GELUTanh,
			"gelu_erf": k.GELUErf} {
			y := make([]float32, len(x))
			f(y, x, nil)
			if y[0] != 0 || y[1] != 100 || math.Abs(float64(y[2])) > 1e-30 || y[3] != 1e30 || y[4] != 0 || y[5] != inf ||
				y[6] == y[6] {
				t.Errorf("%s(%v) = %v", name, x, y)
			}
		}
	})
}

// TestLevel fails where this machine has no level that GRETA_CPU names.
func TestLevel(t *testing.T) {
	k, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if want := os.Getenv("GRETA_CPU"); want != "" && k.Name != want {
		t.Errorf("level %s, GRETA_CPU is %s", k.Name, want)
	}
}

// TestRead: every byte but those of a short tail is read, by one stream and by several.
func TestRead(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		b := make([]byte, 9999)
		for _, streams := range ReadStreams {
			for i := range len(b) - 256 {
				b[i] = 1
				if k.Read(b, streams) == 0 {
					t.Fatalf("%d streams: byte %d of %d is not read", streams, i, len(b))
				}
				b[i] = 0
			}
		}
	})
}
