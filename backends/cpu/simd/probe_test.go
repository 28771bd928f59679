package simd

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// probes are all that this machine has, with the level of each.
func probes() map[string]Probe {
	all := map[string]Probe{}
	for _, k := range Levels() {
		p := k.Probe()
		all[p.Name] = p
	}
	return all
}

// TestProbeMemory: the loops over memory compute what they say, and touch nothing
// behind their end.
func TestProbeMemory(t *testing.T) {
	const n = 3 * ProbeElements
	for name, p := range probes() {
		y, a, b := AlignedFloats(2*(n+8)), AlignedFloats(2*n), AlignedFloats(2*n)
		Y, A, B := elements[float64](ptr(y), 0, n+8), elements[float64](ptr(a), 0, n), elements[float64](ptr(b), 0, n)
		for i := range A {
			A[i], B[i] = float64(rand.IntN(1000)), float64(rand.IntN(1000))
		}
		want := map[StreamKernel]func(i int) float64{
			Copy:  func(i int) float64 { return A[i] },
			Scale: func(i int) float64 { return 3 * A[i] },
			Add:   func(i int) float64 { return A[i] + B[i] },
			Triad: func(i int) float64 { return A[i] + 3*B[i] },
		}
		for kind, f := range want {
			for _, streaming := range []bool{false, true} {
				for i := range Y {
					Y[i] = -1
				}
				p.Stream(kind, Y[:n], A, B, 3, streaming)
				for i, v := range Y {
					if i < n && v != f(i) || i >= n && v != -1 {
						t.Fatalf("%s: kernel %d, streaming %v: element %d of %d is %v", name, kind, streaming, i, n, v)
					}
				}
			}
		}
		words, sum := make([]uint64, 19*ProbeElements), uint64(0) // steps of eight streams, and a rest
		for i := range words {
			words[i] = rand.Uint64()
			sum += words[i]
		}
		for _, streams := range ReadStreams {
			if got := p.Sum(words, streams); got != sum {
				t.Errorf("%s: the sum by %d streams is %d, %d is right", name, streams, got, sum)
			}
		}
		x := AlignedFloats(n)
		for i := range x {
			x[i] = float32(i%256 + 1)
		}
		out := AlignedFloats(n)
		for _, steps := range []int{0, 1, 5, 64} {
			p.Roof(out, x, steps)
			for i, v := range x {
				f, s, e := 1-float64(v)/(1<<18), float64(v)/256, 1.0
				for range steps {
					s, e = s*f+0.25, e*f+0.75
				}
				if d := math.Abs(float64(out[i])/(s+e) - 1); d > 1e-5 {
					t.Fatalf("%s: %d steps from %v give %v, not %v", name, steps, v, out[i], s+e)
				}
			}
		}
	}
}

// TestProbeChains: chains and dot products compute what they say.
func TestProbeChains(t *testing.T) {
	ops := []func(float64) float64{
		func(x float64) float64 { return x*0.5 + 1 }, func(x float64) float64 { return 1 / x }, math.Sqrt}
	for name, p := range probes() {
		for op, f := range ops {
			for _, vectors := range ChainVectors {
				var x32 [MostChain]float32
				var x64 [MostChain]float64
				var want [MostChain]float64
				for i := range x32 {
					x64[i] = float64(1+i) / 32
					x32[i], want[i] = float32(x64[i]), x64[i]
					for range 7 {
						want[i] = f(want[i])
					}
				}
				for i := range p.Chain32(&x32, ChainOp(op), vectors, 7, 0.5, 1) {
					if math.Abs(float64(x32[i])/want[i]-1) > 1e-6 {
						t.Fatalf("%s: f32 op %d, %d vectors: element %d is %v, not %v", name, op, vectors, i, x32[i], want[i])
					}
				}
				for i := range p.Chain64(&x64, ChainOp(op), vectors, 7, 0.5, 1) {
					if math.Abs(x64[i]/want[i]-1) > 1e-14 {
						t.Fatalf("%s: f64 op %d, %d vectors: element %d is %v, not %v", name, op, vectors, i, x64[i], want[i])
					}
				}
			}
		}
		var w, x [64]byte
		for i := range w {
			w[i], x[i] = byte(i%16), byte(i*7)
		}
		var sums [MostChain]int32
		n := p.DotI8(&sums, &w, &x, 5)
		for i, v := range sums[:n] {
			at, want := i%(n/DotVectors)*4, int32(0)
			for k := range 4 {
				want += 5 * int32(w[at+k]) * int32(int8(x[at+k]))
			}
			if v != want {
				t.Fatalf("%s: sum %d of bytes is %d, not %d", name, i, v, want)
			}
		}
		for i := 0; i < 64; i += 2 { // 1 and 2, as bf16
			binary.LittleEndian.PutUint16(w[i:], 0x3f80)
			binary.LittleEndian.PutUint16(x[i:], 0x4000)
		}
		var floats [MostChain]float32
		for i := range p.DotBF16(&floats, &w, &x, 5) {
			if floats[i] != 20 {
				t.Fatalf("%s: sum %d of bf16 is %v, not 20", name, i, floats[i])
			}
		}
	}
}

// TestProbeClock: the chain passes time in proportion to its rounds, at a clock
// that exists.
func TestProbeClock(t *testing.T) {
	for name, p := range probes() {
		best := time.Hour
		for range 50 {
			begin := time.Now()
			p.Cycles(4000)
			best = min(best, time.Since(begin))
		}
		if ghz := 16 * 4000 / float64(best.Nanoseconds()); ghz < 0.2 || ghz > 7 {
			t.Errorf("%s: %v for 64000 cycles is a clock of %.1f GHz", name, best, ghz)
		}
	}
}
