package simd

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
)

// testTypes are the types that kernels read, and one that they do not.
var testTypes = []tensor.Type{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K,
	tensor.F8E5M2}

func decodeF8(dst []float32, src []byte) {
	for i, c := range src {
		dst[i] = tensor.F8ToF32(tensor.F8E5M2, c)
	}
}

// randMatrix makes a matrix of random codes with a gap between rows, starting
// at an odd place, and its values, decoded element by element. Nothing lies
// behind its last byte, so that reading too far is noticed under -asan and
// valgrind; the gaps hold NaNs, so that using them is noticed here.
func randMatrix(r *rand.Rand, t tensor.Type, rows, cols, gap int) (Matrix, []float64) {
	_, size := t.Block()
	stride := t.RowBytes(cols)
	if stride > 0 {
		stride += gap * size
	}
	m := Matrix{Type: t, Rows: rows, Cols: cols, Stride: stride, Data: make([]byte, 1+rows*stride)[1:]}
	if !Direct(t) {
		m.Decode = decodeF8
	}
	for i := range m.Data {
		m.Data[i] = 0xff
	}
	values := make([]float64, 0, rows*cols)
	for i := range rows {
		row := m.row(i)
		fillRow(r, t, row)
		values = append(values, slowDecode(t, row, cols)...)
	}
	return m, values
}

// fillRow writes random blocks of reasonable scales.
func fillRow(r *rand.Rand, t tensor.Type, row []byte) {
	f16 := func() uint16 { return tensor.F32ToF16(float32(r.NormFloat64() * 0.1)) }
	le := binary.LittleEndian
	for i := range row {
		row[i] = byte(r.Uint32())
	}
	elems, size := t.Block()
	for b := 0; b < len(row); b += size {
		p := row[b : b+size]
		switch t {
		case tensor.F32:
			le.PutUint32(p, math.Float32bits(float32(r.NormFloat64())))
		case tensor.F16:
			le.PutUint16(p, tensor.F32ToF16(float32(r.NormFloat64())))
		case tensor.BF16:
			le.PutUint16(p, tensor.F32ToBF16(float32(r.NormFloat64())))
		case tensor.F8E5M2, tensor.F8E4M3:
			p[0] = tensor.F32ToF8(t, float32(r.NormFloat64()))
		case tensor.Q4_K:
			le.PutUint16(p, f16())
			le.PutUint16(p[2:], f16())
		case tensor.Q6_K:
			le.PutUint16(p[size-2:], f16())
		default:
			le.PutUint16(p, f16())
		}
	}
	_ = elems
}

// slowDecode gives the values of a row in float64, from the formats'
// definitions; written apart from the Go level on purpose.
func slowDecode(t tensor.Type, row []byte, cols int) []float64 {
	le := binary.LittleEndian
	f16 := func(p []byte) float64 { return float64(tensor.F16ToF32(le.Uint16(p))) }
	out := make([]float64, cols)
	elems, size := t.Block()
	for i := range out {
		p, e := row[i/elems*size:], i%elems
		switch t {
		case tensor.F32:
			out[i] = float64(math.Float32frombits(le.Uint32(p)))
		case tensor.F16:
			out[i] = f16(p)
		case tensor.BF16:
			out[i] = float64(tensor.BF16ToF32(le.Uint16(p)))
		case tensor.F8E5M2, tensor.F8E4M3:
			out[i] = float64(tensor.F8ToF32(t, p[0]))
		case tensor.Q8_0:
			out[i] = f16(p) * float64(int8(p[2+e]))
		case tensor.Q4_0:
			q := int(p[2+e%16]) >> (e / 16 * 4) & 15
			out[i] = f16(p) * float64(q-8)
		case tensor.Q4_K:
			s, j := p[4:16], e/32
			sc, m := int(s[j%4]), int(s[4+j%4])
			if j < 4 {
				sc, m = sc%64, m%64
			} else {
				sc, m = int(s[4+j])%16+sc/64*16, int(s[4+j])/16+m/64*16
			}
			q := int(p[16+e/64*32+e%32]) >> (e / 32 % 2 * 4) & 15
			out[i] = f16(p)*float64(sc)*float64(q) - f16(p[2:])*float64(m)
		case tensor.Q6_K:
			half, g, l := e/128, e%128/32, e%32
			q := int(p[half*64+g%2*32+l])>>(g/2*4)&15 + 16*(int(p[128+half*32+l])>>(g*2)&3)
			out[i] = f16(p[208:]) * float64(int8(p[192+e/16])) * float64(q-32)
		}
	}
	return out
}

// shapes gives row counts around the unrolling and column counts around the
// vector lengths, in whole blocks.
func shapes(t tensor.Type) (rows, cols []int) {
	rows = []int{1, 2, 3, 4, 5, 7, 9, 33}
	switch e, _ := t.Block(); e {
	case 32:
		return rows, []int{0, 32, 64, 96, 224, 256, 288, 480, 512, 544, 1056, 4128}
	case 256:
		return rows, []int{0, 256, 512, 768, 4352}
	}
	for n := range 71 {
		cols = append(cols, n)
	}
	return rows, append(cols, 127, 255, 256, 257, 4097)
}

func TestMatVec(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		for _, typ := range testTypes {
			t.Run(typ.String(), func(t *testing.T) {
				r := newRand(5)
				rows, cols := shapes(typ)
				for _, c := range cols {
					for i, n := range rows {
						m, w := randMatrix(r, typ, n, c, i%3)
						if err := m.Check(); err != nil {
							t.Fatal(err)
						}
						x, y := randVector(r, c, i%5), newBanded(n, i%7)
						k.MatVec(y.v, m, 0, x.v, make([]float32, c))
						y.check(t, "MatVec")
						for j, got := range y.v {
							checkDot(t, fmt.Sprintf("%d by %d, row %d", n, c, j), got, w[j*c:(j+1)*c], x.v)
						}
						if n > 2 { // some rows only
							part := newBanded(n-2, 0)
							k.MatVec(part.v, m, 1, x.v, make([]float32, c))
							part.check(t, "MatVec of some rows")
							for j, got := range part.v {
								checkDot(t, fmt.Sprintf("%d by %d, row %d of some", n, c, j), got, w[(j+1)*c:(j+2)*c], x.v)
							}
						}
					}
				}
			})
		}
	})
}

// A matrix larger than one call into assembly may read.
func TestMatVecManyRows(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		r := newRand(6)
		const n, c = 211, 1056
		for _, typ := range []tensor.Type{tensor.F32, tensor.Q8_0} {
			m, w := randMatrix(r, typ, n, c, 0)
			x, y := randVector(r, c, 1), newBanded(n, 3)
			k.MatVec(y.v, m, 0, x.v, nil)
			y.check(t, "MatVec")
			for j, got := range y.v {
				checkDot(t, fmt.Sprintf("%s row %d", typ, j), got, w[j*c:(j+1)*c], x.v)
			}
		}
	})
}

func checkDot(t *testing.T, what string, got float32, w []float64, x []float32) {
	t.Helper()
	var want, mag float64
	for i, v := range w {
		p := v * float64(x[i])
		want += p
		mag += math.Abs(p)
	}
	// Q4_K subtracts Σ min·x from Σ scale·q·x; each may exceed their difference.
	near(t, what, got, want, mag, 4e-6)
}

// TestHeads: groups of heads side by side give what each gives alone, whatever its number of columns.
func TestHeads(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3, tensor.Q8_0} {
			r := newRand(8)
			for _, c := range []struct{ rows, groups, d, share int }{
				{0, 2, 8, 1}, {1, 1, 1, 1}, {3, 5, 7, 2}, {9, 4, 64, 1}, {4, 2, 80, 3}, {17, 3, 129, 2}, {2, 3, 256, 1},
				{9, 1, 64, 8}, {17, 1, 129, 7}, {3, 1, 7, 4}, {0, 1, 80, 4}, {40, 1, 112, 3},
				{2, 1, 128, 2}, {7, 1, 96, 5}, {6, 2, 32, 6}, {5, 1, 64, 1},
			} {
				if typ.CheckRow(c.d) != nil {
					continue
				}
				what := fmt.Sprintf("%s, %+v", typ, c)
				heads := c.groups * c.share
				m, w := randMatrix(r, typ, c.rows+2, c.groups*c.d, c.d%3)
				x, y := randVector(r, heads*c.d, c.rows%5), randVector(r, heads*c.d, c.rows%7)
				ld := c.rows + c.d%2
				s := newBanded((heads-1)*ld+c.rows, c.d%3)
				at := Heads{D: c.d, Share: c.share}
				k.HeadMatVec(s.v, ld, m, 1, c.rows, at, x.v)
				s.check(t, what)
				p := randVector(r, len(s.v), c.d%5)
				sums := slices.Clone(y.v)
				k.HeadWeightedSum(y.v, m, 1, c.rows, at, p.v, ld)
				y.check(t, what)
				for h := range heads {
					row := func(i int) []float64 { return w[(1+i)*m.Cols+h/c.share*c.d:][:c.d] }
					for i := range c.rows {
						var want, mag float64
						for e, v := range row(i) {
							v *= float64(x.v[h*c.d+e])
							want += v
							mag += math.Abs(v)
						}
						near(t, fmt.Sprintf("%s: score %d of head %d", what, i, h), s.v[h*ld+i], want, mag, 2e-6)
					}
					for e := range c.d {
						want := float64(sums[h*c.d+e])
						mag := math.Abs(want)
						for i := range c.rows {
							v := row(i)[e] * float64(p.v[h*ld+i])
							want += v
							mag += math.Abs(v)
						}
						near(t, fmt.Sprintf("%s: sum %d of head %d", what, e, h), y.v[h*c.d+e], want, mag, 2e-6)
					}
				}
			}
		}
	})
}

// TestDecodeF8: every code of float8, at every place of a vector.
func TestDecodeF8(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		for n := range 35 {
			codes, got := make([]byte, n), newBanded(n, n%3)
			for first := range 256 {
				for i := range codes {
					codes[i] = byte(first + i)
				}
				if !k.Decode(tensor.F8E4M3, got.v, codes) {
					t.Fatal("no kernel decodes f8e4m3")
				}
				got.check(t, "Decode of f8e4m3")
				for i, c := range codes {
					want := tensor.F8ToF32(tensor.F8E4M3, c)
					same := math.Float32bits(got.v[i]) == math.Float32bits(want)
					if !same && !(want != want && got.v[i] != got.v[i]) {
						t.Fatalf("code %#x at %d of %d is %g, expected %g", c, i, n, got.v[i], want)
					}
				}
			}
		}
	})
}

func TestWeightedSum(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16} {
			t.Run(typ.String(), func(t *testing.T) {
				r := newRand(7)
				_, cols := shapes(typ)
				for _, c := range cols {
					for _, n := range []int{0, 1, 3, 70} {
						m, w := randMatrix(r, typ, n, c, n%3)
						p, y := randVector(r, n, n%5), randVector(r, c, c%7)
						want, mag := make([]float64, c), make([]float64, c)
						for i, v := range y.v {
							want[i], mag[i] = float64(v), math.Abs(float64(v))
						}
						for i := range n * c {
							v := float64(p.v[i/c]) * w[i]
							want[i%c] += v
							mag[i%c] += math.Abs(v)
						}
						k.WeightedSum(y.v, m, 0, p.v)
						y.check(t, "WeightedSum")
						for i, got := range y.v {
							near(t, fmt.Sprintf("%d by %d, column %d", n, c, i), got, want[i], mag[i], 2e-6)
						}
					}
				}
			})
		}
	})
}

func TestDecode(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		for _, typ := range testTypes {
			r := newRand(8)
			_, cols := shapes(typ)
			if e, _ := typ.Block(); e == 1 {
				cols = append(cols, callElements+3)
			} else {
				cols = append(cols, callElements+e)
			}
			for _, c := range cols {
				m, want := randMatrix(r, typ, 1, c, 0)
				y := newBanded(c, c%7)
				if k.Decode(typ, y.v, m.Data) != Direct(typ) {
					t.Fatalf("Decode of %s says %v, Direct says %v", typ, !Direct(typ), Direct(typ))
				}
				if !Direct(typ) {
					break
				}
				y.check(t, "Decode")
				for i, got := range y.v {
					near(t, fmt.Sprintf("%s n=%d element %d", typ, c, i), got, want[i], math.Abs(want[i])+1, 5e-7)
					if typ != tensor.Q4_K && typ != tensor.Q6_K && float64(got) != want[i] {
						t.Fatalf("%s n=%d element %d: got %v, want exactly %v", typ, c, i, got, want[i])
					}
				}
			}
		}
	})
}

// Every code of the sixteen-bit types, there and back.
func TestSixteenBits(t *testing.T) {
	codes := make([]uint16, 1<<16)
	raw := make([]byte, 2<<16)
	for i := range codes {
		codes[i] = uint16(i)
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(i))
	}
	r := newRand(9)
	some := make([]float32, 100003)
	for i := range some {
		some[i] = math.Float32frombits(r.Uint32())
	}
	some = append(some, 65504, 65519.99, 65520, -65520, 1+1.0/2048, 1+3.0/2048, 5.9604645e-8, 2.9802322e-8, 2.9802326e-8,
		0x1.01p0, 0x1.03p0, 0x1.fffffep127)
	type conv struct {
		typ  tensor.Type
		wide func(uint16) float32
		slim func(float32) uint16
		enc  func(k *Kernels, dst []uint16, src []float32)
	}
	forVectors(t, func(t *testing.T, k *Kernels) {
		for _, c := range []conv{
			{tensor.F16, tensor.F16ToF32, tensor.F32ToF16, (*Kernels).EncodeF16},
			{tensor.BF16, tensor.BF16ToF32, tensor.F32ToBF16, (*Kernels).EncodeBF16},
		} {
			out := make([]float32, len(codes))
			k.Decode(c.typ, out, raw)
			back := make([]uint16, len(codes))
			c.enc(k, back, out)
			for i, v := range out {
				want := c.wide(codes[i])
				if v != want && (v == v || want == want) {
					t.Fatalf("%s %#04x: got %v, want %v", c.typ, i, v, want)
				}
				if v == v && back[i] != codes[i] {
					t.Fatalf("%s %#04x came back as %#04x", c.typ, i, back[i])
				}
			}
			for _, n := range append(sizes(), len(some)) {
				src := some[len(some)-min(n, len(some)):]
				got := make([]uint16, len(src)+1)
				got[len(src)] = 0xabcd
				c.enc(k, got[:len(src)], src)
				for i, v := range src {
					want := c.slim(v)
					if w := c.wide(got[i]); w != w && v != v {
						continue // a NaN is a NaN
					}
					if got[i] != want {
						t.Fatalf("%s of %v (%#08x): got %#04x, want %#04x", c.typ, v, math.Float32bits(v), got[i], want)
					}
				}
				if got[len(src)] != 0xabcd {
					t.Fatalf("%s n=%d: wrote behind the end", c.typ, n)
				}
			}
		}
	})
}

func TestMatrixCheck(t *testing.T) {
	ok := Matrix{Type: tensor.F16, Rows: 3, Cols: 5, Data: make([]byte, 30)}
	cases := []struct {
		change func(m *Matrix)
		want   string // "" where it is right
	}{
		{func(m *Matrix) {}, ""},
		{func(m *Matrix) { m.Rows = 4 }, "need 40 bytes, the matrix has 30"},
		{func(m *Matrix) { m.Stride = 8 }, "stride of 8 bytes"},
		{func(m *Matrix) { m.Stride = 11; m.Data = make([]byte, 99) }, "no multiple"},
		{func(m *Matrix) { m.Type = tensor.Q8_0 }, "blocks of 32"},
		{func(m *Matrix) { m.Type = tensor.F8E5M2 }, "no decoder"},
		{func(m *Matrix) { m.Rows = -1 }, "-1 by 5"},
	}
	for i, c := range cases {
		m := ok
		c.change(&m)
		err := m.Check()
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("case %d: error %v, want %q", i, err, c.want)
		}
	}
}

func TestMatMul(t *testing.T) {
	forVectors(t, func(t *testing.T, k *Kernels) {
		for _, typ := range testTypes {
			t.Run(typ.String(), func(t *testing.T) {
				r := newRand(10)
				cols := []int{1, 3, 16, 17, 64, 255, 256, 257, 530}
				switch e, _ := typ.Block(); e {
				case 32:
					cols = []int{32, 96, 256, 288, 544}
				case 256:
					cols = []int{256, 768}
				}
				for _, c := range cols {
					for _, n := range []int{1, 2, 15, 16, 17, 31, 33, 47, 130} {
						for i, s := range []int{1, 2, 4, 5, 8, 9, 12, 13, 25} {
							// Every row count meets every other width, and every width one count of tokens.
							if n > 33 && s%4 != 1 || !testfiles.Exhaustive() && (i+n+c)%7 != 0 {
								continue
							}
							testMatMul(t, k, r, typ, s, n, c, (s+n)%2 == 0, false)
							if plainPanel(typ) && (n < 20 || testfiles.Exhaustive()) {
								testMatMul(t, k, r, typ, s, n, c, (s+n)%2 == 0, true)
							}
						}
					}
				}
			})
		}
	})
}

func testMatMul(t *testing.T, k *Kernels, r *rand.Rand, typ tensor.Type, s, n, cols int, add, packed bool) {
	m, w := randMatrix(r, typ, n, cols, n%2)
	ldx, ldy := cols+s%3, n+s%4
	x, y := randVector(r, max(0, (s-1)*ldx+cols), s%5), newBanded((s-1)*ldy+n, n%7)
	before := make([]float64, len(y.v))
	if add {
		for i := range y.v {
			y.v[i] = float32(i % 5)
			before[i] = float64(y.v[i])
		}
	}
	xp, scratch := newBanded(k.PackedLen(s, cols), 0), newBanded(k.ScratchLen(m), 0)
	for p := range k.Panels(s) {
		k.PackX(xp.v, x.v[p*k.PanelRows()*ldx:], ldx, s, cols, p)
	}
	split := n / 3 // two calls, as two workers would make them
	if packed {
		var rows []byte
		for i := range n {
			rows = append(rows, m.row(i)...)
		}
		m = Matrix{Type: typ, Rows: n, Cols: cols, Panels: packAll(t, typ, rows, n, cols)}
		split = split / PanelRows * PanelRows
	}
	k.MulRows(y.v, ldy, m, 0, split, xp.v, s, scratch.v, add)
	k.MulRows(y.v, ldy, m, split, n, xp.v, s, scratch.v, add)
	y.check(t, "MulRows")
	xp.check(t, "packed X")
	scratch.check(t, "scratch")
	for j := range s {
		for i := range ldy {
			at := j*ldy + i
			if at >= len(y.v) {
				break
			}
			what := fmt.Sprintf("%s %d rows by %d by %d, add %v, packed %v: y[%d,%d]", typ, s, n, cols, add, packed, j, i)
			if i >= n {
				if gap := y.v[at]; gap != guard && float64(gap) != before[at] {
					t.Fatalf("%s: wrote %v between rows", what, gap)
				}
				continue
			}
			want, mag := before[at], math.Abs(before[at])
			for c := range cols {
				p := w[i*cols+c] * float64(x.v[j*ldx+c])
				want += p
				mag += math.Abs(p)
			}
			near(t, what, y.v[at], want, mag, 2e-6)
		}
	}
}
