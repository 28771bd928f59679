package simd

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// unit gives the level with a matrix unit, or skips.
func unit(t testing.TB) *Kernels {
	k, err := Select("amx")
	if err != nil {
		t.Skip("no matrix unit here: ", err)
	}
	return k
}

// mulUnit multiplies all of it, in two pieces each way.
func mulUnit(k *Kernels, y []float32, ldy int, m *Panels, x *Split) {
	p, j := PanelCount(m.Rows)/2, x.N/2&^15
	scratch := AlignedFloats(UnitScratch(m.Type))
	for _, q := range [][4]int{{p, PanelCount(m.Rows), 0, j}, {0, p, 0, j}, {p, PanelCount(m.Rows), j, x.N},
		{0, p, j, x.N}} {
		k.MulUnit(y, ldy, m, q[0], q[1], x, q[2], q[3], scratch)
	}
}

// TestUnit compares products on the matrix unit with float64 ones: to f32's
// accuracy with plain types in three parts, to bf16's else.
func TestUnit(t *testing.T) {
	k := unit(t)
	for _, typ := range panelTypes {
		block, _ := typ.Block()
		for _, n := range []int{1, 15, 16, 17, 33, 70} {
			for _, rows := range []int{1, 16, 31, 33, 75} {
				for i, cols := range []int{1, 2, 31, 32, 33, 64, 511, 513, 1100} {
					if !testfiles.Exhaustive() && (i+n+rows)%7 != 0 {
						continue
					}
					r := newRand(9)
					if block > 1 {
						cols = (cols + block - 1) / block * block
					}
					src := anyRows(r, typ, rows, cols)
					w := make([]float32, rows*cols)
					if err := quant.Decode(typ, w, src); err != nil {
						t.Fatal(err)
					}
					m := packAll(t, typ, src, rows, cols)
					ldx, ldy := cols+n%3, rows+n%5
					x, y := randVector(r, (n-1)*ldx+cols, 0), newBanded((n-1)*ldy+rows, 3)
					s := &Split{N: n, Cols: cols, Parts: UnitParts(typ)}
					data := newBanded(SplitLen(n, cols, s.Parts), 0)
					s.Data = data.v
					for g := range s.Groups() {
						k.Put(s, x.v, ldx, g)
					}
					data.check(t, "Put")
					mulUnit(k, y.v, ldy, m, s)
					y.check(t, "MulUnit")
					// bf16 rounds by 2^-9 at most, both sides.
					tolerance := 2e-6
					if block > 1 {
						tolerance = 1.0 / 256
					}
					for j := range n {
						for i := range rows {
							var want, mag float64
							for c := range cols {
								p := float64(w[i*cols+c]) * float64(x.v[j*ldx+c])
								want += p
								mag += math.Abs(p)
							}
							near(t, fmt.Sprintf("%s %dx%d, row %d times %d of %d", typ, rows, cols, i, j, n), y.v[j*ldy+i], want, mag+1e-6,
								tolerance)
						}
					}
				}
			}
		}
	}
}

// TestUnitNumbers has what is no number, what is tiny and what is huge: no row of
// activations may be touched by another's.
func TestUnitNumbers(t *testing.T) {
	k := unit(t)
	const cols, rows, n = 48, 32, 20
	for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0} {
		r := newRand(10)
		cols := cols
		if typ == tensor.Q8_0 {
			cols = 64
		}
		m := packAll(t, typ, anyRows(r, typ, rows, cols), rows, cols)
		x, y := randVector(r, n*cols, 0).v, make([]float32, n*rows)
		s := &Split{N: n, Cols: cols, Parts: UnitParts(typ), Data: AlignedFloats(SplitLen(n, cols, UnitParts(typ)))}
		run := func() []float32 {
			for g := range s.Groups() {
				k.Put(s, x, cols, g)
			}
			clear(y)
			mulUnit(k, y, rows, m, s)
			return append([]float32(nil), y...)
		}
		want := run()
		scratch := AlignedFloats(UnitScratch(typ))
		if got := testing.AllocsPerRun(20, func() { k.MulUnit(y, rows, m, 0, 2, s, 0, n, scratch) }); got != 0 {
			t.Errorf("%s: MulUnit allocates %v times", typ, got)
		}
		x[3*cols+5] = float32(math.NaN())
		x[7*cols+40] = float32(math.Inf(-1))
		x[9*cols] = 3e38
		clear(x[11*cols : 12*cols])
		got := run()
		for j := range n {
			for i := range rows {
				g, w := got[j*rows+i], want[j*rows+i]
				switch j {
				case 3, 7:
					if g-g == 0 {
						t.Fatalf("%s: row %d has no number, its product is %g", typ, j, g)
					}
				case 9:
				case 11:
					if g != 0 {
						t.Fatalf("%s: a row of zeros gives %g", typ, g)
					}
				default:
					if g != w {
						t.Fatalf("%s: row %d is %g, before others had no numbers %g", typ, j, g, w)
					}
				}
			}
		}
	}
}

// TestUnitPreempted computes on more goroutines than there are cores, under the signals of a
// collector that never rests: whatever the unit holds survives them.
func TestUnitPreempted(t *testing.T) {
	k := unit(t)
	const cols, rows, n = 512, 64, 512
	r := newRand(11)
	m := packAll(t, tensor.F16, anyRows(r, tensor.F16, rows, cols), rows, cols)
	s := &Split{N: n, Cols: cols, Parts: 3, Data: AlignedFloats(SplitLen(n, cols, 3))}
	x := randVector(r, n*cols, 0).v
	for g := range s.Groups() {
		k.Put(s, x, cols, g)
	}
	want := make([]float32, n*rows)
	mulUnit(k, want, rows, m, s)
	stop := make(chan struct{})
	var collector, workers sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	deadline := time.Now().Add(300 * time.Millisecond)
	for range 3 * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			y := make([]float32, n*rows)
			for time.Now().Before(deadline) {
				clear(y)
				mulUnit(k, y, rows, m, s)
				for i := range y {
					if y[i] != want[i] {
						t.Errorf("element %d is %g, alone it was %g", i, y[i], want[i])
						return
					}
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	collector.Wait()
}

// BenchmarkUnit is a product with 512 rows of activations on one thread.
func BenchmarkUnit(b *testing.B) {
	const cols, rows, s = 4096, 4096, 512
	k := unit(b)
	r := newRand(4)
	x, y := randVector(r, s*cols, 0).v, AlignedFloats(s*rows)
	for _, typ := range panelTypes {
		b.Run(typ.String(), func(b *testing.B) {
			row := anyRows(r, typ, PanelRows, cols)
			m := &Panels{Type: typ, Rows: rows, Cols: cols, Data: make([]byte, PanelCount(rows)*PanelBytes(typ, cols))}
			if err := PackPanel(m.Data, row, typ, cols); err != nil {
				b.Fatal(err)
			}
			for n := PanelBytes(typ, cols); n < len(m.Data); n *= 2 {
				copy(m.Data[n:], m.Data[:n])
			}
			q := &Split{N: s, Cols: cols, Parts: UnitParts(typ), Data: AlignedFloats(SplitLen(s, cols, UnitParts(typ)))}
			scratch := AlignedFloats(UnitScratch(typ))
			best, pack := time.Hour, time.Hour
			// The peak by turns with the product: what shares the core halves both.
			peak, room := k.PeakOf(tensor.Q8_0, false), AlignedFloats(PeakFloats)
			var ratios []float64
			runtime.LockOSThread() // whose time is taken
			defer runtime.UnlockOSThread()
			for b.Loop() {
				var took, full time.Duration
				products := 0
				t0 := threadTime(b)
				for g := range q.Groups() {
					k.Put(q, x, cols, g)
				}
				took += threadTime(b) - t0
				pack = min(pack, took)
				for p := 0; p < PanelCount(rows); p += UnitPanels {
					t0 = threadTime(b)
					products += peak.Run(room, 2000)
					t1 := threadTime(b)
					k.MulUnit(y, rows, m, p, p+UnitPanels, q, 0, s, scratch)
					took += threadTime(b) - t1
					full += t1 - t0
				}
				best = min(best, took)
				ratios = append(ratios, rows*cols*s/took.Seconds()/(float64(products)/full.Seconds()))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "median-of-peak")
			b.ReportMetric(2.0*rows*cols*s/best.Seconds()/1e9, "best-GFLOP/s")
			b.ReportMetric(pack.Seconds()/best.Seconds(), "packing")
		})
	}
}
