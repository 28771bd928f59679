package simd

import "fmt"

// What a token of a recurrence does to the state of a head; see MatrixStep.
const (
	StepTakes  = 1 << iota // r = aᵀh
	StepGives              // b rᵀ is added
	StepBefore             // y = qᵀh of the h before
)

// MatrixStep takes a state h [rows, cols] through a token, which x holds: decays d, q, k, a and b of rows elements
// each, and v of cols:
//
//	r = aᵀh with StepTakes, else 0
//	h = d·h + k vᵀ + b rᵀ with StepGives, else d·h + k (v + by·r)ᵀ
//	y = qᵀh, with StepBefore of the h before
//
// Rows and columns are 65535 at most.
func (k *Kernels) MatrixStep(y, h, x []float32, rows, does int, by float32) {
	cols := len(y)
	if rows < 0 || rows > most || cols > most || len(h) < rows*cols || len(x) < 5*rows+cols || does&^7 != 0 {
		panic(fmt.Sprintf("simd: MatrixStep of %d by %d with %d floats on a state of %d", rows, cols, len(x), len(h)))
	}
	k.k.MatrixStep(ptr(h), ptr(x), ptr(y), rows|cols<<16|does<<32, by)
}

// ChannelSteps takes channels, as many as y has elements, through a token. Each has a state of n elements in h, as many
// logs of decays in a, and x holds dt of all of them, then their x; w holds b and c of n elements:
//
//	h[i] = e^(dt·a[i])·h[i] + dt·x·b[i],   y = Σ_i h[i]·c[i]
//
// n is 65535 at most.
func (k *Kernels) ChannelSteps(y, h, a, x, w []float32, n int) {
	if n < 0 || n > most || len(h) < n*len(y) || len(a) < n*len(y) || len(x) < 2*len(y) || len(w) < 2*n {
		panic(fmt.Sprintf("simd: ChannelSteps of %d with %d channels, from %d, %d, %d and %d floats", n, len(y), len(h),
			len(a), len(x), len(w)))
	}
	k.k.ChannelSteps(ptr(h), ptr(a), ptr(x), ptr(w), ptr(y), n|len(y)<<16)
}

// RowsStep takes a state h of as many rows as y has elements, of n each, through a token that has the decay d. x is
// what goes into each row, w what goes in and out, b and c of n elements:
//
//	h[r,i] = d·h[r,i] + x[r]·b[i],   y[r] = Σ_i h[r,i]·c[i]
//
// n is 65535 at most.
func (k *Kernels) RowsStep(y, h, x, w []float32, n int, d float32) {
	if n < 0 || n > most || len(h) < n*len(y) || len(x) < len(y) || len(w) < 2*n {
		panic(fmt.Sprintf("simd: RowsStep of %d with %d rows, from %d, %d and %d floats", n, len(y), len(h), len(x), len(w)))
	}
	k.k.RowsStep(ptr(h), ptr(x), ptr(w), ptr(y), n|len(y)<<16, d)
}

// WKVStep takes channels, as many as y has elements, through a token with their keys and values. h begins at their
// numerators, with denominators and exponents far elements behind each other; w holds the decays of all, then their
// bonuses u:
//
//	m = max(top, u + k),   y = (e^(top-m)·num + e^(u+k-m)·v) / (e^(top-m)·den + e^(u+k-m))
//	m = max(top - w, k),   num = e^(top-w-m)·num + e^(k-m)·v,   den likewise with 1 for v,   top = m
func (k *Kernels) WKVStep(y, h, keys, values, w []float32, far int) {
	n := len(y)
	if n > most || far < 0 || len(h) < 2*far+n || len(keys) < n || len(values) < n || len(w) < 2*n {
		panic(fmt.Sprintf("simd: WKVStep of %d channels, %d apart, from %d, %d, %d and %d floats", n, far, len(h), len(keys),
			len(values), len(w)))
	}
	k.k.WKVStep(ptr(h), ptr(keys), ptr(values), ptr(w), ptr(y), n|far<<16)
}
