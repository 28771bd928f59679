//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"fmt"
	"testing"

	"greta/backends"
	"greta/backends/vulkan"
	"greta/graph"
	"greta/ops"
	"greta/tensor"
)

// BenchmarkLinear runs linears of a 7B model's shapes over several matrices in
// turn, more than caches hold.
func BenchmarkLinear(b *testing.B) {
	dev := open(b, vulkan.Options{})
	stream, err := dev.Stream()
	if err != nil {
		b.Fatal(err)
	}
	const copies = 6
	alloc := func(v *graph.Value, use backends.Use) backends.Operand {
		buf, err := dev.Alloc(v.Bytes(), use)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { buf.Free() })
		data := make([]byte, v.Bytes())
		x := uint64(1)
		for i := range data {
			x = x*6364136223846793005 + 1442695040888963407
			data[i] = byte(x >> 60)
		}
		if err := stream.Write(buf, 0, data); err != nil {
			b.Fatal(err)
		}
		return backends.Operand{Buffer: buf, Type: v.Type, Shape: v.Shape, Stride: v.Type.RowBytes(v.Shape.Last())}
	}
	for _, t := range []tensor.Type{tensor.F16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K} {
		for _, s := range []int{1, 4, 512} {
			for _, shape := range [][2]int{{4096, 4096}, {11008, 4096}, {4096, 11008}} {
				b.Run(fmt.Sprintf("%s/%dx%dx%d", t, s, shape[1], shape[0]), func(b *testing.B) {
					x := &graph.Value{Name: "x", Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{s, shape[1]}}
					w := &graph.Value{Name: "w", Kind: graph.Weight, Type: t, Shape: tensor.Shape{shape[0], shape[1]}}
					y := &graph.Value{Name: "y", Type: tensor.F32, Shape: tensor.Shape{s, shape[0]}}
					n := &graph.Node{Name: "y", Op: ops.Linear, In: []*graph.Value{x, w}, Out: []*graph.Value{y}}
					k, err := dev.Kernel(n)
					if err != nil {
						b.Fatal(err)
					}
					p := &backends.Program{Name: b.Name()}
					ox := alloc(x, backends.Arena)
					for range copies {
						p.Launches = append(p.Launches, backends.Launch{Node: n, Kernel: k,
							In: []backends.Operand{ox, alloc(w, backends.Weights)}, Out: []backends.Operand{alloc(y, backends.Arena)}})
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
					b.ResetTimer()
					for b.Loop() {
						run()
					}
					seconds := b.Elapsed().Seconds() / float64(b.N) / copies
					b.ReportMetric(float64(w.Bytes())/seconds/1e9, "GB/s")
					b.ReportMetric(2*float64(s)*float64(w.Shape.Elems())/seconds/1e9, "GFlop/s")
				})
			}
		}
	}
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
