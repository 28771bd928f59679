package simd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

var panelTypes = []tensor.Type{
	tensor.Q8_0, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.IQ4_NL,
	tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.Q2_K, tensor.Q3_K,
	tensor.F32, tensor.F16, tensor.BF16,
}

// anyRows gives rows of random codes with scales of size one hundredth, so that every
// code and every sign of a scale turns up.
func anyRows(r *rand.Rand, t tensor.Type, rows, cols int) []byte {
	data := make([]byte, rows*t.RowBytes(cols))
	elems, size := t.Block()
	for b := 0; b < len(data); b += size {
		p := data[b : b+size]
		if elems == 1 {
			if err := quant.Encode(t, p, []float32{float32(r.NormFloat64())}, 1); err != nil {
				panic(err)
			}
			continue
		}
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		half := func(at int) {
			binary.LittleEndian.PutUint16(p[at:], tensor.F32ToF16(float32(r.NormFloat64()/100)))
		}
		at, super := superLayouts[t]
		half(at.d)
		switch {
		case super && at.m >= 0:
			half(at.m)
		case !super && panelFormats[t].affine:
			half(2)
		}
	}
	return data
}

// packAll packs a matrix into memory whose other bytes would be seen.
func packAll(t *testing.T, typ tensor.Type, src []byte, rows, cols int) *Panels {
	t.Helper()
	size := PanelBytes(typ, cols)
	m := &Panels{Type: typ, Rows: rows, Cols: cols, Data: make([]byte, PanelCount(rows)*size)}
	for i := range m.Data {
		m.Data[i] = 0xff
	}
	row := typ.RowBytes(cols)
	for p := range PanelCount(rows) {
		if err := PackPanel(m.Data[p*size:(p+1)*size], src[p*PanelRows*row:min((p+1)*PanelRows, rows)*row], typ,
			cols); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	return m
}

// codeAt says where a record has the code of column c of row j.
func (q *Quants) codeAt(k *Kernels, j, c int) int {
	if k.PairsRows() && q.Group > 1 {
		return 64*(j/2) + 16*(c/8) + 8*(j%2) + c%8
	}
	return 32*j + c
}

// rounded gives x as level k rounded it to eight bits.
func (q *Quants) rounded(k *Kernels, row int) []float64 {
	out := make([]float64, q.Cols)
	t, j := q.tile(row/q.Group), row%q.Group
	for i := range out {
		rec := t[i/32*q.Group*recordBytes:]
		out[i] = float64(int8(rec[q.codeAt(k, j, i%32)])) * float64(*(*float32)(unsafe.Pointer(&rec[32*q.Group+4*j])))
	}
	return out
}

// plain gives the records with the codes of each row together, as most levels have them.
func (q *Quants) plain(k *Kernels) string {
	out, size := bytes.Clone(q.Data), q.Group*recordBytes
	for at := 0; at < len(out); at += size {
		for i := range 32 * q.Group {
			out[at+i] = q.Data[at+q.codeAt(k, i/32, i%32)]
		}
	}
	return string(out)
}

// TestPanels compares products over panels, of every packable type, with
// float64 ones over the rows that quant decodes.
func TestPanels(t *testing.T) {
	forLevels(t, func(t *testing.T, k *Kernels) {
		for _, typ := range panelTypes {
			r := newRand(5)
			block, _ := typ.Block()
			for _, n := range []int{1, 2, 4, 5, 8, 11, 19} {
				for _, rows := range []int{1, 15, 16, 17, 51} {
					cols := max(block, 1) * (1 + (n+rows)%4)
					if block == 1 {
						cols = 1 + (37*n+rows)%70
					}
					src := anyRows(r, typ, rows, cols)
					w := make([]float32, rows*cols)
					if err := quant.Decode(typ, w, src); err != nil {
						t.Fatal(err)
					}
					m := packAll(t, typ, src, rows, cols)
					testPanels(t, k, r, m, w, n)
				}
			}
		}
	})
}

// testFew holds the product of few rows against y, which has that of each alone, and writes it there.
func testFew(t *testing.T, k *Kernels, m *Panels, y []float32, ldy int, x []float32, n int) {
	t.Helper()
	alone, apart, mid := slices.Clone(y), m.Cols+5, PanelCount(m.Rows)/2
	rows, tail := newBanded((n-1)*apart+m.Cols, 2), make([]float32, TailFloats)
	for j := range n {
		copy(rows.v[j*apart:][:m.Cols], x[j*m.Cols:])
	}
	k.MulFewPanels(y, ldy, m, mid, PanelCount(m.Rows), rows.v, apart, n, tail)
	k.MulFewPanels(y, ldy, m, 0, mid, rows.v, apart, n, tail)
	for i, v := range y {
		if k.Name == "avx512" && math.Float32bits(v) != math.Float32bits(alone[i]) {
			t.Fatalf("%s of %s: result %d of %d rows is %g, of one %g", k.Name, m.Type, i, n, v, alone[i])
		}
	}
}

func testPanels(t *testing.T, k *Kernels, r *rand.Rand, m *Panels, w []float32, n int) {
	t.Helper()
	ldy := m.Rows + 3
	x := randVector(r, n*m.Cols, 0).v
	y := newBanded((n-1)*ldy+m.Rows, 1)
	tail := make([]float32, TailFloats)
	xr := make([][]float64, n)
	group := 8
	if n == 1 || n == 2 {
		group = 1
	}
	if RoundsActivations(m.Type) {
		q := &Quants{N: n, Cols: m.Cols, Group: group, Data: make([]byte, QuantsLen(n, m.Cols, group))}
		for j := range n {
			k.Quantise(q, j, x[j*m.Cols:(j+1)*m.Cols])
			xr[j] = q.rounded(k, j)
			for i, v := range xr[j] {
				if d := math.Abs(v - float64(x[j*m.Cols+i])); d > 0.02 {
					t.Fatalf("%g rounds to %g", x[j*m.Cols+i], v)
				}
			}
		}
		mid := PanelCount(m.Rows) / 2
		k.MulPanels(y.v, nil, ldy, m, mid, PanelCount(m.Rows), q, 0, q.Tiles(), tail)
		k.MulPanels(y.v, nil, ldy, m, 0, mid, q, 0, q.Tiles(), tail)
		testAdded(t, k, r, m, q, y.v, ldy, tail)
	} else {
		for j := range n {
			xr[j] = make([]float64, m.Cols)
			for i := range xr[j] {
				xr[j][i] = float64(x[j*m.Cols+i])
			}
			k.MatVecPanels(y.v[j*ldy:], m, 0, PanelCount(m.Rows), x[j*m.Cols:(j+1)*m.Cols], tail)
		}
		testFew(t, k, m, y.v, ldy, x, n)
	}
	y.check(t, m.Type.String())
	for j := range n {
		for i := range m.Rows {
			var want, mag float64
			for c := range m.Cols {
				p := float64(w[i*m.Cols+c]) * xr[j][c]
				want += p
				mag += math.Abs(p)
			}
			near(t, fmt.Sprintf("%s %dx%d, row %d times %d of %d", m.Type, m.Rows, m.Cols, i, j, n), y.v[j*ldy+i], want,
				mag+1e-3, 3e-6)
		}
		if j+1 < n {
			for _, v := range y.v[j*ldy+m.Rows : (j+1)*ldy] {
				if v != guard {
					t.Fatalf("%s: wrote %v behind row %d", m.Type, v, j)
				}
			}
		}
	}
}

// testAdded checks that MulPanels adds to its products, y, what it is told to, and nothing besides.
func testAdded(t *testing.T, k *Kernels, r *rand.Rand, m *Panels, q *Quants, y []float32, ldy int, tail []float32) {
	t.Helper()
	add := randVector(r, len(y), 0).v
	sum := newBanded(len(y), 1)
	k.MulPanels(sum.v, add, ldy, m, 0, PanelCount(m.Rows), q, 0, q.Tiles(), tail)
	sum.check(t, m.Type.String())
	for j := range q.N {
		for i := range m.Rows {
			if at := j*ldy + i; sum.v[at] != y[at]+add[at] {
				t.Fatalf("%s %dx%d, row %d times %d of %d: %g with %g added, %g without", m.Type, m.Rows, m.Cols, i, j, q.N,
					sum.v[at], add[at], y[at])
			}
		}
	}
}

// TestSameBits: compiled levels give the same bits where kernels of panel.c multiply, since sums of
// bytes are exact and they are scaled in the same order. The level in Go has no fused multiply-adds.
func TestSameBits(t *testing.T) {
	levels := Levels()
	levels = levels[:len(levels)-1]
	for _, typ := range panelTypes {
		if !RoundsActivations(typ) {
			continue
		}
		r := newRand(31)
		block, _ := typ.Block()
		for _, s := range []struct{ n, rows, cols int }{
			{1, 33, 3}, {2, 16, 1}, {3, 17, 2}, {4, 16, 5}, {5, 1, 1}, {6, 20, 3}, {7, 31, 1}, {8, 48, 4}, {9, 15, 7},
			{29, 40, 6},
		} {
			cols := s.cols * block
			m := packAll(t, typ, anyRows(r, typ, s.rows, cols), s.rows, cols)
			x, tail := randVector(r, s.n*cols, 0).v, make([]float32, TailFloats)
			for i := range x {
				x[i] *= float32(i%7) * 1000 // rows and blocks of different sizes, and some of large numbers
			}
			for _, group := range []int{1, 8} {
				var first []float32
				for _, k := range levels {
					if k.w != nil && group > 1 {
						continue
					}
					q := &Quants{N: s.n, Cols: cols, Group: group, Data: make([]byte, QuantsLen(s.n, cols, group))}
					for j := range s.n {
						k.Quantise(q, j, x[j*cols:(j+1)*cols])
					}
					y := make([]float32, s.n*s.rows)
					k.MulPanels(y, nil, s.rows, m, 0, PanelCount(s.rows), q, 0, q.Tiles(), tail)
					if first == nil {
						first = y
					} else if !bytes.Equal(tensor.Bytes(first), tensor.Bytes(y)) {
						t.Errorf("%s, %d rows of activations in groups of %d, %d by %d: %s and %s give other bits", typ, s.n, group,
							s.rows, cols, levels[0].Name, k.Name)
					}
				}
			}
		}
	}
}

// TestQuantise checks that all levels round to the same bytes, and what
// becomes of zeros, tiny and infinite values.
func TestQuantise(t *testing.T) {
	r := newRand(6)
	x := randVector(r, 9*96, 0).v
	clear(x[96:128])
	for i := range 32 {
		x[128+i] = 1e-38 * float32(i)
		x[160+i] = 1e30 * float32(i-16)
	}
	x[200] = float32(math.Inf(-1))
	x[300] = float32(math.NaN())
	for _, group := range []int{1, 8} {
		var first string
		forLevels(t, func(t *testing.T, k *Kernels) {
			q := &Quants{N: 9, Cols: 96, Group: group, Data: make([]byte, QuantsLen(9, 96, group))}
			for j := range 9 {
				k.Quantise(q, j, x[j*96:(j+1)*96])
			}
			row := q.rounded(k, 2)
			if !math.IsNaN(row[8]) || math.IsNaN(row[40]) || !math.IsNaN(q.rounded(k, 3)[12]) {
				t.Errorf("an infinity and a NaN must give NaNs in their blocks")
			}
			if v := q.rounded(k, 1)[0]; v != 0 {
				t.Errorf("zeros round to %g", v)
			}
			// Blocks without NaN; those hold whatever a conversion of NaN gives.
			clear(q.tile(2 / group)[:])
			clear(q.tile(3 / group)[:])
			if data := q.plain(k); first == "" {
				first = data
			} else if first != data {
				t.Errorf("group %d: other bytes than at the first level", group)
			}
		})
	}
}

func TestPanelErrors(t *testing.T) {
	for _, c := range []struct {
		t        tensor.Type
		dst, src int
		cols     int
	}{
		{tensor.IQ4_XS, 4096, 136, 256},
		{tensor.Q4_0, 575, 18, 32},
		{tensor.Q4_0, 576, 19, 32},
		{tensor.Q4_0, 576, 17 * 18, 32},
		{tensor.Q4_0, 576, 18, 33},
	} {
		if err := PackPanel(make([]byte, c.dst), make([]byte, c.src), c.t, c.cols); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	m := &Panels{Type: tensor.F16, Rows: 17, Cols: 3, Data: make([]byte, 191)}
	if m.Check() == nil {
		t.Error("panels shorter than their size pass the check")
	}
}

// TestBF16 compares products of bf16 with float64 ones over rounded activations.
func TestBF16(t *testing.T) {
	forLevels(t, func(t *testing.T, k *Kernels) {
		if !k.HasBF16() {
			t.Skip("no dot products of bf16")
		}
		r := newRand(8)
		for _, cols := range []int{0, 1, 2, 15, 16, 17, 31, 32, 33, 64, 129} {
			for _, n := range []int{1, 6, 7, 12, 13, 26} {
				for _, rows := range []int{1, 16, 31, 33, 64, 75} {
					ldx, ldy := cols+n%3, rows+n%5
					src := anyRows(r, tensor.BF16, rows, cols)
					w := make([]float32, rows*cols)
					if err := quant.Decode(tensor.BF16, w, src); err != nil {
						t.Fatal(err)
					}
					m := packAll(t, tensor.BF16, src, rows, cols)
					x, y := randVector(r, (n-1)*ldx+cols, 0), newBanded((n-1)*ldy+rows, 3)
					xp := newBanded(BF16Tiles(n)*BF16TileFloats(cols), 0)
					for i := range BF16Tiles(n) {
						k.PackBF16(xp.v, x.v[i*BF16Rows*ldx:], ldx, n, cols, i)
					}
					xp.check(t, "PackBF16")
					mid := PanelCount(rows) / 2
					var add []float32 // what products are added to, in every second case
					if (cols+n+rows)%2 > 0 {
						add = randVector(r, (n-1)*ldy+rows, 0).v
					}
					for _, p := range [][2]int{{mid, PanelCount(rows)}, {0, mid}} {
						k.MulBF16(y.v, add, ldy, m, p[0], p[1], xp.v, n, 0, BF16Tiles(n), make([]float32, BF16TailFloats))
					}
					y.check(t, "MulBF16")
					for j := range n {
						for i := range rows {
							var want, mag float64
							for c := range cols {
								p := float64(w[i*cols+c]) * float64(tensor.BF16ToF32(tensor.F32ToBF16(x.v[j*ldx+c])))
								want += p
								mag += math.Abs(p)
							}
							if add != nil {
								want += float64(add[j*ldy+i])
								mag += math.Abs(want)
							}
							near(t, fmt.Sprintf("%dx%d, row %d times %d of %d", rows, cols, i, j, n), y.v[j*ldy+i], want, mag, 2e-6)
						}
					}
				}
			}
		}
	})
}

// TestFar: asking for weights ahead changes no result.
func TestFar(t *testing.T) {
	forLevels(t, func(t *testing.T, k *Kernels) {
		const rows, cols = 75, 512
		for _, typ := range panelTypes {
			r := newRand(12)
			m := packAll(t, typ, anyRows(r, typ, rows, cols), rows, cols)
			x, tail := randVector(r, cols, 0).v, make([]float32, TailFloats)
			y := make([][rows]float32, len(k.Fars()))
			for i, far := range k.Fars() {
				k := k.WithFar(far)
				if k.Far() != far {
					t.Fatal("WithFar changes nothing")
				}
				if RoundsActivations(typ) {
					q := &Quants{N: 1, Cols: cols, Group: 1, Data: make([]byte, QuantsLen(1, cols, 1))}
					k.Quantise(q, 0, x)
					k.MulPanels(y[i][:], nil, rows, m, 0, PanelCount(rows), q, 0, 1, tail)
				} else {
					k.MatVecPanels(y[i][:], m, 0, PanelCount(rows), x, tail)
				}
			}
			for i, far := range k.Fars() {
				if y[i] != y[0] || y[0] == [rows]float32{} {
					t.Errorf("%s: other results with far=%s", typ, far)
				}
			}
		}
	})
}
