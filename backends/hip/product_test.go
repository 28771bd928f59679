package hip_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"greta/backends"
	"greta/backends/hip"
	"greta/graph"
	"greta/ops/optest"
	"greta/tensor"
)

// TestLargeProducts checks products that fill a device with large tiles, whole
// and not, which the table of operators is too small for.
func TestLargeProducts(t *testing.T) {
	for _, half := range []bool{false, true} {
		dev := open(t)
		if half {
			closing(t, dev)
			dev = openHalf(t)
		}
		for _, dtype := range []string{"f32", "f16", "q4_0"} {
			for _, shape := range [][3]int{{1536, 1664, 64}, {1501, 1603, 96}} {
				c := optest.Case{Name: fmt.Sprintf("%s/%v/half=%v", dtype, shape, half), Eq: "y: linear(x, w)",
					Args: fmt.Sprintf("x float[%d, %d]; w %s[%d, %d]", shape[0], shape[2], dtype, shape[1], shape[2]), Rel: 1e-5, Abs: 1e-3}
				t.Run(c.Name, func(t *testing.T) {
					if err := optest.Check(dev, c); err != nil {
						t.Error(err)
					}
				})
			}
		}
		closing(t, dev)
	}
}

// TestProductSpeed times square products with each kernel variant in a captured
// graph, where GRETA_HIP_PRODUCT names types of weights: "f32,f16".
func TestProductSpeed(t *testing.T) {
	types := os.Getenv("GRETA_HIP_PRODUCT")
	if types == "" {
		t.Skip("GRETA_HIP_PRODUCT names no types")
	}
	const n = 4096
	for name := range strings.SplitSeq(types, ",") {
		dev := openHalf(t)
		c := optest.Case{Name: "speed", Eq: "y: linear(x, w)", Args: fmt.Sprintf("x float[%d, %d]; w %s[%d, %d]", n, n, name, n, n)}
		p, err := c.Prepare(tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range append([]string{""}, dev.Variants(p.Node)...) {
			dev.Choose(func(*graph.Node) string { return v })
			d, err := timeLaunch(dev, p)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s 4096^3 %s: %v, %.1f TFLOP/s", name, v, d, 2*n*n*n/d.Seconds()/1e12)
		}
		closing(t, dev)
	}
}

// timeLaunch gives the time of a node as one of ten in a captured program, the
// median of 15 replays after five that warm up.
func timeLaunch(dev *hip.Device, p *optest.Prepared) (d time.Duration, err error) {
	k, err := dev.Kernel(p.Node)
	if err != nil {
		return 0, err
	}
	stream, err := dev.Stream()
	if err != nil {
		return 0, err
	}
	var buffers []backends.Buffer
	defer func() {
		for _, b := range buffers {
			err = errors.Join(err, b.Free())
		}
		err = errors.Join(err, stream.Close())
	}()
	place := func(typ tensor.Type, shape tensor.Shape, data []byte, packing *backends.Packing) backends.Operand {
		o := backends.Operand{Type: typ, Shape: shape, Stride: typ.RowBytes(shape[1:].Elems())}
		size := typ.RowBytes(shape.Elems())
		if packing != nil {
			size, o.Packing = packing.Size(typ, shape), packing.ID
			packed := make([]byte, size)
			err = errors.Join(err, packing.Pack(packed, data, typ, shape, 0, shape[0]))
			data = packed
		}
		b, e := dev.Alloc(size, backends.Arena)
		if err = errors.Join(err, e); err != nil {
			return o
		}
		buffers = append(buffers, b)
		o.Buffer = b
		if data != nil {
			err = errors.Join(err, stream.Write(b, 0, data))
		}
		return o
	}
	l := backends.Launch{Node: p.Node, Kernel: k, In: make([]backends.Operand, len(p.Node.In))}
	for i, in := range p.In {
		if in.Data != nil {
			l.In[i] = place(in.Value.Type, in.Value.Shape, in.Data, k.Packing(i))
		}
	}
	for _, v := range p.Node.Out {
		l.Out = append(l.Out, place(v.Type, v.Shape, nil, nil))
	}
	if n := k.Scratch(); n > 0 {
		l.Scratch = place(tensor.U8, tensor.Shape{n}, nil, nil)
	}
	if err != nil {
		return 0, err
	}
	const launches = 10
	program := &backends.Program{Name: "speed"}
	for range launches {
		program.Launches = append(program.Launches, l)
	}
	e, err := dev.Capture(program)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	var times []time.Duration
	for range 20 {
		start := time.Now()
		if err := errors.Join(e.Submit(), e.Wait()); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start)/launches)
	}
	times = times[5:]
	slices.Sort(times)
	return times[len(times)/2], nil
}
