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
	w.add("model.layers.0.self_attn.rotary_emb.inv_freq", tensor.F32, 4) // computed anew
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

// TestUnreadBiasOfTiedHead: a head that has the embedding's weights can have a bias of its own.
func TestUnreadBiasOfTiedHead(t *testing.T) {
	const bias = "lm_head.bias"
	for _, arch := range []string{"LlamaForCausalLM", "Qwen3ForCausalLM"} {
		w := hfStub(arch, layerDims, true)
		f, err := Match(w)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Build(Options{Weights: w}); err != nil {
			t.Fatal(err)
		}
		w.add(bias, tensor.F32, layerDims.v)
		if _, err := f.Build(Options{Weights: w}); err == nil || !strings.Contains(err.Error(), bias+" beside") {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

// What a file has beyond what its model file knows makes results wrong, and is refused; what changes nothing is not.
func TestUnread(t *testing.T) {
	f, err := Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	build := func(w *stub, set map[string]string) error {
		_, err := f.Build(Options{Weights: w, Set: set})
		return err
	}
	if err := build(ggufStub(), nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(w *stub)
		want   string // in the error; "": none
	}{
		"a norm of queries": {func(w *stub) { w.add("blk.1.attn_q_norm.weight", tensor.F32, 8) },
			"blk.1.attn_q_norm.weight in a layer that is read (1 in all)"},
		"sinks":        {func(w *stub) { w.add("blk.0.attn_sinks.weight", tensor.F32, 2) }, "blk.0.attn_sinks.weight"},
		"a table anew": {func(w *stub) { w.add("blk.0.attn_rot_embd", tensor.F32, 4) }, ""},
		"a mark":       {func(w *stub) { w.add("blk.0.marker", tensor.F32, 0) }, ""},
		"outside":      {func(w *stub) { w.add("v.blk.0.attn_q.weight", tensor.F32, 4) }, ""},
		"fewer layers": {func(w *stub) { w.meta["llama.block_count"] = int64(1) }, "of a layer behind the 1 that"},
		"guessing ahead": {func(w *stub) {
			w.meta["llama.block_count"], w.meta["llama.nextn_predict_layers"] = int64(1), int64(1)
		}, ""},
		"no context": {func(w *stub) { w.meta["llama.context_length"] = int64(0) }, "llama.context_length of "},
		"values of another width": {func(w *stub) {
			w.meta["llama.attention.key_length"], w.meta["llama.attention.value_length"] = int64(16), int64(8)
		}, "llama.attention.value_length"},
		"not causal":          {func(w *stub) { w.meta["llama.attention.causal"] = false }, "llama.attention.causal"},
		"causal":              {func(w *stub) { w.meta["llama.attention.causal"] = true }, ""},
		"a clamp":             {func(w *stub) { w.meta["llama.attention.clamp_kqv"] = 0.5 }, "llama.attention.clamp_kqv"},
		"a scale":             {func(w *stub) { w.meta["llama.logit_scale"] = 0.5 }, "llama.logit_scale"},
		"a scale of one":      {func(w *stub) { w.meta["llama.residual_scale"] = 1.0 }, ""},
		"a factor of experts": {func(w *stub) { w.meta["llama.expert_weights_scale"] = 2.5 }, "llama.expert_weights_scale"},
		"added to logits": {func(w *stub) { w.add("final_logits_bias", tensor.F32, 1, 8) },
			"final_logits_bias, which is"},
		"slopes": {func(w *stub) { w.meta["llama.attention.max_alibi_bias"] = 8.0 }, "max_alibi_bias"},
		"beside each other": {func(w *stub) { w.meta["llama.use_parallel_residual"] = true },
			"llama.use_parallel_residual"},
		"factor 0": {func(w *stub) {
			w.meta["llama.rope.scaling.type"], w.meta["llama.rope.scaling.factor"] = "linear", 0.0
		}, ""},
	} {
		w := ggufStub()
		c.change(w)
		if err := build(w, nil); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	w := ggufStub()
	if err := build(w, map[string]string{"L": "1"}); err != nil {
		t.Errorf("fewer layers, as asked for: %v", err)
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

// ggufStub gives the tensors and the metadata of a small Llama as GGUF files have them.
func ggufStub() *stub {
	w, d := newStub("gguf"), 64
	w.meta["general.architecture"] = "llama"
	for k, v := range map[string]int{"block_count": 2, "embedding_length": d, "attention.head_count": 4,
		"feed_forward_length": 32, "context_length": 128} {
		w.meta["llama."+k] = int64(v)
	}
	w.add("token_embd.weight", tensor.F16, 8, d)
	w.add("output_norm.weight", tensor.F32, d)
	for _, layer := range []string{"blk.0.", "blk.1."} {
		for name, shape := range map[string][]int{"attn_norm": {d}, "ffn_norm": {d}, "attn_q": {d, d}, "attn_k": {d, d},
			"attn_v": {d, d}, "attn_output": {d, d}, "ffn_gate": {32, d}, "ffn_up": {32, d}, "ffn_down": {d, 32}} {
			w.add(layer+name+".weight", tensor.F16, shape...)
		}
	}
	return w
}

// TestNothingShared: tensors of no shared experts, which have no elements, are as good as none.
func TestNothingShared(t *testing.T) {
	d := layerDims
	d.e = 8
	w := hfStub("Qwen3MoeForCausalLM", d, false)
	w.meta["model_type"] = "qwen3_moe"
	m, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gate_proj", "up_proj"} {
		w.add("model.layers.0.mlp.shared_experts."+name+".weight", tensor.F32, 0, d.d)
	}
	w.add("model.layers.0.mlp.shared_experts.down_proj.weight", tensor.F32, d.d, 0)
	if _, err := m.Build(Options{Weights: w, S: 1, C: 64, Float: tensor.F32}); err != nil {
		t.Error(err)
	}
}
