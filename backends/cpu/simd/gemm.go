package simd

import (
	"fmt"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// The product Y[S,N] (+)= X[S,K]·W[N,K]ᵀ, blocked for the caches as by Goto
// and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008):
//
//	X is packed once, in blocks of deep columns: panels of nr rows, [k][nr].
//	Each call of MulRows takes TileRows rows of W at a time, decodes and packs
//	one block of columns into panels [k][mr] that stay in the second-level
//	cache, and runs the micro-kernel over all panels of X.
//
// Blocks of X lie behind each other: block b starts at b·deep·nr·panels.

// blockK is the columns at once, k.deep, where nothing else was measured: a multiple of every format's block.
const blockK = 256

// TileRows gives the rows of W whose packed panels, 4·deep bytes each, stay in the
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
	if m.Panels != nil && m.Panels.Compact() {
		return k.tile*k.deep + PanelBytes(m.Type, k.deep)/4
	}
	if m.Type == tensor.F32 || m.Type == tensor.F16 || m.Type == tensor.BF16 {
		return k.tile * k.deep
	}
	return (k.tile + k.mr) * k.deep
}

// PackX packs panel p of X, which has s rows of cols columns, into dst of PackedLen
// floats; the panel's rows lie at x, ldx floats apart.
func (k *Kernels) PackX(dst, x []float32, ldx, s, cols, p int) {
	rows := min(k.nr, s-p*k.nr)
	if p < 0 || rows <= 0 || ldx < cols || len(x) < (rows-1)*ldx+cols || len(dst) < k.PackedLen(s, cols) {
		panic(fmt.Sprintf("simd: PackX of panel %d of %d rows of %d, stride %d, from %d to %d floats", p, s, cols, ldx,
			len(x), len(dst)))
	}
	panels := k.Panels(s)
	for c0 := 0; c0 < cols; c0 += k.deep {
		kc := min(k.deep, cols-c0)
		k.k.PackF32(ptr(x[c0:]), ldx, ptr(dst[(c0*panels+p*kc)*k.nr:]), kc, rows, k.nr)
	}
}

// PackAll packs all panels of X.
func (k *Kernels) PackAll(dst, x []float32, ldx, s, cols int) {
	for p := range k.Panels(s) {
		k.PackX(dst, x[p*k.nr*ldx:], ldx, s, cols, p)
	}
}

// Tiles by which attention takes rows through two products with a softmax between:
// the micro-kernel's own, so that what one product stores is what the next one reads.

// TileWidth gives the rows of W in the micro-kernel's tile, MR.
func (k *Kernels) TileWidth() int { return k.mr }

// PackTile packs rows r0 … r0+rows-1 of m, of a plain type, into dst, [columns][width]; rows that
// lack are zeros.
func (k *Kernels) PackTile(dst []float32, m Matrix, r0, rows, width int) {
	if r0 < 0 || rows < 0 || r0+rows > m.Rows || rows > width || m.Panels != nil || len(dst) < m.Cols*width {
		panic(fmt.Sprintf("simd: PackTile of rows %d to %d of %d by %d in %d columns into %d floats", r0, r0+rows, m.Rows,
			m.Cols, width, len(dst)))
	}
	if m.Cols > 0 && rows > 0 {
		_ = m.row(r0 + rows - 1)
		k.packPlain(dst, m, r0, rows, 0, m.Cols, width)
	}
}

// SpreadRows lays rows r0 … r0+n-1 of m, of a plain type, into panels of NR columns, [columns/NR][n][NR], as
// PackX would lay their transpose. It says whether all of them are finite. dst has PackedLen(columns, n) floats.
func (k *Kernels) SpreadRows(dst []float32, m Matrix, r0, n int) bool {
	if r0 < 0 || n < 0 || r0+n > m.Rows || m.Panels != nil || len(dst) < k.PackedLen(m.Cols, n) {
		panic(fmt.Sprintf("simd: SpreadRows of rows %d to %d of %d by %d into %d floats", r0, r0+n, m.Rows, m.Cols, len(dst)))
	}
	if n == 0 || m.Cols == 0 {
		return true
	}
	_ = m.row(r0 + n - 1)
	var spread func(src unsafe.Pointer, ld int, dst unsafe.Pointer, n, cols, apart int) int
	switch m.Type {
	case tensor.F32:
		spread = k.k.SpreadF32
	case tensor.F16:
		spread = k.k.SpreadF16
	case tensor.BF16:
		spread = k.k.SpreadBF16
	default:
		panic("simd: SpreadRows of " + m.Type.String())
	}
	return spread(ptr(m.Data[r0*m.stride():]), m.ld(), ptr(dst), n, m.Cols, n*k.nr) == 0
}

// MulPanel computes c[j·MR+i] = Σ_n w[n·MR+i]·x[j, n] for i < MR, j < s and n < cols, where x's panels of
// NR rows, [cols][NR], lie apart floats from each other; with add it adds to c.
func (k *Kernels) MulPanel(c, w, x []float32, cols, apart, s int, add bool) {
	panels := k.Panels(s)
	if cols < 0 || s < 0 || len(c) < s*k.mr || len(w) < cols*k.mr || apart < 0 ||
		s > 0 && len(x) < (panels-1)*apart+cols*k.nr {
		panic(fmt.Sprintf("simd: MulPanel of %d columns with %d rows, %d apart, from %d and %d to %d floats", cols, s, apart,
			len(w), len(x), len(c)))
	}
	shape := k.mr
	if add {
		shape |= 1 << 16
	}
	for p := range panels {
		k.k.Micro(ptr(w), ptr(x[p*apart:]), ptr(c[p*k.nr*k.mr:]), k.mr, cols, shape|min(k.nr, s-p*k.nr)<<8)
	}
}

// PackColumns lays rows rows of cols columns, ld floats apart, into panels of MR columns as they lie,
// [cols/MR][rows][MR], as PackTile would lay their transpose; columns that lack are zeros. dst has Tiles(cols)·rows·MR
// floats.
func (k *Kernels) PackColumns(dst, src []float32, ld, rows, cols int) {
	if ld < cols || rows > 0 && len(src) < (rows-1)*ld+cols || len(dst) < k.Tiles(cols)*rows*k.mr {
		panic(fmt.Sprintf("simd: PackColumns of %d rows of %d, %d apart, from %d to %d floats", rows, cols, ld, len(src),
			len(dst)))
	}
	for i := 0; i < cols; i, dst = i+k.mr, dst[rows*k.mr:] {
		n := min(k.mr, cols-i)
		for r := range rows {
			to := dst[r*k.mr:][:k.mr]
			copy(to[:n], src[r*ld+i:])
			clear(to[n:])
		}
	}
}

// Tiles gives the number of panels of MR that n columns make.
func (k *Kernels) Tiles(n int) int { return (n + k.mr - 1) / k.mr }

// MulTiles computes y[j·ldy+i] (+)= Σ_c w[c, i]·x[j, c] for i < n, j < s and c < cols. w lies in panels of MR, wapart
// floats from each other, as PackTile or PackColumns lay them, x in panels of NR, xapart floats apart, as PackTile or
// SpreadRows do.
func (k *Kernels) MulTiles(y []float32, ldy, n int, w []float32, wapart int, x []float32, xapart, s, cols int,
	add bool) {
	if n <= 0 || s <= 0 {
		return
	}
	if cols < 0 || ldy < n || len(y) < (s-1)*ldy+n || wapart < cols*k.mr || xapart < cols*k.nr ||
		len(w) < (k.Tiles(n)-1)*wapart+cols*k.mr || len(x) < (k.Panels(s)-1)*xapart+cols*k.nr {
		panic(fmt.Sprintf("simd: MulTiles of %d by %d by %d, %d, %d and %d apart, from %d and %d to %d floats", s, n, cols,
			ldy, wapart, xapart, len(w), len(x), len(y)))
	}
	adding := 0
	if add {
		adding = 1 << 16
	}
	for i := 0; i < n; i += k.mr {
		for j := 0; j < s; j += k.nr {
			k.k.Micro(ptr(w[i/k.mr*wapart:]), ptr(x[j/k.nr*xapart:]), ptr(y[j*ldy+i:]), ldy, cols,
				min(k.mr, n-i)|min(k.nr, s-j)<<8|adding)
		}
	}
}

// SoftmaxTile takes rows of MR scores each, column by column: most becomes the largest yet, change
// e^(what it was - most), scores e^(score - most), sum what it was times change plus their sum. Where a
// power is below e^-60 it is 0, as in ExpSum. It says whether most has changed in any column. NaNs
// are passed over by most.
func (k *Kernels) SoftmaxTile(s, most, sum, change []float32) bool {
	most, sum, change = most[:k.mr], sum[:k.mr], change[:k.mr]
	return k.k.SoftmaxTile(ptr(s), ptr(most), ptr(sum), ptr(change), len(s)/k.mr) != 0
}

// ScaleTile computes y[r·MR+i] *= f[i] for all rows r of y.
func (k *Kernels) ScaleTile(y, f []float32) {
	f = f[:k.mr]
	k.k.MulTile(ptr(y), ptr(f), len(y)/k.mr)
}

// MulRows computes y[j·ldy+n] = Σ_c x[j,c]·m[n,c] for the rows r0 <= n < r1 of
// m and all s rows j of the packed xp; with add it adds to y. Calls for
// different rows of m may run at once, each with scratch of its own
// (ScratchLen floats, on a cache line for speed).
func (k *Kernels) MulRows(y []float32, ldy int, m Matrix, r0, r1 int, xp []float32, s int, scratch []float32,
	add bool) {
	if r0 < 0 || r1 > m.Rows || r1 > ldy || s > 0 && len(y) < (s-1)*ldy+r1 || len(xp) < k.PackedLen(s, m.Cols) ||
		len(scratch) < k.ScratchLen(m) {
		panic(fmt.Sprintf("simd: MulRows of rows %d to %d of %d by %d with %d rows, stride %d, into %d floats, scratch %d",
			r0, r1, m.Rows, m.Cols, s, ldy, len(y), len(scratch)))
	}
	if r1 <= r0 || s == 0 {
		return
	}
	if m.Panels != nil {
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
	panels, wp := k.Panels(s), scratch[:k.tile*k.deep]
	for t0 := r0; t0 < r1; t0 += k.tile {
		rows := min(k.tile, r1-t0)
		for c0 := 0; c0 < m.Cols; c0 += k.deep {
			kc := min(k.deep, m.Cols-c0)
			if m.Panels != nil {
				k.widePanels(wp, m.Panels, t0, rows, c0, kc, scratch[k.tile*k.deep:])
			} else {
				for i := 0; i < rows; i += k.mr {
					k.packW(wp[i*kc:], m, t0+i, min(k.mr, rows-i), c0, kc, scratch[k.tile*k.deep:])
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
func (k *Kernels) widePanels(dst []float32, m *Panels, r0, rows, c0, kc int, scratch []float32) {
	wide := k.k.WideF32
	switch m.Type {
	case tensor.F16:
		wide = k.k.WideF16
	case tensor.BF16:
		wide = k.k.WideBF16
	}
	for i := 0; i < rows; i += PanelRows {
		p := (r0 + i) / PanelRows
		// Where a tile is more than a panel, panels lie beside each other in it.
		to := ptr(dst[i/max(k.mr, PanelRows)*max(k.mr, PanelRows)*kc+i%max(k.mr, PanelRows):])
		if m.Type == tensor.F16 && k.h != nil && m.compactAt(p) {
			k.h.WideCompactF16(ptr(m.panel(p)), to, m.Cols, c0, kc)
		} else {
			wide(ptr(k.plainColumns(m, p, c0, kc, scratch)), to, kc)
		}
	}
}

// packW packs columns c0 … c0+kc-1 of rows rows into dst, [kc][mr].
func (k *Kernels) packW(dst []float32, m Matrix, r0, rows, c0, kc int, scratch []float32) {
	if k.packPlain(dst, m, r0, rows, c0, kc, k.mr) {
		return
	}
	for r := range rows {
		out, in := scratch[r*kc:][:kc], m.row(r0 + r)[m.Type.RowBytes(c0):m.Type.RowBytes(c0+kc)]
		if !k.Decode(m.Type, out, in) {
			m.Decode(out, in)
		}
	}
	k.k.PackF32(ptr(scratch), kc, ptr(dst), kc, rows, k.mr)
}

// packPlain packs columns c0 … c0+kc-1 of rows rows into dst, [kc][width], where m is of a plain type.
func (k *Kernels) packPlain(dst []float32, m Matrix, r0, rows, c0, kc, width int) bool {
	var pack func(src unsafe.Pointer, ld int, dst unsafe.Pointer, k, rows, width int)
	switch m.Type {
	case tensor.F32:
		pack = k.k.PackF32
	case tensor.F16:
		pack = k.k.PackF16
	case tensor.BF16:
		pack = k.k.PackBF16
	default:
		return false
	}
	pack(unsafe.Pointer(unsafe.SliceData(m.Data[r0*m.stride()+m.Type.RowBytes(c0):])), m.ld(), ptr(dst), kc, rows, width)
	return true
}
