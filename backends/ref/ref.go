// Package ref is the device that every other is compared with. It has one
// kernel: decode the operands to float64, call the operator's reference, write the
// results back. It is as plain as it is slow.
package ref

import (
	"fmt"
	"runtime/debug"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/memlimit"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

const align = 64

// New opens the device. Activations are float64; weights and states may have
// any type, and a state of a narrower type is rounded when it is written.
func New() backends.Device {
	d := &device{decoded: map[place]tensor.Tensor{}, keep: cacheBytes}
	if have, _ := d.FreeMemory(); have >= 0 {
		d.keep = min(d.keep, int(have/4))
	}
	return d
}

// cacheBytes bounds the decoded weights that are kept, and so does a fourth of what memory is left. Small models fit
// whole, which is what tests run; large ones are decoded again at each launch.
const cacheBytes = 512 << 20

// FreeMemory is what the system and the process's control groups leave.
func (*device) FreeMemory() (int64, string) {
	left := memlimit.Now()
	return left.Bytes, left.By
}

// Working is what decoded weights take that are kept, and the operands and results of the largest node.
func (d *device) Working(nodes []*graph.Node) int64 {
	var most, weights int64
	for _, n := range nodes {
		var sum int64
		for _, list := range [][]*graph.Value{n.In, n.Out} {
			for _, v := range list {
				if v != nil {
					sum += 8 * int64(v.Shape.Elems())
				}
			}
		}
		for _, v := range n.In {
			if v != nil && v.Kind == graph.Weight {
				weights += 8 * int64(v.Shape.Elems())
			}
		}
		most = max(most, sum)
	}
	return most + min(weights, int64(d.keep))
}

type device struct {
	mutex   backends.FairMutex
	decoded map[place]tensor.Tensor // weights as float64
	kept    int                     // bytes of them
	keep    int                     // most of them
}

// place is where a weight lies, and as what.
type place struct {
	data   *byte
	bytes  int
	stride int
	typ    tensor.Type
}

// forget drops what was decoded from a buffer.
func (d *device) forget(b *buffer) {
	for at, t := range d.decoded {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(b.data)))
		if p := uintptr(unsafe.Pointer(at.data)); from <= p && p < from+uintptr(len(b.data)) {
			delete(d.decoded, at)
			d.kept -= len(t.Data)
		}
	}
}

// Turn is for goroutines that share the device.
func (d *device) Mutex() *backends.FairMutex { return &d.mutex }

func (*device) Info() backends.Info {
	return backends.Info{Backend: "ref", Name: "float64 reference", Level: "go", Threads: 1, Float: tensor.F64,
		Align: align}
}

func (*device) Close() error { return nil }

// buffer is host memory.
type buffer struct {
	dev  *device
	data []byte
}

func (b *buffer) Size() int { return len(b.data) }

func (b *buffer) Free() error {
	b.dev.forget(b)
	b.data = nil
	return nil
}

func (d *device) Alloc(bytes int, _ backends.Use) (backends.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("ref: cannot allocate %d bytes", bytes)
	}
	d.makeRoom(bytes)
	return &buffer{d, tensor.Bytes(make([]uint64, (bytes+7)/8))[:bytes]}, nil
}

// Map uses host memory as it is. The device never writes to it unless told to.
func (d *device) Map(data []byte) (backends.Buffer, error) { return &buffer{d, data}, nil }

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
func (kernel) Traits() backends.Traits {
	return backends.Traits{Why: "the operator's reference or body, in float64"}
}

func (*device) Kernel(n *graph.Node) (backends.Kernel, error) {
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

func (d *device) launch(l *backends.Launch) error {
	if err := d.run(l); err != nil {
		return fmt.Errorf("%s: %w", l.Node, err)
	}
	return nil
}

func (d *device) run(l *backends.Launch) error {
	in, out := make([]tensor.Tensor, len(l.In)), make([]tensor.Tensor, len(l.Out))
	for i := range l.In {
		if l.In[i].Buffer == nil {
			continue
		}
		t, err := d.load(&l.In[i], l.Node.In[i].Kind == graph.Weight)
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
		d.makeRoom(8 * l.Out[i].Shape.Elems())
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
func (d *device) load(o *backends.Operand, weight bool) (tensor.Tensor, error) {
	if o.Packing != "" {
		return tensor.Tensor{}, fmt.Errorf("packed as %s, but the reference reads weights as stored", o.Packing)
	}
	if _, err := o.Shape.Bytes(o.Type); err != nil {
		return tensor.Tensor{}, err
	}
	if t, ok := inPlace(o); ok {
		return t, nil
	}
	if !weight {
		return d.decode(o)
	}
	first, err := row(o, 0)
	if err != nil {
		return tensor.Tensor{}, err
	}
	at := place{unsafe.SliceData(first), o.Type.RowBytes(o.Shape.Elems()), o.Stride, o.Type}
	if t, ok := d.decoded[at]; ok {
		t.Shape = o.Shape
		return t, nil
	}
	t, err := d.decode(o)
	if err == nil && d.kept+len(t.Data) <= d.keep {
		d.decoded[at] = t
		d.kept += len(t.Data)
	}
	return t, err
}

// makeRoom collects the garbage of earlier launches where so many bytes, and as many once more, are not free.
func (d *device) makeRoom(bytes int) {
	const large = 16 << 20
	if bytes < large {
		return
	}
	if have, _ := d.FreeMemory(); have >= 0 && have < 2*int64(bytes) {
		debug.FreeOSMemory()
	}
}

func (d *device) decode(o *backends.Operand) (tensor.Tensor, error) {
	d.makeRoom(8 * o.Shape.Elems())
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

type stream struct{ dev *device }

func (d *device) Stream() (backends.Stream, error) { return stream{d}, nil }

func (s stream) Launch(l *backends.Launch) error { return s.dev.launch(l) }
func (stream) Close() error                      { return nil }

func (s stream) Write(dst backends.Buffer, offset int, src []byte) error {
	to, err := bytes(dst, offset, len(src))
	if err != nil {
		return err
	}
	s.dev.forget(dst.(*buffer))
	copy(to, src)
	return nil
}

func (stream) Read(src backends.Buffer, offset int, dst []byte) error {
	from, err := bytes(src, offset, len(dst))
	copy(dst, from)
	return err
}

// Capture keeps the program. Unlike other devices this one allocates on replay.
func (d *device) Capture(p *backends.Program) (backends.Executable, error) {
	return &executable{dev: d, program: p}, nil
}

type executable struct {
	dev     *device
	program *backends.Program
	err     error
}

// Submit runs the program to its end; Wait tells what went wrong.
func (e *executable) Submit() error {
	e.err = nil
	for i := range e.program.Launches {
		if e.err = e.dev.launch(&e.program.Launches[i]); e.err != nil {
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
		if err := e.dev.launch(&e.program.Launches[i]); err != nil {
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
