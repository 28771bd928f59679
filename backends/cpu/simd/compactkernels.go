package simd

import "unsafe"

// compactKernels are one level's kernels for compact panels, compiled from csrc/cpu/compact.c.
// tools/c2goasm reads this type as it reads kernels.
type compactKernels struct {
	// y[16·p+i] = row i of compact panel p times x, with shape = far | panels<<2; see Far.
	CompactBF16 func(w, x, y unsafe.Pointer, k, shape int) `c:"pc_bf16"`
	// Of few rows of x, as FewBF16 is.
	CompactFewBF16 func(w, x, y unsafe.Pointer, k, lds, shape int) `c:"pcn_bf16"`
	// blocks of 8 columns of a compact panel, from w on, as a plain one has them; exceptions are zeros.
	ExpandBF16 func(table, w, dst unsafe.Pointer, blocks int) `c:"px_bf16"`
}

// compactF16Kernels are those for compact panels of f16, compiled from csrc/cpu/compact_f16.c.
type compactF16Kernels struct {
	// The same as compactKernels has, of f16.
	CompactF16    func(w, x, y unsafe.Pointer, k, shape int)      `c:"pc_f16"`
	CompactFewF16 func(w, x, y unsafe.Pointer, k, lds, shape int) `c:"pcn_f16"`
	ExpandF16     func(table, w, dst unsafe.Pointer, blocks int)  `c:"px_f16"`
	// columns c0 … c0+cols-1 of a compact panel of k in the micro-kernel's tiles, as WideF16 brings those of a plain one.
	WideCompactF16 func(panel, dst unsafe.Pointer, k, c0, cols int) `c:"pw_f16_compact"`
}
