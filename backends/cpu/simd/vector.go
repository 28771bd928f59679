package simd

import (
	"fmt"
	"unsafe"
)

// Methods on vectors: all slices of a call have the first one's length, or the
// call panics. Results may be written over an argument of the same index.

// Dot gives Σ a·b.
func (k *Kernels) Dot(a, b []float32) float32 {
	b = b[:len(a)]
	if len(a) <= callElements {
		return k.k.Dot(ptr(a), ptr(b), len(a))
	}
	sum := 0.0
	for i := 0; i < len(a); i += callElements {
		sum += float64(k.k.Dot(ptr(a[i:]), ptr(b[i:]), min(callElements, len(a)-i)))
	}
	return float32(sum)
}

// SumSquares gives Σ x².
func (k *Kernels) SumSquares(x []float32) float32 { return k.Dot(x, x) }

// Max gives the largest element, -Inf for none. NaNs are passed over.
func (k *Kernels) Max(x []float32) float32 {
	m := k.k.Max(ptr(x), min(callElements, len(x)))
	for i := callElements; i < len(x); i += callElements {
		m = max(m, k.k.Max(ptr(x[i:]), min(callElements, len(x)-i)))
	}
	return m
}

// Add computes y = a + b.
func (k *Kernels) Add(y, a, b []float32) { each3(k.k.Add, y, a[:len(y)], b[:len(y)]) }

// Mul computes y = a·b.
func (k *Kernels) Mul(y, a, b []float32) { each3(k.k.Mul, y, a[:len(y)], b[:len(y)]) }

// SiLU computes y = x/(1+e^-x)·u, without the factor where u is nil.
func (k *Kernels) SiLU(y, x, u []float32) { gate(k.k.SiLU, y, x, u) }

// GELUTanh computes y = ½x(1+tanh(√(2/π)(x+0.044715x³)))·u, without the
// factor where u is nil.
func (k *Kernels) GELUTanh(y, x, u []float32) { gate(k.k.GELUTanh, y, x, u) }

// GELUErf computes y = ½x(1+erf(x/√2))·u, without the factor where u is nil.
func (k *Kernels) GELUErf(y, x, u []float32) { gate(k.k.GELUErf, y, x, u) }

// Scale computes y = a·x.
func (k *Kernels) Scale(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for i := 0; i < len(y); i += callElements {
		k.k.Scale(ptr(y[i:]), ptr(x[i:]), min(callElements, len(y)-i), a)
	}
}

// Axpy computes y += a·x.
func (k *Kernels) Axpy(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for i := 0; i < len(y); i += callElements {
		k.k.Axpy(ptr(y[i:]), ptr(x[i:]), min(callElements, len(y)-i), a)
	}
}

// ScaleMul computes y = (a·x)·g: the second half of an RMSNorm.
func (k *Kernels) ScaleMul(y []float32, a float32, x, g []float32) {
	x, g = x[:len(y)], g[:len(y)]
	for i := 0; i < len(y); i += callElements {
		k.k.ScaleMul(ptr(y[i:]), ptr(x[i:]), ptr(g[i:]), min(callElements, len(y)-i), a)
	}
}

// TurnPairs computes y[i] = x[i]·c[i] + x[i^1]·s[i] for an even number of elements: elements 2i and 2i+1 turned by an
// angle whose cosine both have in c, and whose sine is in s, negative first.
func (k *Kernels) TurnPairs(y, x, c, s []float32) {
	if len(y)%2 > 0 {
		panic(fmt.Sprintf("simd: TurnPairs of %d elements", len(y)))
	}
	x, c, s = x[:len(y)], c[:len(y)], s[:len(y)]
	for i := 0; i < len(y); i += callElements {
		k.k.TurnPairs(ptr(y[i:]), ptr(x[i:]), ptr(c[i:]), ptr(s[i:]), min(callElements, len(y)-i))
	}
}

// TurnHalves turns elements i and n+i of x by angles with cosines c and sines s, n of each:
// y[i] = x[i]·c[i] - x[n+i]·s[i], y[n+i] = x[i]·s[i] + x[n+i]·c[i].
func (k *Kernels) TurnHalves(y, x, c, s []float32) {
	n := len(c)
	y, x, s = y[:2*n], x[:2*n], s[:n]
	k.k.TurnHalves(ptr(y), ptr(x), ptr(c), ptr(s), n)
}

// Exp computes y = e^x to within two units in the last place.
func (k *Kernels) Exp(y, x []float32) {
	x = x[:len(y)]
	for i := 0; i < len(y); i += callElements {
		k.k.Exp(ptr(y[i:]), ptr(x[i:]), min(callElements, len(y)-i))
	}
}

// ExpSum computes y = e^(x-m) and gives Σ y: a softmax before its division,
// where m is the maximum of x. Where x-m < -60, y is 0: that is nothing beside
// the maximum's 1, and subnormal numbers are slow.
func (k *Kernels) ExpSum(y, x []float32, m float32) float32 {
	x = x[:len(y)]
	sum := 0.0
	for i := 0; i < len(y); i += callElements {
		sum += float64(k.k.ExpSum(ptr(y[i:]), ptr(x[i:]), min(callElements, len(y)-i), m))
	}
	return float32(sum)
}

// ReadStreams are the numbers of parts that read loops read side by side: some cores
// get most of what memory gives from one stream of loads, others from several, each in
// a page of its own, since their prefetchers work within a page. Which is faster must
// be measured.
var ReadStreams = []int{1, 8}

// Read reads all of b but a tail of under 256 bytes: what the speed of the
// other kernels is compared with. The result depends on every byte read.
func (k *Kernels) Read(b []byte, streams int) (sum float32) {
	for len(b) > 0 {
		n := min(len(b), panelCallBytes/2)
		sum += k.k.ReadAll(ptr(b), n, streams)
		b = b[n:]
	}
	return sum
}

func each3(f func(y, a, b unsafe.Pointer, n int), y, a, b []float32) {
	for i := 0; i < len(y); i += callElements {
		f(ptr(y[i:]), ptr(a[i:]), ptr(b[i:]), min(callElements, len(y)-i))
	}
}

func gate(f func(y, x, u unsafe.Pointer, n int), y, x, u []float32) {
	x = x[:len(y)]
	if u != nil {
		each3(f, y, x, u[:len(y)])
		return
	}
	for i := 0; i < len(y); i += callElements {
		f(ptr(y[i:]), ptr(x[i:]), nil, min(callElements, len(y)-i))
	}
}
