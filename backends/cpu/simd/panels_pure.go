package simd

import (
	"math"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// The Go level's products over panels.

var goPanelKernels = panelKernels{
	Q8_0: mulPanelsGo(tensor.Q8_0), Q4_0: mulPanelsGo(tensor.Q4_0), Q4_1: mulPanelsGo(tensor.Q4_1),
	Q5_0: mulPanelsGo(tensor.Q5_0), Q5_1: mulPanelsGo(tensor.Q5_1), IQ4_NL: mulPanelsGo(tensor.IQ4_NL),
	Q4_K: mulPanelsGo(tensor.Q4_K), Q5_K: mulPanelsGo(tensor.Q5_K), Q6_K: mulPanelsGo(tensor.Q6_K),
	Q2_K: mulPanelsGo(tensor.Q2_K), Q3_K: mulPanelsGo(tensor.Q3_K),
	Quant: quantGo, DotPeak: peakGo[int8, int32],
}

// peakGo multiplies and adds in chains that do not wait for each other.
func peakGo[T int8 | float32, S int32 | float32](p unsafe.Pointer, n int) int {
	x, a, b, c, d := elements[T](p, 0, 4), S(0), S(1), S(2), S(3)
	for range n {
		a += S(x[0]) * S(x[1])
		b += S(x[1]) * S(x[2])
		c += S(x[2]) * S(x[3])
		d += S(x[3]) * S(x[0])
	}
	x[0] = T(a + b + c + d)
	return 4 * n
}

var iq4Levels = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// column gives column i of a panel.
type column func(w unsafe.Pointer, i int, dst *[PanelRows]float32)

func f32Column(w unsafe.Pointer, i int, dst *[PanelRows]float32) {
	copy(dst[:], elements[float32](w, PanelRows*i, PanelRows))
}

func f16Column(w unsafe.Pointer, i int, dst *[PanelRows]float32) {
	for r, v := range elements[uint16](w, PanelRows*i, PanelRows) {
		dst[r] = tensor.F16ToF32(v)
	}
}

func bf16Column(w unsafe.Pointer, i int, dst *[PanelRows]float32) {
	pair := elements[uint16](w, PanelRows*(i&^1), 2*PanelRows)
	for r := range dst {
		dst[r] = tensor.BF16ToF32(pair[2*r+i&1])
	}
}

func mvPanelsGo(t tensor.Type, col column) func(w, x, y unsafe.Pointer, k, shape int) {
	return func(w, x, y unsafe.Pointer, k, shape int) {
		panels := shape >> 2
		xs := floats(x, k)
		for p := range panels {
			var v [PanelRows]float32
			panel, sum := unsafe.Add(w, p*PanelBytes(t, k)), floats(unsafe.Add(y, p*PanelRows*4), PanelRows)
			clear(sum)
			for i, a := range xs {
				col(panel, i, &v)
				for r := range sum {
					sum[r] += v[r] * a
				}
			}
		}
	}
}

// fewPanelsGo does with each row what mul does with one.
func fewPanelsGo(mul func(w, x, y unsafe.Pointer, k, shape int), t tensor.Type) func(w, x, y unsafe.Pointer, k, lds,
	shape int) {
	return func(w, x, y unsafe.Pointer, k, lds, shape int) {
		ldx, ldy := lds&(1<<32-1), lds>>32
		for j := range shape >> 2 & 7 {
			for p := range shape >> 5 {
				mul(unsafe.Add(w, p*PanelBytes(t, k)), unsafe.Add(x, 4*j*ldx), unsafe.Add(y, 4*(j*ldy+p*PanelRows)), k, 1<<2)
			}
		}
	}
}

func widePanelGo(col column) func(w, dst unsafe.Pointer, k int) {
	return func(w, dst unsafe.Pointer, k int) {
		out := floats(dst, PanelRows*k)
		var v [PanelRows]float32
		for i := range k {
			col(w, i, &v)
			for r, a := range v {
				out[(r/goMR*k+i)*goMR+r%goMR] = a
			}
		}
	}
}

// quantGo is csrc/cpu/panel.c's quant_x, with the same roundings.
func quantGo(x, dst unsafe.Pointer, k, shape int) {
	group, j := shape&255, shape>>8
	blocks := blocksOf(k)
	xs, out := floats(x, k), elements[byte](dst, 0, blocks*group*recordBytes)
	for b := range blocks {
		rec := out[b*group*recordBytes:]
		q := rec[32*j : 32*j+32]
		clear(q)
		var v [32]float32
		if 32*b < k {
			copy(v[:], xs[32*b:])
		}
		var top, bad float32
		for _, a := range v {
			if m := float32(math.Abs(float64(a))); m > top {
				top = m
			}
			bad += a * 0
		}
		if !(top > 1e-30) {
			top = 0
		}
		scale := float32(0)
		if top > 0 {
			scale = 127 / top
		}
		var sum [3]int32
		for i, a := range v {
			c := int32(0)
			if s := a * scale; s > -127.5 && s < 127.5 { // no NaN
				c = int32(math.RoundToEven(float64(s)))
			}
			q[i] = byte(c)
			sum[0] -= c
			sum[1+i/16] -= c
		}
		at := unsafe.Pointer(&rec[32*group+4*j])
		*(*float32)(at) = top*(1.0/127) + bad
		for i, s := range sum {
			*(*int32)(unsafe.Add(at, 4*group*(i+1))) = s
		}
	}
}

// codes gives the codes of a block, row by row.
func (f *panelFormat) codes(q []byte, out *[PanelRows][32]int16) {
	set := func(plane []byte, g, shift int, mask byte, to int) {
		for i, v := range plane[:64] {
			out[i/4][4*g+i%4] |= int16(v>>shift&mask) << to
		}
	}
	*out = [PanelRows][32]int16{}
	bits := func(to int) {
		for g := range 8 {
			set(q, g, g, 1, to)
		}
	}
	pairs := func(from []byte, to int) {
		for g := range 8 {
			set(from[64*(g&1):], g, g>>1*2, 3, to)
		}
	}
	switch f.planes {
	case whole:
		for i, v := range q[:512] {
			out[i%64/4][i/64*4+i%4] = int16(int8(v))
		}
		return
	case twos:
		pairs(q, 0)
		return
	case threes:
		bits(2)
		pairs(q[64:], 0)
		return
	case fives:
		bits(4)
	case sixes:
		pairs(q, 4)
	}
	low := q[planeBytes[f.planes]-256:]
	for g := range 4 {
		set(low[64*g:], g, 0, 15, 0)
		set(low[64*g:], g+4, 4, 15, 0)
	}
	if f.levels {
		for r := range out {
			for c, v := range out[r] {
				out[r][c] = int16(iq4Levels[v&15])
			}
		}
	}
}

// scaleAt gives factor and addend of row r in half h of block b of a unit.
func (f *panelFormat) scaleAt(unit []byte, r, b, h int) (a, m float32) {
	p := unit[f.head()+b/2*f.pair():]
	pair := b / 2
	b &= 1
	if !f.super {
		a = f16At(p[32*b+2*r:])
		if f.affine {
			m = f16At(p[64+32*b+2*r:])
		}
		return a, m
	}
	d, low := f16At(unit[2*r:]), f16At(unit[32+2*r:])
	if f.sixBits() {
		return d * float32(sixAt(unit[64:], pair, 32*b+r)), low * float32(sixAt(unit[64:], pair, 32*b+16+r))
	}
	s := p[32*b+r:]
	if f.affine {
		return d * float32(s[16*h]&15), low * float32(s[16*h]>>4)
	}
	return d * float32(int8(s[16*h])), 0
}

func mulPanelsGo(t tensor.Type) func(w, x, y unsafe.Pointer, ldy, blocks, shape int) {
	return func(w, x, y unsafe.Pointer, ldy, blocks, shape int) {
		f := panelFormats[t]
		cols, wide, panels := shape&255, shape>>8&1, shape>>16
		group := 1 + 7*wide
		size, per := f.unit(), f.blocks()
		var codes [PanelRows][32]int16
		ws := elements[byte](w, 0, panels*blocks/per*size)
		xs := elements[byte](x, 0, blocks*group*recordBytes)
		for p := range panels {
			for j := range cols {
				clear(floats(unsafe.Add(y, 4*(j*ldy+p*PanelRows)), PanelRows))
			}
			for b := range blocks {
				u := ws[(p*blocks+b)/per*size:]
				pair := u[f.head()+b%per/2*f.pair():]
				q := pair[f.scales()+b&1*planeBytes[f.planes]:]
				rec := xs[b*group*recordBytes:]
				f.codes(q, &codes)
				for r := range PanelRows {
					a0, m0 := f.scaleAt(u, r, b%per, 0)
					a1, m1 := f.scaleAt(u, r, b%per, 1)
					for j := range cols {
						d := *(*float32)(unsafe.Pointer(&rec[32*group+4*j]))
						dot0, sum0 := f.half(codes[r][:16], rec[32*j:32*j+16])
						dot1, sum1 := f.half(codes[r][16:], rec[32*j+16:32*j+32])
						part := a0*float32(dot0) + m0*float32(sum0) + a1*float32(dot1) + m1*float32(sum1)
						floats(unsafe.Add(y, 4*(j*ldy+p*PanelRows)), PanelRows)[r] += d * part
					}
				}
			}
		}
	}
}

// half gives Σ (code - offset)·x and Σ x of sixteen columns.
func (f *panelFormat) half(codes []int16, x []byte) (dot, sum int32) {
	x = x[:len(codes)]
	for i, c := range codes {
		v := int32(int8(x[i]))
		dot += int32(c) * v
		sum += v
	}
	return dot - int32(f.offset)*sum, sum
}
