// What config.json says of single layers, and what it leaves to the family.
package models

import (
	"regexp"
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
)

var layerDims = dims{l: 4, d: 16, h: 2, g: 1, dh: 8, f: 32, v: 64}

// windows gives the window and the cap of each layer's attention as text.
func windows(t *testing.T, w *stub) (string, string) {
	t.Helper()
	f, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Build(Options{Weights: w, S: 1, C: 64, Float: tensor.F32})
	if err != nil {
		t.Fatal(err)
	}
	var all, caps []string
	find := func(text, key string) string {
		if m := regexp.MustCompile(key + `=([0-9]+)`).FindStringSubmatch(text); m != nil {
			return m[1]
		}
		return "0"
	}
	for _, n := range g.Nodes {
		if n.Op.Name == "attention" {
			all, caps = append(all, find(n.AttrText(), "window")), append(caps, find(n.AttrText(), "softcap"))
		}
	}
	return strings.Join(all, " "), caps[0]
}

func TestLayerTypes(t *testing.T) {
	const s, f = "sliding_attention", "full_attention"
	for _, c := range []struct {
		arch string
		meta map[string]any
		want string
	}{
		{"Gemma2ForCausalLM", map[string]any{"sliding_window": int64(7)}, "7 0 7 0"},
		{"Gemma2ForCausalLM", map[string]any{"sliding_window": int64(7), "layer_types": []string{f, f, s, s}}, "0 0 7 7"},
		{"Gemma2ForCausalLM", map[string]any{"sliding_window": int64(7), "layer_types": []string{f, f, s, s},
			"sliding_window_pattern": int64(2)}, "0 0 7 7"},
		{"Qwen2ForCausalLM", map[string]any{"sliding_window": int64(5), "use_sliding_window": true,
			"max_window_layers": int64(2)}, "0 0 5 5"},
		{"Qwen2ForCausalLM", map[string]any{"sliding_window": int64(5), "use_sliding_window": true,
			"layer_types": []string{s, f, s, f}}, "5 0 5 0"},
		{"Qwen2ForCausalLM", map[string]any{"sliding_window": int64(5), "use_sliding_window": false,
			"layer_types": []string{s, f, s, f}}, "0 0 0 0"},
		{"Qwen3ForCausalLM", map[string]any{"sliding_window": int64(5), "use_sliding_window": true,
			"max_window_layers": int64(0),
			"layer_types":       []string{f, f, f, s}}, "0 0 0 5"},
		{"SmolLM3ForCausalLM", map[string]any{"model_type": "smollm3", "sliding_window": int64(5),
			"layer_types": []string{s, f, s, f}}, "5 0 5 0"},
		{"MistralForCausalLM", map[string]any{"sliding_window": int64(9), "layer_types": []string{f, s, f, s}}, "0 9 0 9"},
		{"MistralForCausalLM", map[string]any{"model_type": "mistral"}, "4096 4096 4096 4096"}, // the class's default
		{"Phi3ForCausalLM", map[string]any{"sliding_window": int64(9), "layer_types": []string{f, s, f, s}}, "0 9 0 9"},
	} {
		w := withAct(hfStub(c.arch, layerDims, false))
		for k, v := range c.meta {
			w.meta[k] = v
		}
		if got, _ := windows(t, w); got != c.want {
			t.Errorf("%s %v: windows %s, want %s", c.arch, c.meta, got, c.want)
		}
	}
}

// Without layer_types each family has its configuration class's own rule.
func TestLayerTypesAreNull(t *testing.T) {
	type meta = map[string]any
	const w = int64(5)
	for _, c := range []struct {
		arch, typ string
		meta      meta
		want      string
	}{
		{"GptOssForCausalLM", "gpt_oss", meta{"sliding_window": w}, "5 0 5 0"},
		{"GptOssForCausalLM", "gpt_oss", nil, "128 0 128 0"},
		{"Qwen2MoeForCausalLM", "qwen2_moe", meta{"sliding_window": w}, "0 0 0 0"},
		{"Qwen2MoeForCausalLM", "qwen2_moe", meta{"sliding_window": w, "use_sliding_window": false}, "0 0 0 0"},
		{"Qwen2MoeForCausalLM", "qwen2_moe", meta{"sliding_window": w, "use_sliding_window": true}, "5 0 5 0"},
		{"Qwen2MoeForCausalLM", "qwen2_moe", meta{"sliding_window": w, "use_sliding_window": true,
			"max_window_layers": int64(1)}, "5 0 0 0"},
		{"Qwen3MoeForCausalLM", "qwen3_moe", meta{"sliding_window": w}, "0 0 0 0"},
		{"Qwen3MoeForCausalLM", "qwen3_moe", meta{"sliding_window": w, "use_sliding_window": true}, "5 5 5 5"},
		{"Qwen2ForCausalLM", "qwen2", meta{"sliding_window": w, "use_sliding_window": true,
			"max_window_layers": int64(3)}, "0 0 0 5"},
		{"Dots1ForCausalLM", "dots1", meta{"sliding_window": w}, "0 0 0 0"},
		{"Dots1ForCausalLM", "dots1", meta{"sliding_window": w, "max_window_layers": int64(2)}, "0 0 5 5"},
		{"CwmForCausalLM", "cwm", meta{"sliding_window": w}, "0 5 5 5"},
		{"GraniteSWAForCausalLM", "granite_swa", meta{"sliding_window": w}, "0 5 5 5"},
		{"MinistralForCausalLM", "ministral", meta{"sliding_window": w}, "5 5 5 5"},
		{"SmolLM3ForCausalLM", "smollm3", meta{"sliding_window": w}, "0 0 0 0"},
		{"SmolLM3ForCausalLM", "smollm3", meta{"sliding_window": w, "use_sliding_window": true}, "0 0 0 5"},
		{"SmolLM3ForCausalLM", "smollm3", meta{"sliding_window": w, "use_sliding_window": true,
			"no_rope_layer_interval": int64(2)}, "0 5 0 5"},
		{"SmolLM3ForCausalLM", "smollm3", meta{"sliding_window": w, "use_sliding_window": true,
			"no_rope_layers": []int64{0, 1, 1, 0}}, "5 0 0 5"},
		{"Cohere2ForCausalLM", "cohere2", meta{"sliding_window": w}, "5 5 5 0"},
		{"Cohere2MoeForCausalLM", "cohere2_moe", meta{"sliding_window": w, "rms_norm_eps": 1e-5,
			"sliding_window_pattern": int64(2), "first_k_dense_replace": int64(1)}, "0 5 0 5"},
		{"MellumForCausalLM", "mellum", meta{"sliding_window": w}, "0 0 0 0"},
		{"LagunaForCausalLM", "laguna", meta{"sliding_window": w}, "0 0 0 0"},
	} {
		stub := hfStub(c.arch, layerDims, false)
		stub.meta["model_type"], stub.meta["rope_parameters.rope_type"] = c.typ, "default"
		for k, v := range c.meta {
			stub.meta[k] = v
		}
		if got, _ := windows(t, stub); got != c.want {
			t.Errorf("%s %v: windows %s, want %s", c.arch, c.meta, got, c.want)
		}
	}
}

// A window of 0 is not the absence of one: transformers masks everything then.
func TestWindowOfNothing(t *testing.T) {
	const s, f = "sliding_attention", "full_attention"
	for _, c := range []struct {
		arch, typ string
		meta      map[string]any
		refused   bool
	}{
		{"MistralForCausalLM", "mistral", nil, true},
		{"Gemma2ForCausalLM", "gemma2", nil, true},
		{"Gemma2ForCausalLM", "gemma2", map[string]any{"layer_types": []string{f, f, f, f}}, false},
		{"Gemma2ForCausalLM", "gemma2", map[string]any{"layer_types": []string{f, s, f, f}}, true},
		{"Qwen3ForCausalLM", "qwen3", nil, false},
		{"Qwen3ForCausalLM", "qwen3", map[string]any{"use_sliding_window": true}, true},
		{"LlamaForCausalLM", "llama", nil, false}, // whose class has no windows
	} {
		w := withAct(hfStub(c.arch, layerDims, false))
		w.meta["model_type"], w.meta["sliding_window"], w.meta["rope_parameters.rope_type"] = c.typ, int64(0), "default"
		for k, v := range c.meta {
			w.meta[k] = v
		}
		got := built(t, w)
		want := "graph "
		if c.refused {
			want = "sliding_window of folder is 0, by which no token sees any"
		}
		if !strings.HasPrefix(got, want) && !(c.refused && strings.Contains(got, want)) {
			t.Errorf("%s %v: %.200s", c.typ, c.meta, got)
		}
	}
}

// Names that a family does not have, and lists of another length than the layers, are refused in all families.
func TestLayerTypesAreKnown(t *testing.T) {
	const s, f = "sliding_attention", "full_attention"
	for _, c := range []struct {
		arch, typ string
		types     []string
		next      int64
		want      string
	}{
		{"Gemma2ForCausalLM", "gemma2", []string{s, f}, 0, "has 2 elements"},
		{"Gemma2ForCausalLM", "gemma2", []string{s, f, "chunked_attention", f}, 0,
			"layer_types of folder[2] is chunked_attention"},
		{"Qwen3ForCausalLM", "qwen3", []string{s, f, s, f, s}, 0, "has 5 elements"},
		{"LlamaForCausalLM", "llama", []string{f, f, f, s}, 0, ""}, // which its class does not read
		{"LlamaForCausalLM", "llama", []string{f, f, s}, 0, "has 3 elements"},
		{"MistralForCausalLM", "mistral", []string{f, f, f, "sliding"}, 0, "folder[3] is sliding"},
		{"Phi3ForCausalLM", "phi3", []string{f, f, f, f, f}, 0, "has 5 elements"},
		{"GptOssForCausalLM", "gpt_oss", []string{s, f, "chunked_attention", f}, 0, "folder[2] is chunked_attention"},
		{"GptOssForCausalLM", "gpt_oss", []string{s, f, s, f, s}, 0, "has 5 elements; decoder needs 4"},
		{"GptOssForCausalLM", "gpt_oss", []string{s, f, s, f, s}, 1, ""},
		{"Llama4ForCausalLM", "llama4_text", []string{s, f, f, f}, 0, "knows full_attention or chunked_attention"},
		{"SmolLM3ForCausalLM", "smollm3", []string{"full_atention", f, f, f}, 0, "full_atention"},
		{"SmolLM3ForCausalLM", "smollm3", []string{f, f, f, "attention"}, 0, ""},
	} {
		w := withAct(hfStub(c.arch, layerDims, false))
		w.meta["model_type"], w.meta["layer_types"], w.meta["num_nextn_predict_layers"] = c.typ, c.types, c.next
		w.meta["rope_parameters.rope_type"] = "default"
		m, err := Match(w)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Build(Options{Weights: w, S: 1, C: 64})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %q: %v, want %q", c.arch, c.types, err, c.want)
		}
	}
}

// nulls is a stub whose config.json gives null for keys.
type nulls struct {
	*stub
	keys []string
}

func (n nulls) Null(key string) bool { return strings.Contains(strings.Join(n.keys, " "), key) }

func TestCapsHaveDefaults(t *testing.T) {
	w := withAct(hfStub("Gemma2ForCausalLM", layerDims, false))
	if _, soft := windows(t, w); soft != "50" {
		t.Errorf("the cap of scores is %s, want 50", soft)
	}
	f, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		w    Weights
		want bool
	}{{w, true}, {nulls{w, []string{"attn_logit_softcapping", "final_logit_softcapping"}}, false}} {
		g, err := f.Build(Options{Weights: c.w, S: 1, C: 8})
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Nodes[len(g.Nodes)-1].Op.Name == "softcap"; got != c.want {
			t.Errorf("logits are capped: %t, want %t", got, c.want)
		}
	}
}

func TestModelTypeStandsIn(t *testing.T) {
	for typ, arch := range map[string]string{"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM",
		"gemma2": "Gemma2ForCausalLM", "gpt_neox": "GPTNeoXForCausalLM"} {
		w := hfStub(arch, layerDims, false)
		want, err := Match(w)
		if err != nil {
			t.Fatal(err)
		}
		delete(w.meta, "architectures") // null
		w.meta["model_type"] = typ
		if got, err := Match(w); err != nil || got.name != want.name {
			t.Errorf("model_type %s: %v", typ, err)
		}
	}
	// What match.hf has alone, whatever the weights are.
	for typ, arch := range map[string]string{"gemma3_text": "Gemma3ForCausalLM", "llama4_text": "Llama4ForCausalLM",
		"qwen3_5_moe_text": "Qwen3_5MoeForCausalLM", "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
		"gpt2": "GPT2LMHeadModel", "openai-gpt": "OpenAIGPTLMHeadModel", "xlm-roberta": "XLMRobertaModel",
		"mistral3": "Mistral3ForConditionalGeneration", "aria_text": "AriaTextForCausalLM"} {
		w := newStub("hf")
		w.meta["model_type"] = typ
		if !named(w, typ, []string{arch}) {
			t.Errorf("model_type %s is not that of %s", typ, arch)
		}
		if named(w, typ, []string{"QwenForCausalLM", "Gemma3nForCausalLM", "GPTJForCausalLM"}) {
			t.Errorf("model_type %s is another's", typ)
		}
		if found := mentioning([]string{typ}); len(found) == 0 {
			t.Errorf("model_type %s: no model file names its class", typ)
		}
	}
}
