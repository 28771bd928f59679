package models

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/open"
)

// told are weights whose config.json says more, or something else; nil takes a key away.
type told struct {
	Weights
	meta map[string]any
}

func (s told) Meta(key string) (any, bool) {
	if v, ok := s.meta[key]; ok {
		return v, v != nil
	}
	return s.Weights.Meta(key)
}

func (s told) Keys() []string {
	keys := s.Weights.(interface{ Keys() []string }).Keys()
	for k := range maps.Keys(s.meta) {
		keys = append(keys, k)
	}
	return keys
}

// built gives the program of weights as text, or why there is none.
func built(t *testing.T, w Weights) string {
	t.Helper()
	f, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Build(Options{Weights: w, S: 3, C: 64})
	if err != nil {
		return err.Error()
	}
	return g.Text()
}

// TestUnreadKeys: what transformers' class for a folder does not read of its config.json changes nothing, and what it
// reads does; what is not known of is read.
func TestUnreadKeys(t *testing.T) {
	stray := map[string]any{"sliding_window": int64(3), "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
		"logit_scale": 0.25, "residual_multiplier": 0.5, "embedding_multiplier": 3.0, "attention_multiplier": 0.5,
		"rope_parameters.factor": 2.0, "rope_parameters.rope_type": "linear", "rope_parameters.rope_theta": 77.0,
		"rope_theta": 77.0, "partial_rotary_factor": 0.5, "query_pre_attn_scalar": int64(7), "routed_scaling_factor": 3.5,
		"use_qk_norm": true, "clip_qkv": 0.5, "norm_eps": 0.5, "layer_norm_eps": 0.5, "hidden_act": "relu", "scale_emb": 5.0,
		"n_group": int64(2), "alibi": true, "qk_layernorm": true, "swiglu_limit": 0.5, "rotary_dim": int64(4)}
	families := []string{"afmoe", "apertus", "dbrx", "paligemma2", "mamba", "deepseek_v2", "diffllama", "glm4_moe",
		"jetmoe_longrope", "mpt", "olmo_hybrid", "recurrent_gemma", "xglm", "zamba2"}
	if !testfiles.Exhaustive() {
		families = families[:2]
	}
	for _, family := range families {
		w, err := open.Open(filepath.Join(testfiles.Repo(t, "testdata", "families"), family))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		unread := hfclass.UnreadOf(w.Meta)
		if unread == nil {
			t.Fatalf("%s: of its class nothing is known", family)
		}
		plain := built(t, w)
		if !strings.HasPrefix(plain, "graph ") {
			t.Fatalf("%s: %s", family, plain)
		}
		in := ""
		if _, ok := w.Meta("text_config.model_type"); ok {
			in = "text_config."
		}
		idle, unknown := 0, 0
		for key, v := range stray {
			if !unread.Has(in + key) {
				continue
			}
			idle++
			if built(t, told{w, map[string]any{in + key: v}}) != plain {
				t.Errorf("%s: its class does not read %s, and its program changes", family, key)
			}
			if unknown == 0 && built(t, told{w, map[string]any{in + key: v, "auto_map.AutoConfig": "own.OwnConfig"}}) != plain {
				unknown++
			}
		}
		if idle < 5 || unknown == 0 {
			t.Errorf("%s: its class does not read %d of the keys; of a class of the folder's own %d change something", family,
				idle, unknown)
		}
	}
	for _, c := range []struct {
		family, key string
		v           any
	}{{"afmoe", "route_scale", 3.5}, {"apertus", "rope_theta", 77.0}, {"dbrx", "attn_config.clip_qkv", 0.25},
		{"glm4_moe", "n_group", int64(4)}, {"paligemma2", "text_config.final_logit_softcapping", 3.0},
		{"recurrent_gemma", "logits_soft_cap", 3.0}, {"mamba", "layer_norm_epsilon", 0.5}} {
		w, err := open.Open(filepath.Join(testfiles.Repo(t, "testdata", "families"), c.family))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		meta := map[string]any{c.key: c.v}
		if c.key == "rope_theta" {
			meta["rope_parameters.rope_theta"] = nil
		}
		if built(t, told{w, meta}) == built(t, w) {
			t.Errorf("%s: %s, which its class reads, changes nothing", c.family, c.key)
		}
	}
}

// TestForms: what is no list or object under a key that is one in any class gets an error that names the key.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		family, key string
		v           any
		want        string
	}{
		{"gemma4_experts", "rope_parameters", 5.0, "bare_text is 5 (hf rope_parameters) in %s"},
		{"gemma4_experts", "rope_parameters", []int64{5}, "bare_text is [5] (hf rope_parameters) in %s"},
		{"flint", "mlp_only_layers", "none", "mlp_only_layers of %s is none: a list is expected"},
		{"flint", "mlp_only_layers", nil, ""},
	} {
		w, err := open.Open(filepath.Join(testfiles.Repo(t, "testdata", "families"), c.family))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		got := built(t, told{w, map[string]any{c.key: c.v}})
		if c.want == "" && !strings.HasPrefix(got, "graph ") || c.want != "" &&
			!strings.Contains(got, fmt.Sprintf(c.want, w.Path())) {
			t.Errorf("%s: %s %v: %.300s", c.family, c.key, c.v, got)
		}
	}
}

// TestFlatTurns: transformers takes rope_parameters that are the same for all layers nowhere where its class has them
// by kinds of layers.
func TestFlatTurns(t *testing.T) {
	for _, c := range []struct {
		family string
		same   bool
	}{{"gemma3_uncapped", true}, {"afmoe", false}} {
		w, err := open.Open(filepath.Join(testfiles.Repo(t, "testdata", "families"), c.family))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		plain := map[string]any{"rope_theta": nil}
		for _, key := range w.(interface{ Keys() []string }).Keys() {
			if strings.HasPrefix(key, "rope_parameters.") || strings.HasPrefix(key, "rope_scaling.") {
				plain[key] = nil
			}
		}
		flat := maps.Clone(plain)
		flat["rope_parameters.rope_theta"], flat["rope_parameters.rope_type"] = 1234.0, "default"
		if got := built(t, told{w, plain}) == built(t, told{w, flat}); got != c.same {
			t.Errorf("%s: flat rope_parameters change nothing: %t", c.family, got)
		}
	}
}

// TestFlatTurnsRefused: a class that looks each kind of layers up by its name fails where rope_parameters are the same
// for all; the file refuses them by their key.
func TestFlatTurnsRefused(t *testing.T) {
	w, err := open.Open(testfiles.Repo(t, "testdata", "families", "gemma4_experts"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	plain := map[string]any{}
	for _, key := range w.(interface{ Keys() []string }).Keys() {
		if strings.HasPrefix(key, "rope_parameters.") {
			plain[key] = nil
		}
	}
	if got := built(t, told{w, plain}); !strings.HasPrefix(got, "graph ") {
		t.Errorf("without any: %.300s", got)
	}
	for key, v := range map[string]any{"rope_type": "default", "rope_theta": 1234.0, "partial_rotary_factor": 0.5} {
		flat := maps.Clone(plain)
		flat["rope_parameters."+key] = v
		if got := built(t, told{w, flat}); !strings.Contains(got, fmt.Sprintf("flat is %v (hf rope_parameters.%s)", v, key)) {
			t.Errorf("%s %v: %.300s", key, v, got)
		}
		got := built(t, told{w, map[string]any{"rope_parameters." + key: v}})
		if key != "partial_rotary_factor" && !strings.HasPrefix(got, "graph ") {
			t.Errorf("%s beside those of the kinds: %.300s", key, got)
		}
	}
}

// TestIgnored: what is left out of a folder's config.json can be told.
func TestIgnored(t *testing.T) {
	w, err := open.Open(filepath.Join(testfiles.Repo(t, "testdata", "families"), "afmoe"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	got := Ignored(told{w, map[string]any{"logit_scale": 0.5, "clip_qkv": 1.0, "unheard_of": true, "route_scale": 2.0}})
	slices.Sort(got)
	if text := strings.Join(got, " "); text != "clip_qkv logit_scale" {
		t.Errorf("ignored: %s", text)
	}
}

// TestThetaOfKinds: where each kind of layer has a base of its own, the one outside is that of none.
func TestThetaOfKinds(t *testing.T) {
	for _, family := range []string{"laguna", "lfm3"} {
		w, err := open.Open(filepath.Join(testfiles.Repo(t, "testdata", "families"), family))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		plain := built(t, w)
		if built(t, told{w, map[string]any{"rope_theta": 77.0}}) != plain {
			t.Errorf("%s: rope_theta counts beside rope_parameters", family)
		}
		if built(t, told{w, map[string]any{"rope_parameters.full_attention.rope_theta": 77.0}}) == plain {
			t.Errorf("%s: the base of layers that see all does not count", family)
		}
	}
}

// TestDenied: a bias or a norm that a folder has and its class leaves out, by config.json or always, is refused.
func TestDenied(t *testing.T) {
	for _, c := range []struct {
		arch, kind, tensor string
		meta               map[string]any
		refused            string
	}{
		{"LlamaForCausalLM", "llama", "self_attn.q_proj.bias", nil, "only where config.json asks for it by attention_bias"},
		{"LlamaForCausalLM", "llama", "self_attn.q_proj.bias", map[string]any{"attention_bias": false}, "attention_bias"},
		{"LlamaForCausalLM", "llama", "self_attn.q_proj.bias", map[string]any{"attention_bias": true}, ""},
		{"LlamaForCausalLM", "llama", "self_attn.q_proj.bias", map[string]any{"auto_map.AutoModel": "own.Model"}, ""},
		{"LlamaForCausalLM", "unheard_of", "self_attn.q_proj.bias", nil, ""},
		{"SmolLM3ForCausalLM", "smollm3", "mlp.down_proj.bias", nil, "mlp_bias"},
		{"SmolLM3ForCausalLM", "smollm3", "mlp.down_proj.bias", map[string]any{"mlp_bias": true}, ""},
		{"Starcoder2ForCausalLM", "starcoder2", "self_attn.o_proj.bias", nil, ""}, // there where the key is absent
		{"Starcoder2ForCausalLM", "starcoder2", "self_attn.o_proj.bias", map[string]any{"use_bias": false}, "use_bias"},
		{"Qwen2ForCausalLM", "qwen2", "self_attn.o_proj.bias", nil, "its class has none"},
		{"CohereForCausalLM", "cohere", "self_attn.q_norm.weight", nil, "use_qk_norm"},
		{"CohereForCausalLM", "cohere", "self_attn.q_norm.weight", map[string]any{"use_qk_norm": true}, ""},
	} {
		name := "model.layers.0." + c.tensor
		w := newStub("hf")
		maps.Copy(w.meta, map[string]any{"architectures": []string{c.arch}, "model_type": c.kind})
		maps.Copy(w.meta, c.meta)
		w.add(name, tensor.BF16, 8)
		err := denied(w, map[string]bool{name: true})
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s %v with %s: %v, want %q", c.kind, c.meta, c.tensor, err, c.refused)
		}
	}
	w := withAct(hfStub("LlamaForCausalLM", layerDims, false))
	w.meta["model_type"] = "llama"
	if got := built(t, w); !strings.HasPrefix(got, "graph ") {
		t.Fatal(got)
	}
	for _, name := range []string{"q", "k", "v"} {
		for i := range layerDims.l {
			_, shape, _ := w.Lookup(fmt.Sprintf("model.layers.%d.self_attn.%s_proj.weight", i, name))
			w.add(fmt.Sprintf("model.layers.%d.self_attn.%s_proj.bias", i, name), tensor.BF16, shape[0])
		}
	}
	if got := built(t, w); !strings.Contains(got, "self_attn.k_proj.bias") {
		t.Errorf("biases that config.json does not ask for: %s", got)
	}
}

// TestModelTypesAreKnown: the table of what classes read has every model_type that a file tells apart, or says that
// transformers lacks it. tools/gen_reads.py writes it.
func TestModelTypesAreKnown(t *testing.T) {
	n := 0
	for _, name := range Names() {
		f, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.params {
			p := &f.params[i]
			if p.among == nil || !strings.Contains(strings.Join(p.hf, " "), "model_type") {
				continue
			}
			for _, kind := range strings.Split(strings.Trim(p.among.string, "[]"), ",") {
				kind = strings.Trim(kind, "' ")
				n++
				if kind != "none" && !hfclass.Known(kind) && !hfclass.Lacks(kind) {
					t.Errorf("%s knows the model_type %s, which tools/gen_reads.py has not seen", name, kind)
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("%d model_types in all files", n)
	}
}

// TestHeadless: where config.json says that the head is not the embedding's matrix, one that is missing is not made of
// it.
func TestHeadless(t *testing.T) {
	for _, c := range []struct {
		said any
		ok   bool
	}{{nil, true}, {true, true}, {false, false}} {
		w := withAct(hfStub("LlamaForCausalLM", layerDims, true))
		w.meta["model_type"] = "llama"
		if c.said != nil {
			w.meta["tie_word_embeddings"] = c.said
		}
		got := built(t, w)
		if strings.HasPrefix(got, "graph ") != c.ok || !c.ok && !strings.Contains(got, "it has no head of its own") {
			t.Errorf("tie_word_embeddings %v: %.200s", c.said, got)
		}
		if c.ok {
			continue
		}
		w.meta["text_config.tie_word_embeddings"] = true
		if got := built(t, w); !strings.HasPrefix(got, "graph ") {
			t.Errorf("of the language model: %.200s", got)
		}
	}
}

// TestUsualValues: what config.json leaves out is what the class has for it.
func TestUsualValues(t *testing.T) {
	w := hfStub("Olmo3ForCausalLM", layerDims, false)
	for i := range layerDims.l {
		p := fmt.Sprintf("model.layers.%d.", i)
		w.names = slices.DeleteFunc(w.names, func(name string) bool { return name == p+"input_layernorm.weight" })
		w.add(p+"post_feedforward_layernorm.weight", tensor.BF16, layerDims.d)
		w.add(p+"self_attn.q_norm.weight", tensor.BF16, layerDims.d)
		w.add(p+"self_attn.k_norm.weight", tensor.BF16, layerDims.d/layerDims.h*layerDims.g)
	}
	maps.Copy(w.meta, map[string]any{"model_type": "olmo3", "rope_theta": 1e6, "sliding_window": int64(2),
		"rope_scaling.rope_type": "yarn", "rope_scaling.factor": 8.0, "max_position_embeddings": int64(64),
		"rope_scaling.original_max_position_embeddings": int64(16)})
	got := built(t, w)
	if !strings.Contains(got, "base=1000000") && !strings.Contains(got, "base=500000") {
		t.Fatal(got)
	}
	for i := range layerDims.l { // a base outside is that of the layers that see all
		want := "base=500000"
		if i%4 == 3 {
			want = "base=1000000"
		}
		at := strings.Index(got, fmt.Sprintf("blk.%d.q4", i))
		if line, _, _ := strings.Cut(got[max(0, at):], "\n"); at < 0 || !strings.Contains(line, want) {
			t.Errorf("layer %d: %q, want %s", i, line, want)
		}
	}
}

// TestNoLayers: weights with layers, of which the metadata say that there are none.
func TestNoLayers(t *testing.T) {
	w := withAct(hfStub("LlamaForCausalLM", layerDims, false))
	w.meta["num_hidden_layers"] = int64(0)
	if got := built(t, w); !strings.Contains(got, "of a layer behind the 0 that the metadata say there are") {
		t.Errorf("%.200s", got)
	}
}
