package synthetic

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"testing"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// shapeFor gives odd rows that a type can hold, some chunks in all.
func shapeFor(t tensor.Type) tensor.Shape {
	if elems, _ := t.Block(); elems > 1 {
		return tensor.Shape{201, 3 * 256}
	}
	return tensor.Shape{307, 501}
}

func fill(t testing.TB, typ tensor.Type, shape tensor.Shape, name string, seed uint64, kind Kind) []byte {
	t.Helper()
	n, err := shape.Bytes(typ)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Repeat([]byte{0xff}, n)
	if err := FillKind(b, typ, shape, name, seed, kind); err != nil {
		t.Fatal(err)
	}
	return b
}

func values(t testing.TB, typ tensor.Type, shape tensor.Shape, b []byte) []float32 {
	t.Helper()
	v := make([]float32, shape.Elems())
	if err := quant.Decode(typ, v, b); err != nil {
		t.Fatal(err)
	}
	return v
}

func moments(v []float32) (mean, std float64) {
	for _, x := range v {
		mean += float64(x)
	}
	mean /= float64(len(v))
	for _, x := range v {
		std += (float64(x) - mean) * (float64(x) - mean)
	}
	return mean, math.Sqrt(std / float64(len(v)))
}

func TestSpread(t *testing.T) {
	for _, typ := range tensor.Types() {
		if !quant.Supported(typ) {
			continue
		}
		for _, c := range []struct {
			kind      Kind
			mean, std float64
		}{{Matrix, 0, 1 / math.Sqrt(float64(shapeFor(typ).Last()))}, {Norm, 1, 0.15}, {Bias, 0, 0.1}} {
			if c.kind != Matrix && typ.IsBlock() {
				continue
			}
			shape := shapeFor(typ)
			v := values(t, typ, shape, fill(t, typ, shape, "w", 1, c.kind))
			mean, std := moments(v)
			// The decoded spread is right to a few percent; a mean's own deviation is std/√n,
			// for blocks std/√blocks at worst.
			tolerance := 0.04
			if bytesOf(typ) == 1 { // codes around 1 are an eighth or a quarter apart
				tolerance = 0.1
			}
			if math.Abs(std/c.std-1) > tolerance || math.Abs(mean-c.mean) > tolerance*c.std/2 {
				t.Errorf("%s kind %d: mean %.5f, std %.5f; expected %.5f, %.5f", typ, c.kind, mean, std, c.mean, c.std)
			}
			for i, x := range v {
				if math.IsNaN(float64(x)) || math.Abs(float64(x)-c.mean) > 12*c.std {
					t.Fatalf("%s kind %d: element %d is %g", typ, c.kind, i, x)
				}
			}
		}
	}
}

// TestProduct sees that rows keep the size of what they are multiplied with.
func TestProduct(t *testing.T) {
	for _, typ := range []tensor.Type{tensor.BF16, tensor.Q4_0, tensor.Q4_K, tensor.Q2_K, tensor.Q6_K} {
		shape := tensor.Shape{256, 1024}
		w := values(t, typ, shape, fill(t, typ, shape, "w", 3, Matrix))
		x := values(t, tensor.F32, tensor.Shape{1024}, fill(t, tensor.F32, tensor.Shape{1024}, "x", 3, Norm))
		y := make([]float32, 256)
		for i := range y {
			for j := range x {
				y[i] += w[i*1024+j] * x[j]
			}
		}
		if _, std := moments(y); std < 0.7 || std > 1.5 { // x has a mean square of 1.02
			t.Errorf("%s: a product has std %.3f, expected about 1", typ, std)
		}
	}
}

func TestDeterminism(t *testing.T) {
	for _, typ := range tensor.Types() {
		if !quant.Supported(typ) {
			continue
		}
		shape := shapeFor(typ)
		want := fill(t, typ, shape, "blk.0.attn_q", 7, Matrix)
		old := runtime.GOMAXPROCS(1)
		one := fill(t, typ, shape, "blk.0.attn_q", 7, Matrix)
		runtime.GOMAXPROCS(old)
		if !bytes.Equal(one, want) {
			t.Errorf("%s: one core gives other bytes", typ)
		}
		// A shorter tensor of the same row length is a prefix.
		short := tensor.Shape{shape[0] - 100, shape[1]}
		if b := fill(t, typ, short, "blk.0.attn_q", 7, Matrix); !bytes.Equal(b, want[:len(b)]) {
			t.Errorf("%s: fewer rows give other bytes", typ)
		}
		for name, b := range map[string][]byte{
			"seed": fill(t, typ, shape, "blk.0.attn_q", 8, Matrix), "name": fill(t, typ, shape, "blk.1.attn_q", 7, Matrix),
		} {
			same := 0
			for i := range b {
				if b[i] == want[i] {
					same++
				}
			}
			if same > len(b)*2/3 { // bytes of exponents agree
				t.Errorf("%s: another %s leaves %d of %d bytes", typ, name, same, len(b))
			}
		}
	}
}

// TestPinned holds the bytes of every machine and release: reports compare
// hashes of outputs made from synthetic weights.
func TestPinned(t *testing.T) {
	h := fnv.New64a()
	got := map[string]string{}
	for _, typ := range tensor.Types() {
		if !quant.Supported(typ) {
			continue
		}
		h.Reset()
		h.Write(fill(t, typ, shapeFor(typ), "pinned", 42, Matrix))
		got[typ.String()] = fmt.Sprintf("%016x", h.Sum64())
	}
	for name, want := range pinned {
		if got[name] != want {
			t.Errorf("%s: %s, expected %s", name, got[name], want)
		}
	}
	for name, hash := range got {
		if pinned[name] == "" {
			t.Errorf("%s is not pinned: its line in pinned_test.go is %q: %q,", name, name, hash)
		}
	}
}

func TestKindOf(t *testing.T) {
	for name, want := range map[string]Kind{
		"blk.0.attn_norm.weight": Norm, "q_norm": Norm, "model.norm.weight": Norm, "blk.3.attn_q.bias": Bias,
		"bq": Bias, "b_up": Bias, "bias": Bias, "rope_freqs.weight": Norm, "blk.0/bk": Bias, "out_norm": Norm,
	} {
		if got := KindOf(name, tensor.Shape{8}); got != want {
			t.Errorf("%s: kind %d, expected %d", name, got, want)
		}
		if KindOf(name, tensor.Shape{2, 8}) != Matrix {
			t.Errorf("%s: two dimensions are no matrix", name)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, err := range map[string]error{
		"short":   Fill(make([]byte, 15), tensor.F32, tensor.Shape{4}, "w", 1),
		"block":   Fill(make([]byte, 18), tensor.Q4_0, tensor.Shape{31}, "w", 1),
		"norm":    Fill(make([]byte, 18), tensor.Q4_0, tensor.Shape{32}, "norm", 1),
		"integer": Fill(make([]byte, 16), tensor.I32, tensor.Shape{2, 2}, "w", 1),
		"shape":   Fill(nil, tensor.F32, tensor.Shape{-1}, "w", 1),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := Fill(nil, tensor.F32, tensor.Shape{0, 4}, "w", 1); err != nil {
		t.Errorf("an empty weight: %v", err)
	}
}

func BenchmarkFill(b *testing.B) {
	for _, typ := range tensor.Types() {
		if !quant.Supported(typ) {
			continue
		}
		shape := tensor.Shape{4096, 4096}
		n, _ := shape.Bytes(typ)
		dst := make([]byte, n)
		b.Run(typ.String(), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := Fill(dst, typ, shape, "w", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
