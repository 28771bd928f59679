package simd

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/greta-project/greta/tensor"
)

// BenchmarkMatVec runs one thread over weights far larger than the caches, by
// turns with a read loop over as many bytes, and reports the ratio of the two
// rates: what a busy machine changes least.
func BenchmarkMatVec(b *testing.B) {
	const cols, rows = 4096, 4096
	const total = 512 << 20
	k, err := Default()
	if err != nil {
		b.Fatal(err)
	}
	buf := bigMemory(b, total)
	r := newRand(1)
	fillRow(r, tensor.F16, buf[:1<<20]) // sane as every type's scales
	for n := 1 << 20; n < total; n *= 2 {
		copy(buf[n:], buf[:n])
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	streams := bestStreams(b, k, buf)
	x, y := AlignedFloats(cols), AlignedFloats(rows)
	copy(x, randVector(r, cols, 0).v)
	for _, t := range testTypes {
		if !Direct(t) {
			continue
		}
		b.Run(t.String(), func(b *testing.B) {
			runtime.LockOSThread() // whose time is taken: a benchmark within another has a goroutine of its own
			defer runtime.UnlockOSThread()
			size := rows * t.RowBytes(cols)
			at := 0
			next := func() []byte {
				if at+size > total {
					at = 0
				}
				at += size
				return buf[at-size : at]
			}
			var reading, multiplying time.Duration
			for b.Loop() {
				w := next()
				t0 := threadTime(b)
				k.Read(w, streams)
				t1 := threadTime(b)
				w = next()
				t2 := threadTime(b)
				k.MatVec(y, Matrix{Type: t, Rows: rows, Cols: cols, Data: w}, 0, x, nil)
				reading += t1 - t0
				multiplying += threadTime(b) - t2
			}
			gb := float64(size) * float64(b.N) / 1e9
			b.ReportMetric(gb/multiplying.Seconds(), "GB/s")
			b.ReportMetric(gb/reading.Seconds(), "read-GB/s")
			b.ReportMetric(reading.Seconds()/multiplying.Seconds(), "of-read")
		})
	}
}

// bestStreams is the one of ReadStreams that reads memory fastest, by turns.
func bestStreams(b *testing.B, k *Kernels, memory []byte) int {
	took := make([]time.Duration, len(ReadStreams))
	for i := 0; len(memory) > 16<<20; i = (i + 1) % len(took) {
		start := threadTime(b)
		k.Read(memory[:16<<20], ReadStreams[i])
		took[i] += threadTime(b) - start
		memory = memory[16<<20:]
	}
	return ReadStreams[slices.Index(took, slices.Min(took))]
}

func BenchmarkMatMul(b *testing.B) {
	const cols, rows, s = 4096, 1024, 512
	k, err := Default()
	if err != nil {
		b.Fatal(err)
	}
	r := newRand(2)
	for _, t := range testTypes {
		b.Run(t.String(), func(b *testing.B) {
			m, _ := randMatrix(r, t, rows, cols, 0)
			x := randVector(r, s*cols, 0).v
			y := make([]float32, s*rows)
			xp, scratch := AlignedFloats(k.PackedLen(s, cols)), AlignedFloats(k.ScratchLen(m))
			best := time.Hour
			for b.Loop() {
				t0 := time.Now()
				k.PackAll(xp, x, cols, s, cols)
				k.MulRows(y, rows, m, 0, rows, xp, s, scratch, false)
				best = min(best, time.Since(t0))
			}
			flops := 2.0 * rows * cols * s
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			b.ReportMetric(flops/best.Seconds()/1e9, "best-GFLOP/s")
		})
	}
}

func BenchmarkVector(b *testing.B) {
	const n = 4096
	k, err := Default()
	if err != nil {
		b.Fatal(err)
	}
	r := newRand(3)
	x, u, y := randVector(r, n, 0).v, randVector(r, n, 0).v, make([]float32, n)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"dot", func() { k.Dot(x, u) }},
		{"add", func() { k.Add(y, x, u) }},
		{"scale_mul", func() { k.ScaleMul(y, 0.5, x, u) }},
		{"expsum", func() { k.ExpSum(y, x, 3) }},
		{"silu·u", func() { k.SiLU(y, x, u) }},
		{"gelu_tanh", func() { k.GELUTanh(y, x, nil) }},
		{"gelu_erf", func() { k.GELUErf(y, x, nil) }},
	} {
		b.Run(fmt.Sprintf("%s/n=%d", c.name, n), func(b *testing.B) {
			for b.Loop() {
				c.f()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
		})
	}
}

// BenchmarkPanels is BenchmarkMatVec over panels, and a product with 512 rows
// of activations; both on one thread.
// It is in one piece as its products share their buffers.
func BenchmarkPanels(b *testing.B) {
	const cols, rows, s = 4096, 4096, 512
	const total = 512 << 20
	k, err := Default()
	if err != nil {
		b.Fatal(err)
	}
	buf := bigMemory(b, total)
	r := newRand(1)
	fillRow(r, tensor.F16, buf[:1<<20])
	for n := 1 << 20; n < total; n *= 2 {
		copy(buf[n:], buf[:n])
	}
	runtime.LockOSThread() // whose time is taken
	defer runtime.UnlockOSThread()
	streams := bestStreams(b, k, buf)
	x, tail := randVector(r, cols*s, 0).v, make([]float32, TailFloats)
	y := AlignedFloats(rows * s)
	for _, t := range panelTypes {
		size := PanelCount(rows) * PanelBytes(t, cols)
		one := &Quants{N: 1, Cols: cols, Group: 1, Data: make([]byte, QuantsLen(1, cols, 1))}
		at := 0
		next := func() []byte {
			if at+size > total {
				at = 0
			}
			at += size
			return buf[at-size : at]
		}
		matvec := func(b *testing.B, k *Kernels) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var ratios, rates []float64
			for b.Loop() {
				w := next()
				t0 := threadTime(b)
				k.Read(w, streams)
				t1 := threadTime(b)
				m := &Panels{Type: t, Rows: rows, Cols: cols, Data: next()}
				t2 := threadTime(b)
				if RoundsActivations(t) {
					k.Quantise(one, 0, x[:cols])
					k.MulPanels(y, nil, rows, m, 0, PanelCount(rows), one, 0, 1, tail)
				} else {
					k.MatVecPanels(y, m, 0, PanelCount(rows), x[:cols], tail)
				}
				took := (threadTime(b) - t2).Seconds()
				ratios, rates = append(ratios, (t1-t0).Seconds()/took), append(rates, float64(size)/1e9/took)
			}
			slices.Sort(ratios)
			slices.Sort(rates)
			b.ReportMetric(rates[len(rates)/2], "median-GB/s")
			b.ReportMetric(ratios[len(ratios)/2], "median-of-read")
		}
		b.Run("matvec/"+t.String(), func(b *testing.B) { matvec(b, k) })
		for _, far := range k.Fars() {
			if far != k.Far() {
				b.Run(fmt.Sprintf("matvec/%s/far=%v", t, far), func(b *testing.B) { matvec(b, k.WithFar(far)) })
			}
		}
		if !RoundsActivations(t) {
			continue
		}
		b.Run("product/"+t.String(), func(b *testing.B) {
			m := &Panels{Type: t, Rows: rows, Cols: cols, Data: next()}
			q := &Quants{N: s, Cols: cols, Group: 8, Data: make([]byte, QuantsLen(s, cols, 8))}
			best := time.Hour
			for b.Loop() {
				t0 := time.Now()
				for j := range s {
					k.Quantise(q, j, x[j*cols:(j+1)*cols])
				}
				for p := 0; p < PanelCount(rows); p += 4 {
					for t := 0; t < q.Tiles(); t += 8 {
						k.MulPanels(y, nil, rows, m, p, p+4, q, t, t+8, tail)
					}
				}
				best = min(best, time.Since(t0))
			}
			b.ReportMetric(2.0*rows*cols*s/best.Seconds()/1e9, "best-GFLOP/s")
		})
	}
}

func BenchmarkPackPanel(b *testing.B) {
	const cols = 4096
	for _, t := range panelTypes {
		src, dst := make([]byte, PanelRows*t.RowBytes(cols)), make([]byte, PanelBytes(t, cols))
		b.Run(t.String(), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := PackPanel(dst, src, t, cols); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBF16(b *testing.B) {
	const cols, rows, s = 4096, 4096, 512
	k, err := Default()
	if err != nil {
		b.Fatal(err)
	}
	if !k.HasBF16() {
		b.Skip("no dot products of bf16")
	}
	r := newRand(4)
	m := &Panels{Type: tensor.BF16, Rows: rows, Cols: cols, Data: make([]byte,
		PanelCount(rows)*PanelBytes(tensor.BF16, cols))}
	fillRow(r, tensor.BF16, m.Data)
	x, y := randVector(r, s*cols, 0).v, AlignedFloats(s*rows)
	xp, tail := AlignedFloats(BF16Tiles(s)*BF16TileFloats(cols)), make([]float32, BF16TailFloats)
	best := time.Hour
	for b.Loop() {
		t0 := time.Now()
		for t := range BF16Tiles(s) {
			k.PackBF16(xp, x[t*BF16Rows*cols:], cols, s, cols, t)
		}
		for p := 0; p < PanelCount(rows); p += 4 {
			k.MulBF16(y, nil, rows, m, p, p+4, xp, s, 0, BF16Tiles(s), tail)
		}
		best = min(best, time.Since(t0))
	}
	b.ReportMetric(2.0*rows*cols*s/best.Seconds()/1e9, "best-GFLOP/s")
}
