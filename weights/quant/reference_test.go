package quant

// Against files that GGML's own encoders and decoders wrote: input.f32, and for
// each type the encoded .blocks, the decoded .f32 and the relative error.

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
)

type reference struct {
	typ    tensor.Type
	relErr float64
}

func references(t testing.TB) (list []reference) {
	t.Helper()
	text, err := os.ReadFile(testfiles.Shared(t, "data", "ggml-quants", "MANIFEST.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var name string
		var block, size, total int
		var r reference
		if _, err := fmt.Sscanf(lines.Text(), "%s block %d bytes %d total %d relerr %g", &name, &block, &size, &total,
			&r.relErr); err != nil {
			t.Fatalf("MANIFEST.txt: %q: %v", lines.Text(), err)
		}
		var ok bool
		if r.typ, ok = tensor.ParseType(name); !ok {
			t.Fatalf("MANIFEST.txt: unknown type %q", name)
		}
		if e, b := r.typ.Block(); e != block || b != size {
			t.Errorf("%s: blocks of %d elements in %d bytes, expected %d in %d", name, e, b, block, size)
		}
		list = append(list, r)
	}
	if len(list) != 16 {
		t.Fatalf("MANIFEST.txt names %d types, expected 16", len(list))
	}
	return list
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(testfiles.Shared(t, "data", "ggml-quants", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readFloats(t testing.TB, name string) []float32 {
	t.Helper()
	b := readFile(t, name)
	v := make([]float32, len(b)/4)
	if err := Decode(tensor.F32, v, b); err != nil {
		t.Fatal(err)
	}
	return v
}

// relativeError is ‖got − want‖ / ‖want‖.
func relativeError(got, want []float32) float64 {
	var num, den float64
	for i := range want {
		e := float64(got[i]) - float64(want[i])
		num += e * e
		den += float64(want[i]) * float64(want[i])
	}
	return math.Sqrt(num / den)
}

func TestDecodeBitForBit(t *testing.T) {
	for _, r := range references(t) {
		t.Run(r.typ.String(), func(t *testing.T) {
			src := readFile(t, r.typ.String()+".blocks")
			want := readFloats(t, r.typ.String()+".f32")
			got := make([]float32, len(want))
			if err := Decode(r.typ, got, src); err != nil {
				t.Fatal(err)
			}
			wide := make([]float64, len(want))
			if err := DecodeF64(r.typ, wide, src); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("element %d: got %g (%#08x), expected %g (%#08x)", i, got[i], math.Float32bits(got[i]), want[i],
						math.Float32bits(want[i]))
				}
				if wide[i] != float64(want[i]) {
					t.Fatalf("element %d in float64: got %g, expected %g", i, wide[i], want[i])
				}
			}
		})
	}
}

// Encoders may be at most 2 % worse than GGML's on its own test input.
func TestEncodeErrorAgainstReference(t *testing.T) {
	x := readFloats(t, "input.f32")
	for _, r := range references(t) {
		y := roundTrip(t, r.typ, x, 256)
		got := relativeError(y, x)
		t.Logf("%-6s relative error %.6f, reference %.6f (%+.1f %%)", r.typ, got, r.relErr, 100*(got/r.relErr-1))
		if !(got <= 1.02*r.relErr) {
			t.Errorf("%s: relative error %.6f, expected at most %.6f", r.typ, got, 1.02*r.relErr)
		}
	}
}

// roundTrip encodes and decodes x.
func roundTrip(t testing.TB, typ tensor.Type, x []float32, rowElems int) []float32 {
	t.Helper()
	b := make([]byte, typ.RowBytes(len(x)))
	if err := Encode(typ, b, x, rowElems); err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	y := make([]float32, len(x))
	if err := Decode(typ, y, b); err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	return y
}
