package cpu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"greta/backends/cpu"
	"greta/engine"
	"greta/models"
	"greta/tensor"
)

// randomBlock writes a block of products and other operators of what is there, in any order.
func randomBlock(rng *rand.Rand) string {
	var weights, body strings.Builder
	names := []string{"x"}
	for i := range 6 + rng.IntN(12) {
		pick := func() string { return names[max(rng.IntN(len(names)), rng.IntN(len(names)))] }
		name := fmt.Sprintf("v%d", i)
		switch rng.IntN(9) {
		case 0:
			fmt.Fprintf(&body, "  %s: %s + %s\n", name, pick(), pick())
		case 1:
			fmt.Fprintf(&body, "  %s: sigmoid(%s)\n", name, pick())
		case 2:
			fmt.Fprintf(&body, "  %s: %s + linear(%s, w%d)\n", name, pick(), names[rng.IntN(len(names))], i)
			fmt.Fprintf(&weights, "  w%d: {shape: [D, D], gguf: w%d, hf: w%d}\n", i, i, i)
		case 3:
			fmt.Fprintf(&body, "  %s: rmsnorm(%s, w%d, eps=1e-5)\n", name, pick(), i)
			fmt.Fprintf(&weights, "  w%d: {shape: [D], gguf: w%d, hf: w%d}\n", i, i, i)
		case 4:
			fmt.Fprintf(&body, "  %s: silu(%s) * %s\n", name, pick(), pick())
		default:
			fmt.Fprintf(&body, "  %s: linear(%s, w%d)\n", name, names[rng.IntN(len(names))], i)
			fmt.Fprintf(&weights, "  w%d: {shape: [D, D], gguf: w%d, hf: w%d}\n", i, i, i)
		}
		names = append(names, name)
	}
	fmt.Fprintf(&weights, "  w: {shape: [D, D], gguf: w, hf: w}\n")
	fmt.Fprintf(&body, "  y: linear(x, w) + %s\n", strings.Join(names[1:], " + "))
	return fmt.Sprintf("block: random\nin:\n  x: float[S, D]\nparams: {D: %d}\nweights:\n%sbody:\n%sout: y\n", 32*(1+rng.IntN(6)), weights.String(), body.String())
}

// TestSequence: steps whose mat-vecs are joined, and run in another order, give what launches
// one by one give, bit for bit.
func TestSequence(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	blocks := 150
	if testing.Short() {
		blocks = 40
	}
	devices := make([]*cpu.Device, 4)
	for i := range devices {
		var err error
		if devices[i], err = cpu.New(i + 1); err != nil {
			t.Fatal(err)
		}
		defer devices[i].Close()
	}
	types := []tensor.Type{tensor.Q8_0, tensor.Q4_0, tensor.F16, tensor.BF16, tensor.F32}
	for i := range blocks {
		text := randomBlock(rng)
		path := filepath.Join(t.TempDir(), "random.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		dev, typ := devices[rng.IntN(len(devices))], types[rng.IntN(len(types))]
		replayed := runBlock(t, path, dev, typ, false)
		eager := runBlock(t, path, dev, typ, true)
		if !slices.Equal(replayed, eager) {
			t.Fatalf("block %d, %s, %d threads: replay differs from launches one by one\n%s", i, typ, dev.Info().Threads, text)
		}
	}
}

// runBlock gives what two steps of one token and some of several give.
func runBlock(t *testing.T, path string, dev *cpu.Device, typ tensor.Type, eager bool) (all []float32) {
	t.Helper()
	file, err := models.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(context.Background(), engine.Options{Model: file, Device: dev, Context: 64, DType: typ, Eager: eager})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, tokens := range []int{1, 1, 3, 13, 40} {
		x := make([]float32, tokens*e.Decode().Input("x").Shape[1])
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		y, err := s.Block(x)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, y...)
	}
	return all
}
