package simd

import "unsafe"

// kernels is one level's set of kernels: compiled from csrc/cpu for an
// instruction set, or the Go ones in pure.go. tools/c2goasm reads this type;
// a tag names the C function.
//
// The kernels check nothing and may read and write exactly what their formula
// names; Kernels' methods check and cut long calls into short ones, because a
// call cannot be preempted.
type kernels struct {
	// y[r] = Σ_i w[r·ldw+i]·x[i] for r < rows, i < k; ldw in elements for the
	// plain types, in bytes for the block formats.
	MvF32  func(w, x, y unsafe.Pointer, rows, k, ldw int) `c:"mv_f32"`
	MvF16  func(w, x, y unsafe.Pointer, rows, k, ldw int) `c:"mv_f16"`
	MvBF16 func(w, x, y unsafe.Pointer, rows, k, ldw int) `c:"mv_bf16"`
	MvQ8_0 func(w, x, y unsafe.Pointer, rows, k, ldw int) `c:"mv_q8_0"`
	MvQ4_0 func(w, x, y unsafe.Pointer, rows, k, ldw int) `c:"mv_q4_0"`
	MvQ4_K func(w, x, y unsafe.Pointer, rows, k, ldw int) `c:"mv_q4_k"`
	MvQ6_K func(w, x, y unsafe.Pointer, rows, k, ldw int) `c:"mv_q6_k"`

	// y[i] += Σ_r p[r]·v[r·ldv+i] for r < rows, i < d.
	WsumF32  func(v, p, y unsafe.Pointer, rows, d, ldv int) `c:"wsum_f32"`
	WsumF16  func(v, p, y unsafe.Pointer, rows, d, ldv int) `c:"wsum_f16"`
	WsumBF16 func(v, p, y unsafe.Pointer, rows, d, ldv int) `c:"wsum_bf16"`

	// The same for groups side by side in rows, with share rows of x, or of p and y, each, h < groups·share:
	// y[h·ldy+r] = Σ_i w[r·ldw+h/share·k+i]·x[h·k+i], and y[h·d+i] += Σ_r p[h·ldp+r]·v[r·ldv+h/share·d+i].
	// shape = rows | k<<16 | groups<<32 | share<<48, with d for k; ldw and ldv of q8_0 in bytes.
	MvhF32      func(w, x, y unsafe.Pointer, ldw, ldy, shape int) `c:"mvh_f32"`
	MvhF16      func(w, x, y unsafe.Pointer, ldw, ldy, shape int) `c:"mvh_f16"`
	MvhBF16     func(w, x, y unsafe.Pointer, ldw, ldy, shape int) `c:"mvh_bf16"`
	MvhF8E4M3   func(w, x, y unsafe.Pointer, ldw, ldy, shape int) `c:"mvh_f8e4m3"`
	MvhQ8_0     func(w, x, y unsafe.Pointer, ldw, ldy, shape int) `c:"mvh_q8_0"`
	WsumhF32    func(v, p, y unsafe.Pointer, ldv, ldp, shape int) `c:"wsumh_f32"`
	WsumhF16    func(v, p, y unsafe.Pointer, ldv, ldp, shape int) `c:"wsumh_f16"`
	WsumhBF16   func(v, p, y unsafe.Pointer, ldv, ldp, shape int) `c:"wsumh_bf16"`
	WsumhF8E4M3 func(v, p, y unsafe.Pointer, ldv, ldp, shape int) `c:"wsumh_f8e4m3"`
	WsumhQ8_0   func(v, p, y unsafe.Pointer, ldv, ldp, shape int) `c:"wsumh_q8_0"`

	// dst[i·width+r] = src[r·ld+i] for i < k, r < rows; 0 up to r = width.
	PackF32  func(src unsafe.Pointer, ld int, dst unsafe.Pointer, k, rows, width int) `c:"pack_f32"`
	PackF16  func(src unsafe.Pointer, ld int, dst unsafe.Pointer, k, rows, width int) `c:"pack_f16"`
	PackBF16 func(src unsafe.Pointer, ld int, dst unsafe.Pointer, k, rows, width int) `c:"pack_bf16"`
	// dst[i/NR·apart+r·NR+i%NR] = src[r·ld+i] for r < n, i < cols, the last NR filled up with 0. Returns 0 where all
	// of src are finite.
	SpreadF32  func(src unsafe.Pointer, ld int, dst unsafe.Pointer, n, cols, apart int) int `c:"spread_f32"`
	SpreadF16  func(src unsafe.Pointer, ld int, dst unsafe.Pointer, n, cols, apart int) int `c:"spread_f16"`
	SpreadBF16 func(src unsafe.Pointer, ld int, dst unsafe.Pointer, n, cols, apart int) int `c:"spread_bf16"`
	// c[j·ldc+i] (+)= Σ_k w[k·MR+i]·x[k·NR+j] for i < mr, j < nr, with
	// shape = mr | nr<<8 | add<<16.
	Micro func(w, x, c unsafe.Pointer, ldc, k, shape int) `c:"micro"`

	// y[16·p+i] = row i of panel p times x, for panels of the plain types, with
	// shape = far | panels<<2; see Far.
	PanelF32  func(w, x, y unsafe.Pointer, k, shape int) `c:"pf_f32"`
	PanelF16  func(w, x, y unsafe.Pointer, k, shape int) `c:"pf_f16"`
	PanelBF16 func(w, x, y unsafe.Pointer, k, shape int) `c:"pf_bf16"`
	// y[j·ldy+16·p+i] = row i of panel p times row j of x for j < n, n at most four, with lds = ldx | ldy<<32 and
	// shape = far | n<<2 | panels<<5.
	FewF32  func(w, x, y unsafe.Pointer, k, lds, shape int) `c:"pn_f32"`
	FewF16  func(w, x, y unsafe.Pointer, k, lds, shape int) `c:"pn_f16"`
	FewBF16 func(w, x, y unsafe.Pointer, k, lds, shape int) `c:"pn_bf16"`
	// k columns of such a panel as tiles of the micro-kernel, in f32.
	WideF32  func(w, dst unsafe.Pointer, k int) `c:"pw_f32"`
	WideF16  func(w, dst unsafe.Pointer, k int) `c:"pw_f16"`
	WideBF16 func(w, dst unsafe.Pointer, k int) `c:"pw_bf16"`

	// dst[i] = src[i], widened or rounded to nearest even; n elements.
	DecF16    func(src, dst unsafe.Pointer, n int) `c:"dec_f16"`
	DecBF16   func(src, dst unsafe.Pointer, n int) `c:"dec_bf16"`
	DecF8E4M3 func(src, dst unsafe.Pointer, n int) `c:"dec_f8e4m3"`
	DecQ8_0   func(src, dst unsafe.Pointer, n int) `c:"dec_q8_0"`
	DecQ4_0   func(src, dst unsafe.Pointer, n int) `c:"dec_q4_0"`
	DecQ4_K   func(src, dst unsafe.Pointer, n int) `c:"dec_q4_k"`
	DecQ6_K   func(src, dst unsafe.Pointer, n int) `c:"dec_q6_k"`
	EncF16    func(src, dst unsafe.Pointer, n int) `c:"enc_f16"`
	EncBF16   func(src, dst unsafe.Pointer, n int) `c:"enc_bf16"`

	Dot      func(a, b unsafe.Pointer, n int) float32          `c:"dot"`       // Σ a·b
	Max      func(x unsafe.Pointer, n int) float32             `c:"max_f32"`   // max x, -Inf for n = 0
	Add      func(y, a, b unsafe.Pointer, n int)               `c:"add"`       // y = a + b
	Mul      func(y, a, b unsafe.Pointer, n int)               `c:"mul"`       // y = a·b
	Scale    func(y, x unsafe.Pointer, n int, a float32)       `c:"scale"`     // y = a·x
	Axpy     func(y, x unsafe.Pointer, n int, a float32)       `c:"axpy"`      // y += a·x
	ScaleMul func(y, x, gain unsafe.Pointer, n int, a float32) `c:"scale_mul"` // y = (a·x)·gain
	// y[i] = x[i]·c[i] + x[i^1]·s[i], n even
	TurnPairs func(y, x, c, s unsafe.Pointer, n int) `c:"turn_pairs"`
	// y[i] = x[i]·c[i] - x[n+i]·s[i], y[n+i] = x[i]·s[i] + x[n+i]·c[i]
	TurnHalves func(y, x, c, s unsafe.Pointer, n int) `c:"turn_halves"`
	// y = e^(x-m), 0 where x-m < -60; returns Σ y
	ExpSum func(y, x unsafe.Pointer, n int, m float32) float32 `c:"expsum"`
	Exp    func(y, x unsafe.Pointer, n int)                    `c:"exp_f32"` // y = e^x
	// Of n rows s of MR scores each, column by column: most becomes the largest yet, change e^(old - most), s
	// e^(s - most), 0 below e^-60, sum sum·change + Σ s. Returns 1 where a most has changed, else 0.
	SoftmaxTile func(s, most, sum, change unsafe.Pointer, n int) int `c:"softmax_tile"`
	MulTile     func(y, f unsafe.Pointer, n int)                     `c:"mul_tile"` // y[r·MR+i] *= f[i] for r < n
	SiLU        func(y, x, u unsafe.Pointer, n int)                  `c:"silu"`     // y = x/(1+e^-x)·u; u may be nil
	GELUTanh    func(y, x, u unsafe.Pointer, n int)                  `c:"gelu_tanh"`
	GELUErf     func(y, x, u unsafe.Pointer, n int)                  `c:"gelu_erf"`
	// A token of a state h [rows, cols]; x holds d, q, k, a and b of rows elements each, and v of cols. r = aᵀh with flag
	// 1, else 0; h = d·h + k vᵀ + b rᵀ with flag 2, else d·h + k (v + by·r)ᵀ; y = qᵀh, with flag 4 of the h before.
	// shape = rows | cols<<16 | flags<<32.
	MatrixStep func(h, x, y unsafe.Pointer, shape int, by float32) `c:"matrix_step"`
	// A token of channels' states h [channels, n]: h[c,i] = e^(x[c]·a[c,i])·h[c,i] + x[c]·x[channels+c]·w[i],
	// y[c] = Σ_i h[c,i]·w[n+i]. shape = n | channels<<16.
	ChannelSteps func(h, a, x, w, y unsafe.Pointer, shape int) `c:"channel_steps"`
	// A token of a state h [rows, n]: h[r,i] = d·h[r,i] + x[r]·w[i], y[r] = Σ_i h[r,i]·w[n+i]. shape = n | rows<<16.
	RowsStep func(h, x, w, y unsafe.Pointer, shape int, d float32) `c:"rows_step"`
	// A token of n channels of ops.WKV, parts of h far elements apart; w holds n decays, then n bonuses.
	// shape = n | far<<16.
	WKVStep func(h, keys, values, w, y unsafe.Pointer, shape int) `c:"wkv_step"`
	// reads n bytes, so many parts of them side by side
	ReadAll func(p unsafe.Pointer, n, streams int) float32 `c:"read_all"`
	// n rounds of multiply-adds on registers, as many as it returns; p has 64 bytes.
	Peak func(p unsafe.Pointer, n int) int `c:"peak_f32"`
}
