package cpu_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// attentionProgram captures one attention over a cache that is full up to the
// last of s tokens.
func attentionProgram(tb testing.TB, threads, s, heads, groups, dh, context int, attrs string) (e backends.Executable,
	y, keys, values []byte) {
	tb.Helper()
	c := optest.Case{Name: "attention/bench", Eq: "y: attention(q, k, v, pos" + attrs + ")",
		Args: fmt.Sprintf("q float[%d, %d, %d]; k f16[%d, %d, %d]; v f16[%d, %d, %d]; pos i32[%d] =%d..",
			s, heads, dh, context, groups, dh, context, groups, dh, s, context-s)}
	p, err := c.Prepare(tensor.F32)
	if err != nil {
		tb.Fatal(err)
	}
	dev, err := cpu.New(threads)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { dev.Close() })
	k, err := dev.Kernel(p.Node)
	if err != nil {
		tb.Fatal(err)
	}
	l := backends.Launch{Node: p.Node, Kernel: k}
	place := func(t tensor.Type, shape tensor.Shape, data []byte) (backends.Operand, []byte) {
		size, err := shape.Bytes(t)
		if err != nil {
			tb.Fatal(err)
		}
		buf, err := dev.Alloc(size, backends.Arena)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { buf.Free() })
		b := buf.(interface{ Bytes() []byte }).Bytes()
		copy(b, data)
		return backends.Operand{Buffer: buf, Type: t, Shape: shape, Stride: t.RowBytes(shape[1:].Elems())}, b
	}
	for i, in := range p.In {
		o, b := place(in.Value.Type, in.Value.Shape, in.Data)
		l.In = append(l.In, o)
		switch i {
		case 1:
			keys = b
		case 2:
			values = b
		}
	}
	v := p.Node.Out[0]
	o, y := place(v.Type, v.Shape, nil)
	l.Out = append(l.Out, o)
	e, err = dev.Capture(&backends.Program{Name: c.Name, Launches: []backends.Launch{l}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { e.Close() })
	return e, y, keys, values
}

func step(tb testing.TB, e backends.Executable) {
	if err := e.Submit(); err != nil {
		tb.Fatal(err)
	}
	if err := e.Wait(); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkAttention gives the rate at which decode reads the cache, and
// prefill's arithmetic over the positions that each token sees.
func BenchmarkAttention(b *testing.B) {
	k, err := simd.Default()
	if err != nil {
		b.Fatal(err)
	}
	other := make([]byte, 80<<20)
	for i := 0; i < len(other); i += 4096 {
		other[i] = 1
	}
	for _, shape := range []struct{ heads, groups, dh int }{{32, 4, 64}, {32, 32, 128}} {
		for _, s := range []int{1, 512} {
			for _, context := range []int{512, 1536, 4096} {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("heads=%d:%dx%d/S=%d/context=%d/threads=%d", shape.heads, shape.groups, shape.dh, s, context,
						threads), func(b *testing.B) {
						e, _, keys, _ := attentionProgram(b, threads, s, shape.heads, shape.groups, shape.dh, context, "")
						// Of the best step, as neighbours only make them longer; and of a loop on
						// one thread that only reads the keys. In a model, weights drive one
						// layer's cache out before the next token.
						seconds, read := math.Inf(1), math.Inf(1)
						for b.Loop() {
							if s == 1 {
								k.Read(other, 1)
							}
							start := time.Now()
							step(b, e)
							seconds = min(seconds, time.Since(start).Seconds())
							if s == 1 {
								for _, streams := range simd.ReadStreams {
									k.Read(other, 1)
									start = time.Now()
									k.Read(keys, streams)
									read = min(read, time.Since(start).Seconds())
								}
							}
						}
						if s == 1 {
							b.ReportMetric(float64(len(keys))/read/1e9, "readGB/s")
							b.ReportMetric(float64(2*2*shape.groups*shape.dh*context)/seconds/1e9, "GB/s")
						}
						seen := float64(s) * (float64(context) - float64(s-1)/2)
						b.ReportMetric(4*seen*float64(shape.heads*shape.dh)/seconds/1e9, "GFLOP/s")
					})
				}
			}
		}
	}
}
