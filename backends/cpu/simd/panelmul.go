package simd

import (
	"fmt"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// Products over panels. Activations that block formats are multiplied with
// are rounded to eight bits, in blocks of 32 with a scale each: x ≈ d·q, d the
// largest magnitude over 127. The sums of products are exact integers, so all
// levels differ only by the rounding of the scaled sums in f32.

// panelCallBytes bounds a call as callBytes does. Panels are read so fast that
// shorter calls are felt.
const panelCallBytes = 1024 << 10

const recordBytes = 48 // of a row and a block of 32: q, d, -Σq of it and of its halves

// Quants is room for n rows of activations in eight bits.
type Quants struct {
	N, Cols int
	// Group is how many rows lie together: 1, or 8 for products of many rows,
	// which take eight rows of activations at once. What made them must multiply them:
	// where Kernels.PairsRows, such rows lie two by two.
	Group int
	Data  []byte
}

// QuantsLen gives the bytes that n rows of cols columns take in groups.
func QuantsLen(n, cols, group int) int {
	return (n + group - 1) / group * group * blocksOf(cols) * recordBytes
}

// Tiles gives the number of groups.
func (q *Quants) Tiles() int { return (q.N + q.Group - 1) / q.Group }

func (q *Quants) tile(i int) []byte {
	size := q.Group * blocksOf(q.Cols) * recordBytes
	return q.Data[i*size : (i+1)*size]
}

// Row gives row i alone, where Group is 1.
func (q *Quants) Row(i int) Quants {
	return Quants{N: 1, Cols: q.Cols, Group: 1, Data: q.tile(i)}
}

// Quantise rounds x, of Cols elements, into row i.
func (k *Kernels) Quantise(q *Quants, i int, x []float32) {
	if len(x) != q.Cols || q.Cols%32 != 0 || i < 0 || i >= q.N {
		panic(fmt.Sprintf("simd: Quantise of %d elements into row %d of %d by %d", len(x), i, q.N, q.Cols))
	}
	t := q.tile(i / q.Group)
	if len(t) > 0 {
		k.p.Quant(ptr(x), ptr(t), len(x), q.Group|i%q.Group<<8)
	}
}

// QuantisePart rounds x into row i from column c on. It is whole pairs of blocks: 64 columns, or
// those up to the row's end.
func (k *Kernels) QuantisePart(q *Quants, i, c int, x []float32) {
	end := c + len(x)
	if c < 0 || c%64 != 0 || end > q.Cols || end%64 != 0 && end < q.Cols || q.Cols%32 != 0 || i < 0 || i >= q.N {
		panic(fmt.Sprintf("simd: QuantisePart of columns %d to %d into row %d of %d by %d", c, end, i, q.N, q.Cols))
	}
	if len(x) > 0 {
		k.p.Quant(ptr(x), ptr(q.tile(i / q.Group)[c/32*recordBytes*q.Group:]), len(x), q.Group|i%q.Group<<8)
	}
}

// Panels is a matrix packed by PackPanel, panel behind panel, or in compact panels (CompactPanels).
type Panels struct {
	Type        tensor.Type
	Rows, Cols  int
	Data        []byte
	modes, rest []byte // of compact panels
}

// Check reports why the kernels could not use m.
func (m *Panels) Check() error {
	if !Packable(m.Type) || m.Rows < 0 || m.Cols < 0 {
		return fmt.Errorf("panels of %s, %d by %d", m.Type, m.Rows, m.Cols)
	}
	if err := m.Type.CheckRow(m.Cols); err != nil {
		return err
	}
	if want := PanelCount(m.Rows) * m.PanelSize(); len(m.Data) < want {
		return fmt.Errorf("%d by %d in panels of %s take %d bytes, there are %d", m.Rows, m.Cols, m.Type, want, len(m.Data))
	}
	return nil
}

type panelKernel = func(w, x, y unsafe.Pointer, ldy, blocks, shape int)

// TailFloats is the scratch that products over panels need.
const TailFloats = 8 * PanelRows

// MulPanels computes y[j·ldy+n] = Σ_c m[n, c]·x[j, c] for the rows n of panels
// p0 … p1-1 and the rows j of the groups t0 … t1-1 of x, rounded to eight
// bits, and adds r[j·ldy+n] unless r is nil. m is of a block format; tail has TailFloats.
func (k *Kernels) MulPanels(y, r []float32, ldy int, m *Panels, p0, p1 int, x *Quants, t0, t1 int, tail []float32) {
	if x.Cols != m.Cols || p0 < 0 || p1 > PanelCount(m.Rows) || t0 < 0 || t1 > x.Tiles() || m.Rows > ldy && x.N > 1 ||
		x.N > 0 && (len(y) < (x.N-1)*ldy+m.Rows || r != nil && len(r) < (x.N-1)*ldy+m.Rows) {
		panic(fmt.Sprintf("simd: MulPanels of panels %d to %d of %d by %d with rows %d to %d of %d by %d into %d floats, "+
			"stride %d",
			p0, p1, m.Rows, m.Cols, t0*x.Group, t1*x.Group, x.N, x.Cols, len(y), ldy))
	}
	n0, n1 := p0*PanelRows, min(p1*PanelRows, m.Rows)
	if m.Cols == 0 {
		for j := t0 * x.Group; j < min(t1*x.Group, x.N); j++ {
			clear(y[j*ldy+n0 : j*ldy+n1])
			if r != nil {
				k.addRows(y, r, ldy, j, j+1, n0, n1)
			}
		}
		return
	}
	if k.w != nil && x.Group > 1 {
		k.mulWide(y, r, ldy, m, p0, p1, x, t0, t1, tail)
		return
	}
	mul, blocks := panelFormats[m.Type].kernel(k.p), blocksOf(m.Cols)
	full, size := min(p1, m.Rows/PanelRows), PanelBytes(m.Type, m.Cols)
	per := max(1, panelCallBytes/size)
	w := m.Data[:PanelCount(m.Rows)*size]
	wide := 0
	if x.Group > 1 {
		wide = 1 << 8
	} else {
		wide = int(k.far) << 9
	}
	for t := t0; t < t1; t++ {
		j := t * x.Group
		cols := min(x.Group, x.N-j)
		xp := ptr(x.tile(t))
		for p := p0; p < full; p += per {
			n := min(per, full-p)
			mul(ptr(w[p*size:]), xp, ptr(y[j*ldy+p*PanelRows:]), ldy, blocks, cols|wide|n<<16)
		}
		if full < p1 {
			mul(ptr(w[full*size:]), xp, ptr(tail[:TailFloats]), PanelRows, blocks, cols|wide|1<<16)
			for c := range cols {
				copy(y[(j+c)*ldy+full*PanelRows:(j+c)*ldy+m.Rows], tail[c*PanelRows:])
			}
		}
		if r != nil {
			k.addRows(y, r, ldy, j, j+cols, n0, n1)
		}
	}
}

// MatVecPanels computes y[n] = Σ_c m[n, c]·x[c] for the rows of panels p0 …
// p1-1 of a plain type. tail has TailFloats.
func (k *Kernels) MatVecPanels(y []float32, m *Panels, p0, p1 int, x, tail []float32) {
	if len(x) != m.Cols || p0 < 0 || p1 > PanelCount(m.Rows) || len(y) < m.Rows {
		panic(fmt.Sprintf("simd: MatVecPanels of panels %d to %d of %d by %d with %d activations into %d", p0, p1, m.Rows,
			m.Cols, len(x), len(y)))
	}
	k.MulFewPanels(y, m.Rows, m, p0, p1, x, m.Cols, 1, tail)
}

// RowsAlone is up to how many rows of activations products with panels of a block format take each for itself: of four
// bits, whose panels take the least to unpack, two do so sooner than the four at least that wide kernels compute.
func (k *Kernels) RowsAlone(t tensor.Type) int {
	if f := panelFormats[t]; k.w != nil && f != nil && f.planes == nibbles {
		return 2
	}
	return 1
}

// FewRows is how many rows of x a call of a kernel for few of them takes.
const FewRows = 4

// MulFewPanels computes y[j·ldy+i] = Σ_c m[i, c]·x[j·ldx+c] for the rows i of panels p0 … p1-1 of a plain type and
// n rows of x: what is loaded of a panel meets FewRows of them, or the one. tail has TailFloats.
func (k *Kernels) MulFewPanels(y []float32, ldy int, m *Panels, p0, p1 int, x []float32, ldx, n int, tail []float32) {
	if n < 1 || p0 < 0 || p1 > PanelCount(m.Rows) || len(x) < (n-1)*ldx+m.Cols || len(y) < (n-1)*ldy+m.Rows ||
		n > 1 && (ldx < m.Cols || ldy < m.Rows) {
		panic(fmt.Sprintf("simd: MulFewPanels of panels %d to %d of %d by %d with %d rows, %d floats %d apart into %d, %d "+
			"apart", p0, p1, m.Rows, m.Cols, n, len(x), ldx, len(y), ldy))
	}
	if m.Cols == 0 {
		for j := range n {
			clear(y[j*ldy+p0*PanelRows : j*ldy+min(p1*PanelRows, m.Rows)])
		}
		return
	}
	full, per := min(p1, m.Rows/PanelRows), max(1, panelCallBytes/m.PanelSize())
	if n > FewRows {
		per = 1 // which stays in the second-level cache for all rows
	}
	for p := p0; p < full; {
		run := m.alike(p, min(per, full-p))
		for j := 0; j < n; j += FewRows {
			k.fewPanels(y[j*ldy+p*PanelRows:], ldy, m, p, run, x[j*ldx:], ldx, min(FewRows, n-j), tail)
		}
		p += run
	}
	if full == p1 {
		return
	}
	part := tail[:FewRows*PanelRows]
	for j := 0; j < n; j += FewRows {
		rows := min(FewRows, n-j)
		k.fewPanels(part, PanelRows, m, full, 1, x[j*ldx:], ldx, rows, tail[len(part):])
		for i := range rows {
			copy(y[(j+i)*ldy+full*PanelRows:(j+i)*ldy+m.Rows], part[i*PanelRows:])
		}
	}
}

// alike says how many panels from p on, n at most, one kernel takes in a call.
func (m *Panels) alike(p, n int) int {
	if !m.Compact() {
		return n
	}
	run := 1
	for run < n && m.modes[p] == panelCompact && m.modes[p+run] == panelCompact {
		run++
	}
	return run
}

// fewPanels is MulFewPanels for panels p … p+run-1, which are alike, and at most FewRows rows, into y.
func (k *Kernels) fewPanels(y []float32, ldy int, m *Panels, p, run int, x []float32, ldx, n int, tail []float32) {
	if m.compactAt(p) {
		f := compactFormats[m.Type]
		if n == 1 {
			f.mul(k)(ptr(m.panel(p)), ptr(x), ptr(y), m.Cols, run<<2|int(k.far))
		} else {
			f.few(k)(ptr(m.panel(p)), ptr(x), ptr(y), m.Cols, ldx|ldy<<32, run<<5|n<<2|int(k.far))
		}
		return
	}
	if !m.Compact() {
		k.plainPanels(m.Type, m.panel(p), x, ldx, y, ldy, m.Cols, run, n)
		return
	}
	split, rest := m.split(), tail[:FewRows*PanelRows]
	k.plainPanels(m.Type, m.panel(p), x, ldx, y, ldy, split, 1, n)
	k.plainPanels(m.Type, m.over(p), x[split:], ldx, rest, PanelRows, m.Cols-split, 1, n)
	for j := range n {
		k.Add(y[j*ldy:][:PanelRows], y[j*ldy:][:PanelRows], rest[j*PanelRows:][:PanelRows])
	}
}

// plainPanels multiplies run plain panels of cols columns with n rows of x, FewRows at most.
func (k *Kernels) plainPanels(t tensor.Type, w []byte, x []float32, ldx int, y []float32, ldy, cols, run, n int) {
	if n == 1 {
		k.plainPanel(t)(ptr(w), ptr(x), ptr(y), cols, run<<2|int(k.far))
		return
	}
	few := k.k.FewF32
	switch t {
	case tensor.F16:
		few = k.k.FewF16
	case tensor.BF16:
		few = k.k.FewBF16
	}
	few(ptr(w), ptr(x), ptr(y), cols, ldx|ldy<<32, run<<5|n<<2|int(k.far))
}
