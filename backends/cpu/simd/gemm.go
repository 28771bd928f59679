package simd

import (
	"fmt"
	"unsafe"

	"greta/tensor"
)

// The product Y[S,N] (+)= X[S,K]·W[N,K]ᵀ, blocked for the caches as by Goto
// and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008):
//
//	X is packed once, in blocks of blockK columns: panels of nr rows, [k][nr].
//	Each call of MulRows takes TileRows rows of W at a time, decodes and packs
//	one block of columns into panels [k][mr] that stay in the second-level
//	cache, and runs the micro-kernel over all panels of X.
//
// Blocks of X lie behind each other: block b starts at b·blockK·nr·panels.

// blockK is the columns at once: a multiple of every format's block.
const blockK = 256

// TileRows gives the rows of W whose packed panels, 1 KiB each, stay in the
// second-level cache.
func (k *Kernels) TileRows() int { return k.tile }

// PanelRows gives the rows of X in one packed panel.
func (k *Kernels) PanelRows() int { return k.nr }

// Panels gives the number of panels that s rows of X make.
func (k *Kernels) Panels(s int) int { return (s + k.nr - 1) / k.nr }

// PackedLen gives the floats that s packed rows of cols columns take.
func (k *Kernels) PackedLen(s, cols int) int { return k.Panels(s)*k.nr*cols + 16 }

// ScratchLen gives the floats of scratch that one worker needs for MulRows.
func (k *Kernels) ScratchLen(m Matrix) int {
	if m.Type == tensor.F32 || m.Type == tensor.F16 || m.Type == tensor.BF16 {
		return k.tile * blockK
	}
	return (k.tile + k.mr) * blockK
}

// PackX packs panel p of X, which has s rows of cols columns, into dst of PackedLen
// floats; the panel's rows lie at x, ldx floats apart.
func (k *Kernels) PackX(dst, x []float32, ldx, s, cols, p int) {
	rows := min(k.nr, s-p*k.nr)
	if p < 0 || rows <= 0 || ldx < cols || len(x) < (rows-1)*ldx+cols || len(dst) < k.PackedLen(s, cols) {
		panic(fmt.Sprintf("simd: PackX of panel %d of %d rows of %d, stride %d, from %d to %d floats", p, s, cols, ldx, len(x), len(dst)))
	}
	panels := k.Panels(s)
	for c0 := 0; c0 < cols; c0 += blockK {
		kc := min(blockK, cols-c0)
		k.k.PackF32(ptr(x[c0:]), ldx, ptr(dst[(c0*panels+p*kc)*k.nr:]), kc, rows, k.nr)
	}
}

// PackAll packs all panels of X.
func (k *Kernels) PackAll(dst, x []float32, ldx, s, cols int) {
	for p := range k.Panels(s) {
		k.PackX(dst, x[p*k.nr*ldx:], ldx, s, cols, p)
	}
}

// MulRows computes y[j·ldy+n] = Σ_c x[j,c]·m[n,c] for the rows r0 <= n < r1 of
// m and all s rows j of the packed xp; with add it adds to y. Calls for
// different rows of m may run at once, each with scratch of its own
// (ScratchLen floats, on a cache line for speed).
func (k *Kernels) MulRows(y []float32, ldy int, m Matrix, r0, r1 int, xp []float32, s int, scratch []float32, add bool) {
	if r0 < 0 || r1 > m.Rows || r1 > ldy || s > 0 && len(y) < (s-1)*ldy+r1 || len(xp) < k.PackedLen(s, m.Cols) || len(scratch) < k.ScratchLen(m) {
		panic(fmt.Sprintf("simd: MulRows of rows %d to %d of %d by %d with %d rows, stride %d, into %d floats, scratch %d", r0, r1, m.Rows, m.Cols, s, ldy, len(y), len(scratch)))
	}
	if r1 <= r0 || s == 0 {
		return
	}
	if m.Packed {
		if err := m.Check(); err != nil || r0%PanelRows > 0 {
			panic(fmt.Sprintf("simd: MulRows from row %d of panels: %v", r0, err))
		}
	} else {
		_ = m.row(r1 - 1)
	}
	if m.Cols == 0 && !add {
		for j := range s {
			clear(y[j*ldy+r0 : j*ldy+r1])
		}
		return
	}
	panels, wp := k.Panels(s), scratch[:k.tile*blockK]
	for t0 := r0; t0 < r1; t0 += k.tile {
		rows := min(k.tile, r1-t0)
		for c0 := 0; c0 < m.Cols; c0 += blockK {
			kc := min(blockK, m.Cols-c0)
			if m.Packed {
				k.widePanels(wp, m, t0, rows, c0, kc)
			} else {
				for i := 0; i < rows; i += k.mr {
					k.packW(wp[i*kc:], m, t0+i, min(k.mr, rows-i), c0, kc, scratch[k.tile*blockK:])
				}
			}
			adding := 0
			if add || c0 > 0 {
				adding = 1 << 16
			}
			for p := range panels {
				nr := min(k.nr, s-p*k.nr)
				x := ptr(xp[(c0*panels+p*kc)*k.nr:])
				out := y[p*k.nr*ldy+t0:]
				for i := 0; i < rows; i += k.mr {
					k.k.Micro(ptr(wp[i*kc:]), x, ptr(out[i:]), ldy, kc, min(k.mr, rows-i)|nr<<8|adding)
				}
			}
		}
	}
}

// widePanels turns columns c0 … c0+kc-1 of the panels from row r0 on into the
// micro-kernel's tiles, [kc][mr]. Rows that a last tile lacks keep what was there.
func (k *Kernels) widePanels(dst []float32, m Matrix, r0, rows, c0, kc int) {
	wide := k.k.WideF32
	switch m.Type {
	case tensor.F16:
		wide = k.k.WideF16
	case tensor.BF16:
		wide = k.k.WideBF16
	}
	size, at := PanelBytes(m.Type, m.Cols), PanelBytes(m.Type, c0)
	for i := 0; i < rows; i += PanelRows {
		w := m.Data[(r0+i)/PanelRows*size:][at:size]
		// Where a tile is more than a panel, panels lie beside each other in it.
		wide(ptr(w), ptr(dst[i/max(k.mr, PanelRows)*max(k.mr, PanelRows)*kc+i%max(k.mr, PanelRows):]), kc)
	}
}

// packW packs columns c0 … c0+kc-1 of rows rows into dst, [kc][mr].
func (k *Kernels) packW(dst []float32, m Matrix, r0, rows, c0, kc int, scratch []float32) {
	src := unsafe.Pointer(unsafe.SliceData(m.Data[r0*m.stride()+m.Type.RowBytes(c0):]))
	switch m.Type {
	case tensor.F32:
		k.k.PackF32(src, m.ld(), ptr(dst), kc, rows, k.mr)
	case tensor.F16:
		k.k.PackF16(src, m.ld(), ptr(dst), kc, rows, k.mr)
	case tensor.BF16:
		k.k.PackBF16(src, m.ld(), ptr(dst), kc, rows, k.mr)
	default:
		for r := range rows {
			out, in := scratch[r*kc:][:kc], m.row(r0 + r)[m.Type.RowBytes(c0):m.Type.RowBytes(c0+kc)]
			if !k.Decode(m.Type, out, in) {
				m.Decode(out, in)
			}
		}
		k.k.PackF32(ptr(scratch), kc, ptr(dst), kc, rows, k.mr)
	}
}
