package simd

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// Kernels get bare addresses, so that a load or a store beyond an operand goes unseen
// wherever memory happens to be mapped. Here each operand lies against a page
// that nobody may touch: one byte too many is a fault, which the runtime reports with the
// kernel's name. With -v the last test named before it is the case's.

// fences is memory for the operands of one call, each in a place of its own between
// two pages without rights.
type fences struct {
	places [][]byte
	next   int
	end    bool // operands end where their places end, else they begin where these begin
}

const fencedBytes = 1 << 20 // of a place

var noise = bytes.Repeat([]byte{0xa5}, 16<<10)

func newFences(t *testing.T, places int) *fences {
	t.Helper()
	f := &fences{}
	page := unix.Getpagesize()
	for range places {
		m, err := unix.Mmap(-1, 0, fencedBytes+2*page, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(m) })
		place := m[page : page+fencedBytes]
		if err := unix.Mprotect(place, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			t.Fatal(err)
		}
		f.places = append(f.places, place)
	}
	return f
}

// scope gives back, at the end of a function that defers what it returns, the places that
// this has taken.
func (f *fences) scope() func() {
	next := f.next
	return func() { f.next = next }
}

// fenced gives an operand of n elements, which are not zeros.
func fenced[T byte | uint16 | float32](f *fences, n int) []T {
	place := f.places[f.next]
	f.next++
	var e T
	size := n * int(unsafe.Sizeof(e))
	b := place[:size]
	if f.end {
		b = place[fencedBytes-size:]
	}
	copy(b, noise) // of scratch a part will do
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func fencedCopy[T byte | uint16 | float32](f *fences, v []T) []T {
	b := fenced[T](f, len(v))
	copy(b, v)
	return b
}

// TestFencesAreSeen has the system read a byte beyond an operand, on each side.
func TestFencesAreSeen(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	f := newFences(t, 1)
	for _, f.end = range []bool{true, false} {
		f.next = 0
		b := fenced[byte](f, 3)
		first, beyond := ptr(b), 3
		if !f.end {
			beyond = -1
		}
		if _, err := unix.Write(pipe[1], b); err != nil {
			t.Errorf("the operand itself: %v", err)
		}
		if _, err := unix.Write(pipe[1], unsafe.Slice((*byte)(unsafe.Add(first, beyond)), 1)); !errors.Is(err, unix.EFAULT) {
			t.Errorf("byte %d of an operand of 3: error %v, want %v", beyond, err, unix.EFAULT)
		}
	}
}

// fencedRows are numbers of rows on either side of the panels' and tiles' sizes.
var fencedRows = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 47}

// fencedCols are numbers of columns that type t can have, with and without whole vectors and
// blocks; the last is more than products take at once.
func fencedCols(t tensor.Type) []int {
	switch block, _ := t.Block(); block {
	case 1:
		return []int{1, 2, 7, 8, 17, 31, 40, 65, 1030}
	case 32:
		return []int{32, 64, 96, 1056}
	default:
		return []int{block, 2 * block, 1280}
	}
}

// skips leaves out what takes long and shows little more.
func (p *factors) skips(k *Kernels, rows int) bool {
	return (k.Name == "go" || p.cols > 1024) && rows%16 != 1 && rows != 47 || k.Name == "go" && p.cols > 1024
}

// fencedBatches are numbers of rows of activations that weights of so many rows meet: of all of them three.
func fencedBatches(rows int) []int {
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 32, 33}
	return []int{all[rows%6], all[6+rows%6], all[12+rows%6]}
}

// factors are operands of products with their results, for any first rows of them.
type factors struct {
	typ       tensor.Type
	cols      int
	w         []byte    // rows as stored
	x         []float32 // rows of cols
	want, mag []float64 // of row j of x and row i of w at j·47 + i: Σ w·x and Σ |w·x|
}

// eachFactors runs f for each type and number of columns.
func eachFactors(t *testing.T, f func(t *testing.T, p *factors)) {
	const rows, n = 47, 33
	for _, typ := range panelTypes {
		t.Run(typ.String(), func(t *testing.T) {
			for _, cols := range fencedCols(typ) {
				r := newRand(20)
				p := &factors{typ: typ, cols: cols, w: anyRows(r, typ, rows, cols), x: randVector(r, n*cols, 0).v}
				w := make([]float32, rows*cols)
				if err := quant.Decode(typ, w, p.w); err != nil {
					t.Fatal(err)
				}
				for j := range n {
					for i := range rows {
						var sum, mag float64
						for c, x := range p.x[j*cols : (j+1)*cols] {
							v := float64(x) * float64(w[i*cols+c])
							sum, mag = sum+v, mag+math.Abs(v)
						}
						p.want, p.mag = append(p.want, sum), append(p.mag, mag)
					}
				}
				f(t, p)
			}
		})
	}
}

// check compares n rows of results, ldy apart.
func (p *factors) check(t *testing.T, what string, y []float32, ldy, n, rows int, tolerance float64) {
	t.Helper()
	for j := range n {
		for i := range rows {
			got, want, allowed := float64(y[j*ldy+i]), p.want[j*47+i], tolerance*(p.mag[j*47+i]+1e-3)
			if !(math.Abs(got-want) <= allowed) {
				t.Fatalf("%s of %s %dx%d, row %d times %d of %d: %g, want %g within %.3g", what, p.typ, rows, p.cols, i, j, n, got,
					want, allowed)
			}
		}
	}
}

// inEight is the tolerance of products whose activations are rounded to eight bits: half
// a step of the largest, which is some times their mean.
const inEight = 0.02

// TestFencedPanels multiplies panels between fences, by every kernel that takes them.
func TestFencedPanels(t *testing.T) {
	at, levels := newFences(t, 16), Levels()
	eachFactors(t, func(t *testing.T, p *factors) {
		for _, rows := range fencedRows {
			packed := packAll(t, p.typ, p.w[:rows*p.typ.RowBytes(p.cols)], rows, p.cols)
			for _, k := range levels {
				if p.skips(k, rows) || bytesOnly(k) && !RoundsActivations(p.typ) {
					continue
				}
				for _, at.end = range []bool{true, false} {
					at.next = 0
					m := *packed
					m.Data = fencedCopy(at, packed.Data)
					for _, n := range fencedBatches(rows) {
						p.panels(t, k, at, &m, n)
					}
				}
			}
		}
	})
}

// TestFencedCompact does so with compact panels, expands them, and compares results with plain panels' bits
// where products have those.
func TestFencedCompact(t *testing.T) {
	at := newFences(t, 16)
	forLevels(t, func(t *testing.T, k *Kernels) {
		for _, typ := range compactTypes {
			for _, cols := range compactCols(typ) {
				if !k.Compacts(typ, cols) {
					continue
				}
				r, n := newRand(9), 5
				const rows = 19
				src := patternRows(r, "gaussian", typ, rows, cols)
				src = append(src[:16*2*cols], patternRows(r, "random bits", typ, rows-16, cols)...)
				for i := 16 * 2 * cols; i < len(src); i += 2 {
					src[i+1] &^= 0x40 // a panel that is plain, of numbers
				}
				plain, packed := packAll(t, typ, src, rows, cols), packCompactAll(t, typ, src, rows, cols)
				if !bytes.Equal(packed.modes, []byte{panelCompact, panelPlain}) {
					t.Fatalf("%s, %d columns: modes %v", typ, cols, packed.modes)
				}
				x := randVector(r, n*cols, 0).v
				for _, at.end = range []bool{true, false} {
					at.next = 0
					m := *packed
					m.modes, m.rest = fencedCopy(at, packed.modes), fencedCopy(at, packed.rest)
					m.Data = fencedCopy(at, packed.Data)
					for _, far := range k.Fars() {
						done := at.scope()
						y, tail := fenced[float32](at, rows), fenced[float32](at, TailFloats)
						k.WithFar(far).MatVecPanels(y, &m, 0, 2, fencedCopy(at, x[:cols]), tail)
						done()
					}
					for p := range 2 {
						done := at.scope()
						b := fenced[byte](at, PanelBytes(typ, cols))
						k.Expand(b, &m, p, 0, cols)
						if !bytes.Equal(b, plain.panel(p)) {
							t.Fatalf("%s, %d columns: panel %d changed", typ, cols, p)
						}
						done()
					}
					want := make([]float32, n*rows)
					for _, f := range []*Panels{plain, &m} {
						done := at.scope()
						w := Matrix{Type: typ, Rows: rows, Cols: cols, Panels: f}
						xp := fenced[float32](at, k.PackedLen(n, cols))
						k.PackAll(xp, x, cols, n, cols)
						y := fenced[float32](at, n*rows)
						k.MulRows(y, rows, w, 0, rows, xp, n, fenced[float32](at, k.ScratchLen(w)), false)
						if f == plain {
							copy(want, y)
						} else if !slices.Equal(y, want) {
							t.Fatalf("%s, %d columns: products of rows differ", typ, cols)
						}
						done()
					}
				}
			}
		}
	})
}

// panels multiplies m with n rows of activations in every way that level k has.
func (p *factors) panels(t *testing.T, k *Kernels, at *fences, m *Panels, n int) {
	t.Helper()
	defer at.scope()()
	ldy, count := m.Rows+n%3, PanelCount(m.Rows)
	x := fencedCopy(at, p.x[:n*p.cols])
	result := func() []float32 { return fenced[float32](at, (n-1)*ldy+m.Rows) }
	if RoundsActivations(m.Type) {
		for _, group := range []int{1, 8} {
			q := &Quants{N: n, Cols: p.cols, Group: group, Data: fenced[byte](at, QuantsLen(n, p.cols, group))}
			for j := range n {
				done := at.scope()
				k.Quantise(q, j, fencedCopy(at, p.x[j*p.cols:(j+1)*p.cols]))
				done()
			}
			y := result()
			k.WithFar(k.Fars()[n%len(k.Fars())]).MulPanels(y, nil, ldy, m, 0, count, q, 0, q.Tiles(),
				fenced[float32](at, TailFloats))
			p.check(t, k.Name+" MulPanels", y, ldy, n, m.Rows, inEight)
		}
	} else {
		for j := range min(n, 2) {
			y := fenced[float32](at, m.Rows)
			k.WithFar(k.Fars()[(n+j)%len(k.Fars())]).MatVecPanels(y, m, 0, count, fencedCopy(at, p.x[j*p.cols:(j+1)*p.cols]),
				fenced[float32](at, TailFloats))
			(&factors{typ: p.typ, cols: p.cols, want: p.want[j*47:], mag: p.mag[j*47:]}).check(t, k.Name+" MatVecPanels", y, ldy,
				1, m.Rows, 2e-6)
		}
		y := fenced[float32](at, (n-1)*ldy+m.Rows)
		k.WithFar(k.Fars()[n%len(k.Fars())]).MulFewPanels(y, ldy, m, 0, count, fencedCopy(at, p.x[:n*p.cols]), p.cols, n,
			fenced[float32](at, TailFloats))
		p.check(t, k.Name+" MulFewPanels", y, ldy, n, m.Rows, 2e-6)
		w := Matrix{Type: m.Type, Rows: m.Rows, Cols: m.Cols, Panels: m}
		p.rows(t, k, at, w, n)
	}
	if m.Type == tensor.BF16 && k.HasBF16() {
		tiles := fenced[float32](at, BF16Tiles(n)*BF16TileFloats(p.cols))
		for i := range BF16Tiles(n) {
			k.PackBF16(tiles, x[i*BF16Rows*p.cols:], p.cols, n, p.cols, i)
		}
		y := result()
		k.MulBF16(y, fenced[float32](at, len(y)), ldy, m, 0, count, tiles, n, 0, BF16Tiles(n),
			fenced[float32](at, BF16TailFloats))
		p.check(t, k.Name+" MulBF16", y, ldy, n, m.Rows, 1.0/256)
	}
	if k.HasUnit() {
		s := &Split{N: n, Cols: p.cols, Parts: UnitParts(m.Type)}
		s.Data = fenced[float32](at, SplitLen(n, p.cols, s.Parts))
		for g := range s.Groups() {
			k.Put(s, x, p.cols, g)
		}
		y, tolerance := result(), 2e-6
		if s.Parts == 1 {
			tolerance = 1.0 / 256
		}
		k.MulUnit(y, ldy, m, 0, count, s, 0, n, fenced[float32](at, UnitScratch(m.Type)))
		p.check(t, k.Name+" MulUnit", y, ldy, n, m.Rows, tolerance)
	}
}

// rows multiplies w by the blocked algorithm, writing and adding.
func (p *factors) rows(t *testing.T, k *Kernels, at *fences, w Matrix, n int) {
	t.Helper()
	defer at.scope()()
	xp := fenced[float32](at, k.PackedLen(n, p.cols))
	k.PackAll(xp, fencedCopy(at, p.x[:n*p.cols]), p.cols, n, p.cols)
	ldy := w.Rows + n%3
	y, scratch := fenced[float32](at, (n-1)*ldy+w.Rows), fenced[float32](at, k.ScratchLen(w))
	k.MulRows(y, ldy, w, 0, w.Rows, xp, n, scratch, false)
	p.check(t, k.Name+" MulRows", y, ldy, n, w.Rows, 2e-6)
	clear(y)
	k.MulRows(y, ldy, w, 0, w.Rows, xp, n, scratch, true)
	p.check(t, k.Name+" MulRows that adds", y, ldy, n, w.Rows, 2e-6)
}

// TestFencedRows multiplies rows as stored, dense and with gaps, decodes them, and sums
// them as attention does.
func TestFencedRows(t *testing.T) {
	at, levels := newFences(t, 16), Levels()
	eachFactors(t, func(t *testing.T, p *factors) {
		if !Direct(p.typ) {
			return
		}
		row := p.typ.RowBytes(p.cols)
		for _, rows := range fencedRows {
			stride := row + rows%2*p.typ.RowBytes(1<<8)/4
			for _, k := range levels {
				if p.skips(k, rows) || bytesOnly(k) {
					continue
				}
				for _, at.end = range []bool{true, false} {
					at.next = 0
					m := Matrix{Type: p.typ, Rows: rows, Cols: p.cols, Stride: stride, Data: fenced[byte](at, (rows-1)*stride+row)}
					for i := range rows {
						copy(m.Data[i*stride:], p.w[i*row:(i+1)*row])
					}
					if err := m.Check(); err != nil {
						t.Fatal(err)
					}
					y := fenced[float32](at, rows)
					k.MatVec(y, m, 0, fencedCopy(at, p.x[:p.cols]), nil)
					p.check(t, k.Name+" MatVec", y, rows, 1, rows, 2e-6)
					p.rows(t, k, at, m, fencedBatches(rows)[rows%3])
					p.sums(t, k, at, m)
				}
			}
		}
	})
}

// TestFencedF8 decodes rows of float8, and sums them as attention does.
func TestFencedF8(t *testing.T) {
	at := newFences(t, 16)
	forVectors(t, func(t *testing.T, k *Kernels) {
		for _, cols := range []int{1, 15, 31, 32, 33, 64, 80, 128} {
			for _, rows := range []int{1, 2, 3, 4, 5, 9} {
				for _, at.end = range []bool{true, false} {
					at.next = 0
					r := newRand(22)
					p := &factors{typ: tensor.F8E4M3, cols: cols, w: make([]byte, rows*cols), x: randVector(r, cols, 0).v}
					p.want, p.mag = make([]float64, rows), make([]float64, rows)
					fillRow(r, p.typ, p.w)
					for i, v := range slowDecode(p.typ, p.w, rows*cols) {
						v *= float64(p.x[i%cols])
						p.want[i/cols] += v
						p.mag[i/cols] += math.Abs(v)
					}
					p.sums(t, k, at, Matrix{Type: p.typ, Rows: rows, Cols: cols, Data: fencedCopy(at, p.w)})
				}
			}
		}
	})
}

// sums decodes the rows of m and adds them up.
func (p *factors) sums(t *testing.T, k *Kernels, at *fences, m Matrix) {
	t.Helper()
	defer at.scope()()
	rows, want := make([]float32, m.Rows*p.cols), make([]float64, p.cols)
	weights := fenced[float32](at, m.Rows)
	for i := range weights {
		weights[i] = float32(i%7) - 2.5
	}
	for i := range m.Rows {
		exact := rows[i*p.cols : (i+1)*p.cols]
		if err := quant.Decode(p.typ, exact, m.row(i)); err != nil {
			t.Fatal(err)
		}
		done := at.scope()
		got := fenced[float32](at, p.cols)
		k.Decode(p.typ, got, m.row(i))
		done()
		for c, v := range exact {
			if d := math.Abs(float64(got[c]) - float64(v)); !(d <= 2e-6*(math.Abs(float64(v))+1e-2)) {
				t.Fatalf("%s: Decode of %s gives %g, want %g", k.Name, p.typ, got[c], v)
			}
			want[c] += float64(weights[i]) * float64(v)
		}
	}
	if p.typ != tensor.Q8_0 && p.typ != tensor.F8E4M3 && !plainPanel(p.typ) {
		return
	}
	y := fenced[float32](at, p.cols)
	if plainPanel(p.typ) {
		clear(y)
		k.WeightedSum(y, m, 0, weights)
		for c := range y {
			near(t, k.Name+" WeightedSum of "+p.typ.String(), y[c], want[c], 100, 2e-6)
		}
	}
	for _, share := range []int{1, 7} { // heads alike
		defer at.scope()()
		heads := Heads{D: p.cols, Share: share}
		y, x, all := fenced[float32](at, share*p.cols), fenced[float32](at, share*p.cols), fenced[float32](at, share*m.Rows)
		clear(y)
		for h := range share {
			copy(x[h*p.cols:], p.x[:p.cols])
			copy(all[h*m.Rows:], weights)
		}
		k.HeadWeightedSum(y, m, 0, m.Rows, heads, all, m.Rows)
		for c := range y {
			near(t, k.Name+" HeadWeightedSum of "+p.typ.String(), y[c], want[c%p.cols], 100, 2e-6)
		}
		k.HeadMatVec(all, m.Rows, m, 0, m.Rows, heads, x)
		for h := range share {
			p.check(t, k.Name+" HeadMatVec", all[h*m.Rows:][:m.Rows], m.Rows, 1, m.Rows, 2e-6)
		}
	}
}

// TestFencedVectors runs the kernels on vectors between fences and compares them with Go's.
func TestFencedVectors(t *testing.T) {
	at := newFences(t, 8)
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(21)
		for n := range 71 {
			a, b := randVector(r, n, 0).v, randVector(r, n, 0).v
			for _, at.end = range []bool{true, false} {
				for name, f := range map[string]func(k *Kernels, y, a, b []float32) float32{
					"Dot":        func(k *Kernels, y, a, b []float32) float32 { return k.Dot(a, b) },
					"Max":        func(k *Kernels, y, a, b []float32) float32 { return max(-9, k.Max(a)) },
					"Add":        func(k *Kernels, y, a, b []float32) float32 { k.Add(y, a, b); return 0 },
					"Mul":        func(k *Kernels, y, a, b []float32) float32 { k.Mul(y, a, b); return 0 },
					"SiLU":       func(k *Kernels, y, a, b []float32) float32 { k.SiLU(y, a, nil); return 0 },
					"SiLU·":      func(k *Kernels, y, a, b []float32) float32 { k.SiLU(y, a, b); return 0 },
					"GELUTanh":   func(k *Kernels, y, a, b []float32) float32 { k.GELUTanh(y, a, nil); return 0 },
					"GELUTanh·":  func(k *Kernels, y, a, b []float32) float32 { k.GELUTanh(y, a, b); return 0 },
					"GELUErf":    func(k *Kernels, y, a, b []float32) float32 { k.GELUErf(y, a, nil); return 0 },
					"GELUErf·":   func(k *Kernels, y, a, b []float32) float32 { k.GELUErf(y, a, b); return 0 },
					"Scale":      func(k *Kernels, y, a, b []float32) float32 { k.Scale(y, 3, a); return 0 },
					"Axpy":       func(k *Kernels, y, a, b []float32) float32 { copy(y, b); k.Axpy(y, 3, a); return 0 },
					"ScaleMul":   func(k *Kernels, y, a, b []float32) float32 { k.ScaleMul(y, 3, a, b); return 0 },
					"Exp":        func(k *Kernels, y, a, b []float32) float32 { k.Exp(y, a); return 0 },
					"ExpSum":     func(k *Kernels, y, a, b []float32) float32 { return k.ExpSum(y, a, 4) },
					"EncodeF16":  func(k *Kernels, y, a, b []float32) float32 { return there(k, at, y, a, tensor.F16) },
					"EncodeBF16": func(k *Kernels, y, a, b []float32) float32 { return there(k, at, y, a, tensor.BF16) },
				} {
					at.next = 0
					y, want := fenced[float32](at, n), fenced[float32](at, n)
					got, all := f(k, y, fencedCopy(at, a), fencedCopy(at, b)), f(&goLevel, want, a, b)
					near(t, fmt.Sprintf("%s of %d", name, n), got, float64(all), float64(n)*9, 2e-6)
					for i := range y {
						if d := math.Abs(float64(y[i]) - float64(want[i])); !(d <= 2e-6*(9+math.Abs(float64(want[i])))) && d > 0 {
							t.Fatalf("%s, element %d of %d: %g, want %g", name, i, n, y[i], want[i])
						}
					}
				}
				at.next = 0
				zeros := fenced[byte](at, 64*n+n)
				clear(zeros)
				for _, streams := range ReadStreams {
					if sum := k.Read(zeros, streams); sum != 0 {
						t.Fatalf("Read of %d zeros in %d streams gives %g", len(zeros), streams, sum)
					}
				}
			}
		}
	})
}

// there rounds a to sixteen bits and widens it again into y.
func there(k *Kernels, at *fences, y, a []float32, t tensor.Type) float32 {
	h := fenced[uint16](at, len(a))
	if t == tensor.F16 {
		k.EncodeF16(h, a)
	} else {
		k.EncodeBF16(h, a)
	}
	k.Decode(t, y, tensor.Bytes(h))
	return 0
}
