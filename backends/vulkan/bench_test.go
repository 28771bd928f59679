//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"greta/backends"
	"greta/backends/vulkan"
	"greta/engine"
	"greta/graph"
	"greta/ops"
	"greta/tensor"
	"greta/weights/quant"
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

// BenchmarkProduct multiplies 4096 rows by a matrix of 4096×4096 of f32 and of f16, random
// numbers between -1 and 1, with all paths on.
func BenchmarkProduct(b *testing.B) {
	for _, t := range []tensor.Type{tensor.F32, tensor.F16} {
		b.Run(t.String(), func(b *testing.B) {
			run := products(b, t, productRows, productRows, productRows)
			replay(b, run, productRows*productRows, productTimes, productRows, t)
		})
	}
}

// TestProductSpeed times what BenchmarkProduct does for types that GRETA_VULKAN_PRODUCT names in a short time: the median of
// 15 replays after a third of a second of them, in which a card that idled has its clock again and none has used up
// its power.
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
	for name := range strings.FieldsSeq(os.Getenv("GRETA_VULKAN_WITHOUT")) {
		if err := dev.SetPath(name, false); err != nil {
			tb.Fatal(err)
		}
	}
	stream, err := dev.Stream()
	if err != nil {
		tb.Fatal(err)
	}
	values := engine.Activations(max(rows, n)*k, 1)
	alloc := func(tb testing.TB, v *graph.Value, use backends.Use) backends.Operand {
		data := make([]byte, v.Bytes())
		if err := quant.Encode(v.Type, data, values[:v.Shape.Elems()], v.Shape.Last()); err != nil {
			tb.Fatal(err)
		}
		return filled(tb, dev, stream, v, use, data)
	}
	w := &graph.Value{Name: "w", Kind: graph.Weight, Type: t, Shape: tensor.Shape{n, k}}
	return linears(tb, dev, w, slices.Repeat([]backends.Operand{alloc(tb, w, backends.Weights)}, productTimes), rows, alloc)
}

// filled gives a value memory, filled with data again and again.
func filled(b testing.TB, dev *vulkan.Device, stream backends.Stream, v *graph.Value, use backends.Use, data []byte) backends.Operand {
	buf, err := dev.Alloc(v.Bytes(), use)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { buf.Free() })
	for at := 0; at < v.Bytes(); at += len(data) {
		if err := stream.Write(buf, at, data[:min(len(data), v.Bytes()-at)]); err != nil {
			b.Fatal(err)
		}
	}
	return backends.Operand{Buffer: buf, Type: v.Type, Shape: v.Shape, Stride: v.Type.RowBytes(v.Shape.Last())}
}

// linears is a program of a linear of s rows with each of the weights in turn.
func linears(b testing.TB, dev *vulkan.Device, w *graph.Value, weights []backends.Operand, s int,
	alloc func(testing.TB, *graph.Value, backends.Use) backends.Operand) (run func()) {
	x := &graph.Value{Name: "x", Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{s, w.Shape[1]}}
	y := &graph.Value{Name: "y", Type: tensor.F32, Shape: tensor.Shape{s, w.Shape[0]}}
	n := &graph.Node{Name: "y", Op: ops.Linear, In: []*graph.Value{x, w}, Out: []*graph.Value{y}}
	k, err := dev.Kernel(n)
	if err != nil {
		b.Fatal(err)
	}
	p := &backends.Program{Name: b.Name()}
	ox, oy := alloc(b, x, backends.Arena), alloc(b, y, backends.Arena) // one result: each waits for the one before
	for _, ow := range weights {
		p.Launches = append(p.Launches, backends.Launch{Node: n, Kernel: k, In: []backends.Operand{ox, ow}, Out: []backends.Operand{oy}})
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
	e, err := dev.Capture(&backends.Program{Name: "silu", Launches: []backends.Launch{{Node: n, Kernel: k, In: o[:1], Out: o[1:]}}})
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
