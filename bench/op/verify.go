package op

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// Verifying a kernel that this project did not write: every operand in a buffer of its own between sentinels, results
// filled with what no kernel writes, launched once and replayed.

// Refusal says what a kernel does wrong.
type Refusal struct{ What string }

func (e *Refusal) Error() string { return e.What }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// kernelOf is the kernel that runs the case: the user's, or what the device chooses.
func (c *Case) kernelOf(dev backends.Device) (backends.Kernel, error) {
	if c.Kernel != nil {
		return c.Kernel, nil
	}
	return dev.Kernel(c.Node)
}

// launched is the node as a launch of a kernel has it.
func (c *Case) launched(k backends.Kernel) *graph.Node {
	if backends.CustomOf(k) != nil {
		return backends.CustomNode(c.Node)
	}
	return c.Node
}

// Fits says whether the positions of the case's tokens lie in its cache.
func (c *Case) Fits() bool {
	limit := c.positions()
	return limit == 0 || c.Node.Op.Name == "rope" || c.First+c.tokens() <= limit
}

// Flops is what one execution computes.
func (c *Case) Flops() float64 { return c.cost().Flops }

// ByDevice makes a reference of what the device's own kernel gives, for cases whose float64 reference takes too long.
func ByDevice(dev backends.Device, c *Case) (*Reference, error) {
	data, err := c.data()
	if err != nil {
		return nil, err
	}
	own := *c
	own.Kernel = nil
	p, err := own.place(dev, data, 0, 1)
	if err != nil {
		return nil, err
	}
	l := p.launch(0)
	got, err := [][]byte(nil), p.stream.Launch(&l)
	if err == nil {
		got, err = p.results()
	}
	if err = errlist.Join(err, p.close()); err != nil {
		return nil, err
	}
	r := &Reference{data: data}
	for i, v := range c.Node.Out {
		t, err := optest.Decode(v.Type, v.Shape, got[i])
		if err != nil {
			return nil, err
		}
		r.want = append(r.want, t)
	}
	return r, nil
}

// sentinel is the size of the bands around operands, bytes: a row of many kernels. far is that of the band behind
// results where writes far away are looked for, which drivers may drop silently behind a buffer's end.
const (
	sentinel = 16 << 10
	far      = 8 << 20
)

// banded is an operand between two bands.
type banded struct {
	name string
	v    *graph.Value
	backends.Operand
	image []byte // what the buffer holds before a launch
	size  int    // bytes between the bands
	out   bool
}

// verifier is a case placed so.
type verifier struct {
	dev    backends.Device
	stream backends.Stream
	c      *Case
	behind int // bytes of the band behind results
	all    []*banded
	launch backends.Launch
}

// Verify launches the case's kernel, which must be set, and compares with the reference. Its error is a *Refusal where
// the kernel gives wrong results, leaves some out, writes elsewhere, or does not give the same ones again. What it
// writes up to 16 KiB away from an operand is found; with wide, which takes some milliseconds more, up to 8 MiB behind
// a result.
func Verify(dev backends.Device, c *Case, ref *Reference, wide bool) (err error) {
	v := &verifier{dev: dev, c: c, behind: sentinel}
	if wide {
		v.behind = far
	}
	if v.stream, err = dev.Stream(); err != nil {
		return err
	}
	defer func() {
		err = errlist.Join(err, v.stream.Close())
		for _, b := range v.all {
			err = errlist.Join(err, b.Buffer.Free())
		}
	}()
	if err := v.place(ref.data); err != nil {
		return err
	}
	limit := Limit(dev.Info().Float, c.Kernel.Traits().Tolerance, c.Node)
	program := &backends.Program{Name: "check of " + c.Kernel.Name(), Launches: []backends.Launch{v.launch}}
	var first [][]byte
	for pass, fill := range []byte{0xff, 0x7f, 0xff} {
		if err := v.fill(fill); err != nil {
			return err
		}
		if pass == 0 {
			err = v.stream.Launch(&v.launch)
		} else {
			var e backends.Executable
			if e, err = dev.Capture(program); err == nil {
				err = errlist.Join(e.Submit(), e.Wait(), e.Close())
			}
		}
		if err != nil {
			return refuse("launching it fails: %v", err)
		}
		got, err := v.read()
		if err != nil {
			return err
		}
		for i, g := range got {
			out := v.c.Node.Out[i]
			if pass > 0 {
				if k := firstDifference(g, first[i], out); k >= 0 {
					return refuse("%s is another one when the kernel runs again on the same operands: it reads what nobody wrote, "+
						"or its threads race", element(v.outName(i), out, k))
				}
				continue
			}
			if err := compare(v.outName(i), out, g, ref.want[i], fill, limit); err != nil {
				return err
			}
		}
		if pass == 0 {
			first = got
		}
	}
	return nil
}

func (v *verifier) outName(i int) string { return v.c.Node.Op.Sig.Out[i].Name }

// place puts every operand in a buffer of its own.
func (v *verifier) place(data [][]byte) error {
	n, k := v.c.Node, v.c.Kernel
	v.launch = backends.Launch{Node: v.c.launched(k), Kernel: k}
	for i, in := range n.In {
		if in == nil {
			v.launch.In = append(v.launch.In, backends.Operand{})
			continue
		}
		bytes, id := data[i], ""
		if p := k.Packing(i); p != nil {
			bytes, id = make([]byte, p.Size(in.Type, in.Shape)), p.ID
			if err := packAll(p, bytes, data[i], in); err != nil {
				return err
			}
		}
		b, err := v.band(n.Op.Sig.In[i].Name, in, bytes, false)
		if err != nil {
			return err
		}
		b.Packing = id
		v.launch.In = append(v.launch.In, b.Operand)
	}
	for i, out := range n.Out {
		b, err := v.band(n.Op.Sig.Out[i].Name, out, make([]byte, out.Bytes()), true)
		if err != nil {
			return err
		}
		v.launch.Out = append(v.launch.Out, b.Operand)
	}
	return nil
}

func (v *verifier) band(name string, val *graph.Value, data []byte, out bool) (*banded, error) {
	use := backends.Arena
	switch val.Kind {
	case graph.Weight:
		use = backends.Weights
	case graph.State:
		use = backends.States
	}
	b := &banded{name: name, v: val, size: len(data), out: out,
		Operand: backends.Operand{Offset: sentinel, Type: val.Type, Shape: val.Shape}}
	b.Stride = val.Type.RowBytes(b.RowElems())
	behind := sentinel
	if out {
		behind = v.behind
	}
	b.image = make([]byte, sentinel+len(data)+behind)
	for i := range b.image {
		b.image[i] = byte(0xa5 ^ i*7)
	}
	copy(b.image[sentinel:], data)
	var err error
	if b.Buffer, err = v.dev.Alloc(len(b.image), use); err != nil {
		return nil, err
	}
	v.all = append(v.all, b)
	return b, v.stream.Write(b.Buffer, 0, b.image)
}

// fill writes every buffer anew, results with bytes that no kernel gives.
func (v *verifier) fill(with byte) error {
	for _, b := range v.all {
		if b.out {
			for i := range b.size {
				b.image[sentinel+i] = with
			}
		}
		if err := v.stream.Write(b.Buffer, 0, b.image); err != nil {
			return err
		}
	}
	return nil
}

// read gives the results, and refuses what was written elsewhere.
func (v *verifier) read() (results [][]byte, err error) {
	for _, b := range v.all {
		now := make([]byte, len(b.image))
		if err := v.stream.Read(b.Buffer, 0, now); err != nil {
			return nil, err
		}
		if b.out {
			results = append(results, slices.Clone(now[sentinel:sentinel+b.size]))
			copy(now[sentinel:sentinel+b.size], b.image[sentinel:])
		}
		if bytes.Equal(now, b.image) {
			continue
		}
		at := 0
		for now[at] == b.image[at] {
			at++
		}
		switch at -= sentinel; {
		case at < 0:
			return nil, refuse("it writes %d bytes before %s %s%v", -at, b.name, b.Type, b.Shape)
		case at >= b.size:
			return nil, refuse("it writes past the end of %s %s%v: to byte %d, it has %d", b.name, b.Type, b.Shape, at, b.size)
		}
		return nil, refuse("it writes to its operand %s, at byte %d", b.name, at)
	}
	return results, nil
}

func firstDifference(a, b []byte, v *graph.Value) int {
	for i := range a {
		if a[i] != b[i] {
			return i / v.Type.RowBytes(1)
		}
	}
	return -1
}

// element names an element of a tensor: y[4, 63] of f32[5, 64].
func element(name string, v *graph.Value, k int) string {
	at := make([]int, len(v.Shape))
	for d := len(v.Shape) - 1; d >= 0; d-- {
		at[d], k = k%v.Shape[d], k/v.Shape[d]
	}
	return fmt.Sprintf("%s%v of %s%v", name, tensor.Shape(at), v.Type, v.Shape)
}

// elementwise is how much more than the whole may be off a single element may, in terms of itself and of the root mean
// square of all: sums round differently where terms cancel.
const elementwise = 10

// compare names the first element that differs from what is wanted.
func compare(name string, v *graph.Value, got []byte, want tensor.Tensor, fill byte, limit float64) error {
	t, err := optest.Decode(v.Type, v.Shape, got)
	if err != nil {
		return err
	}
	size := v.Type.RowBytes(1)
	unwritten := bytes.Repeat([]byte{fill}, size)
	wrong := func(k int, have, right any) error {
		if bytes.Equal(got[k*size:(k+1)*size], unwritten) {
			return refuse("%s was not written", element(name, v, k))
		}
		return refuse("%s is %v, %v is wanted", element(name, v, k), have, right)
	}
	if want.Type == tensor.I32 {
		for k, w := range want.I32() {
			if g := t.I32()[k]; g != w {
				return wrong(k, g, w)
			}
		}
		return nil
	}
	g, w := t.F64(), want.F64()
	sum, off := 0.0, 0.0
	for k := range w {
		sum += w[k] * w[k]
		off += (g[k] - w[k]) * (g[k] - w[k])
	}
	rms := math.Sqrt(sum / float64(max(1, len(w))))
	for k := range w {
		if d := math.Abs(g[k] - w[k]); !(d <= elementwise*limit*(math.Abs(w[k])+rms)) {
			return wrong(k, g[k], w[k])
		}
	}
	if l2 := math.Sqrt(off / sum); off > 0 && !(l2 <= limit) {
		return refuse("%s%v is off by %.3g (relative L2), %.3g is allowed (tolerance: says more)", name, v.Shape, l2, limit)
	}
	return nil
}

// timeSamples is how often a program is timed.
const timeSamples = 7

// Time gives the median time of an execution in captured programs of many, each waiting for the one before it.
func Time(ctx context.Context, dev backends.Device, c *Case, ref *Reference) (_ time.Duration, err error) {
	p, err := c.place(dev, ref.data, 0, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errlist.Join(err, p.close()) }()
	one, err := dev.Capture(p.program(1))
	if err != nil {
		return 0, err
	}
	rough, err := fastest(one)
	if err = errlist.Join(err, one.Close()); err != nil {
		return 0, err
	}
	n := max(1, min(gpuLaunches/8, int(batchTime/max(rough, time.Nanosecond))))
	e, err := dev.Capture(p.program(n))
	if err != nil {
		return 0, err
	}
	defer func() { err = errlist.Join(err, e.Close()) }()
	var samples []time.Duration
	for range timeSamples {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t, err := run(e)
		if err != nil {
			return 0, err
		}
		samples = append(samples, t/time.Duration(n))
	}
	return backends.Median(samples), nil
}
