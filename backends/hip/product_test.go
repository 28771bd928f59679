package hip_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// TestLargeProducts checks products that fill a device with large tiles, whole
// and not, which the table of operators is too small for.
func TestLargeProducts(t *testing.T) {
	for _, half := range []bool{false, true} {
		with := open
		if half {
			with = openHalf
		}
		var cases []optest.Case
		for _, dtype := range []string{"f32", "f16", "q4_0"} {
			for _, shape := range [][3]int{{1536, 1664, 64}, {1501, 1603, 96}, {1536, 1664, 288}} {
				cases = append(cases, optest.Case{Name: fmt.Sprintf("%s/%v", dtype, shape), Eq: "y: linear(x, w)",
					Args: fmt.Sprintf("x float[%d, %d]; w %s[%d, %d]", shape[0], shape[2], dtype, shape[1], shape[2]), Rel: 1e-5,
					Abs: 1e-3})
			}
		}
		t.Run(fmt.Sprint("half=", half), func(t *testing.T) {
			inShards(t, with, len(cases), func(t *testing.T, dev *hip.Device, i int) { checkCase(t, dev, cases[i]) })
		})
	}
}

func checkCase(t *testing.T, dev *hip.Device, c optest.Case) {
	t.Run(c.Name, func(t *testing.T) {
		if err := optest.Check(dev, c); err != nil {
			t.Error(err)
		}
	})
}

// TestVariants checks every variant of a product's kernel, on shapes that are whole
// in its tiles and not, and on one that takes no cluster.
func TestVariants(t *testing.T) {
	dev := openHalf(t)
	var cases []optest.Case
	var variants []string
	for _, what := range []string{"f16 512 384 128", "f16 270 503 200", "f16 100 300 1096", "f16 1152 256 64",
		"bf16 1100 256 64",
		"q4_0 256 352 224", "q4_0 300 403 288", "q4_0 1152 256 192", "q8_0 1100 256 96", "q4_0 40 601 1056",
		"q4_K 300 403 768", "q4_K 512 352 1024", "q6_K 140 200 512", "f32 1501 1603 100",
		"f16 1 15001 1096", "q8_0 1 15001 1056", "q4_0 1 15001 1056", "q4_K 1 15001 768"} {
		// one row: more pairs than waves have at first

		var dtype string
		var rows, n, k int
		if _, err := fmt.Sscan(what, &dtype, &rows, &n, &k); err != nil {
			t.Fatal(err)
		}
		c := optest.Case{Eq: "y: linear(x, w)", Args: fmt.Sprintf("x float[%d, %d]; w %s[%d, %d]", rows, k, dtype, n, k),
			Rel: 1e-5, Abs: 1e-3}
		node, err := c.Bare(tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range dev.Variants(node) {
			c.Name = what + " " + v
			cases, variants = append(cases, c), append(variants, v)
		}
	}
	closing(t, dev)
	inShards(t, openHalf, len(cases), func(t *testing.T, dev *hip.Device, i int) {
		dev.Choose(func(*graph.Node) string { return variants[i] })
		checkCase(t, dev, cases[i])
	})
}

// TestProductSpeed times products with each kernel variant in a captured graph,
// as GRETA_HIP_PRODUCT names types of weights and rows, outputs and inputs, 4096 of
// each where they are left out: "f32,f16:512x11008x4096"; GRETA_HIP_VARIANT is a part of variants' names.
func TestProductSpeed(t *testing.T) {
	types := os.Getenv("GRETA_HIP_PRODUCT")
	if types == "" {
		t.Skip("GRETA_HIP_PRODUCT names no types")
	}
	for what := range strings.SplitSeq(types, ",") {
		name, shape, _ := strings.Cut(what, ":")
		rows, n, k := 4096, 4096, 4096
		if shape != "" {
			if _, err := fmt.Sscanf(shape, "%dx%dx%d", &rows, &n, &k); err != nil {
				t.Fatal(err)
			}
		}
		dev := openHalf(t)
		c := optest.Case{Name: "speed", Eq: "y: linear(x, w)", Args: fmt.Sprintf("x float[%d, %d]; w %s[%d, %d]", rows, k,
			name, n, k)}
		p, err := c.Prepare(tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range append([]string{""}, dev.Variants(p.Node)...) {
			if !strings.Contains(v, os.Getenv("GRETA_HIP_VARIANT")) && v != "" {
				continue
			}
			dev.Choose(func(*graph.Node) string { return v })
			d, err := timeLaunch(dev, p)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %d×%d×%d %s: %v, %.1f TFLOP/s", name, rows, n, k, v, d,
				2*float64(rows)*float64(n)*float64(k)/d.Seconds()/1e12)
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
	if n := k.Traits().Scratch; n > 0 {
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
