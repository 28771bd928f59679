package hip_test

import (
	"fmt"
	"testing"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestModels compares small models of every kind of weight with float64, operator
// by operator, and their captured steps, where launches are joined and overlap,
// with launches one by one, bit for bit: those of experts are merged there too.
func TestModels(t *testing.T) {
	set := map[string]string{"L": "2", "D": "256", "H": "4", "G": "2", "F": "768", "V": "500"}
	neox := map[string]string{"L": "2", "D": "256", "H": "4", "F": "768", "V": "500"}
	sizes := map[string]map[string]string{"llama2_7b": set, "qwen3_8b": set, "phi3": set, "gemma2_2b": set,
		"gpt_neox_20b": neox, "mixtral_8x7b": set}
	experts := map[string]bool{"mxfp4": true, "q8_0": true, "q4_K": true, "q6_K": true}
	for name, set := range sizes {
		for _, dtype := range []string{"f32", "f16", "bf16", "q8_0", "q4_0", "q5_0", "q4_K", "q6_K", "f8e4m3", "f8e5m2",
			"q4_k_m", "q5_k_m", "q4_k_s", "mxfp4"} {
			if name != "llama2_7b" && dtype != "f16" && dtype != "q4_0" && !(name == "mixtral_8x7b" && experts[dtype]) {
				continue
			}
			for _, half := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/", dtype, "/half=", half), func(t *testing.T) { checkModel(t, name, set, dtype, half) })
			}
		}
	}
}

func checkModel(t *testing.T, name string, set map[string]string, dtype string, half bool) {
	t.Parallel() // most of the time goes to compiling
	file, err := models.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	var dev *hip.Device
	if half {
		dev = openHalf(t)
	} else {
		dev = open(t)
	}
	defer closing(t, dev)
	tokens := make([]int32, 41)
	for i := range tokens {
		tokens[i] = int32(i*37%400 + 3)
	}
	for _, kv := range []tensor.Type{tensor.F32, tensor.F16} {
		opt := engine.Options{Model: file, Device: dev, Context: 64, Set: set, KV: kv, Seed: 3}
		if !opt.SetType(dtype) {
			t.Fatalf("no type %s", dtype)
		}
		r, err := engine.Check(t.Context(), engine.CheckOptions{Options: opt, Ref: ref.New(), Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		if w := r.Worst(); w != nil {
			t.Logf("caches of %s: limit %.1e, worst %.2e at %s %s (%s), prefill against decode %.2e", kv, r.Limit, w.RelL2,
				w.Step, w.Name, w.Op, r.Prefill.RelL2)
		}
		if !r.OK() {
			t.Errorf("caches of %s: diverged %+v, prefill %v, replay %v, repeat %v", kv, r.Diverged, r.PrefillOK, r.ReplayOK,
				r.RepeatOK)
		}
	}
}
