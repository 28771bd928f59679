// Weights that a model file would read wrongly are refused.
package models

import (
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
)

func TestUnreadBias(t *testing.T) {
	w := hfStub("LlamaForCausalLM", layerDims, false)
	f, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Build(Options{Weights: w}); err != nil {
		t.Fatal(err)
	}
	w.add("model.layers.0.self_attn.rotary_emb.bias", tensor.F32, 4) // beside nothing that is read
	if _, err := f.Build(Options{Weights: w}); err != nil {
		t.Error(err)
	}
	w.add("model.layers.1.input_layernorm.bias", tensor.F32, 16)
	if _, err := f.Build(Options{Weights: w}); err == nil || !strings.Contains(err.Error(),
		"model.layers.1.input_layernorm.bias") {
		t.Errorf("an unread bias: %v", err)
	}
	for _, ignore := range []string{"model.layers.$i.input_layernorm.bias", "*.bias"} {
		known := *f
		known.ignore = []string{ignore}
		if _, err := known.Build(Options{Weights: w}); err != nil {
			t.Errorf("ignore: %s: %v", ignore, err)
		}
	}
}

func TestFits(t *testing.T) {
	llama, err := Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	if err := llama.Fits(hfStub("LlamaForCausalLM", layerDims, false)); err != nil {
		t.Error(err)
	}
	qwen := hfStub("Qwen2ForCausalLM", layerDims, false)
	if err := llama.Fits(qwen); err == nil || !strings.Contains(err.Error(), "Qwen2ForCausalLM") {
		t.Errorf("weights of another architecture: %v", err)
	}
	block, err := Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	if err := block.Fits(qwen); err != nil { // it has no match:
		t.Error(err)
	}
}

// Metadata may say for each layer what all have alike.
func TestListOfAlike(t *testing.T) {
	w := hfStub("LlamaForCausalLM", layerDims, false)
	w.meta["num_key_value_heads"] = []int64{1, 1, 1, 1}
	f, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Build(Options{Weights: w}); err != nil {
		t.Error(err)
	}
	w.meta["num_key_value_heads"] = []int64{1, 1, 2, 1}
	if _, err := f.Build(Options{Weights: w}); err == nil {
		t.Error("heads that differ were taken")
	}
}
