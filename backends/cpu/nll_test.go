package cpu_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/open"
)

// TestRoundedLikelihood checks what the rounding of activations costs a trained
// model: its mean negative log-likelihood moves by less than 0.01, and by something where
// they are rounded at all: Exact changes what it says.
func TestRoundedLikelihood(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a model fourteen times")
	}
	data, err := os.ReadFile(testfiles.Repo(t, "testdata", "tolstoy-2.7m", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Tokens []int32 `json:"nll_tokens"`
	}
	if err := json.Unmarshal(data, &expected); err != nil {
		t.Fatal(err)
	}
	if len(expected.Tokens) < 100 {
		t.Fatalf("expected.json holds %d tokens to score", len(expected.Tokens))
	}
	types := []tensor.Type{tensor.Q8_0, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.IQ4_NL, tensor.BF16}
	if !testfiles.Exhaustive() {
		types = []tensor.Type{tensor.Q8_0, tensor.Q4_0, tensor.BF16}
	}
	halves := false
	if dev, err := cpu.New(1); err == nil {
		halves = dev.Rounding().BF16
		if dev.Info().Level == "go" { // rounds to the same bytes, twenty times as slowly
			types = types[:1]
		}
		dev.Close()
	}
	for _, typ := range types {
		exact := likelihood(t, typ, expected.Tokens, cpu.Exact)
		rounded := likelihood(t, typ, expected.Tokens)
		t.Logf("%s: %.5f with exact activations, %+.1e with rounded ones", typ, exact, rounded-exact)
		if !(math.Abs(rounded-exact) < 0.01) {
			t.Errorf("%s: %.5f with rounded activations, %.5f with exact ones", typ, rounded, exact)
		}
		if rounds := typ != tensor.BF16 || halves; rounds != (rounded != exact) {
			t.Errorf("%s: %.7f and %.7f: is anything rounded? want %v", typ, rounded, exact, rounds)
		}
	}
}

// likelihood gives the mean negative log-likelihood of tokens under the
// trained model with weights of a type.
func likelihood(t *testing.T, typ tensor.Type, tokens []int32, opts ...cpu.Option) float64 {
	t.Helper()
	dev, err := cpu.New(2, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	e, err := engine.New(ctx, engine.Options{Model: file, Source: src, Device: dev, Context: len(tokens), DType: typ})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sum := 0.0
	err = s.PrefillAll(ctx, tokens, func(i int, logits []float32) error {
		if i+1 == len(tokens) {
			return nil
		}
		var all float64
		for _, v := range logits {
			all += math.Exp(float64(v))
		}
		sum += math.Log(all) - float64(logits[tokens[i+1]])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum / float64(len(tokens)-1)
}
