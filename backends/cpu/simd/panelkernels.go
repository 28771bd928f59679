package simd

import "unsafe"

// panelKernels is one level's set of products over panels: compiled from
// csrc/cpu/panel.c, or the Go ones in panels_pure.go. tools/c2goasm reads
// this type as it reads kernels. They are a set of their own since dot
// products of bytes come and go apart from the width of vectors.
type panelKernels struct {
	// y[j·ldy+16·p+i] = row i of panel p times row j of a record of x, over
	// blocks of 32 columns, with shape = rows of x | wide<<8 | far<<9 | panels<<16; see Far.
	Q8_0   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q8_0"`
	Q4_0   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q4_0"`
	Q4_1   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q4_1"`
	Q5_0   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q5_0"`
	Q5_1   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q5_1"`
	IQ4_NL func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_iq4_nl"`
	Q4_K   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q4_k"`
	Q5_K   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q5_k"`
	Q6_K   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q6_k"`
	Q2_K   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q2_k"`
	Q3_K   func(w, x, y unsafe.Pointer, ldy, blocks, shape int) `c:"pq_q3_k"`
	// n rounds of dot products of bytes on registers; see kernels.Peak.
	DotPeak func(p unsafe.Pointer, n int) int `c:"peak_i8"`
	// k elements of x into row j of records of n rows, with shape = n | j<<8.
	Quant func(x, dst unsafe.Pointer, k, shape int) `c:"quant_x"`
}
