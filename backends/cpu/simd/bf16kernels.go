package simd

import "unsafe"

// bf16Kernels are what processors with dot products of bf16 have besides,
// compiled from csrc/cpu/bf16.c. tools/c2goasm reads this type as it reads kernels.
type bf16Kernels struct {
	// rows rows of k floats, ld apart, as a tile of pairs: [(k+1)/2][12].
	BF16PackX func(x unsafe.Pointer, ld int, dst unsafe.Pointer, k, rows int) `c:"pack_bf16x"`
	// y[j·ldy+16·p+i] = row i of panel p times row j of a tile, and
	// r[j·ldy+16·p+i] unless r is nil, with shape = rows | panels<<8 | pairs<<32.
	BF16Mul func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pb_bf16"`
	// The same of compact panels; csrc/cpu/bf16.c describes the job.
	BF16MulCompact func(job unsafe.Pointer) `c:"pcb_bf16"`
	// n rounds of dot products of bf16 on registers; see kernels.Peak.
	BF16Peak func(p unsafe.Pointer, n int) int `c:"peak_bf16"`
}
