package simd

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// Products of bf16 panels with activations that are rounded to bf16 too: twice
// as many multiplications at once as in f32.

// BF16Rows is the number of rows of activations in a tile.
const BF16Rows = 12

// HasBF16 says whether the level has products of bf16.
func (k *Kernels) HasBF16() bool { return k.b != nil }

// BF16Tiles gives the number of tiles that n rows of activations make.
func BF16Tiles(n int) int { return (n + BF16Rows - 1) / BF16Rows }

// BF16TileFloats gives the size of a tile, in floats.
func BF16TileFloats(cols int) int { return (cols + 1) / 2 * BF16Rows }

// PackBF16 rounds rows at x, ldx floats apart, into tile t of dst: of n rows
// in all those from 12·t on.
func (k *Kernels) PackBF16(dst, x []float32, ldx, n, cols, t int) {
	rows, size := min(BF16Rows, n-t*BF16Rows), BF16TileFloats(cols)
	if t < 0 || rows <= 0 || ldx < cols || len(x) < (rows-1)*ldx+cols || len(dst) < (t+1)*size {
		panic(fmt.Sprintf("simd: PackBF16 of tile %d of %d rows of %d, stride %d, from %d to %d floats", t, n, cols, ldx,
			len(x), len(dst)))
	}
	if cols > 0 {
		k.b.BF16PackX(ptr(x), ldx, ptr(dst[t*size:]), cols, rows)
	}
}

// MulBF16 computes y[j·ldy+i] for the rows i of panels p0 … p1-1 and the rows
// j of tiles t0 … t1-1 of n rows of activations, and adds r[j·ldy+i] unless r
// is nil. m is not compact. tail has BF16TailFloats.
func (k *Kernels) MulBF16(y, r []float32, ldy int, m *Panels, p0, p1 int, x []float32, n, t0, t1 int, tail []float32) {
	size := BF16TileFloats(m.Cols)
	if m.Type != tensor.BF16 || m.Compact() || p0 < 0 || p1 > PanelCount(m.Rows) || t0 < 0 || t1 > BF16Tiles(n) ||
		len(x) < t1*size || m.Rows > ldy ||
		n > 0 && len(y) < (n-1)*ldy+m.Rows || n > 0 && r != nil && len(r) < (n-1)*ldy+m.Rows {
		panic(fmt.Sprintf("simd: MulBF16 of panels %d to %d of %d by %d %s with tiles %d to %d of %d rows into %d floats, "+
			"stride %d",
			p0, p1, m.Rows, m.Cols, m.Type, t0, t1, n, len(y), ldy))
	}
	panel, pairs, full := PanelBytes(m.Type, m.Cols), (m.Cols+1)/2, min(p1, m.Rows/PanelRows)
	per := max(2, panelCallBytes/max(1, panel)&^1)
	for t := t0; t < t1; t++ {
		j := t * BF16Rows
		rows := min(BF16Rows, n-j)
		xp := ptr(x[t*size:])
		for p := p0; p < full; p += per {
			var add unsafe.Pointer
			if r != nil {
				add = ptr(r[j*ldy+p*PanelRows:])
			}
			k.b.BF16Mul(ptr(m.Data[p*panel:]), xp, ptr(y[j*ldy+p*PanelRows:]), add, ldy, rows|min(per, full-p)<<8|pairs<<32)
		}
		if full < p1 {
			k.b.BF16Mul(ptr(m.Data[full*panel:]), xp, ptr(tail[:BF16TailFloats]), nil, PanelRows, rows|1<<8|pairs<<32)
			for c := range rows {
				copy(y[(j+c)*ldy+full*PanelRows:(j+c)*ldy+m.Rows], tail[c*PanelRows:])
			}
			if r != nil {
				k.addRows(y, r, ldy, j, j+rows, full*PanelRows, m.Rows)
			}
		}
	}
}

// bf16Job is one call of pcb_bf16; csrc/cpu/bf16.c has the same in C.
type bf16Job struct {
	w, x, y, r, dst      unsafe.Pointer
	ldy, n, panels, cols int
}

// bf16Jobs are between calls, as amxJobs.
var bf16Jobs = sync.Pool{New: func() any { return new(bf16Job) }}

// MulCompactBF16 is MulBF16 for compact panels and tile t alone. plain has room for panels p0 … p1-1; with keep it
// becomes them, for the tiles that follow.
func (k *Kernels) MulCompactBF16(y, r []float32, ldy int, m *Panels, p0, p1 int, x []float32, n, t int, tail []float32,
	plain *Panels, keep bool) {
	size, rows := BF16TileFloats(m.Cols), min(BF16Rows, n-t*BF16Rows)
	if m.Type != tensor.BF16 || !m.Compact() || p0 < 0 || p1 > PanelCount(m.Rows) || t < 0 || rows <= 0 ||
		len(x) < (t+1)*size || m.Rows > ldy ||
		len(y) < (n-1)*ldy+m.Rows || r != nil && len(r) < (n-1)*ldy+m.Rows || plain.Compact() ||
		len(plain.Data) < (p1-p0)*PanelBytes(m.Type, m.Cols) {
		panic(fmt.Sprintf("simd: MulCompactBF16 of panels %d to %d of %d by %d %s with tile %d of %d rows into %d floats, "+
			"stride %d, and %d bytes",
			p0, p1, m.Rows, m.Cols, m.Type, t, n, len(y), ldy, len(plain.Data)))
	}
	part, from := m.Part(p0, p1), p0*PanelRows
	y = y[from:]
	if r != nil {
		r = r[from:]
	}
	panel := PanelBytes(m.Type, m.Cols)
	if part.mixed() {
		k.ExpandPanels(plain, &part, 0, p1-p0)
		k.MulBF16(y, r, ldy, plain, 0, p1-p0, x, n, t, t+1, tail)
		return
	}
	j, full, per := t*BF16Rows, part.Rows/PanelRows, max(2, panelCallBytes/panel&^1)
	job := bf16Jobs.Get().(*bf16Job)
	*job = bf16Job{x: ptr(x[t*size:]), ldy: ldy, n: rows, cols: m.Cols}
	for p := 0; p < full; p += per {
		job.w, job.y, job.panels = ptr(part.panel(p)), ptr(y[j*ldy+p*PanelRows:]), min(per, full-p)
		if r != nil {
			job.r = ptr(r[j*ldy+p*PanelRows:])
		}
		if keep {
			job.dst = ptr(plain.Data[p*panel:])
		}
		k.b.BF16MulCompact(unsafe.Pointer(job))
	}
	if full < p1-p0 {
		job.w, job.y, job.r, job.ldy, job.panels = ptr(part.panel(full)), ptr(tail[:BF16TailFloats]), nil, PanelRows, 1
		if keep {
			job.dst = ptr(plain.Data[full*panel:])
		}
		k.b.BF16MulCompact(unsafe.Pointer(job))
		for c := range rows {
			copy(y[(j+c)*ldy+full*PanelRows:(j+c)*ldy+part.Rows], tail[c*PanelRows:])
		}
		if r != nil {
			k.addRows(y, r, ldy, j, j+rows, full*PanelRows, part.Rows)
		}
	}
	*job = bf16Job{}
	bf16Jobs.Put(job)
	if keep {
		plain.Type, plain.Rows, plain.Cols = m.Type, part.Rows, m.Cols
		for p := range p1 - p0 {
			compactFormats[m.Type].putExceptions(plain.Data[p*panel:], part.panel(p), m.Cols, 0, m.Cols)
		}
	}
}

// BF16TailFloats is the scratch of MulBF16.
const BF16TailFloats = BF16Rows * PanelRows
