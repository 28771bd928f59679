package simd

import (
	"math"
	"unsafe"
)

// Probe is the loops of a level that show what a core can do at most, for
// microbenchmarks. Lengths must be the multiples that are asked for; a call should
// last well under a millisecond, since it cannot be preempted.
type Probe struct {
	k      *probeKernels
	b      *probeBF16Kernels // nil where the processor has no dot products of bf16
	Name   string            // of the code: "avx512", "avxvnni"
	Vector int               // bytes of a vector
}

// ProbeElements is the multiple of elements that the loops over memory take.
const ProbeElements = 64

// Probe gives the level's loops.
func (k *Kernels) Probe() Probe {
	p := Probe{k: &goProbeKernels, Name: "go", Vector: 8}
	machineProbe(k.Name, &p)
	return p
}

// StreamKernel is one of STREAM's four.
type StreamKernel int

// STREAM's kernels, McCalpin: y = a, y = s·a, y = a + b, y = a + s·b.
const (
	Copy StreamKernel = iota
	Scale
	Add
	Triad
)

// Stream runs one of STREAM's kernels over len(y) doubles, a multiple of
// ProbeElements, that lie on lines of the cache. streaming stores pass the cache, where
// the level has such stores.
func (p Probe) Stream(kind StreamKernel, y, a, b []float64, s float32, streaming bool) {
	n, way := len(y), 0
	if streaming {
		way = 1
	}
	a = a[:n]
	switch kind {
	case Copy:
		p.k.StreamCopy(ptr(y), ptr(a), n, way, s)
	case Scale:
		p.k.StreamScale(ptr(y), ptr(a), n, way, s)
	case Add:
		p.k.StreamAdd(ptr(y), ptr(a), ptr(b[:n]), n, way, s)
	default:
		p.k.StreamTriad(ptr(y), ptr(a), ptr(b[:n]), n, way, s)
	}
}

// Sum gives Σ x modulo 2^64; the length is a multiple of ProbeElements. So many parts
// of x are read side by side, as ReadStreams says of Kernels.Read.
func (p Probe) Sum(x []uint64, streams int) uint64 {
	return uint64(p.k.ReadSum(ptr(x), 8*len(x), streams))
}

// Cycles passes 16·rounds cycles, in additions that wait for each other.
func (p Probe) Cycles(rounds int) { p.k.ClockChain(rounds) }

// ChainOp is an operation of Chain.
type ChainOp int

// The operations: x·f + g, g/x, √x.
const (
	FMA ChainOp = iota
	Div
	Sqrt
)

// ChainVectors are the numbers of vectors that Chain takes.
var ChainVectors = []int{1, 2, 4, 8, 12}

// MostChain is room for the vectors of any level, in elements.
const MostChain = 12 * 16

// Chain32 computes x = op(x) for each of the first elements of x, rounds times;
// so many vectors do not wait for each other. It says how many elements that were.
func (p Probe) Chain32(x *[MostChain]float32, op ChainOp, vectors, rounds int, f, g float32) int {
	return vectors * p.k.ChainF32(unsafe.Pointer(x), int(op)|vectors<<8, rounds, f, g)
}

// Chain64 is Chain32 in float64.
func (p Probe) Chain64(x *[MostChain]float64, op ChainOp, vectors, rounds int, f, g float32) int {
	return vectors * p.k.ChainF64(unsafe.Pointer(x), int(op)|vectors<<8, rounds, f, g)
}

// Roof computes y = s + t, the ends of two chains of multiply-adds, steps long, for
// numbers v from 1 to 256: with x = 1 - v/2^18, s = v/256, then s·x + ¼ each time; t = 1,
// then t·x + ¾. The length is a multiple of ProbeElements.
func (p Probe) Roof(y, v []float32, steps int) { p.k.RoofF32(ptr(y), ptr(v[:len(y)]), len(y), steps) }

// DotVectors is how many vectors of sums DotI8 and DotBF16 work on.
const DotVectors = 12

// DotI8 adds to each of the first sums, rounds times, the dot product of four bytes
// of w, which are below 16, and four of x, signed. It says how many sums those were.
func (p Probe) DotI8(sums *[MostChain]int32, w, x *[64]byte, rounds int) int {
	return DotVectors * p.k.DotI8(unsafe.Pointer(sums), unsafe.Pointer(w), unsafe.Pointer(x), rounds)
}

// DotBF16 adds to each of the first sums, rounds times, the dot product of two bf16 of w
// and two of x. It says how many sums those were, 0 where the level has no such
// instruction.
func (p Probe) DotBF16(sums *[MostChain]float32, w, x *[64]byte, rounds int) int {
	if p.b == nil {
		return 0
	}
	return DotVectors * p.b.DotBF16(unsafe.Pointer(sums), unsafe.Pointer(w), unsafe.Pointer(x), rounds)
}

// goProbeKernels are the same loops in Go, an element at a time.
var goProbeKernels = probeKernels{
	StreamCopy: func(y, a unsafe.Pointer, n, _ int, _ float32) {
		to := elements[float64](y, 0, n)
		for i, v := range elements[float64](a, 0, n) { // copy would take vectors, as no other loop here does
			to[i] = v
		}
	},
	StreamScale: func(y, a unsafe.Pointer, n, _ int, s float32) {
		to, f := elements[float64](y, 0, n), float64(s)
		for i, v := range elements[float64](a, 0, n) {
			to[i] = f * v
		}
	},
	StreamAdd: func(y, a, b unsafe.Pointer, n, _ int, _ float32) {
		to, w := elements[float64](y, 0, n), elements[float64](b, 0, n)
		for i, v := range elements[float64](a, 0, n) {
			to[i] = v + w[i]
		}
	},
	StreamTriad: func(y, a, b unsafe.Pointer, n, _ int, s float32) {
		to, w, f := elements[float64](y, 0, n), elements[float64](b, 0, n), float64(s)
		for i, v := range elements[float64](a, 0, n) {
			to[i] = v + f*w[i]
		}
	},
	ReadSum: func(p unsafe.Pointer, n, _ int) int {
		var a, b, c, d int
		x := elements[int](p, 0, n/8)
		for i := 0; i+4 <= len(x); i += 4 {
			a, b, c, d = a+x[i], b+x[i+1], c+x[i+2], d+x[i+3]
		}
		return a + b + c + d
	},
	ClockChain: clockGo,
	ChainF32: func(x unsafe.Pointer, shape, rounds int, f, e float32) int {
		chainGo(elements[float32](x, 0, shape>>8), shape&255, rounds, f, e, func(v float32) float32 {
			return float32(math.Sqrt(float64(v)))
		})
		return 1
	},
	ChainF64: func(x unsafe.Pointer, shape, rounds int, f, e float32) int {
		chainGo(elements[float64](x, 0, shape>>8), shape&255, rounds, float64(f), float64(e), math.Sqrt)
		return 1
	},
	RoofF32: func(y, x unsafe.Pointer, n, steps int) {
		to := elements[float32](y, 0, n)
		for i, v := range elements[float32](x, 0, n) {
			x, s, t := 1-v/(1<<18), v/256, float32(1)
			for range steps {
				s, t = s*x+0.25, t*x+0.75
			}
			to[i] = s + t
		}
	},
	DotI8: func(sums, w, x unsafe.Pointer, rounds int) int {
		a, b, s := elements[uint8](w, 0, 4), elements[int8](x, 0, 4), elements[int32](sums, 0, DotVectors)
		for range rounds {
			for j := range s {
				s[j] += int32(a[0])*int32(b[0]) + int32(a[1])*int32(b[1]) + int32(a[2])*int32(b[2]) + int32(a[3])*int32(b[3])
			}
		}
		return 1
	},
}

// clockGo's additions wait for each other; the compiler cannot merge them, as it
// does not know y.
func clockGo(rounds int) int {
	x, y := 1, rounds
	for range rounds {
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
	}
	return x
}

func chainGo[T float32 | float64](x []T, op, rounds int, f, e T, root func(T) T) {
	for range rounds {
		for j, v := range x {
			switch op {
			case 0:
				v = v*f + e
			case 1:
				v = e / v
			default:
				v = root(v)
			}
			x[j] = v
		}
	}
}
