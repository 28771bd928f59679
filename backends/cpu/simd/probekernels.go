package simd

import "unsafe"

// probeKernels are loops that show what a core can do at most, compiled from
// csrc/cpu/probe.c. tools/c2goasm reads this type as it reads kernels.
type probeKernels struct {
	// STREAM's four over n doubles, a multiple of 64, on lines of the cache; stores
	// pass the cache where streaming is 1: y = a, s·a, a + b, a + s·b.
	StreamCopy  func(y, a unsafe.Pointer, n, streaming int, s float32)    `c:"stream_copy"`
	StreamScale func(y, a unsafe.Pointer, n, streaming int, s float32)    `c:"stream_scale"`
	StreamAdd   func(y, a, b unsafe.Pointer, n, streaming int, s float32) `c:"stream_add"`
	StreamTriad func(y, a, b unsafe.Pointer, n, streaming int, s float32) `c:"stream_triad"`
	// Σ of n bytes as 64-bit words, n a multiple of 512, so many parts of them side by side.
	ReadSum func(p unsafe.Pointer, n, streams int) int `c:"read_sum"`
	// 16·rounds additions that wait for each other, a cycle each.
	ClockChain func(rounds int) int `c:"clock_chain"`
	// x = op(x), rounds times, for vectors x that do not wait for each other; with
	// shape = op | vectors<<8: x·f + e (0), e/x (1), √x (2). Gives a vector's lanes.
	ChainF32 func(x unsafe.Pointer, shape, rounds int, f, e float32) int `c:"chain_f32"`
	ChainF64 func(x unsafe.Pointer, shape, rounds int, f, e float32) int `c:"chain_f64"`
	// Two chains of steps multiply-adds for each of n elements, a multiple of 64.
	RoofF32 func(y, x unsafe.Pointer, n, steps int) `c:"roof_f32"`
	// Twelve vectors of int32: sums += dot products of four bytes, rounds times.
	DotI8 func(sums, w, x unsafe.Pointer, rounds int) int `c:"dot_i8"`
}

// probeBF16Kernels are those for processors with dot products of bf16, compiled from
// csrc/cpu/probe_bf16.c.
type probeBF16Kernels struct {
	// Twelve vectors of f32: sums += dot products of two bf16, rounds times.
	DotBF16 func(sums, w, x unsafe.Pointer, rounds int) int `c:"dot_bf16"`
}
