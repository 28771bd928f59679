//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/synthetic"
)

// BenchmarkLinear runs linears of a 7B model's shapes over several matrices in
// turn, more than caches hold.
func BenchmarkLinear(b *testing.B) {
	dev := open(b, vulkan.Options{})
	stream, err := dev.Stream()
	if err != nil {
		b.Fatal(err)
	}
	noise := make([]byte, 1<<20)
	rng := uint64(1)
	for i := range noise {
		rng = rng*6364136223846793005 + 1442695040888963407
		noise[i] = byte(rng >> 60)
	}
	alloc := func(b testing.TB, v *graph.Value, use backends.Use) backends.Operand {
		return filled(b, dev, stream, v, use, noise)
	}
	shapes := [][2]int{{4096, 4096}, {11008, 4096}, {4096, 11008}}
	for _, t := range []tensor.Type{tensor.F16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K} {
		for _, shape := range shapes {
			b.Run(fmt.Sprintf("%s/%dx%d", t, shape[0], shape[1]), func(b *testing.B) {
				w := &graph.Value{Name: "w", Kind: graph.Weight, Type: t, Shape: tensor.Shape{shape[0], shape[1]}}
				weights := make([]backends.Operand, 6)
				for i := range weights {
					weights[i] = alloc(b, w, backends.Weights)
				}
				for _, c := range []int{1, 4, 512} {
					b.Run(fmt.Sprintf("s=%d", c), func(b *testing.B) {
						replay(b, linears(b, dev, w, weights, c, alloc), w.Shape.Elems(), len(weights), c, t)
					})
				}
			})
		}
	}
}

// BenchmarkProduct multiplies 4096 rows by a matrix of 4096×4096 of f32 and of f16, random numbers, with all paths on.
func BenchmarkProduct(b *testing.B) {
	for _, t := range []tensor.Type{tensor.F32, tensor.F16} {
		b.Run(t.String(), func(b *testing.B) {
			run := products(b, t, productRows, productRows, productRows)
			replay(b, run, productRows*productRows, productTimes, productRows, t)
		})
	}
}

// TestProductSpeed times what BenchmarkProduct does for types that GRETA_VULKAN_PRODUCT names in a
// short time: the median of 15 replays after a third of a second of them, in which a card that
// idled has its clock again and none has used up its power.
func TestProductSpeed(t *testing.T) {
	types := os.Getenv("GRETA_VULKAN_PRODUCT")
	if types == "" {
		t.Skip("GRETA_VULKAN_PRODUCT names no types")
	}
	for what := range strings.SplitSeq(types, ",") {
		t.Run(what, func(t *testing.T) {
			name, shape, _ := strings.Cut(what, ":")
			typ, ok := tensor.ParseType(name)
			if !ok {
				t.Fatalf("no type %s", name)
			}
			rows, n, k := productRows, productRows, productRows
			if shape != "" {
				if _, err := fmt.Sscanf(shape, "%dx%dx%d", &rows, &n, &k); err != nil {
					t.Fatal(err)
				}
			}
			run := products(t, typ, rows, n, k)
			for start := time.Now(); time.Since(start) < time.Second/3; {
				run()
			}
			var times []time.Duration
			for range 15 {
				start := time.Now()
				run()
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			d := times[len(times)/2] / productTimes
			t.Logf("%s %d×%d×%d: %v, %.1f TFLOP/s", name, rows, n, k, d, 2*float64(rows)*float64(n)*float64(k)/d.Seconds()/1e12)
		})
	}
}

// productTimes products are one program, so that the host's way there and back is a part of none of them.
const productRows, productTimes = 4096, 40

// products gives products as one program, without the paths that GRETA_VULKAN_WITHOUT names.
func products(tb testing.TB, t tensor.Type, rows, n, k int) (run func()) {
	dev := open(tb, vulkan.Options{FP16: backends.On})
	asked(tb, dev)
	stream, err := dev.Stream()
	if err != nil {
		tb.Fatal(err)
	}
	alloc := func(tb testing.TB, v *graph.Value, use backends.Use) backends.Operand {
		data := make([]byte, v.Bytes())
		if err := synthetic.FillKind(data, v.Type, v.Shape, v.Name, 1, synthetic.Matrix); err != nil {
			tb.Fatal(err)
		}
		return filled(tb, dev, stream, v, use, data)
	}
	w := &graph.Value{Name: "w", Kind: graph.Weight, Type: t, Shape: tensor.Shape{n, k}}
	return linears(tb, dev, w, slices.Repeat([]backends.Operand{alloc(tb, w, backends.Weights)}, productTimes), rows,
		alloc)
}

// asked turns off the paths that GRETA_VULKAN_WITHOUT names, and chooses the variant of
// GRETA_VULKAN_VARIANT where there is one.
func asked(tb testing.TB, dev *vulkan.Device) {
	tb.Helper()
	for name := range strings.FieldsSeq(os.Getenv("GRETA_VULKAN_WITHOUT")) {
		if err := dev.SetPath(name, false); err != nil {
			tb.Fatal(err)
		}
	}
	if want := os.Getenv("GRETA_VULKAN_VARIANT"); want != "" {
		dev.Choose(func(n *graph.Node) string {
			if slices.Contains(dev.Variants(n), want) {
				return want
			}
			return ""
		})
	}
}

// filled gives a value memory, filled with data again and again, a weight in the layout that its product wants.
func filled(b testing.TB, dev *vulkan.Device, stream backends.Stream, v *graph.Value, use backends.Use,
	data []byte) backends.Operand {
	o := backends.Operand{Type: v.Type, Shape: v.Shape, Stride: v.Type.RowBytes(v.Shape.Last())}
	all := v.Bytes()
	if v.Kind == graph.Weight {
		k, err := dev.Kernel(product(v, 1))
		if err != nil {
			b.Fatal(err)
		}
		if p := k.Packing(1); p != nil {
			o.Packing, all = p.ID, p.Size(v.Type, v.Shape)
			plain := slices.Repeat(data, (v.Bytes()+len(data)-1)/len(data))
			data = make([]byte, all)
			if err := p.Pack(data, plain[:v.Bytes()], v.Type, v.Shape, 0, v.Shape.Rows()); err != nil {
				b.Fatal(err)
			}
		}
	}
	var err error
	if o.Buffer, err = dev.Alloc(all, use); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { o.Buffer.Free() })
	for at := 0; at < all; at += len(data) {
		if err := stream.Write(o.Buffer, at, data[:min(len(data), all-at)]); err != nil {
			b.Fatal(err)
		}
	}
	return o
}

// product is a linear of s rows with a weight.
func product(w *graph.Value, s int) *graph.Node {
	x := &graph.Value{Name: "x", Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{s, w.Shape[1]}}
	y := &graph.Value{Name: "y", Type: tensor.F32, Shape: tensor.Shape{s, w.Shape[0]}}
	return &graph.Node{Name: "y", Op: ops.Linear, In: []*graph.Value{x, w}, Out: []*graph.Value{y}}
}

// linears is a program of a linear of s rows with each of the weights in turn.
func linears(b testing.TB, dev *vulkan.Device, w *graph.Value, weights []backends.Operand, s int,
	alloc func(testing.TB, *graph.Value, backends.Use) backends.Operand) (run func()) {
	n := product(w, s)
	k, err := dev.Kernel(n)
	if err != nil {
		b.Fatal(err)
	}
	p := &backends.Program{Name: b.Name()}
	// one result: each waits for the one before
	ox, oy := alloc(b, n.In[0], backends.Arena), alloc(b, n.Out[0], backends.Arena)
	for _, ow := range weights {
		p.Launches = append(p.Launches, backends.Launch{Node: n, Kernel: k, In: []backends.Operand{ox, ow},
			Out: []backends.Operand{oy}})
	}
	e, err := dev.Capture(p)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	run = func() {
		if err := e.Submit(); err != nil {
			b.Fatal(err)
		}
		if err := e.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	run()
	return run
}

// replay runs a program of so many products of weights with so many elements.
func replay(b *testing.B, run func(), elems, products, s int, t tensor.Type) {
	for b.Loop() {
		run()
	}
	seconds := b.Elapsed().Seconds() / float64(b.N) / float64(products)
	b.ReportMetric(float64(t.RowBytes(elems))/seconds/1e9, "GB/s")
	b.ReportMetric(2*float64(s)*float64(elems)/seconds/1e9, "GFlop/s")
}

// TestSubmitAllocates proves that a replayed step allocates nothing.
func TestSubmitAllocates(t *testing.T) {
	dev := open(t, vulkan.Options{})
	x := &graph.Value{Name: "x", Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{1, 64}}
	y := &graph.Value{Name: "y", Type: tensor.F32, Shape: tensor.Shape{1, 64}}
	n := &graph.Node{Name: "y", Op: ops.SiLU, In: []*graph.Value{x}, Out: []*graph.Value{y}}
	k, err := dev.Kernel(n)
	if err != nil {
		t.Fatal(err)
	}
	var o [2]backends.Operand
	for i := range o {
		buf, err := dev.Alloc(256, backends.Step)
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Free()
		o[i] = backends.Operand{Buffer: buf, Type: tensor.F32, Shape: x.Shape, Stride: 256}
	}
	e, err := dev.Capture(&backends.Program{Name: "silu", Launches: []backends.Launch{{Node: n, Kernel: k, In: o[:1],
		Out: o[1:]}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if a := testing.AllocsPerRun(100, func() {
		if e.Submit() != nil || e.Wait() != nil {
			t.Fatal("a replay failed")
		}
	}); a > 0 {
		t.Errorf("a replay allocates %g times", a)
	}
}
