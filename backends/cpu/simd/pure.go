package simd

// The Go level: the kernels' formulas, loop by loop.

import (
	"math"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

const goMR, goNR = 4, 4

var goKernels = kernels{
	MvF32: mvGo[float32](identity), MvF16: mvGo[uint16](tensor.F16ToF32), MvBF16: mvGo[uint16](tensor.BF16ToF32),
	MvQ8_0: mvBlockGo(decQ8_0Go, 32, 34), MvQ4_0: mvBlockGo(decQ4_0Go, 32, 18), MvQ4_K: mvBlockGo(decQ4_KGo, 256, 144),
	MvQ6_K:  mvBlockGo(decQ6_KGo, 256, 210),
	WsumF32: wsumGo[float32](identity), WsumF16: wsumGo[uint16](tensor.F16ToF32),
	WsumBF16:    wsumGo[uint16](tensor.BF16ToF32),
	MvhF32:      mvHeadsGo(mvGo[float32](identity), tensor.F32),
	MvhF16:      mvHeadsGo(mvGo[uint16](tensor.F16ToF32), tensor.F16),
	MvhBF16:     mvHeadsGo(mvGo[uint16](tensor.BF16ToF32), tensor.BF16),
	MvhF8E4M3:   mvHeadsGo(mvGo[uint8](f8e4m3Go), tensor.F8E4M3),
	MvhQ8_0:     mvHeadsGo(mvBlockGo(decQ8_0Go, 32, 34), tensor.Q8_0),
	WsumhF32:    wsumHeadsGo(wsumGo[float32](identity), tensor.F32),
	WsumhF16:    wsumHeadsGo(wsumGo[uint16](tensor.F16ToF32), tensor.F16),
	WsumhBF16:   wsumHeadsGo(wsumGo[uint16](tensor.BF16ToF32), tensor.BF16),
	WsumhF8E4M3: wsumHeadsGo(wsumGo[uint8](f8e4m3Go), tensor.F8E4M3),
	WsumhQ8_0:   wsumHeadsGo(wsumBlockGo(decQ8_0Go, 32, 34), tensor.Q8_0),
	PackF32:     packGo[float32](identity), PackF16: packGo[uint16](tensor.F16ToF32),
	PackBF16:  packGo[uint16](tensor.BF16ToF32),
	SpreadF32: spreadGo[float32](identity), SpreadF16: spreadGo[uint16](tensor.F16ToF32),
	SpreadBF16: spreadGo[uint16](tensor.BF16ToF32),
	Micro:      microGo,
	PanelF32:   mvPanelsGo(tensor.F32, f32Column), PanelF16: mvPanelsGo(tensor.F16, f16Column),
	PanelBF16: mvPanelsGo(tensor.BF16, bf16Column),
	FewF32:    fewPanelsGo(mvPanelsGo(tensor.F32, f32Column), tensor.F32),
	FewF16:    fewPanelsGo(mvPanelsGo(tensor.F16, f16Column), tensor.F16),
	FewBF16:   fewPanelsGo(mvPanelsGo(tensor.BF16, bf16Column), tensor.BF16),
	WideF32:   widePanelGo(f32Column), WideF16: widePanelGo(f16Column), WideBF16: widePanelGo(bf16Column),
	DecF16: mapGo(tensor.F16ToF32), DecBF16: mapGo(tensor.BF16ToF32), DecF8E4M3: mapGo(f8e4m3Go),
	DecQ8_0: decBlocksGo(decQ8_0Go, 32, 34), DecQ4_0: decBlocksGo(decQ4_0Go, 32, 18),
	DecQ4_K: decBlocksGo(decQ4_KGo, 256, 144), DecQ6_K: decBlocksGo(decQ6_KGo, 256, 210),
	EncF16: mapGo(tensor.F32ToF16), EncBF16: mapGo(tensor.F32ToBF16),
	Dot: func(a, b unsafe.Pointer, n int) float32 { return dotGo(floats(a, n), floats(b, n)) },
	Max: maxGo,
	Add: func(y, a, b unsafe.Pointer, n int) {
		ys, as, bs := floats(y, n), floats(a, n), floats(b, n)
		for i := range ys {
			ys[i] = as[i] + bs[i]
		}
	},
	Mul: func(y, a, b unsafe.Pointer, n int) {
		ys, as, bs := floats(y, n), floats(a, n), floats(b, n)
		for i := range ys {
			ys[i] = as[i] * bs[i]
		}
	},
	Scale: func(y, x unsafe.Pointer, n int, a float32) {
		ys, xs := floats(y, n), floats(x, n)
		for i := range ys {
			ys[i] = a * xs[i]
		}
	},
	Axpy: func(y, x unsafe.Pointer, n int, a float32) {
		ys, xs := floats(y, n), floats(x, n)
		for i := range ys {
			ys[i] += a * xs[i]
		}
	},
	ScaleMul: func(y, x, g unsafe.Pointer, n int, a float32) {
		ys, xs, gs := floats(y, n), floats(x, n), floats(g, n)
		for i := range ys {
			ys[i] = a * xs[i] * gs[i]
		}
	},
	TurnPairs: func(y, x, c, s unsafe.Pointer, n int) {
		ys, xs, cs, ss := floats(y, n), floats(x, n), floats(c, n), floats(s, n)
		for i := 0; i+1 < n; i += 2 {
			a, b := xs[i], xs[i+1]
			ys[i], ys[i+1] = a*cs[i]+b*ss[i], b*cs[i+1]+a*ss[i+1]
		}
	},
	TurnHalves: func(y, x, c, s unsafe.Pointer, n int) {
		ys, xs, cs, ss := floats(y, 2*n), floats(x, 2*n), floats(c, n), floats(s, n)
		for i := range n {
			a, b := xs[i], xs[n+i]
			ys[i], ys[n+i] = a*cs[i]-b*ss[i], a*ss[i]+b*cs[i]
		}
	},
	ExpSum: func(y, x unsafe.Pointer, n int, m float32) float32 {
		ys, xs := floats(y, n), floats(x, n)
		sum := float32(0)
		for i := range ys {
			ys[i] = expNeg(xs[i] - m)
			sum += ys[i]
		}
		return sum
	},
	SoftmaxTile: func(s, most, sum, change unsafe.Pointer, n int) int {
		changed := 0
		ss, ms, zs, cs := floats(s, n*goMR), floats(most, goMR), floats(sum, goMR), floats(change, goMR)
		for i := range goMR {
			old := ms[i]
			for r := i; r < len(ss); r += goMR {
				if ss[r] > ms[i] {
					ms[i], changed = ss[r], 1
				}
			}
			cs[i] = expNeg(old - ms[i])
			zs[i] *= cs[i]
			for r := i; r < len(ss); r += goMR {
				ss[r] = expNeg(ss[r] - ms[i])
				zs[i] += ss[r]
			}
		}
		return changed
	},
	MulTile: func(y, f unsafe.Pointer, n int) {
		ys, fs := floats(y, n*goMR), floats(f, goMR)
		for i := range ys {
			ys[i] *= fs[i%goMR]
		}
	},
	Exp:          func(y, x unsafe.Pointer, n int) { mapGo(exp32)(x, y, n) },
	MatrixStep:   matrixStepGo,
	ChannelSteps: channelStepsGo,
	RowsStep:     rowsStepGo,
	WKVStep:      wkvStepGo,
	SiLU:         gateGo(func(x float64) float64 { return x / (1 + math.Exp(-x)) }),
	GELUTanh: gateGo(func(x float64) float64 {
		return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}),
	GELUErf: gateGo(func(x float64) float64 { return x * 0.5 * math.Erfc(-x/math.Sqrt2) }),
	Peak:    peakGo[float32, float32],
	ReadAll: func(p unsafe.Pointer, n, _ int) float32 {
		or := uint64(0)
		for _, v := range elements[uint64](p, 0, n/8) {
			or |= v
		}
		return float32(or)
	},
}

func identity(v float32) float32 { return v }
func f8e4m3Go(v uint8) float32   { return tensor.F8ToF32(tensor.F8E4M3, v) }
func exp32(x float32) float32    { return float32(math.Exp(float64(x))) }

// expNeg gives e^x, 0 below e^-60.
func expNeg(x float32) float32 {
	if x < -60 {
		return 0
	}
	return exp32(x)
}

func matrixStepGo(h, x, y unsafe.Pointer, shape int, by float32) {
	rows, cols, does := shape&0xffff, shape>>16&0xffff, shape>>32
	hs, ys, xs := floats(h, rows*cols), floats(y, cols), floats(x, 5*rows+cols)
	part := func(i int) []float32 { return xs[i*rows:][:rows] }
	d, q, k, a, b, vs := part(0), part(1), part(2), part(3), part(4), xs[5*rows:]
	for j, v := range vs {
		r, sum := float32(0), float32(0)
		for i := range rows {
			if does&StepTakes != 0 {
				r += a[i] * hs[i*cols+j]
			}
			if does&StepBefore != 0 {
				sum += q[i] * hs[i*cols+j]
			}
		}
		if does&StepGives == 0 {
			v += by * r
		}
		for i := range rows {
			m := d[i]*hs[i*cols+j] + k[i]*v
			if does&StepGives != 0 {
				m += b[i] * r
			}
			if does&StepBefore == 0 {
				sum += q[i] * m
			}
			hs[i*cols+j] = m
		}
		ys[j] = sum
	}
}

func channelStepsGo(h, a, x, w, y unsafe.Pointer, shape int) {
	n, channels := shape&0xffff, shape>>16
	hs, as, xs, ws, ys := floats(h, n*channels), floats(a, n*channels), floats(x, 2*channels), floats(w, 2*n),
		floats(y, channels)
	for c := range ys {
		dt, sum := xs[c], float32(0)
		in := dt * xs[channels+c]
		for i := range n {
			m := exp32(dt*as[c*n+i])*hs[c*n+i] + in*ws[i]
			hs[c*n+i] = m
			sum += m * ws[n+i]
		}
		ys[c] = sum
	}
}

func rowsStepGo(h, x, w, y unsafe.Pointer, shape int, d float32) {
	n, rows := shape&0xffff, shape>>16
	hs, xs, ws, ys := floats(h, n*rows), floats(x, rows), floats(w, 2*n), floats(y, rows)
	for r := range ys {
		sum := float32(0)
		for i := range n {
			m := d*hs[r*n+i] + xs[r]*ws[i]
			hs[r*n+i] = m
			sum += m * ws[n+i]
		}
		ys[r] = sum
	}
}

func wkvStepGo(h, keys, values, w, y unsafe.Pointer, shape int) {
	n, far := shape&0xffff, shape>>16
	hs, ks, vs, ws, ys := floats(h, 2*far+n), floats(keys, n), floats(values, n), floats(w, 2*n), floats(y, n)
	for c, v := range vs {
		num, den, top, now := hs[c], hs[far+c], hs[2*far+c], ws[n+c]+ks[c]
		m := max(top, now)
		old, is := exp32(top-m), exp32(now-m)
		ys[c] = (old*num + is*v) / (old*den + is)
		top -= ws[c]
		m = max(top, ks[c])
		old, is = exp32(top-m), exp32(ks[c]-m)
		hs[c], hs[far+c], hs[2*far+c] = old*num+is*v, old*den+is, m
	}
}

func floats(p unsafe.Pointer, n int) []float32 { return elements[float32](p, 0, n) }

// elements gives n elements of an array of T from index i on.
func elements[T any](p unsafe.Pointer, i, n int) []T {
	if n == 0 { // p may point behind the last element
		return nil
	}
	var t T
	return unsafe.Slice((*T)(unsafe.Add(p, i*int(unsafe.Sizeof(t)))), n)
}

func dotGo(a, b []float32) float32 {
	var s [4]float32
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s[0] += a[i] * b[i]
		s[1] += a[i+1] * b[i+1]
		s[2] += a[i+2] * b[i+2]
		s[3] += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s[0] += a[i] * b[i]
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

func maxGo(x unsafe.Pointer, n int) float32 {
	m := float32(math.Inf(-1))
	for _, v := range floats(x, n) {
		if v > m {
			m = v
		}
	}
	return m
}

func mvGo[T any](wide func(T) float32) func(w, x, y unsafe.Pointer, rows, k, ldw int) {
	return func(w, x, y unsafe.Pointer, rows, k, ldw int) {
		xs, ys := floats(x, k), floats(y, rows)
		for r := range ys {
			var even, odd float32
			row := elements[T](w, r*ldw, k)
			i := 0
			for ; i+2 <= k; i += 2 {
				even += wide(row[i]) * xs[i]
				odd += wide(row[i+1]) * xs[i+1]
			}
			if i < k {
				even += wide(row[i]) * xs[i]
			}
			ys[r] = even + odd
		}
	}
}

// mvBlockGo takes dec, which decodes one block of elems elements in bytes bytes.
func mvBlockGo(dec func(p []byte, dst []float32), elems, bytes int) func(w, x, y unsafe.Pointer, rows, k, ldw int) {
	return func(w, x, y unsafe.Pointer, rows, k, ldw int) {
		var buf [256]float32
		xs, ys := floats(x, k), floats(y, rows)
		for r := range ys {
			ys[r] = 0
			for b := range k / elems {
				dec(elements[byte](w, r*ldw+b*bytes, bytes), buf[:elems])
				ys[r] += dotGo(buf[:elems], xs[b*elems:(b+1)*elems])
			}
		}
	}
}

func decBlocksGo(dec func(p []byte, dst []float32), elems, bytes int) func(src, dst unsafe.Pointer, n int) {
	return func(src, dst unsafe.Pointer, n int) {
		out := floats(dst, n)
		for b := range n / elems {
			dec(elements[byte](src, b*bytes, bytes), out[b*elems:(b+1)*elems])
		}
	}
}

func wsumGo[T any](wide func(T) float32) func(v, p, y unsafe.Pointer, rows, d, ldv int) {
	return func(v, p, y unsafe.Pointer, rows, d, ldv int) {
		ps, ys := floats(p, rows), floats(y, d)
		for r, s := range ps {
			row := elements[T](v, r*ldv, d)
			for i := range ys {
				ys[i] += s * wide(row[i])
			}
		}
	}
}

// wsumBlockGo takes dec, which decodes one block of elems elements in bytes bytes.
func wsumBlockGo(dec func(p []byte, dst []float32), elems, bytes int) func(v, p, y unsafe.Pointer, rows, d, ldv int) {
	return func(v, p, y unsafe.Pointer, rows, d, ldv int) {
		var buf [256]float32
		ys := floats(y, d)
		for r, s := range floats(p, rows) {
			for b := range d / elems {
				dec(elements[byte](v, r*ldv+b*bytes, bytes), buf[:elems])
				for i, w := range buf[:elems] {
					ys[b*elems+i] += s * w
				}
			}
		}
	}
}

// headsShape takes a shape of groups of heads apart.
func headsShape(shape int) (rows, d, groups, share int) {
	return shape & 0xffff, shape >> 16 & 0xffff, shape >> 32 & 0xffff, shape >> 48
}

// mvHeadsGo and wsumHeadsGo do with each head what their first argument does with one, of rows of type t.
func mvHeadsGo(mv func(w, x, y unsafe.Pointer, rows, k, ldw int), t tensor.Type) func(w, x, y unsafe.Pointer, ldw, ldy,
	shape int) {
	return func(w, x, y unsafe.Pointer, ldw, ldy, shape int) {
		rows, k, groups, share := headsShape(shape)
		for h := range groups * share {
			mv(unsafe.Add(w, h/share*t.RowBytes(k)), unsafe.Add(x, 4*h*k), unsafe.Add(y, 4*h*ldy), rows, k, ldw)
		}
	}
}

func wsumHeadsGo(sum func(v, p, y unsafe.Pointer, rows, d, ldv int), t tensor.Type) func(v, p, y unsafe.Pointer, ldv,
	ldp, shape int) {
	return func(v, p, y unsafe.Pointer, ldv, ldp, shape int) {
		rows, d, groups, share := headsShape(shape)
		for h := range groups * share {
			sum(unsafe.Add(v, h/share*t.RowBytes(d)), unsafe.Add(p, 4*h*ldp), unsafe.Add(y, 4*h*d), rows, d, ldv)
		}
	}
}

func packGo[T any](wide func(T) float32) func(src unsafe.Pointer, ld int, dst unsafe.Pointer, k, rows, width int) {
	return func(src unsafe.Pointer, ld int, dst unsafe.Pointer, k, rows, width int) {
		out := floats(dst, k*width)
		clear(out)
		for r := range rows {
			row := elements[T](src, r*ld, k)
			for i, v := range row {
				out[i*width+r] = wide(v)
			}
		}
	}
}

func spreadGo[T any](wide func(T) float32) func(src unsafe.Pointer, ld int, dst unsafe.Pointer, n, cols,
	apart int) int {
	return func(src unsafe.Pointer, ld int, dst unsafe.Pointer, n, cols, apart int) int {
		bad := float32(0)
		for c := 0; c < cols; c += goNR {
			out := elements[float32](dst, c/goNR*apart, n*goNR)
			clear(out)
			for r := range n {
				for i, v := range elements[T](src, r*ld+c, min(goNR, cols-c)) {
					out[r*goNR+i] = wide(v)
					bad += 0 * wide(v)
				}
			}
		}
		if bad == 0 {
			return 0
		}
		return 1
	}
}

func microGo(w, x, c unsafe.Pointer, ldc, k, shape int) {
	mr, nr, add := shape&255, shape>>8&255, shape>>16 != 0
	var acc [goNR][goMR]float32
	ws, xs := floats(w, k*goMR), floats(x, k*goNR)
	for ; len(ws) > 0; ws, xs = ws[goMR:], xs[goNR:] {
		wv, xv := (*[goMR]float32)(ws), (*[goNR]float32)(xs)
		for j, b := range xv {
			acc[j][0] += wv[0] * b
			acc[j][1] += wv[1] * b
			acc[j][2] += wv[2] * b
			acc[j][3] += wv[3] * b
		}
	}
	for j := range nr {
		out := elements[float32](c, j*ldc, mr)
		for i := range out {
			if add {
				out[i] += acc[j][i]
			} else {
				out[i] = acc[j][i]
			}
		}
	}
}

func mapGo[S, D any](f func(S) D) func(src, dst unsafe.Pointer, n int) {
	return func(src, dst unsafe.Pointer, n int) {
		in, out := elements[S](src, 0, n), elements[D](dst, 0, n)
		for i, v := range in {
			out[i] = f(v)
		}
	}
}

func gateGo(f func(float64) float64) func(y, x, u unsafe.Pointer, n int) {
	return func(y, x, u unsafe.Pointer, n int) {
		ys, xs := floats(y, n), floats(x, n)
		for i, v := range xs {
			g := float32(f(float64(v)))
			if u != nil {
				g *= floats(u, n)[i]
			}
			ys[i] = g
		}
	}
}
