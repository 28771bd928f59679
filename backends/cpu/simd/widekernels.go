package simd

import (
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// wideKernels are what processors with dot products of bytes in AVX-512 have for products of
// panels with eight rows of activations, compiled from csrc/cpu/panelwide.c. tools/c2goasm
// reads this type as it reads kernels.
//
// Each computes y[j·ldy+16·p+i] = row i of panel p times row j of a record of x, over blocks of
// 32 columns, and adds r unless it is nil, with shape = rows of x | blocks<<8 | panels<<28 |
// 64th part of a panel's bytes<<36. All eight rows are stored, or four where no more are wanted.
type wideKernels struct {
	WideQ8_0   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q8_0"`
	WideQ4_0   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q4_0"`
	WideQ4_1   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q4_1"`
	WideQ5_0   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q5_0"`
	WideQ5_1   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q5_1"`
	WideIQ4_NL func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_iq4_nl"`
	WideQ4_K   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q4_k"`
	WideQ5_K   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q5_k"`
	WideQ6_K   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q6_k"`
	WideQ2_K   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q2_k"`
	WideQ3_K   func(w, x, y, r unsafe.Pointer, ldy, shape int) `c:"pw_q3_k"`
}

type wideKernel = func(w, x, y, r unsafe.Pointer, ldy, shape int)

// of gives the kernel of a block format.
func (w *wideKernels) of(t tensor.Type) wideKernel {
	switch t {
	case tensor.Q8_0:
		return w.WideQ8_0
	case tensor.Q4_0:
		return w.WideQ4_0
	case tensor.Q4_1:
		return w.WideQ4_1
	case tensor.Q5_0:
		return w.WideQ5_0
	case tensor.Q5_1:
		return w.WideQ5_1
	case tensor.IQ4_NL:
		return w.WideIQ4_NL
	case tensor.Q4_K:
		return w.WideQ4_K
	case tensor.Q5_K:
		return w.WideQ5_K
	case tensor.Q6_K:
		return w.WideQ6_K
	case tensor.Q2_K:
		return w.WideQ2_K
	case tensor.Q3_K:
		return w.WideQ3_K
	}
	panic("simd: no wide kernel of " + t.String())
}
