package models

import (
	"maps"
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// TestTwoTurns: of rope_scaling and rope_parameters the first holds, the whole of it, as in transformers.
func TestTwoTurns(t *testing.T) {
	for name, c := range map[string]struct {
		arch, kind   string
		meta         map[string]any
		has, refused string
	}{
		"the old": {meta: map[string]any{"rope_scaling.type": "linear", "rope_scaling.factor": 4.0},
			has: "scaling=linear, factor=4"},
		"the new": {meta: map[string]any{"rope_parameters.rope_type": "linear", "rope_parameters.factor": 2.0},
			has: "scaling=linear, factor=2"},
		"both": {meta: map[string]any{"rope_scaling.type": "linear", "rope_scaling.factor": 4.0,
			"rope_parameters.rope_type": "linear", "rope_parameters.factor": 2.0}, has: "scaling=linear, factor=4"},
		"the old without a factor": {meta: map[string]any{"rope_scaling.type": "linear", "rope_parameters.factor": 2.0},
			refused: "said_factor is null"},
		"a base of the new": {meta: map[string]any{"rope_scaling.type": "linear", "rope_scaling.factor": 4.0,
			"rope_parameters.rope_theta": 500.0}, has: "pos; dims=8, scaling=linear, factor=4"},
		"a base outside": {meta: map[string]any{"rope_scaling.type": "linear", "rope_scaling.factor": 4.0,
			"rope_parameters.rope_theta": 500.0, "rope_theta": 700.0}, has: "base=700"},
		"inside text_config": {meta: map[string]any{"text_config.rope_parameters.rope_type": "linear",
			"text_config.rope_parameters.factor": 2.0, "rope_scaling.type": "linear", "rope_scaling.factor": 4.0,
			"rope_scaling.rope_theta": 500.0}, has: "pos; dims=8, scaling=linear, factor=2"},
		"a decoder": {arch: "SmolLM3ForCausalLM", kind: "smollm3", meta: map[string]any{"rope_scaling.rope_type": "linear",
			"rope_scaling.factor": 4.0, "rope_parameters.rope_type": "default"}, has: "scaling=linear, factor=4"},
		"layers that say the same": {arch: "Gemma3ForCausalLM", kind: "gemma3_text", meta: map[string]any{
			"rope_scaling.type": "linear", "rope_scaling.factor": 8.0,
			"rope_parameters.full_attention.rope_type": "linear", "rope_parameters.full_attention.factor": 8.0}},
		"layers that say another": {arch: "Gemma3ForCausalLM", kind: "gemma3_text", meta: map[string]any{
			"rope_scaling.rope_type": "linear", "rope_scaling.factor": 8.0,
			"rope_parameters.full_attention.rope_type": "linear", "rope_parameters.full_attention.factor": 2.0},
			refused: "rope_scaling.factor of folder is 8, and rope_parameters.full_attention has 2"},
		"layers with a window": {arch: "Gemma3ForCausalLM", kind: "gemma3_text", meta: map[string]any{
			"rope_parameters.full_attention.rope_type": "default", "rope_parameters.sliding_attention.rope_type": "llama3",
			"rope_parameters.sliding_attention.factor":                           2.0,
			"rope_parameters.sliding_attention.original_max_position_embeddings": int64(32)},
			has: "scaling=llama3, factor=2, original=32"},
		"a window by another factor": {arch: "Gemma3ForCausalLM", kind: "gemma3_text", meta: map[string]any{
			"rope_parameters.full_attention.rope_type": "linear", "rope_parameters.full_attention.factor": 8.0,
			"rope_parameters.sliding_attention.rope_type": "linear"}, refused: "said_factor is null"},
	} {
		if c.arch == "" {
			c.arch, c.kind = "LlamaForCausalLM", "llama"
		}
		w := hfStub(c.arch, layerDims, false)
		w.meta["model_type"] = c.kind
		maps.Copy(w.meta, c.meta)
		m, err := Match(w)
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.Build(Options{Weights: w, S: 1, C: 64, Float: tensor.F32})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %q", name, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if text := g.Text(); !strings.Contains(text, c.has) {
			at := strings.Index(text, "rope(")
			t.Errorf("%s: no %s in %.150s", name, c.has, text[max(0, at):])
		}
	}
}
