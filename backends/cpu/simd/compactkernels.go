package simd

import "unsafe"

// compactKernels are one level's kernels for compact panels, compiled from csrc/cpu/compact.c.
// tools/c2goasm reads this type as it reads kernels.
type compactKernels struct {
	// y[16·p+i] = row i of compact panel p times x, with shape = far | panels<<2; see Far.
	CompactBF16 func(w, x, y unsafe.Pointer, k, shape int) `c:"pc_bf16"`
	// blocks of 8 columns of a compact panel, from w on, as a plain one has them; exceptions are zeros.
	ExpandBF16 func(table, w, dst unsafe.Pointer, blocks int) `c:"px_bf16"`
}
