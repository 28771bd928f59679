package optest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// poison fills guards, gaps between rows and results before a launch. As a
// float of any width it is NaN, as an integer -1: what reads it shows it.
const poison = 0xff

// rig places operands in buffers of their own with guard bands around them.
type rig struct {
	dev    backends.Device
	stream backends.Stream
	all    []*placed
}

// placed is an operand in a device's memory.
type placed struct {
	backends.Operand
	image []byte // what the whole buffer should hold
}

func newRig(dev backends.Device) (*rig, error) {
	s, err := dev.Stream()
	return &rig{dev: dev, stream: s}, err
}

func (r *rig) close() error {
	errs := []error{r.stream.Close()}
	for _, p := range r.all {
		errs = append(errs, p.Buffer.Free())
	}
	return errlist.Join(errs...)
}

// place allocates a tensor with gap elements behind each row; data nil leaves it poisoned.
func (r *rig) place(t tensor.Type, shape tensor.Shape, gap int, data []byte, use backends.Use) (*placed, error) {
	p := &placed{Operand: backends.Operand{Type: t, Shape: shape}}
	row := t.RowBytes(p.RowElems())
	p.Stride = row + t.RowBytes(gap)
	start := r.guard()
	p.image = bytes.Repeat([]byte{poison}, 2*start+p.Rows()*p.Stride)
	if data != nil {
		for i := range p.Rows() {
			copy(p.image[start+i*p.Stride:], data[i*row:(i+1)*row])
		}
	}
	return p, r.put(p, start, use)
}

// pack allocates a weight in the layout that a kernel asks for, packed in
// pieces as the loader does.
func (r *rig) pack(k *backends.Packing, t tensor.Type, shape tensor.Shape, data []byte) (*placed, error) {
	p := &placed{Operand: backends.Operand{Type: t, Shape: shape, Packing: k.ID}}
	p.Stride = t.RowBytes(p.RowElems())
	start, size := r.guard(), k.Size(t, shape)
	p.image = bytes.Repeat([]byte{poison}, 2*start+size)
	rows, step := shape.Rows(), max(1, k.Unit)
	for from := 0; from < rows; from += step {
		if err := k.Pack(p.image[start:start+size], data, t, shape, from, min(rows, from+step)); err != nil {
			return nil, err
		}
	}
	return p, r.put(p, start, backends.Weights)
}

// guard is the size of the bands before and behind an operand, so that its offset is aligned.
func (r *rig) guard() int {
	a := max(1, r.dev.Info().Align)
	return (256 + a - 1) / a * a
}

func (r *rig) put(p *placed, start int, use backends.Use) error {
	var err error
	if p.Buffer, err = r.dev.Alloc(len(p.image), use); err != nil {
		return err
	}
	r.all = append(r.all, p)
	p.Offset = start
	return r.stream.Write(p.Buffer, 0, p.image)
}

// reset writes the image again.
func (r *rig) reset(p *placed) error { return r.stream.Write(p.Buffer, 0, p.image) }

// unchanged says where the buffer differs from its image; results leaves out
// the operand's own elements.
func (r *rig) unchanged(p *placed, results bool) error {
	now := make([]byte, len(p.image))
	if err := r.stream.Read(p.Buffer, 0, now); err != nil {
		return err
	}
	if results {
		row := p.Type.RowBytes(p.RowElems())
		for i := range p.Rows() {
			at := p.Offset + i*p.Stride
			copy(now[at:at+row], p.image[at:])
		}
	}
	for i := range now {
		if now[i] != p.image[i] {
			return fmt.Errorf("byte %d of %s%v was overwritten (rows of %d bytes, %d apart)",
				i-p.Offset, p.Type, p.Shape, p.Type.RowBytes(p.RowElems()), p.Stride)
		}
	}
	return nil
}

// dense reads an operand's elements without the gaps.
func (r *rig) dense(p *placed) ([]byte, error) {
	row := p.Type.RowBytes(p.RowElems())
	data := tensor.New(p.Type, p.Shape...).Data
	for i := range p.Rows() {
		if err := r.stream.Read(p.Buffer, p.Offset+i*p.Stride, data[i*row:(i+1)*row]); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// use says for what a value's memory is.
func use(v *graph.Value) backends.Use {
	switch v.Kind {
	case graph.Weight:
		return backends.Weights
	case graph.State:
		return backends.States
	case graph.Input:
		return backends.Step
	}
	return backends.Arena
}

// compare says where got parts from want by more than the limits.
func compare(got, want tensor.Tensor, rel, abs float64) error {
	if want.Type == tensor.I32 {
		g := got.I32()
		for i, w := range want.I32() {
			if g[i] != w {
				return fmt.Errorf("element %d is %d, %d is wanted", i, g[i], w)
			}
		}
		return nil
	}
	g, w := got.F64(), want.F64()
	var diff, norm, worst float64
	at := 0
	for i := range w {
		if math.IsInf(w[i], 0) && g[i] == w[i] {
			continue
		}
		if math.IsNaN(g[i]) && math.IsNaN(w[i]) {
			continue
		}
		if math.IsNaN(g[i]) || math.IsNaN(w[i]) || math.IsInf(g[i], 0) {
			return fmt.Errorf("element %d of %v is %v, %g is wanted", i, want.Shape, g[i], w[i])
		}
		if math.IsInf(w[i], 0) {
			return fmt.Errorf("element %d of %v is %g, %g is wanted", i, want.Shape, g[i], w[i])
		}
		d := math.Abs(g[i] - w[i])
		if d > worst {
			worst, at = d, i
		}
		diff += d * d
		norm += w[i] * w[i]
	}
	if worst == 0 {
		return nil
	}
	if r := math.Sqrt(diff / norm); r > rel || worst > abs {
		return fmt.Errorf(
			"relative L2 %.3g (limit %.3g), max abs %.3g (limit %.3g) at element %d of %v: %.9g, %.9g is wanted",
			r, rel, worst, abs, at, want.Shape, g[at], w[at])
	}
	return nil
}

// slack is how much wider the limits are where activations are narrower than f32.
func slack(float tensor.Type) float64 {
	switch float {
	case tensor.F16:
		return 1 << 13
	case tensor.BF16:
		return 1 << 16
	}
	return 1
}
