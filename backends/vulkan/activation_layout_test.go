//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestForms compares captured steps, whose launches hand each other converted
// activations and leave out norms that products compute, with the same launches
// one by one, which do neither. A sample has a plain type without half
// precision, and blocks with it; a block with these where not every case is asked for.
func TestForms(t *testing.T) {
	forms(t, "llama2_7b", 1e-5, map[string]string{"D": "256", "H": "4", "G": "2", "F": "768", "L": "2", "V": "500"},
		tensor.F32, tensor.F16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K)
}

// TestFormsOfExperts: so they are for experts, of many rows that are taken together and of one. A key may round to its
// neighbour in f16.
func TestFormsOfExperts(t *testing.T) {
	forms(t, "mixtral_8x7b", 1e-4,
		map[string]string{"D": "256", "H": "4", "G": "2", "F": "512", "L": "2", "V": "500", "E": "4"},
		tensor.BF16, tensor.F16, tensor.MXFP4, tensor.Q8_0, tensor.Q4_K)
}

func forms(t *testing.T, model string, exact float64, set map[string]string, types ...tensor.Type) {
	file, err := models.Builtin(model)
	if err != nil {
		t.Fatal(err)
	}
	prompt := make([]int32, 20)
	for i := range prompt {
		prompt[i] = int32(7 * i % 500)
	}
	for _, fp16 := range []backends.Choice{backends.Off, backends.On} {
		dev := open(t, vulkan.Options{FP16: fp16})
		for i, dtype := range types {
			if sample(dev) && i != map[backends.Choice]int{backends.Off: 1, backends.On: 4}[fp16] {
				continue
			}
			if taste(dev, testfiles.Exhaustive()) {
				if fp16 == backends.Off {
					continue
				}
				set["F"], set["L"] = "256", "1"
			}
			t.Run(fp16.String()+"/"+dtype.String(), func(t *testing.T) {
				_, s := testkit.Session(t, engine.Options{Model: file, Device: dev, Context: 64, DType: dtype, Seed: 3, Set: set})
				// A norm that is folded adds in another order; where activations are
				// rounded to bytes, one of them may then round the other way.
				limit := exact
				if fp16 == backends.On && dtype.IsBlock() {
					limit = 1e-2
				}
				for _, tokens := range []int{len(prompt), 1} {
					var got []float32
					if tokens == 1 {
						got, err = s.Decode(100)
					} else {
						got, err = s.Prefill(context.Background(), prompt)
					}
					if err != nil {
						t.Fatal(err)
					}
					// The step's inputs are still there, and caches get the same rows again.
					want := oneByOne(t, dev, s, tokens)
					if r := relative(got, want); !(r <= limit) {
						t.Errorf("a step of %d differs from its launches one by one by %.2e (relative L2), %.0e is allowed", tokens, r,
							limit)
					}
				}
			})
		}
	}
}

// turns is a model whose products read two norms by turns, so that the form of one takes the place of
// the other's while that is still wanted.
const turns = `model: turns
in:
  tokens: i32[S]
  pos:    i32[S]
  last:   i32[R]
params:
  D: 256
  V: 500
weights:
  tok_embd: {shape: [V, D], gguf: tok_embd}
  first:    {shape: [D], gguf: first}
  second:   {shape: [D], gguf: second}
  wa:       {shape: [D, D], gguf: wa}
  wb:       {shape: [D, D], gguf: wb}
  wc:       {shape: [D, D], gguf: wc}
  lm_head:  {shape: [V, D], gguf: lm_head}
state:
  kc: float[C, 4, D/4]
  vc: float[C, 4, D/4]
body:
  x: embed(tokens, tok_embd)
  h: rmsnorm(x, first, eps=1e-5)
  a: linear(h, wa)
  g: rmsnorm(x, second, eps=1e-5)
  b: linear(g, wb)
  c: linear(h, wc)
  ks: push(kc, a as [S, 4, D/4], pos)
  vs: push(vc, b as [S, 4, D/4], pos)
  y: attention(c as [S, 4, D/4], ks, vs, pos, scale=0.125)
  logits: linear(rows(y as [S, D], last), lm_head)
out: logits
`

// TestFormsByTurns: a result of which only the form was to be written is written where the form does
// not last.
func TestFormsByTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.yaml")
	if err := os.WriteFile(path, []byte(turns), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := models.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	dev := open(t, vulkan.Options{FP16: backends.On})
	for _, dtype := range []tensor.Type{tensor.F16, tensor.Q8_0} {
		t.Run(dtype.String(), func(t *testing.T) {
			_, s := testkit.Session(t, engine.Options{Model: file, Device: dev, Context: 64, DType: dtype, Seed: 3})
			prompt := make([]int32, 20)
			for i := range prompt {
				prompt[i] = int32(7 * i % 500)
			}
			got, err := s.Prefill(context.Background(), prompt)
			if err != nil {
				t.Fatal(err)
			}
			if r := relative(got, oneByOne(t, dev, s, len(prompt))); !(r <= 1e-5) {
				t.Errorf("a step differs from its launches one by one by %.2e (relative L2)", r)
			}
		})
	}
}

// relative is the relative L2 error of x; NaN against zeros.
func relative(x, want []float32) float64 {
	var d, n float64
	for i := range x {
		d += math.Pow(float64(x[i]-want[i]), 2)
		n += math.Pow(float64(want[i]), 2)
	}
	return math.Sqrt(d / n)
}

// oneByOne runs the launches of a session's step, each as if it were alone, and gives
// the result of the last.
func oneByOne(t *testing.T, dev *vulkan.Device, s *engine.Session, tokens int) []float32 {
	t.Helper()
	step, err := s.Step(tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	var out *backends.Operand
	for i := range step.Program.Launches {
		l := &step.Program.Launches[i]
		if err := stream.Launch(l); err != nil {
			t.Fatal(err)
		}
		out = &l.Out[0]
	}
	logits := make([]float32, out.Shape.Elems())
	if err := stream.Read(out.Buffer, out.Offset, tensor.Bytes(logits)); err != nil {
		t.Fatal(err)
	}
	return logits
}
