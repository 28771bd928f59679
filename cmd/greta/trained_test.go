package main

import (
	"testing"

	"github.com/greta-project/greta/weights"
)

// says is weights of which the configuration alone is known.
type says struct {
	weights.Source
	meta map[string]any
}

func (s says) Meta(key string) (any, bool) {
	v, ok := s.meta[key]
	return v, ok
}

// TestTrained: the context that a language model was trained for is its own, not that of the model around it.
func TestTrained(t *testing.T) {
	for want, meta := range map[int]map[string]any{
		4096: {"max_position_embeddings": int64(131072), "text_config.max_position_embeddings": int64(4096)},
		2048: {"n_positions": int64(2048)},
		512:  {"general.architecture": "llama", "llama.context_length": int64(512)},
		0:    {"max_position_embeddings": "many"},
	} {
		b := &bundle{source: says{meta: meta}}
		if got := b.trained(); got != want {
			t.Errorf("%v: %d, want %d", meta, got, want)
		}
	}
}
