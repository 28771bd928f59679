//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"fmt"
	"slices"
	"testing"

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
	alloc := func(b *testing.B, v *graph.Value, use backends.Use) backends.Operand {
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
					b.Run(fmt.Sprintf("s=%d", c), func(b *testing.B) { benchmark(b, dev, w, weights, c, alloc) })
				}
			})
		}
	}
}

// BenchmarkProduct multiplies 4096 rows by a matrix of 4096×4096 of f32 and of f16, random
// numbers between -1 and 1, with all paths on.
func BenchmarkProduct(b *testing.B) {
	dev := open(b, vulkan.Options{FP16: backends.On})
	stream, err := dev.Stream()
	if err != nil {
		b.Fatal(err)
	}
	const n = 4096
	values := engine.Activations(n*n, 1)
	alloc := func(b *testing.B, v *graph.Value, use backends.Use) backends.Operand {
		data := make([]byte, v.Bytes())
		if err := quant.Encode(v.Type, data, values, n); err != nil {
			b.Fatal(err)
		}
		return filled(b, dev, stream, v, use, data)
	}
	for _, t := range []tensor.Type{tensor.F32, tensor.F16} {
		b.Run(t.String(), func(b *testing.B) {
			w := &graph.Value{Name: "w", Kind: graph.Weight, Type: t, Shape: tensor.Shape{n, n}}
			o := alloc(b, w, backends.Weights)
			benchmark(b, dev, w, slices.Repeat([]backends.Operand{o}, 10), n, alloc)
		})
	}
}

// filled gives a value memory, filled with data again and again.
func filled(b *testing.B, dev *vulkan.Device, stream backends.Stream, v *graph.Value, use backends.Use, data []byte) backends.Operand {
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

// benchmark replays a linear of s rows with each of the weights in turn.
func benchmark(b *testing.B, dev *vulkan.Device, w *graph.Value, weights []backends.Operand, s int,
	alloc func(*testing.B, *graph.Value, backends.Use) backends.Operand) {
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
	defer e.Close()
	run := func() {
		if err := e.Submit(); err != nil {
			b.Fatal(err)
		}
		if err := e.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	run()
	for b.Loop() {
		run()
	}
	seconds := b.Elapsed().Seconds() / float64(b.N) / float64(len(weights))
	b.ReportMetric(float64(w.Bytes())/seconds/1e9, "GB/s")
	b.ReportMetric(2*float64(s)*float64(w.Shape.Elems())/seconds/1e9, "GFlop/s")
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
