package engine_test

import (
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/open"
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
	logits := func(src weights.Source, dtype tensor.Type) []float64 {
		dev, err := cpu.New(2)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		opt := engine.Options{Model: f, Source: src, Device: dev, Context: 8, KV: tensor.F32, DType: dtype}
		_, s := testkit.Session(t, opt)
		out, err := s.Prefill(t.Context(), []int32{1, 484, 554})
		if err != nil {
			t.Fatal(err)
		}
		wide := make([]float64, len(out))
		for i, v := range out {
			wide[i] = float64(v)
		}
		return wide
	}
	want := logits(testkit.ScaledFP8{Source: src, Applied: true}, tensor.Invalid)
	for _, dtype := range []tensor.Type{tensor.Invalid, tensor.F32} {
		if rel, _ := engine.Errors(logits(testkit.ScaledFP8{Source: src}, dtype), want); !(rel <= 1e-5) {
			t.Errorf("type %v: relative L2 %.2e of factors beside the weights against factors in them", dtype, rel)
		}
	}
	if rel, _ := engine.Errors(want, logits(src, tensor.Invalid)); rel < 1e-3 || rel > 0.2 {
		t.Errorf("relative L2 %.2e of weights of eight bits against those as stored: the test shows nothing", rel)
	}
}
