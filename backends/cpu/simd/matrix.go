package simd

import (
	"fmt"
	"unsafe"

	"github.com/greta-project/greta/tensor"
)

// A call into assembly cannot be preempted, so it is kept under some tens of
// microseconds: so many bytes of weights, or so many elements of a vector.
const (
	callBytes    = 128 << 10
	callElements = 16 << 10
	// headCallBytes is what heads look at in a call: it is read in order, and so fast that shorter calls are felt.
	headCallBytes = 512 << 10
)

// Matrix is a view of rows in memory: weights of a file, or a cache of keys.
type Matrix struct {
	Type       tensor.Type
	Rows, Cols int
	Data       []byte
	// Stride is the distance of rows in bytes: a multiple of the element's
	// size for F32, F16 and BF16. Zero means dense.
	Stride int
	// Panels, of a plain type, are the matrix in the place of Data; nil where it has rows. Such a
	// matrix is for MulRows only.
	Panels *Panels
	// Decode widens len(dst) elements, whole blocks of a row, of the types that
	// no kernel reads directly; see Direct. It must be safe for concurrent use.
	Decode func(dst []float32, src []byte)
}

// Direct says whether the kernels read rows of type t as they are. Rows of
// other types go through Matrix.Decode.
func Direct(t tensor.Type) bool {
	switch t {
	case tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K:
		return true
	}
	return false
}

// Check reports why the kernels could not use m.
func (m Matrix) Check() error {
	if m.Rows < 0 || m.Cols < 0 {
		return fmt.Errorf("matrix of %d by %d", m.Rows, m.Cols)
	}
	if err := m.Type.CheckRow(m.Cols); err != nil {
		return err
	}
	if p := m.Panels; p != nil {
		if !plainPanel(m.Type) {
			return fmt.Errorf("panels of %s are for MulPanels", m.Type)
		}
		if p.Type != m.Type || p.Rows != m.Rows || p.Cols != m.Cols {
			return fmt.Errorf("a matrix of %s, %d by %d, in panels of %s, %d by %d", m.Type, m.Rows, m.Cols, p.Type, p.Rows,
				p.Cols)
		}
		return p.Check()
	}
	if !Direct(m.Type) && m.Decode == nil {
		return fmt.Errorf("no kernel reads %s and the matrix brings no decoder", m.Type)
	}
	row := m.Type.RowBytes(m.Cols)
	stride := m.stride()
	if stride < row && m.Rows > 1 {
		return fmt.Errorf("stride of %d bytes, but a row of %d %s has %d", stride, m.Cols, m.Type, row)
	}
	if e, b := m.Type.Block(); e == 1 && stride%b != 0 {
		return fmt.Errorf("stride of %d bytes is no multiple of an element of %s", stride, m.Type)
	}
	if m.Rows > 0 && len(m.Data) < (m.Rows-1)*stride+row {
		return fmt.Errorf("%d rows of %d bytes need %d bytes, the matrix has %d", m.Rows, stride, (m.Rows-1)*stride+row,
			len(m.Data))
	}
	return nil
}

func (m Matrix) stride() int {
	if m.Stride != 0 {
		return m.Stride
	}
	return m.Type.RowBytes(m.Cols)
}

// ld is the stride as the kernels want it: in elements for plain types.
func (m Matrix) ld() int {
	if e, b := m.Type.Block(); e == 1 {
		return m.stride() / b
	}
	return m.stride()
}

// row gives the bytes of row r.
func (m Matrix) row(r int) []byte {
	return m.Data[r*m.stride():][:m.Type.RowBytes(m.Cols)]
}

// MatVec computes y[i] = Σ_c m[r0+i, c]·x[c] for the rows r0 … r0+len(y)-1.
// len(x) is m.Cols. Activations are used as they are: the result differs from
// the exact one by f32 rounding only. Types that no kernel reads directly need
// scratch of m.Cols floats; others take nil. Panics where Check would fail or
// lengths disagree.
func (k *Kernels) MatVec(y []float32, m Matrix, r0 int, x, scratch []float32) {
	if len(x) != m.Cols || r0 < 0 || r0+len(y) > m.Rows {
		panic(fmt.Sprintf("simd: MatVec of rows %d to %d with %d activations on a %d by %d matrix", r0, r0+len(y), len(x),
			m.Rows, m.Cols))
	}
	if len(y) == 0 {
		return
	}
	_ = m.row(r0 + len(y) - 1)
	var mv func(w, x, y unsafe.Pointer, rows, k, ldw int)
	switch m.Type {
	case tensor.F32:
		mv = k.k.MvF32
	case tensor.F16:
		mv = k.k.MvF16
	case tensor.BF16:
		mv = k.k.MvBF16
	case tensor.Q8_0:
		mv = k.k.MvQ8_0
	case tensor.Q4_0:
		mv = k.k.MvQ4_0
	case tensor.Q4_K:
		mv = k.k.MvQ4_K
	case tensor.Q6_K:
		mv = k.k.MvQ6_K
	default:
		for i := range y {
			m.Decode(scratch[:m.Cols], m.row(r0+i))
			y[i] = k.Dot(scratch[:m.Cols], x)
		}
		return
	}
	per := max(1, callBytes/max(1, m.Type.RowBytes(m.Cols)))
	if per > 4 {
		per &^= 3 // kernels take four rows at a time
	}
	stride, ld := m.stride(), m.ld()
	base := unsafe.Pointer(unsafe.SliceData(m.Data))
	for i := 0; i < len(y); i += per {
		mv(unsafe.Add(base, (r0+i)*stride), ptr(x), ptr(y[i:]), min(per, len(y)-i), m.Cols, ld)
	}
}

// WeightedSum adds Σ_i p[i]·m[r0+i, c] to y[c]: attention's sum over value
// rows. m is F32, F16 or BF16.
func (k *Kernels) WeightedSum(y []float32, m Matrix, r0 int, p []float32) {
	if len(y) != m.Cols || r0 < 0 || r0+len(p) > m.Rows {
		panic(fmt.Sprintf("simd: WeightedSum of rows %d to %d into %d elements on a %d by %d matrix", r0, r0+len(p), len(y),
			m.Rows, m.Cols))
	}
	if len(p) == 0 {
		return
	}
	_ = m.row(r0 + len(p) - 1)
	var sum func(v, p, y unsafe.Pointer, rows, d, ldv int)
	switch m.Type {
	case tensor.F32:
		sum = k.k.WsumF32
	case tensor.F16:
		sum = k.k.WsumF16
	case tensor.BF16:
		sum = k.k.WsumBF16
	default:
		panic("simd: WeightedSum of " + m.Type.String())
	}
	per := max(1, callBytes/max(1, m.Type.RowBytes(m.Cols)))
	stride, ld := m.stride(), m.ld()
	base := unsafe.Pointer(unsafe.SliceData(m.Data))
	for i := 0; i < len(p); i += per {
		sum(unsafe.Add(base, (r0+i)*stride), ptr(p[i:]), ptr(y), min(per, len(p)-i), len(y), ld)
	}
}

// Heads says how a row of a matrix is divided: into groups of D columns, side by side, each of which
// Share heads look at.
type Heads struct{ D, Share int }

// most is what a kernel can be told of rows, of columns and of groups.
const most = 1<<16 - 1

// shape checks that the heads' rows r0 … r0+n-1 of m, with so many floats for each column and head and
// the last of each n, lie in memory, and gives the kernels' shape of no rows.
func (a Heads) shape(what string, m Matrix, r0, n, columns, others, ld int) int {
	groups := m.Cols / max(1, a.D)
	heads := groups * a.Share
	if a.D < 1 || a.D > most || groups > most || m.Cols != groups*a.D || a.Share < 1 || a.Share >= 1<<15 || r0 < 0 ||
		n < 0 || r0+n > m.Rows ||
		columns != heads*a.D || m.Type.CheckRow(a.D) != nil || ld < n || others < (heads-1)*ld+n {
		panic(fmt.Sprintf("simd: %s of rows %d to %d of a %d by %d matrix, %+v, %d and %d floats, %d apart", what, r0, r0+n,
			m.Rows, m.Cols, a, columns, others, ld))
	}
	return a.D<<16 | groups<<32 | a.Share<<48
}

// HeadMatVec computes y[h·ldy+i] = Σ_c m[r0+i, h/Share·D+c]·x[h·D+c] for the heads h and i < n: scores of keys that
// lie together by position, which are read in their order. m is F32, F16, BF16, F8E4M3 or, with D a multiple of 32,
// Q8_0.
func (k *Kernels) HeadMatVec(y []float32, ldy int, m Matrix, r0, n int, a Heads, x []float32) {
	shape := a.shape("HeadMatVec", m, r0, n, len(x), len(y), ldy)
	if n == 0 || m.Cols == 0 {
		return
	}
	_ = m.row(r0 + n - 1)
	var mv func(w, x, y unsafe.Pointer, ldw, ldy, shape int)
	switch m.Type {
	case tensor.F32:
		mv = k.k.MvhF32
	case tensor.F16:
		mv = k.k.MvhF16
	case tensor.BF16:
		mv = k.k.MvhBF16
	case tensor.F8E4M3:
		mv = k.k.MvhF8E4M3
	case tensor.Q8_0:
		mv = k.k.MvhQ8_0
	default:
		panic("simd: HeadMatVec of " + m.Type.String())
	}
	m.eachCall(r0, n, a, func(w unsafe.Pointer, i, rows int) {
		mv(w, ptr(x), ptr(y[i:]), m.ld(), ldy, shape|rows)
	})
}

// HeadWeightedSum adds Σ_i p[h·ldp+i]·m[r0+i, h/Share·D+c], i < n, to y[h·D+c] for the heads h: sums over values that
// lie as HeadMatVec's keys, of the same types.
func (k *Kernels) HeadWeightedSum(y []float32, m Matrix, r0, n int, a Heads, p []float32, ldp int) {
	shape := a.shape("HeadWeightedSum", m, r0, n, len(y), len(p), ldp)
	if n == 0 || m.Cols == 0 {
		return
	}
	_ = m.row(r0 + n - 1)
	var sum func(v, p, y unsafe.Pointer, ldv, ldp, shape int)
	switch m.Type {
	case tensor.F32:
		sum = k.k.WsumhF32
	case tensor.F16:
		sum = k.k.WsumhF16
	case tensor.BF16:
		sum = k.k.WsumhBF16
	case tensor.F8E4M3:
		sum = k.k.WsumhF8E4M3
	case tensor.Q8_0:
		sum = k.k.WsumhQ8_0
	default:
		panic("simd: HeadWeightedSum of " + m.Type.String())
	}
	m.eachCall(r0, n, a, func(v unsafe.Pointer, i, rows int) {
		sum(v, ptr(p[i:]), ptr(y), m.ld(), ldp, shape|rows)
	})
}

// eachCall calls f with the first of some rows and their number, from row r0+i on, until n rows are done.
func (m Matrix) eachCall(r0, n int, a Heads, f func(w unsafe.Pointer, i, rows int)) {
	per := min(most, max(1, headCallBytes/max(1, m.Type.RowBytes(m.Cols)*a.Share)))
	for i := 0; i < n; i += per {
		f(unsafe.Add(unsafe.Pointer(unsafe.SliceData(m.Data)), (r0+i)*m.stride()), i, min(per, n-i))
	}
}

// Decode widens len(dst) elements of type t, a multiple of its block, to f32
// and reports whether there is a kernel for t.
func (k *Kernels) Decode(t tensor.Type, dst []float32, src []byte) bool {
	var dec func(src, dst unsafe.Pointer, n int)
	switch t {
	case tensor.F32:
		if len(dst) > 0 {
			_ = src[4*len(dst)-1]
			copy(dst, unsafe.Slice((*float32)(ptr(src)), len(dst)))
		}
		return true
	case tensor.F16:
		dec = k.k.DecF16
	case tensor.BF16:
		dec = k.k.DecBF16
	case tensor.F8E4M3:
		dec = k.k.DecF8E4M3
	case tensor.Q8_0:
		dec = k.k.DecQ8_0
	case tensor.Q4_0:
		dec = k.k.DecQ4_0
	case tensor.Q4_K:
		dec = k.k.DecQ4_K
	case tensor.Q6_K:
		dec = k.k.DecQ6_K
	default:
		return false
	}
	if err := t.CheckRow(len(dst)); err != nil {
		panic("simd: Decode: " + err.Error())
	}
	for len(dst) > 0 {
		n := min(len(dst), callElements)
		b := t.RowBytes(n)
		_ = src[b-1]
		dec(ptr(src), ptr(dst), n)
		dst, src = dst[n:], src[b:]
	}
	return true
}

// EncodeF16 rounds to half precision, ties to even; overflow gives infinities.
func (k *Kernels) EncodeF16(dst []uint16, src []float32) { encode(k.k.EncF16, dst, src) }

// EncodeBF16 rounds to bfloat16, ties to even; NaNs stay quiet NaNs.
func (k *Kernels) EncodeBF16(dst []uint16, src []float32) { encode(k.k.EncBF16, dst, src) }

func encode(enc func(src, dst unsafe.Pointer, n int), dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for len(src) > 0 {
		n := min(len(src), callElements)
		enc(ptr(src), ptr(dst), n)
		dst, src = dst[n:], src[n:]
	}
}
