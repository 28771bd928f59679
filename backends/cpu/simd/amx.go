package simd

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// Products on the matrix unit (AMX), whose dot products of bf16 are an order of
// magnitude faster than the vector units. Numbers of more than eight bits are split into up
// to three bf16, so that products with plain types keep f32's accuracy.
// Those with block formats round both sides to bf16 once, which is closer than
// activations in eight bits.

const (
	unitRows = 16   // of a tile
	unitCols = 32   // columns of a tile
	unitTile = 1024 // bytes

	// MulUnit takes weights in blocks of so many columns, a multiple of every unit
	// of panels, and in groups of so many panels: brought to the unit's form, such a
	// block stays in the second-level cache with a run of activations and the
	// sums. All activations come from further away once for each group of panels.
	unitBlock   = 1024
	unitPanels  = 8
	unitRunRows = 256 // rows of activations in a run, of one part
	unitSums    = 512 // rows of activations whose sums are kept
)

// MinUnitRows is from how many rows of activations on the matrix unit is worth
// bringing weights to its form.
const MinUnitRows = 12

// UnitPanels is how many panels MulUnit takes at once; more are taken one such group after another.
const UnitPanels = unitPanels

// HasUnit says whether the level has products on a matrix unit.
func (k *Kernels) HasUnit() bool { return k.a != nil }

// Split is activations as the matrix unit wants them: each the sum of Parts bf16.
type Split struct {
	N, Cols, Parts int
	Data           []float32 // room; SplitLen
}

// UnitParts gives the number of parts in which activations meet weights of type t:
// three give all of f32, one rounds.
func UnitParts(t tensor.Type) int {
	if RoundsActivations(t) {
		return 1
	}
	return 3
}

// wideParts is the number of parts of weights.
func wideParts(t tensor.Type) int {
	switch t {
	case tensor.F32:
		return 3
	case tensor.F16:
		return 2
	}
	return 1
}

// SplitLen gives the floats that n rows of cols columns take.
func SplitLen(n, cols, parts int) int {
	return (n + unitRows - 1) / unitRows * (cols + unitCols - 1) / unitCols * unitTile / 4 * parts
}

// SplitRows is the number of rows in a group.
const SplitRows = unitRows

// Groups gives the number of groups of rows that Put takes.
func (s *Split) Groups() int { return (s.N + unitRows - 1) / unitRows }

// step is the size of a group in floats.
func (s *Split) step() int { return (s.Cols + unitCols - 1) / unitCols * unitTile / 4 * s.Parts }

// Put splits group g of the rows of x, ldx floats apart.
func (k *Kernels) Put(s *Split, x []float32, ldx, g int) {
	r := g * unitRows
	if g < 0 || r >= s.N || ldx < s.Cols || len(x) < (s.N-1)*ldx+s.Cols || s.Parts < 1 || s.Parts > 3 ||
		len(s.Data) < s.Groups()*s.step() {
		panic(fmt.Sprintf("simd: Put of group %d of %d rows of %d in %d parts, stride %d, from %d to %d floats", g, s.N,
			s.Cols, s.Parts, ldx, len(x), len(s.Data)))
	}
	rows := min(unitRows, s.N-r)
	for c := 0; c < s.Cols; c += callElements / unitRows {
		k.a.Pack(ptr(x[r*ldx+c:]), ldx, ptr(s.Data[g*s.step()+c/unitCols*s.Parts*unitTile/4:]),
			min(callElements/unitRows, s.Cols-c), rows|s.Parts<<8)
	}
}

// UnitScratch is the floats of scratch that one worker needs for MulUnit with weights of type t.
func UnitScratch(t tensor.Type) int {
	return unitPanels*(unitBlock/unitCols*wideParts(t)*unitTile/4) + unitSums*unitPanels*PanelRows + expandFloats(t)
}

// expandFloats is room for a block's columns of a compact panel, as a plain one has them.
func expandFloats(t tensor.Type) int {
	if compactFormats[t] == nil {
		return 0
	}
	return PanelBytes(t, unitBlock) / 4
}

// amxJob is one call of ax_mul; csrc/cpu/amx.c has the same in C.
type amxJob struct {
	x, w, y, sums                                            unsafe.Pointer
	ldy, tiles, rows, cols, xstep, wstep, parts, first, last int
}

// amxJobs are between calls: one on the stack would be moved from it, as kernels are known at run time alone.
var amxJobs = sync.Pool{New: func() any { return new(amxJob) }}

// MulUnit computes y[j·ldy+n] = Σ_c m[n, c]·x[j, c] for the rows n of panels
// p0 … p1-1 and the rows j0 … j1-1 of x; j0 is a multiple of 16. Calls for
// other rows of y may run at once, each with scratch of its own, on a cache line for speed.
func (k *Kernels) MulUnit(y []float32, ldy int, m *Panels, p0, p1 int, x *Split, j0, j1 int, scratch []float32) {
	if x.Cols != m.Cols || p0 < 0 || p1 > PanelCount(m.Rows) || j0 < 0 || j0%unitRows > 0 || j1 > x.N || m.Rows > ldy ||
		x.N > 0 && len(y) < (x.N-1)*ldy+m.Rows || len(scratch) < UnitScratch(m.Type) || len(x.Data) < x.Groups()*x.step() ||
		x.Parts < wideParts(m.Type) || x.Parts > 3 {
		panic(fmt.Sprintf("simd: MulUnit of panels %d to %d of %d by %d %s with rows %d to %d of %d by %d in %d parts "+
			"into %d floats, stride %d",
			p0, p1, m.Rows, m.Cols, m.Type, j0, j1, x.N, x.Cols, x.Parts, len(y), ldy))
	}
	if m.Cols == 0 {
		for j := j0; j < j1; j++ {
			clear(y[j*ldy+p0*PanelRows : j*ldy+min(p1*PanelRows, m.Rows)])
		}
		return
	}
	for ; j0 < j1; j0 += unitSums {
		for p := p0; p < p1; p += unitPanels {
			k.mulUnit(y, ldy, m, p, min(p+unitPanels, p1), x, j0, min(j0+unitSums, j1), scratch)
		}
	}
}

// mulUnit is MulUnit for unitPanels panels and unitSums rows at most.
func (k *Kernels) mulUnit(y []float32, ldy int, m *Panels, p0, p1 int, x *Split, j0, j1 int, scratch []float32) {
	parts := wideParts(m.Type)
	wstep := unitBlock / unitCols * unitTile / 4 * parts
	sums := scratch[unitPanels*wstep:]
	room := sums[unitSums*unitPanels*PanelRows:]
	run := max(2*unitRows, unitRunRows/x.Parts&^(2*unitRows-1))
	job := amxJobs.Get().(*amxJob)
	*job = amxJob{ldy: ldy, xstep: x.step() * 4, wstep: wstep * 4, parts: x.Parts | parts<<8, first: 1}
	for c := 0; c < m.Cols; c += unitBlock {
		cols := min(unitBlock, m.Cols-c)
		for p := p0; p < p1; p++ {
			if m.Type == tensor.BF16 && cols%unitCols == 0 && m.Compact() { // a plain panel of bf16 is tiles
				k.Expand(tensor.Bytes(scratch[(p-p0)*wstep:]), m, p, c, cols)
				continue
			}
			k.wideUnit(m.Type, k.plainColumns(m, p, c, cols, room), scratch[(p-p0)*wstep:], cols)
		}
		job.tiles = (cols + unitCols - 1) / unitCols
		if c+cols == m.Cols {
			job.last = 1
		}
		for j := j0; j < j1; j += run {
			job.rows = min(run, j1-j)
			job.x = ptr(x.Data[j/unitRows*x.step()+c/unitCols*x.Parts*unitTile/4:])
			for p := p0; p < p1; p += 2 {
				job.cols = min(min(2, p1-p)*PanelRows, m.Rows-p*PanelRows)
				job.w = ptr(scratch[(p-p0)*wstep:])
				job.sums = ptr(sums[(p-p0)*PanelRows*unitSums+(j-j0)*2*PanelRows:])
				job.y = ptr(y[j*ldy+p*PanelRows:])
				k.a.Mul(unsafe.Pointer(job))
			}
		}
		job.first = 0
	}
	*job = amxJob{} // what it points to may be let go
	amxJobs.Put(job)
}

// wideUnit brings cols columns of a panel to the unit's form.
func (k *Kernels) wideUnit(t tensor.Type, w []byte, dst []float32, cols int) {
	switch t {
	case tensor.F32:
		k.a.F32(ptr(w), ptr(dst), cols)
	case tensor.F16:
		k.a.F16(ptr(w), ptr(dst), cols)
	case tensor.BF16:
		k.a.BF16(ptr(w), ptr(dst), cols)
	default:
		per := panelFormats[t].blocks()
		k.a.blocks(t)(ptr(w), ptr(dst), (cols/32+per-1)/per*per)
	}
}

// blocks gives the kernel that decodes panels of a block format.
func (a *amxKernels) blocks(t tensor.Type) func(w, dst unsafe.Pointer, blocks int) {
	switch t {
	case tensor.Q8_0:
		return a.Q8_0
	case tensor.Q4_0:
		return a.Q4_0
	case tensor.Q4_1:
		return a.Q4_1
	case tensor.Q5_0:
		return a.Q5_0
	case tensor.Q5_1:
		return a.Q5_1
	case tensor.IQ4_NL:
		return a.IQ4_NL
	case tensor.Q4_K:
		return a.Q4_K
	case tensor.Q5_K:
		return a.Q5_K
	case tensor.Q6_K:
		return a.Q6_K
	case tensor.Q2_K:
		return a.Q2_K
	case tensor.Q3_K:
		return a.Q3_K
	}
	panic("simd: no decoder of panels of " + t.String() + " for the matrix unit")
}
