package simd

import "unsafe"

// amxKernels are what processors with a matrix unit for bf16 (AMX) have
// besides, compiled from csrc/cpu/amx.c. tools/c2goasm reads this type as it
// reads kernels.
type amxKernels struct {
	// rows rows of k floats, ld apart, as x tiles, with shape = rows | parts<<8.
	Pack func(x unsafe.Pointer, ld int, dst unsafe.Pointer, k, shape int) `c:"ax_pack"`
	// n rounds of products of tiles; see kernels.Peak, but p has 1 KiB.
	TilePeak func(p unsafe.Pointer, n int) int `c:"peak_tiles"`
	// one amxJob.
	Mul func(job unsafe.Pointer) `c:"ax_mul"`

	// k columns of a panel as w tiles of three parts, two, and one.
	F32  func(w, dst unsafe.Pointer, k int) `c:"ax_f32"`
	F16  func(w, dst unsafe.Pointer, k int) `c:"ax_f16"`
	BF16 func(w, dst unsafe.Pointer, k int) `c:"ax_bf16"`
	// blocks of 32 columns of a panel as w tiles of one part, whole units.
	Q8_0   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q8_0"`
	Q4_0   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q4_0"`
	Q4_1   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q4_1"`
	Q5_0   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q5_0"`
	Q5_1   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q5_1"`
	IQ4_NL func(w, dst unsafe.Pointer, blocks int) `c:"ax_iq4_nl"`
	Q4_K   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q4_k"`
	Q5_K   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q5_k"`
	Q6_K   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q6_k"`
	Q2_K   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q2_k"`
	Q3_K   func(w, dst unsafe.Pointer, blocks int) `c:"ax_q3_k"`
}
