package engine

import (
	"testing"

	"greta/internal/factors"
	"greta/internal/testfiles"
	"greta/models"
	"greta/tensor"
	"greta/weights"
	"greta/weights/open"
)

// TestScales: a checkpoint in 8-bit floats with factors computes what one in f32 does
// whose numbers have them applied, as it is and converted to another type.
func TestScales(t *testing.T) {
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	f, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	logits := func(src weights.Source, dtype tensor.Type) []float32 {
		s := newSession(t, newEngine(t, Options{Model: f, Source: src, Device: newCPU(t, 2), Context: 8, KV: tensor.F32, DType: dtype}))
		out, err := s.Prefill(t.Context(), []int32{1, 484, 554})
		if err != nil {
			t.Fatal(err)
		}
		return append([]float32(nil), out...)
	}
	want := logits(factors.Source{Source: src, Applied: true}, tensor.Invalid)
	for _, dtype := range []tensor.Type{tensor.Invalid, tensor.F32} {
		if rel, _ := Errors(widen(logits(factors.Source{Source: src}, dtype)), widen(want)); !(rel <= 1e-5) {
			t.Errorf("type %v: relative L2 %.2e of factors beside the weights against factors in them", dtype, rel)
		}
	}
	if rel, _ := Errors(widen(want), widen(logits(src, tensor.Invalid))); rel < 1e-3 || rel > 0.2 {
		t.Errorf("relative L2 %.2e of weights of eight bits against those as stored: the test shows nothing", rel)
	}
}
