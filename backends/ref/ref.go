// Package ref is the device that every other is compared with. It has one
// kernel: decode the operands to float64, call the operator's reference, write the
// results back. It is as plain as it is slow.
package ref

import (
	"fmt"
	"time"
	"unsafe"

	"greta/backends"
	"greta/graph"
	"greta/ops"
	"greta/tensor"
	"greta/weights/quant"
)

const align = 64

// New opens the device. Activations are float64; weights and states may have
// any type, and a state of a narrower type is rounded when it is written.
func New() backends.Device { return device{} }

type device struct{}

func (device) Info() backends.Info {
	return backends.Info{Backend: "ref", Name: "float64 reference", Level: "go", Threads: 1, Float: tensor.F64, Align: align}
}

func (device) Close() error { return nil }

// buffer is host memory.
type buffer struct{ data []byte }

func (b *buffer) Size() int   { return len(b.data) }
func (b *buffer) Free() error { b.data = nil; return nil }

func (device) Alloc(bytes int, _ backends.Use) (backends.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("ref: cannot allocate %d bytes", bytes)
	}
	return &buffer{tensor.Bytes(make([]uint64, (bytes+7)/8))[:bytes]}, nil
}

// Map uses host memory as it is. The device never writes to it unless told to.
func (device) Map(data []byte) (backends.Buffer, error) { return &buffer{data}, nil }

// bytes gives the range [offset, offset+n) of a buffer of this device.
func bytes(b backends.Buffer, offset, n int) ([]byte, error) {
	host, ok := b.(*buffer)
	if !ok {
		return nil, fmt.Errorf("ref: a buffer of another device (%T) was given", b)
	}
	if offset < 0 || n < 0 || offset > len(host.data) || n > len(host.data)-offset {
		return nil, fmt.Errorf("ref: bytes [%d, %d) lie outside a buffer of %d", offset, offset+n, len(host.data))
	}
	return host.data[offset : offset+n], nil
}

// kernel serves every node.
type kernel struct{}

func (kernel) Name() string                  { return "reference" }
func (kernel) Packing(int) *backends.Packing { return nil }
func (kernel) Scratch() int                  { return 0 }

func (device) Kernel(n *graph.Node) (backends.Kernel, error) {
	if n.Op.Ref == nil && n.Op.Body == "" {
		return nil, backends.Unsupportedf("ref", n, "it has neither a reference nor a body")
	}
	for _, vals := range [][]*graph.Value{n.In, n.Out} {
		for _, v := range vals {
			if v != nil && v.Type != tensor.I32 && !quant.Supported(v.Type) {
				return nil, backends.Unsupportedf("ref", n, "%s is of a type that cannot be decoded", v)
			}
		}
	}
	return kernel{}, nil
}

func launch(l *backends.Launch) error {
	if err := run(l); err != nil {
		return fmt.Errorf("%s: %w", l.Node, err)
	}
	return nil
}

func run(l *backends.Launch) error {
	in, out := make([]tensor.Tensor, len(l.In)), make([]tensor.Tensor, len(l.Out))
	for i := range l.In {
		if l.In[i].Buffer == nil {
			continue
		}
		t, err := load(&l.In[i])
		if err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		in[i] = t
	}
	for i := range l.Out {
		if l.Node.Op.Kind == graph.Update && i == 0 {
			out[0] = in[0]
			continue
		}
		out[i] = tensor.New(computed(l.Out[i].Type), l.Out[i].Shape...)
	}
	if err := l.Node.Reference(ops.Table, in, out); err != nil {
		return err
	}
	for i := range l.Out {
		if err := store(&l.Out[i], out[i]); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
	}
	return nil
}

// computed is the type in which references see elements of t.
func computed(t tensor.Type) tensor.Type {
	if t == tensor.I32 {
		return t
	}
	return tensor.F64
}

// row gives the bytes of row r of an operand.
func row(o *backends.Operand, r int) ([]byte, error) {
	return bytes(o.Buffer, o.Offset+r*o.Stride, o.Type.RowBytes(o.RowElems()))
}

// load decodes an operand, or sees it in place where it is what references read.
func load(o *backends.Operand) (tensor.Tensor, error) {
	if o.Packing != "" {
		return tensor.Tensor{}, fmt.Errorf("packed as %s, but the reference reads weights as stored", o.Packing)
	}
	if _, err := o.Shape.Bytes(o.Type); err != nil {
		return tensor.Tensor{}, err
	}
	if t, ok := inPlace(o); ok {
		return t, nil
	}
	t := tensor.New(computed(o.Type), o.Shape...)
	n := o.RowElems()
	for r := range o.Rows() {
		src, err := row(o, r)
		if err != nil {
			return t, err
		}
		if o.Type == tensor.I32 {
			copy(t.Data[4*n*r:], src)
		} else if err := quant.DecodeF64(o.Type, t.F64()[n*r:n*(r+1)], src); err != nil {
			return t, err
		}
	}
	return t, nil
}

func inPlace(o *backends.Operand) (tensor.Tensor, bool) {
	if computed(o.Type) != o.Type || !o.Dense() {
		return tensor.Tensor{}, false
	}
	data, err := bytes(o.Buffer, o.Offset, o.Type.RowBytes(o.Shape.Elems()))
	if err != nil || !aligned(data) {
		return tensor.Tensor{}, false
	}
	return tensor.Tensor{Type: o.Type, Shape: o.Shape, Data: data}, true
}

// store writes a result back, rounded to the operand's type. A state that was
// changed in place is there already.
func store(o *backends.Operand, t tensor.Tensor) error {
	n := o.RowElems()
	var narrow []float32
	for r := range o.Rows() {
		dst, err := row(o, r)
		if err != nil {
			return err
		}
		switch {
		case len(dst) == 0:
		case o.Type == tensor.I32:
			copy(dst, t.Data[4*n*r:])
		case o.Type == tensor.F64:
			copy(dst, tensor.Bytes(t.F64()[n*r:n*(r+1)]))
		default:
			if narrow == nil {
				narrow = make([]float32, n)
			}
			for i, v := range t.F64()[n*r : n*(r+1)] {
				narrow[i] = float32(v)
			}
			if err := quant.Encode(o.Type, dst, narrow, n); err != nil {
				return err
			}
		}
	}
	return nil
}

type stream struct{}

func (device) Stream() (backends.Stream, error) { return stream{}, nil }

func (stream) Launch(l *backends.Launch) error { return launch(l) }
func (stream) Close() error                    { return nil }

func (stream) Write(dst backends.Buffer, offset int, src []byte) error {
	to, err := bytes(dst, offset, len(src))
	copy(to, src)
	return err
}

func (stream) Read(src backends.Buffer, offset int, dst []byte) error {
	from, err := bytes(src, offset, len(dst))
	copy(dst, from)
	return err
}

// Capture keeps the program. Unlike other devices this one allocates on replay.
func (device) Capture(p *backends.Program) (backends.Executable, error) {
	return &executable{program: p}, nil
}

type executable struct {
	program *backends.Program
	err     error
}

// Submit runs the program to its end; Wait tells what went wrong.
func (e *executable) Submit() error {
	e.err = nil
	for i := range e.program.Launches {
		if e.err = launch(&e.program.Launches[i]); e.err != nil {
			break
		}
	}
	return nil
}

func (e *executable) Wait() error  { return e.err }
func (e *executable) Close() error { return nil }

func (e *executable) Profile() ([]time.Duration, error) {
	times := make([]time.Duration, len(e.program.Launches))
	for i := range times {
		start := time.Now()
		if err := launch(&e.program.Launches[i]); err != nil {
			return nil, err
		}
		times[i] = time.Since(start)
	}
	return times, nil
}

// aligned says whether data can be seen as float64.
func aligned(data []byte) bool {
	return len(data) > 0 && uintptr(unsafe.Pointer(unsafe.SliceData(data)))%8 == 0
}
