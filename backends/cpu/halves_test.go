package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/tensor"
)

// TestHalvesInAnyOrder: products over compact panels have the same bits in whatever order, and by
// whichever worker, chunks are computed.
func TestHalvesInAnyOrder(t *testing.T) {
	const rows, cols, n, workers = 150, 2048 + 256, 300, 3
	d, err := New(workers)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !d.bf16 || !d.k.Compacts(tensor.BF16, cols) {
		t.Skip("no dot products of bf16 over compact panels")
	}
	r := rand.New(rand.NewPCG(1, 2))
	src := make([]byte, 0, 2*rows*cols)
	for i := range rows * cols {
		v := r.NormFloat64() / 50
		if i/(64*cols) == 1 { // panels that are plain
			v = math.Ldexp(v, r.IntN(60)-30)
		}
		h := tensor.F32ToBF16(float32(v))
		src = append(src, byte(h), byte(h>>8))
	}
	shape := tensor.Shape{rows, cols}
	data := make([]byte, compactSize(tensor.BF16, shape))
	if err := packCompact(data, src, tensor.BF16, shape, 0, rows); err != nil {
		t.Fatal(err)
	}
	m, err := simd.CompactPanels(tensor.BF16, rows, cols, data)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, n*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	var first []float32
	for turn := range 4 {
		y := make([]float32, n*rows)
		l := &linear{d: d, x: dense(x, n, cols), y: dense(y, n, rows)}
		d.forget()
		g := newHalves(d, l, m, &backends.Operand{Type: tensor.F32, Shape: tensor.Shape{n, cols}})
		g.prepare(d.pool)
		order := r.Perm(g.chunks())
		switch turn {
		case 0:
			slices.Sort(order)
		case 1:
			slices.Sort(order)
			slices.Reverse(order)
		}
		if g.across < 2 {
			t.Fatal("one chunk has all tiles")
		}
		for i, chunk := range order {
			g.do(i*turn%workers, chunk)
		}
		if first == nil {
			first = y
		} else if !slices.Equal(first, y) {
			t.Errorf("turn %d: other bits", turn)
		}
	}
}

// dense gives n rows that follow each other.
func dense(data []float32, n, cols int) rows {
	return rows{data: data, n: n, cols: cols, inner: 1, stride: cols}
}
