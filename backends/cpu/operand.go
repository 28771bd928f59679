package cpu

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// rows is a float32 tensor as rows of its last dimension. A tensor's dimension
// 0 may be strided; inside one index of it rows follow each other.
type rows struct {
	data   []float32
	n      int // rows in all
	cols   int
	inner  int // rows in one index of dimension 0
	stride int // floats from one index of dimension 0 to the next
}

// row gives row i.
func (r *rows) row(i int) []float32 {
	at := i * r.cols
	if r.inner*r.cols != r.stride {
		at = i/r.inner*r.stride + i%r.inner*r.cols
	}
	return r.data[at : at+r.cols : at+r.cols]
}

// span gives n rows from row i on, of one index of dimension 0.
func (r *rows) span(i, n int) []float32 {
	at := i/r.inner*r.stride + i%r.inner*r.cols
	return r.data[at : at+n*r.cols : at+n*r.cols]
}

// dense says whether all rows follow each other.
func (r *rows) dense() bool { return r.inner*r.cols == r.stride || r.n <= r.inner }

// lead is the distance of rows in floats, where it is the same for all of them.
func (r *rows) lead() (int, bool) {
	if r.dense() {
		return r.cols, true
	}
	return r.stride, r.inner == 1
}

// floats sees an f32 operand as rows of its last dimension.
func floats(o *backends.Operand) (rows, error) {
	if o.Type != tensor.F32 {
		return rows{}, fmt.Errorf("an operand of f32 is wanted, not %s", o.Type)
	}
	r := rows{n: o.Shape.Rows(), cols: o.Shape.Last(), stride: o.Stride / 4, inner: 1}
	if len(o.Shape) > 1 {
		r.inner = tensor.Shape(o.Shape[1 : len(o.Shape)-1]).Elems()
	}
	if len(o.Shape) == 1 { // one row of scalars, dimension 0 being the row itself
		r.stride = r.cols
	}
	b, err := operandBytes(o)
	r.data = tensor.View[float32](b)
	return r, err
}

// operandBytes gives an operand's memory from its first byte to its last.
func operandBytes(o *backends.Operand) ([]byte, error) {
	n := o.Type.RowBytes(o.RowElems())
	if o.Rows() == 0 || n == 0 {
		return nil, nil
	}
	if e, size := o.Type.Block(); e == 1 && (o.Offset%size != 0 || o.Stride%size != 0) {
		return nil, fmt.Errorf("offset %d and stride %d are not multiples of %s's %d bytes", o.Offset, o.Stride, o.Type, size)
	}
	return hostRange(o.Buffer, o.Offset, (o.Rows()-1)*o.Stride+n)
}

// ints sees a dense i32 operand.
func ints(o *backends.Operand) ([]int32, error) {
	if o.Type != tensor.I32 || !o.Dense() {
		return nil, fmt.Errorf("a dense operand of i32 is wanted, not %s with stride %d", o.Type, o.Stride)
	}
	b, err := operandBytes(o)
	return tensor.View[int32](b), err
}

// vector sees a small operand, such as a norm's weights or a bias, as float32: as it lies, or converted. Weights are
// converted once; what a step computes is converted before each run of the launch that is being bound.
func vector(d *Device, o *backends.Operand) ([]float32, error) {
	if o.Buffer == nil {
		return nil, nil
	}
	if o.Type == tensor.F32 && o.Dense() {
		b, err := operandBytes(o)
		return tensor.View[float32](b), err
	}
	out := make([]float32, o.Shape.Elems())
	row := o.RowElems()
	b, err := operandBytes(o)
	if err != nil {
		return nil, err
	}
	convert := func() error {
		for i := range o.Rows() {
			from := b[i*o.Stride:][:o.Type.RowBytes(row)]
			if err := quant.Decode(o.Type, out[i*row:(i+1)*row], from); err != nil {
				return err
			}
		}
		return nil
	}
	if o.Changes() {
		d.changing = append(d.changing, convert)
		return out, nil
	}
	return out, convert()
}

// converting is a launch with operands that are converted before each run.
type converting struct {
	runner
	convert []func() error
}

func (c *converting) run(p *pool.Pool) error {
	for _, convert := range c.convert {
		if err := convert(); err != nil {
			return err
		}
	}
	return c.runner.run(p)
}

// readable says whether weights or caches of a type can be read.
func readable(t tensor.Type) bool { return simd.Direct(t) || quant.Supported(t) }

// matrix sees an operand of any type as rows of its last dimension.
func matrix(o *backends.Operand) (simd.Matrix, error) {
	b, err := operandBytes(o)
	if err != nil {
		return simd.Matrix{}, err
	}
	m := simd.Matrix{Type: o.Type, Rows: o.Shape.Rows(), Cols: o.Shape.Last(), Data: b}
	if len(o.Shape) == 2 {
		m.Stride = o.Stride
	} else if !o.Dense() {
		return m, fmt.Errorf("a tensor of %d dimensions with gaps is no matrix", len(o.Shape))
	}
	m.Decode = decoderOf(o.Type)
	return m, m.Check()
}

// decoderOf gives what widens rows of a type, nil where the kernels read it as it is.
func decoderOf(t tensor.Type) func(dst []float32, src []byte) {
	if simd.Direct(t) {
		return nil
	}
	return func(dst []float32, src []byte) {
		if err := quant.Decode(t, dst, src); err != nil {
			panic(err) // sizes were checked when the matrix was made
		}
	}
}

// decodeRow widens one row of a matrix.
func (d *Device) decodeRow(dst []float32, m *simd.Matrix, r int) {
	stride := m.Stride
	if stride == 0 {
		stride = m.Type.RowBytes(m.Cols)
	}
	src := m.Data[r*stride:][:m.Type.RowBytes(m.Cols)]
	if !d.k.Decode(m.Type, dst, src) {
		m.Decode(dst, src)
	}
}

// chunksOf divides n elements of work for the pool: one chunk where the work
// is too small to share, else chunks of about size.
func chunksOf(n, size int) (chunks, per int) {
	if n <= size {
		return 1, n
	}
	return (n + size - 1) / size, size
}

// inOut gives a launch's first operand and its first result, of f32 both.
func inOut(l *backends.Launch) (x, y rows, err error) {
	if x, err = floats(&l.In[0]); err == nil {
		y, err = floats(&l.Out[0])
	}
	return x, y, err
}
