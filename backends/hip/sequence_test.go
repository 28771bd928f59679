package hip_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestSequence: the steps of a sequence that is known, several of them in one graph, give
// to the bit what single steps give. Small blocks leave room for launches of the next step
// beside those of the one before.
func TestSequence(t *testing.T) {
	sizes := func(model string) map[string]string {
		set := map[string]string{"D": "256", "H": "4", "F": "768"}
		if model == "mixtral_block" {
			set["G"] = "2"
		}
		return set
	}
	for _, name := range []string{"llama2_block", "phi3_block", "gemma2_block", "gpt_neox_block", "mixtral_block"} {
		for _, dtype := range []tensor.Type{tensor.F16, tensor.Q4_0} {
			for _, kv := range []tensor.Type{tensor.F32, tensor.F16} {
				t.Run(fmt.Sprint(name, "/", dtype, "/", kv), func(t *testing.T) {
					t.Parallel() // most of the time goes to compiling
					sequence(t, engine.Options{Set: sizes(name), DType: dtype, KV: kv}, name)
				})
			}
		}
	}
	small := map[string]string{"L": "1", "D": "256", "H": "4", "F": "768", "V": "500"}
	t.Run("llama2_7b", func(t *testing.T) { sequence(t, engine.Options{Set: small, DType: tensor.F16}, "llama2_7b") })
	t.Run("llama2_block at full size", func(t *testing.T) {
		sequence(t, engine.Options{DType: tensor.F16, KV: tensor.F16}, "llama2_block")
	})
}

func sequence(t *testing.T, opt engine.Options, model string) {
	file, err := models.Builtin(model)
	if err != nil {
		t.Fatal(err)
	}
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	ctx := context.Background()
	const n = 75
	opt.Model, opt.Device, opt.Context, opt.Seed = file, dev, 128, 5
	e, s := testkit.Session(t, opt)
	var x []float32
	tokens, width := make([]int32, n), 0
	if e.IsBlock() {
		width = e.Decode().Input("x").Shape[1]
		x = engine.Activations(n*width, 7)
	}
	for i := range tokens {
		tokens[i] = int32(i * 37 % 499)
	}
	var want [][]float32
	for i := range n {
		var out []float32
		if e.IsBlock() {
			out, err = s.Block(x[i*width : (i+1)*width])
		} else {
			out, err = s.Decode(tokens[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, slices.Clone(out))
	}
	for range 5 {
		s.Reset()
		differ := 0
		row := func(i int, out []float32) error {
			if !slices.Equal(out, want[i]) {
				differ++
			}
			return nil
		}
		if e.IsBlock() {
			err = s.BlockAll(ctx, x, row)
		} else {
			err = s.DecodeAll(ctx, tokens, row)
		}
		if err != nil || differ > 0 || s.Pos() != n {
			t.Errorf("%d of %d steps give something else than alone; position %d, %v", differ, n, s.Pos(), err)
		}
	}
}

// TestGreedy: tokens that are chosen on the device, several in a graph, are those of single steps.
func TestGreedy(t *testing.T) {
	for _, dtype := range []tensor.Type{tensor.F16, tensor.Q4_0} {
		t.Run(dtype.String(), func(t *testing.T) {
			dev := openHalf(t)
			t.Cleanup(func() { closing(t, dev) })
			testkit.Multistep(t, dev, dtype, map[string]string{"L": "2", "D": "256", "H": "4", "F": "768", "V": "5000"},
				testing.Short())
		})
	}
}

// TestDrawn: what the device draws, under masks and with filters too, is what the host draws from a processor's logits.
func TestDrawn(t *testing.T) {
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	host, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	testkit.Drawn(t, host, dev, tensor.F16, false)
}

// TestFiltered: what the device's filters leave, and what it draws of that, is what the host's sampler chooses.
func TestFiltered(t *testing.T) {
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	testkit.Filtered(t, dev, 48)
}
