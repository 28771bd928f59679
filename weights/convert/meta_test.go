package convert

import (
	"math"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/gguf"
)

// TestRopeScaling: what config.json says of scaling, under GGUF's keys.
func TestRopeScaling(t *testing.T) {
	factors := []float64{1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5}
	for name, c := range map[string]struct {
		golden string
		meta   map[string]any
		want   map[string]any
		absent string
	}{
		"linear, old place": {"llama2_mha", map[string]any{"rope_parameters.rope_type": "linear", "rope_scaling.factor": 4.0},
			map[string]any{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
			"llama.rope.scaling.original_context_length"},
		"yarn": {"qwen2", map[string]any{"rope_parameters.rope_type": "yarn", "rope_parameters.factor": 4.0,
			"rope_parameters.original_max_position_embeddings": int64(64),
			"rope_parameters.attention_factor":                 1.5, "rope_parameters.beta_fast": int64(24)},
			map[string]any{"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.original_context_length": int64(64),
				"qwen2.rope.scaling.attn_factor":    float64(float32(1.5 / (1 + 0.1*math.Log(4)))),
				"qwen2.rope.scaling.yarn_beta_fast": 24.0}, "qwen2.rope.scaling.yarn_beta_slow"},
		"yarn, factor from the lengths, gain from two scales": {"qwen2",
			map[string]any{"rope_parameters.rope_type": "yarn", "max_position_embeddings": int64(256),
				"rope_parameters.original_max_position_embeddings": int64(64), "rope_parameters.mscale": 0.8,
				"rope_parameters.mscale_all_dim": 0.5},
			map[string]any{"qwen2.rope.scaling.factor": 4.0,
				"qwen2.rope.scaling.attn_factor": float64(float32((1 + 0.08*math.Log(4)) /
					(1 + 0.05*math.Log(4)) / (1 + 0.1*math.Log(4))))},
			"qwen2.rope.scaling.yarn_beta_slow"},
		"longrope": {"phi3", map[string]any{"rope_parameters.rope_type": "longrope", "rope_parameters.long_factor": factors,
			"rope_parameters.short_factor": factors,
			"max_position_embeddings":      int64(131072)},
			map[string]any{"phi3.rope.scaling.attn_factor": float64(float32(math.Sqrt(1 + math.Log(32)/math.Log(4096)))),
				"phi3.context_length": int64(131072)}, "phi3.rope.scaling.type"},
		"keys that the class does not read": {"llama2_mha", map[string]any{"sliding_window": int64(8),
			"num_local_experts": int64(4), "rotary_pct": 0.5},
			map[string]any{"llama.rope.dimension_count": int64(16), "llama.expert_count": nil},
			"llama.attention.sliding_window"},
		"default": {"llama2_mha", nil, map[string]any{"llama.rope.freq_base": 10000.0}, "llama.rope.scaling.type"},
	} {
		src := changed{openAt(t, testfiles.Shared(t, "goldens", c.golden)), c.meta, "", ""}
		f, _ := convert(t, src, Options{Type: "f16"})
		for key, want := range c.want {
			if got, _ := f.Meta(key); got != want {
				t.Errorf("%s: %s is %v, expected %v", name, key, got, want)
			}
		}
		if v, ok := f.Meta(c.absent); ok {
			t.Errorf("%s: %s is %v, expected none", name, c.absent, v)
		}
		if name == "longrope" {
			got, _ := floats(t, f, "rope_factors_long.weight")
			for i := range factors {
				if float64(got[i]) != factors[i] {
					t.Errorf("long factor %d is %g", i, got[i])
				}
			}
		}
	}
}

func TestLongRopeLength(t *testing.T) {
	src := changed{openAt(t, testfiles.Shared(t, "goldens", "phi3")),
		map[string]any{"rope_parameters.rope_type": "longrope",
			"rope_parameters.long_factor": []int64{1, 2}}, "", ""}
	if _, err := planHF(src, Options{}); err == nil {
		t.Error("two factors for heads of 16 are taken")
	}
}

// TestStored: without a type, f64 and 8-bit floats get the nearest that GGUF has.
func TestStored(t *testing.T) {
	for _, typ := range tensor.Types() {
		kept := stored(typ)
		if _, ok := gguf.TypeID(kept); !ok && typ != tensor.U8 && typ != tensor.Bool {
			t.Errorf("%s is kept as %s, which GGUF lacks", typ, kept)
		}
		if typ.IsBlock() && typ < tensor.NF4 && kept != typ {
			t.Errorf("%s becomes %s", typ, kept)
		}
	}
	for _, typ := range []tensor.Type{tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ} {
		for c := range 256 {
			v := tensor.F8ToF32(typ, uint8(c))
			if back := tensor.F16ToF32(tensor.F32ToF16(v)); back != v && v == v {
				t.Errorf("%s code %d: %g becomes %g in f16", typ, c, v, back)
			}
		}
	}
}
