package models

import (
	"maps"
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// TestSaid: what config.json says is computed so, or refused with the key that says it.
func TestSaid(t *testing.T) {
	dense, experts := layerDims, layerDims
	experts.e = 4
	for _, c := range []struct {
		arch, kind string
		d          dims
		meta       map[string]any
		has        string // of the graph,
		refused    string // or of the error
	}{
		{"Qwen3MoeForCausalLM", "qwen3_moe", experts, map[string]any{"hidden_act": "silu"}, "= silu(", ""},
		{"Qwen3MoeForCausalLM", "qwen3_moe", experts, map[string]any{"hidden_act": "gelu"}, "= gelu(", ""},
		{"Qwen3MoeForCausalLM", "qwen3_moe", experts, map[string]any{"hidden_act": "relu"}, "= relu(", ""},
		{"Qwen3MoeForCausalLM", "qwen3_moe", experts, map[string]any{"hidden_act": "mish"}, "", "act is mish"},
		{"SmolLM3ForCausalLM", "smollm3", dense, map[string]any{"hidden_act": "mish"}, "", "act is mish"},
		{"Qwen3MoeForCausalLM", "qwen3_moe", experts, map[string]any{"rms_norm_eps": 1e-3}, "eps=0.001", ""},
		{"HeliumForCausalLM", "helium", dense, nil, "eps=1e-08", ""},
		{"MellumForCausalLM", "mellum", dense, nil, "= rmsnorm(e0, blk.0.pre)\n", ""},
		{"CwmForCausalLM", "cwm", dense, nil, "", "turn_said is null"},
		{"MellumForCausalLM", "mellum", dense, map[string]any{"rope_parameters.sliding_attention.rope_type": "yarn"}, "",
			"kind_near is yarn (hf rope_parameters.sliding_attention.rope_type)"},
		{"Gemma3ForCausalLM", "gemma3_text", dense, map[string]any{"use_bidirectional_attention": true}, "",
			"both_ways is true (hf use_bidirectional_attention)"},
	} {
		w := hfStub(c.arch, c.d, false)
		w.meta["model_type"] = c.kind
		maps.Copy(w.meta, c.meta)
		m, err := Match(w)
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.Build(Options{Weights: w, S: 1, C: 64, Float: tensor.F32})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s %v: %v, want %q", c.arch, c.meta, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %v: %v", c.arch, c.meta, err)
		} else if !strings.Contains(g.Text(), c.has) {
			t.Errorf("%s %v: no %s in the graph", c.arch, c.meta, c.has)
		}
	}
}

// TestKindsAreKnown: weights of an architecture that this file reads, but of a kind that it does not know, are refused
// and not computed by Llama's rules.
func TestKindsAreKnown(t *testing.T) {
	for kind, ok := range map[string]bool{"smollm3": true, "kimi_k2": true, "llama": true, "smollm4": false} {
		for _, arch := range []string{"SmolLM3ForCausalLM", "LlavaForConditionalGeneration"} {
			w := hfStub(arch, layerDims, false)
			w.meta["text_config.model_type"] = kind
			m, err := Match(w)
			if err != nil {
				t.Fatal(err)
			}
			_, err = m.Build(Options{Weights: w, S: 1, C: 64, Float: tensor.F32})
			const says = "text_config.model_type of folder is smollm4"
			if ok && err != nil || !ok && (err == nil || !strings.Contains(err.Error(), says)) {
				t.Errorf("%s of kind %s: %v", arch, kind, err)
			}
		}
	}
}
