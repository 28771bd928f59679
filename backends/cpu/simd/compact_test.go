package simd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// compactTypes are those that have compact panels.
var compactTypes = []tensor.Type{tensor.BF16, tensor.F16}

// compactCols gives columns of which a type has compact panels: the fewest, one piece, several, such that its
// panels are filled up to whole lines, and more than one segment of exceptions.
func compactCols(t tensor.Type) []int {
	all := []int{64, 256, 272, 1024 + 16, 2048 + 8, 4096 + 64, 8192 + 256}
	return slices.DeleteFunc(all, func(cols int) bool { return !compactFormats[t].fits(cols) })
}

// patterns make rows of bits of every kind, by name.
var patterns = map[string]func(r *rand.Rand, i int, t tensor.Type) uint16{
	"gaussian": func(r *rand.Rand, _ int, t tensor.Type) uint16 {
		var b [2]byte
		if err := quant.Encode(t, b[:], []float32{float32(r.NormFloat64() / 50)}, 1); err != nil {
			panic(err)
		}
		return binary.LittleEndian.Uint16(b[:])
	},
	"zeros":       func(*rand.Rand, int, tensor.Type) uint16 { return 0 },
	"signs":       func(_ *rand.Rand, i int, _ tensor.Type) uint16 { return uint16(i%3%2) << 15 },
	"random bits": func(r *rand.Rand, _ int, _ tensor.Type) uint16 { return uint16(r.Uint32()) },
	"every bits":  func(_ *rand.Rand, i int, _ tensor.Type) uint16 { return uint16(i) },
	"tiny":        func(r *rand.Rand, _ int, _ tensor.Type) uint16 { return uint16(r.Uint32()) & 0x83ff },
	"not numbers": func(r *rand.Rand, i int, t tensor.Type) uint16 {
		if i%997 == 5 {
			return 0x7f80 | uint16(r.Uint32())&0x807f | uint16(i/997%2)*0x7c00
		}
		return 0x3c00 | uint16(r.Uint32())&0x80ff
	},
	"one rare in each panel": func(_ *rand.Rand, i int, _ tensor.Type) uint16 {
		if i%1021 == 0 {
			return uint16(i) * 40503
		}
		return 0x3c12
	},
}

// packCompactAll packs a matrix into compact panels whose other bytes would be seen.
func packCompactAll(t *testing.T, typ tensor.Type, src []byte, rows, cols int) *Panels {
	t.Helper()
	data := bytes.Repeat([]byte{0xff}, CompactBytes(typ, rows, cols))
	m, err := CompactPanels(typ, rows, cols, data)
	if err != nil {
		t.Fatal(err)
	}
	row, scratch := typ.RowBytes(cols), make([]byte, PanelBytes(typ, cols))
	for p := range PanelCount(rows) {
		if err := m.PackCompact(p, src[p*PanelRows*row:min((p+1)*PanelRows, rows)*row], scratch); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	return m
}

// patternRows gives rows by a pattern.
func patternRows(r *rand.Rand, name string, t tensor.Type, rows, cols int) []byte {
	src := make([]byte, 0, 2*rows*cols)
	for i := range rows * cols {
		src = binary.LittleEndian.AppendUint16(src, patterns[name](r, i, t))
	}
	return src
}

// TestCompactKeepsBits packs what weights may be and more, and expands it: whole panels and parts, by
// every level's kernels and in Go.
func TestCompactKeepsBits(t *testing.T) {
	levels := append(Levels(), &Kernels{Name: "none"})
	for _, typ := range compactTypes {
		compact, plain := 0, 0
		for name := range patterns {
			r := newRand(41)
			for _, cols := range compactCols(typ) {
				for _, rows := range []int{1, 16, 19} {
					src := patternRows(r, name, typ, rows, cols)
					want := packAll(t, typ, src, rows, cols)
					m := packCompactAll(t, typ, src, rows, cols)
					for p := range PanelCount(rows) {
						if m.modes[p] == panelCompact {
							compact++
						} else {
							plain++
						}
						for _, k := range levels {
							if k.Name != "none" && !k.Compacts(typ, cols) {
								continue
							}
							for _, part := range [][2]int{{0, cols}, {cols / 512 * 256, cols}, {0, min(256, cols)}} {
								from, to := PanelBytes(typ, part[0]), PanelBytes(typ, part[1])
								got := bytes.Repeat([]byte{0xaa}, to-from+1)
								k.Expand(got[:to-from], m, p, part[0], part[1]-part[0])
								if !bytes.Equal(got[:to-from], want.panel(p)[from:to]) || got[to-from] != 0xaa {
									t.Fatalf("%s of %s, %d by %d, %s: columns %v of panel %d changed", name, typ, rows, cols, k.Name, part, p)
								}
							}
						}
					}
				}
			}
		}
		if compact == 0 || plain == 0 {
			t.Errorf("%s: %d panels were compact, %d plain: both are wanted", typ, compact, plain)
		}
	}
}

// TestCompactSizes: weights of a normal distribution are compact, with exceptions, and take what is said.
func TestCompactSizes(t *testing.T) {
	const rows, cols = 64, 4096
	for _, typ := range compactTypes {
		m := packCompactAll(t, typ, patternRows(newRand(3), "gaussian", typ, rows, cols), rows, cols)
		if slices.Contains(m.modes, panelPlain) {
			t.Errorf("%s: modes %v", typ, m.modes)
		}
		if got, most := m.ReadBytes(), map[tensor.Type]int{tensor.BF16: 24,
			tensor.F16: 29}[typ]*rows*cols/16+rows/PanelRows*(compactFormats[typ].ends+64); got > most {
			t.Errorf("%s: %d bytes are read, want %d at most", typ, got, most)
		}
		n := binary.LittleEndian.Uint32(m.Data[compactFormats[typ].ends:])
		if n == 0 || n > 100 {
			t.Errorf("%s: %d exceptions in 65536 weights", typ, n)
		}
	}
}

// TestCompactProducts compares products over compact panels, some of them plain and some with
// exceptions, with float64 ones, and those of many rows with plain panels' bits.
func TestCompactProducts(t *testing.T) {
	forLevels(t, func(t *testing.T, k *Kernels) {
		for _, typ := range compactTypes {
			if !k.Compacts(typ, 256) {
				continue
			}
			r := newRand(42)
			for i, cols := range compactCols(typ) {
				for _, rows := range []int{1, 16, 51, 80} {
					var src []byte
					for p := range PanelCount(rows) {
						name := []string{"gaussian", "rough", "gaussian", "gaussian", "rough"}[(p+i)%5]
						n := min(PanelRows, rows-p*PanelRows)
						if name == "gaussian" {
							src = append(src, patternRows(r, name, typ, n, cols)...)
							continue
						}
						for range n * cols { // of every size
							v := float32(math.Ldexp(r.NormFloat64(), r.IntN(40)-38))
							var b [2]byte
							if err := quant.Encode(typ, b[:], []float32{v}, 1); err != nil {
								t.Fatal(err)
							}
							src = append(src, b[:]...)
						}
					}
					w := make([]float32, rows*cols)
					if err := quant.Decode(typ, w, src); err != nil {
						t.Fatal(err)
					}
					m, plain := packCompactAll(t, typ, src, rows, cols), packAll(t, typ, src, rows, cols)
					var first []float32
					x := randVector(r, cols, 0).v
					for i, far := range k.Fars() {
						testPanels(t, k.WithFar(far), r, m, w, 2)
						y := make([]float32, rows)
						k.WithFar(far).MatVecPanels(y, m, 0, PanelCount(rows), x, make([]float32, TailFloats))
						if i == 0 {
							first = y
						} else if !slices.Equal(y, first) {
							t.Errorf("%s, %d by %d: far=%s gives other bits than far=%s", typ, rows, cols, far, k.Fars()[0])
						}
					}
					part := m.Part(PanelCount(rows)/2, PanelCount(rows))
					testPanels(t, k, r, &part, w[PanelCount(rows)/2*PanelRows*cols:], 1)
					testSameRows(t, k, r, m, plain)
					if typ == tensor.BF16 && k.HasBF16() {
						for _, n := range []int{1, 5, 12, 30} {
							testCompactBF16(t, k, r, m, plain, n)
						}
					}
				}
			}
		}
	})
}

// testSameRows compares products in f32 of several rows of activations with two forms of a matrix.
func testSameRows(t *testing.T, k *Kernels, r *rand.Rand, a, b *Panels) {
	t.Helper()
	const n = 13
	x, y := randVector(r, n*a.Cols, 0).v, [2][]float32{}
	xp := make([]float32, k.PackedLen(n, a.Cols))
	k.PackAll(xp, x, a.Cols, n, a.Cols)
	for i, m := range []*Panels{a, b} {
		w := Matrix{Type: m.Type, Rows: m.Rows, Cols: m.Cols, Panels: m}
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		scratch := newBanded(k.ScratchLen(w), 0)
		y[i] = make([]float32, n*m.Rows)
		k.MulRows(y[i], m.Rows, w, 0, m.Rows, xp, n, scratch.v, false)
		scratch.check(t, "MulRows")
	}
	if !slices.Equal(y[0], y[1]) {
		t.Errorf("%s, %d by %d: products differ", a.Type, a.Rows, a.Cols)
	}
}

// testCompactBF16 compares products of bf16 with the first tile over compact panels, with those over plain ones,
// which it must leave in their memory.
func testCompactBF16(t *testing.T, k *Kernels, r *rand.Rand, m, plain *Panels, n int) {
	t.Helper()
	cols, ldy, count := m.Cols, m.Rows+n%3, PanelCount(m.Rows)
	x, add := randVector(r, n*cols, 0).v, randVector(r, (n-1)*ldy+m.Rows, 0).v
	if n%2 > 0 {
		add = nil
	}
	xp := make([]float32, BF16Tiles(n)*BF16TileFloats(cols))
	for i := range BF16Tiles(n) {
		k.PackBF16(xp, x[i*BF16Rows*cols:], cols, n, cols, i)
	}
	tail, want := make([]float32, BF16TailFloats), make([]float32, (n-1)*ldy+m.Rows)
	k.MulBF16(want, add, ldy, plain, 0, count, xp, n, 0, BF16Tiles(n), tail)
	y, mid := newBanded(len(want), 1), count/2
	for _, p := range [][2]int{{mid, count}, {0, mid}} {
		for i := range BF16Tiles(n) {
			keep, size := i%2 == 0, PanelBytes(m.Type, cols)
			room := newBanded((p[1]-p[0])*size/4, 2)
			to := Panels{Data: tensor.Bytes(room.v)}
			mul := func() { k.MulCompactBF16(y.v, add, ldy, m, p[0], p[1], xp, n, i, tail, &to, keep) }
			mul()
			if got := testing.AllocsPerRun(10, mul); got != 0 {
				t.Errorf("MulCompactBF16 allocates %v times", got)
			}
			room.check(t, "MulCompactBF16's room")
			if keep && !bytes.Equal(to.Data, plain.Data[p[0]*size:p[1]*size]) {
				t.Fatalf("%d by %d, %d rows: panels %v are not those that were packed", m.Rows, cols, n, p)
			}
			if rows := min(p[1]*PanelRows, m.Rows) - p[0]*PanelRows; keep && (to.Rows != rows || to.Type != m.Type) {
				t.Fatalf("%s with %d rows, want %d", to.Type, to.Rows, rows)
			}
		}
	}
	y.check(t, "MulCompactBF16")
	for j := range n {
		for i := range m.Rows {
			at := j*ldy + i
			if a, b := float64(y.v[at]), float64(want[at]); !(math.Abs(a-b) <= 1e-5*(1+math.Abs(b))) {
				t.Fatalf("%d by %d, row %d times %d of %d: %g, want %g", m.Rows, cols, i, j, n, a, b)
			}
		}
	}
}

// TestCompactSpecials: weights that are no numbers reach the results of their rows, and no others.
func TestCompactSpecials(t *testing.T) {
	forLevels(t, func(t *testing.T, k *Kernels) {
		const rows, cols = 32, 4096 + 256
		for _, typ := range compactTypes {
			if !k.Compacts(typ, cols) {
				continue
			}
			src := patternRows(newRand(7), "gaussian", typ, rows, cols)
			inf := map[tensor.Type]uint16{tensor.BF16: 0x7f80, tensor.F16: 0x7c00}[typ]
			put := func(r, c int, v uint16) { binary.LittleEndian.PutUint16(src[2*(r*cols+c):], v) }
			put(3, 17, inf)
			put(16, 4100, inf|0x8000)
			put(31, cols-1, inf|1)
			m := packCompactAll(t, typ, src, rows, cols)
			if slices.Contains(m.modes, panelPlain) {
				t.Fatal("a panel is plain")
			}
			x, y := make([]float32, cols), make([]float32, rows)
			for i := range x {
				x[i] = 1
			}
			k.MatVecPanels(y, m, 0, 2, x, make([]float32, TailFloats))
			for i, v := range y {
				want := "a number"
				switch {
				case math.IsInf(float64(v), 1):
					want = "+inf"
				case math.IsInf(float64(v), -1):
					want = "-inf"
				case math.IsNaN(float64(v)):
					want = "nan"
				}
				if expect := map[int]string{3: "+inf", 16: "-inf", 31: "nan"}[i]; expect != want &&
					(expect != "" || want != "a number") {
					t.Errorf("%s row %d: %g", typ, i, v)
				}
			}
		}
	})
}

// TestCompactDamaged: panels of any bytes are read within bounds.
func TestCompactDamaged(t *testing.T) {
	forLevels(t, func(t *testing.T, k *Kernels) {
		const rows, n = 32, 3
		for _, typ := range compactTypes {
			for _, cols := range compactCols(typ) {
				if !k.Compacts(typ, cols) {
					continue
				}
				m := packCompactAll(t, typ, patternRows(newRand(8), "gaussian", typ, rows, cols), rows, cols)
				for i := range m.Data {
					m.Data[i] = 0xff
				}
				x, y, room := newBanded(cols, 1), newBanded(rows, 1), newBanded(PanelBytes(typ, cols)/4, 1)
				k.MatVecPanels(y.v, m, 0, 2, x.v, make([]float32, TailFloats))
				y.check(t, "MatVecPanels")
				xs, ys := newBanded(3*cols, 1), newBanded(3*rows, 1)
				k.MulFewPanels(ys.v, rows, m, 0, 2, xs.v, cols, 3, make([]float32, TailFloats))
				ys.check(t, "MulFewPanels")
				k.Expand(tensor.Bytes(room.v), m, 1, 0, cols)
				room.check(t, "Expand")
				w := Matrix{Type: typ, Rows: rows, Cols: cols, Panels: m}
				many, scratch := newBanded(n*rows, 1), newBanded(k.ScratchLen(w), 1)
				k.MulRows(many.v, rows, w, 0, rows, make([]float32, k.PackedLen(n, cols)), n, scratch.v, false)
				many.check(t, "MulRows")
				scratch.check(t, "MulRows")
				if typ == tensor.BF16 && k.HasBF16() {
					xp, to, y := make([]float32, BF16TileFloats(cols)), Panels{Data: make([]byte, 2*PanelBytes(typ, cols))},
						newBanded(n*rows, 1)
					k.MulCompactBF16(y.v, nil, rows, m, 0, 2, xp, n, 0, make([]float32, BF16TailFloats), &to, true)
					y.check(t, "MulCompactBF16")
				}
			}
		}
	})
}

func TestCompactErrors(t *testing.T) {
	for _, c := range []struct{ rows, cols, size int }{
		{16, 64, CompactBytes(tensor.BF16, 16, 64) - 1},
		{16, 60, 1 << 20}, {16, 56, 1 << 20}, {-1, 64, 1 << 20}, {16, 1 << 16, 1 << 24},
	} {
		if _, err := CompactPanels(tensor.BF16, c.rows, c.cols, make([]byte, c.size)); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if _, err := CompactPanels(tensor.Q8_0, 16, 64, make([]byte, 1<<20)); err == nil {
		t.Error("compact panels of q8_0")
	}
	m, err := CompactPanels(tensor.BF16, 16, 64, make([]byte, CompactBytes(tensor.BF16, 16, 64)))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2*64*17 + 0, 127} {
		if m.PackCompact(0, make([]byte, n), make([]byte, PanelBytes(tensor.BF16, 64))) == nil {
			t.Errorf("no error for %d bytes of rows", n)
		}
	}
	if fmt.Sprint(m.Part(0, 0).Rows) != "0" {
		t.Error("no part")
	}
}
