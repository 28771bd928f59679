package tensor

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// Shape is a list of sizes, slowest-varying first. A scalar has none.
type Shape []int

// String prints a shape as [2, 3].
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, n := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(n))
	}
	b.WriteByte(']')
	return b.String()
}

// Elems is the number of elements; CheckElems guards against overflow.
func (s Shape) Elems() int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// Equal says whether two shapes have the same sizes.
func (s Shape) Equal(t Shape) bool {
	if len(s) != len(t) {
		return false
	}
	for i := range s {
		if s[i] != t[i] {
			return false
		}
	}
	return true
}

// Last is the size of the fastest-varying dimension, 1 for a scalar.
func (s Shape) Last() int {
	if len(s) == 0 {
		return 1
	}
	return s[len(s)-1]
}

// Rows is the number of rows of Last elements.
func (s Shape) Rows() int {
	if len(s) == 0 {
		return 1
	}
	return s[:len(s)-1].Elems()
}

// Bytes gives the size in memory of a dense tensor, with an error where sizes
// are negative, overflow, or do not fit the type's blocks.
func (s Shape) Bytes(t Type) (int, error) {
	n := 1
	for _, d := range s {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative size", s)
		}
		if d != 0 && n > math.MaxInt/8/d {
			return 0, fmt.Errorf("shape %v overflows", s)
		}
		n *= d
	}
	if err := t.CheckRow(s.Last()); err != nil {
		return 0, err
	}
	return t.RowBytes(n), nil
}

// Tensor is a dense tensor in host memory, rows last.
type Tensor struct {
	Type  Type
	Shape Shape
	Data  []byte
}

// New allocates a zeroed tensor, aligned to 8 bytes at least.
func New(t Type, shape ...int) Tensor {
	n, err := Shape(shape).Bytes(t)
	if err != nil {
		panic("tensor.New: " + err.Error()) // a caller's bug: shapes from outside are checked before
	}
	return Tensor{Type: t, Shape: shape, Data: Bytes(make([]uint64, (n+7)/8))[:n]}
}

// Of wraps a slice without copying it; no shape means one dimension.
func Of[E Elem](data []E, shape ...int) Tensor {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	if Shape(shape).Elems() != len(data) {
		panic(fmt.Sprintf("tensor.Of: %d elements in shape %v", len(data), shape))
	}
	return Tensor{Type: typeOf[E](), Shape: shape, Data: Bytes(data)}
}

// Elem is a Go type that holds elements of a plain type. uint16 is bits, not numbers.
type Elem interface {
	~float64 | ~float32 | ~int64 | ~int32 | ~int16 | ~int8 | ~uint8
}

func typeOf[E Elem]() Type {
	var e E
	switch any(e).(type) {
	case float64:
		return F64
	case float32:
		return F32
	case int64:
		return I64
	case int32:
		return I32
	case int16:
		return I16
	case int8:
		return I8
	}
	return U8
}

// Bytes views a slice of plain elements as bytes.
func Bytes[E any](s []E) []byte {
	if len(s) == 0 {
		return nil
	}
	var e E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(e)))
}

// View sees bytes as elements of E. The bytes must be aligned for E, as those
// of New, of mapped files' aligned tensors and of backends' buffers are.
func View[E any](b []byte) []E {
	var e E
	n := int(unsafe.Sizeof(e))
	if len(b) < n {
		return nil
	}
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/n)
}

// F64 views the data of an F64 tensor.
func (t Tensor) F64() []float64 { t.must(F64); return View[float64](t.Data) }

// F32 views the data of an F32 tensor.
func (t Tensor) F32() []float32 { t.must(F32); return View[float32](t.Data) }

// I32 views the data of an I32 tensor.
func (t Tensor) I32() []int32 { t.must(I32); return View[int32](t.Data) }

func (t Tensor) must(want Type) {
	if t.Type != want {
		panic(fmt.Sprintf("tensor of %s read as %s", t.Type, want)) // a caller's bug
	}
}
