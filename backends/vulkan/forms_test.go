//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"context"
	"math"
	"testing"

	"greta/backends"
	"greta/backends/vulkan"
	"greta/engine"
	"greta/models"
	"greta/tensor"
)

// TestForms compares a captured model, whose launches hand each other converted
// activations and leave out norms that products compute, with the same launches
// one by one, which do neither.
func TestForms(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{"D": "256", "H": "4", "G": "2", "F": "768", "L": "2", "V": "500"}
	for _, fp16 := range []backends.Choice{backends.Off, backends.On} {
		dev := open(t, vulkan.Options{FP16: fp16})
		for _, dtype := range []tensor.Type{tensor.F32, tensor.F16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K} {
			t.Run(fp16.String()+"/"+dtype.String(), func(t *testing.T) {
				var want []float32
				for _, eager := range []bool{true, false} {
					e, err := engine.New(context.Background(), engine.Options{Model: file, Device: dev, Context: 64, DType: dtype, Seed: 3, Set: set, Eager: eager})
					if err != nil {
						t.Fatal(err)
					}
					got := run(t, e)
					e.Close()
					if eager {
						want = got
						continue
					}
					var d, n float64
					for i := range got {
						d += math.Pow(float64(got[i]-want[i]), 2)
						n += math.Pow(float64(want[i]), 2)
					}
					// A norm that is folded adds in another order; where activations are
					// rounded to bytes, one of them may then round the other way.
					limit := 1e-5
					if fp16 == backends.On && dtype.IsBlock() {
						limit = 1e-2
					}
					if r := math.Sqrt(d / n); !(r <= limit) {
						t.Errorf("replay differs from eager launches by %.2e (relative L2), %.0e is allowed", r, limit)
					}
				}
			})
		}
	}
}

// run gives the logits behind a prompt and of the tokens after it.
func run(t *testing.T, e *engine.Engine) []float32 {
	t.Helper()
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	prompt := make([]int32, 20)
	for i := range prompt {
		prompt[i] = int32(7 * i % 500)
	}
	logits, err := s.Prefill(context.Background(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	all := append([]float32(nil), logits...)
	for i := range 3 {
		if logits, err = s.Decode(int32(100 + i)); err != nil {
			t.Fatal(err)
		}
		all = append(all, logits...)
	}
	return all
}
