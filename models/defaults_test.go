package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
)

// TestClassDefaults: what a published config.json leaves out is what the family's class has, as if it were there.
func TestClassDefaults(t *testing.T) {
	gemma := map[string]any{"num_attention_heads": int64(8), "num_key_value_heads": int64(4), "head_dim": int64(256),
		"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": int64(256), "sliding_window": int64(4096),
		"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rms_norm_eps": 1e-6}
	llama := map[string]any{"rope_theta": 5e5, "use_qk_norm": true, "attn_temperature_tuning": true,
		"attention_chunk_size": int64(8192), "no_rope_layers": []int64{1, 1, 1, 0, 1, 1, 1, 0}}
	for _, c := range []struct {
		arch, kind string
		full       map[string]any
		other      map[string]any // what is not what the class has
	}{
		{"Gemma3ForCausalLM", "gemma3_text", gemma, map[string]any{"rope_theta": 1e4}},
		{"Gemma3ForConditionalGeneration", "gemma3_text", gemma, map[string]any{"query_pre_attn_scalar": int64(168)}},
		{"Llama4ForCausalLM", "llama4_text", llama, map[string]any{"no_rope_layer_interval": int64(2)}},
		{"Llama4ForConditionalGeneration", "llama4_text", llama, map[string]any{"use_qk_norm": false}},
	} {
		text := func(meta map[string]any) string {
			t.Helper()
			w := hfStub(c.arch, dims{l: 8, d: 64, h: 8, g: 4, dh: 256, f: 32, v: 64}, true)
			for _, key := range []string{"num_attention_heads", "num_key_value_heads", "head_dim"} {
				if c.kind == "gemma3_text" {
					delete(w.meta, key)
				}
			}
			w.meta["model_type"] = c.kind
			maps.Copy(w.meta, meta)
			for i := range 8 {
				p := fmt.Sprintf("model.layers.%d.", i)
				if c.kind == "llama4_text" {
					for _, name := range []string{"gate_proj", "up_proj"} {
						w.add(p+"feed_forward."+name+".weight", tensor.BF16, 32, 64)
					}
					w.add(p+"feed_forward.down_proj.weight", tensor.BF16, 64, 32)
					continue
				}
				for _, name := range []string{"pre_feedforward_layernorm", "post_feedforward_layernorm"} {
					w.add(p+name+".weight", tensor.BF16, 64)
				}
				for _, name := range []string{"q_norm", "k_norm"} {
					w.add(p+"self_attn."+name+".weight", tensor.BF16, 256)
				}
			}
			f, err := Match(w)
			if err != nil {
				t.Fatal(err)
			}
			g, err := f.Build(Options{Weights: w, S: 1, C: 64, Float: tensor.F32})
			if err != nil {
				t.Fatalf("%s: %v", c.arch, err)
			}
			return g.Text()
		}
		full := text(c.full)
		if sparse := text(nil); sparse != full {
			t.Errorf("%s: without what the class says\n%s\nwith it\n%s", c.arch, sparse, full)
		}
		for key := range c.full {
			if strings.HasSuffix(c.arch, "ForConditionalGeneration") && !testfiles.Exhaustive() {
				break // as ForCausalLM has them
			}
			less := maps.Clone(c.full)
			delete(less, key)
			if text(less) != full {
				t.Errorf("%s: %s is not what the class has where it is left out", c.arch, key)
			}
		}
		if text(c.other) == full {
			t.Errorf("%s: %v says nothing", c.arch, c.other)
		}
		if c.kind == "llama4_text" && text(map[string]any{"no_rope_layers": []int64{}}) != full {
			t.Errorf("%s: an empty list of layers whose heads turn is not that of none", c.arch)
		}
	}
}

// nulled is a folder whose config.json has nulls.
type nulled struct {
	*stub
	keys []string
}

func (n nulled) Null(key string) bool { return slices.Contains(n.keys, key) }

// TestUsual: a key that config.json lacks has the value that transformers' class has for its model_type, whatever file
// asks; what the folder says, a weight's shape, a null and an object that is there come before.
func TestUsual(t *testing.T) {
	const text = `model: tiny
in: {tokens: "i32[S]", last: "i32[R]"}
params:
  D: {from: embd, is: 4}
  E: {hf: n_routed_experts, from: embd, is: 7}   # a shape says more than a class
  by: {hf: routed_scaling_factor | route_scale, is: 1}
  kind: {hf: rope_scaling.rope_type | rope_parameters.rope_type, is: none}
  theta: {hf: rope_parameters.rope_theta | rope_theta, is: 77}
  other: {hf: no_such_key, is: 3}
weights:
  embd: {shape: [E, D], gguf: token_embd.weight, hf: embed.weight}
body:
  logits: linear(rows(embed(tokens, embd) * (by + theta + other + (1 if kind == "llama3" else 0)), last), embd)
out: logits
`
	for _, c := range []struct {
		dialect string
		meta    map[string]any
		nulls   []string
		want    string
	}{
		{"hf", nil, nil, "E = 6, by = 1, kind = none, theta = 77, other = 3"},
		{"hf", map[string]any{"model_type": "unheard_of"}, nil, "E = 6, by = 1, kind = none, theta = 77, other = 3"},
		{"hf", map[string]any{"model_type": "deepseek_v3"}, nil, "E = 6, by = 2.5, kind = default, theta = 10000, other = 3"},
		{"hf", map[string]any{"text_config.model_type": "deepseek_v3", "model_type": "llama"}, nil,
			"E = 6, by = 2.5, kind = default, theta = 10000, other = 3"},
		{"hf", map[string]any{"model_type": "deepseek_v3", "routed_scaling_factor": 3.5}, nil,
			"E = 6, by = 3.5, kind = default, theta = 10000, other = 3"},
		{"hf", map[string]any{"model_type": "deepseek_v3", "route_scale": 3.5}, nil, // which its class does not read
			"E = 6, by = 2.5, kind = default, theta = 10000, other = 3"},
		{"hf", map[string]any{"model_type": "deepseek_v3"}, []string{"routed_scaling_factor"},
			"E = 6, by = 1, kind = default, theta = 10000, other = 3"},
		{"hf", map[string]any{"model_type": "cwm"}, nil, "E = 6, by = 1, kind = llama3, theta = 1000000, other = 3"},
		{"hf", map[string]any{"model_type": "cwm", "rope_scaling.factor": 2.0}, nil,
			"E = 6, by = 1, kind = none, theta = 1000000, other = 3"},
		{"gguf", map[string]any{"model_type": "deepseek_v3"}, nil, "E = 6, by = 1, kind = none, theta = 77, other = 3"},
	} {
		f, err := resolve("tiny.yaml", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		w := newStub(c.dialect)
		w.add(map[string]string{"hf": "embed.weight", "gguf": "token_embd.weight"}[c.dialect], tensor.BF16, 6, 4)
		maps.Copy(w.meta, c.meta)
		all, err := f.Params(Options{Weights: nulled{w, c.nulls}, S: 1, C: 16})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range all {
			if slices.Contains([]string{"E", "by", "kind", "theta", "other"}, p.Name) {
				got = append(got, p.Name+" = "+lang.Format(p.Value))
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s %v null %v: %s, want %s", c.dialect, c.meta, c.nulls, strings.Join(got, ", "), c.want)
		}
	}
}
