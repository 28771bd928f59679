package models

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/open"
)

// TestSaid: what config.json says is computed so, or refused with the key that says it.
func TestSaid(t *testing.T) {
	dense, experts := layerDims, layerDims
	experts.e = 8 // of which qwen3_moe's class takes as many
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
		{"Qwen3MoeForCausalLM", "qwen3_moe", experts, map[string]any{"hidden_act": "laplace"}, "", "called laplace"},
		{"SmolLM3ForCausalLM", "smollm3", dense, map[string]any{"hidden_act": "laplace"}, "", "called laplace"},
		{"BailingMoeForCausalLM", "bailing_moe", experts, map[string]any{"norm_head": true}, "",
			"normed is true (hf norm_head)"},
		{"BailingMoeForCausalLM", "bailing_moe", experts, nil, "= softmax(", ""},
		{"BailingMoeV2ForCausalLM", "bailing_moe", experts, map[string]any{"score_function": "sigmoid"}, "= sigmoid(", ""},
		{"Qwen3MoeForCausalLM", "qwen3_moe", experts, map[string]any{"rms_norm_eps": 1e-3}, "eps=0.001", ""},
		{"HeliumForCausalLM", "helium", dense, nil, "eps=1e-08", ""},
		{"MellumForCausalLM", "mellum", dense, nil, "= rmsnorm(e0, blk.0.pre)\n", ""},
		{"StableLmForCausalLM", "stablelm", dense, map[string]any{"partial_rotary_factor": 0.5}, "dims=4", ""},
		{"Cohere2ForCausalLM", "cohere2", dense, map[string]any{"partial_rotary_factor": 0.25, "sliding_window": int64(8)},
			"dims=8", ""}, // whose class turns whole heads
		{"SmolLM3ForCausalLM", "smollm3", dense, map[string]any{"rope_parameters.partial_rotary_factor": 0.25}, "dims=8", ""},
		{"Qwen2ForCausalLM", "qwen2", dense, map[string]any{"rope_parameters.rope_type": "proportional",
			"rope_parameters.partial_rotary_factor": 0.5}, "dims=4, scaling=over_head", ""},
		{"Qwen3ForCausalLM", "qwen3", dense, map[string]any{"rope_scaling.type": "proportional",
			"partial_rotary_factor": 0.5}, "dims=4, scaling=over_head", ""},
		{"MixtralForCausalLM", "mixtral", experts, map[string]any{"rope_scaling.rope_type": "proportional",
			"rope_scaling.partial_rotary_factor": 0.5}, "dims=4, scaling=over_head", ""},
		{"Qwen3ForCausalLM", "qwen3", dense, map[string]any{"partial_rotary_factor": 0.5}, "dims=8", ""},
		{"Qwen3ForCausalLM", "qwen3", dense, map[string]any{"partial_rotary_factor": 0.5, "rope_scaling.type": "linear",
			"rope_scaling.factor": 2.0}, "", "turning is 0.5 (hf partial_rotary_factor); kind is linear"},
		{"SmolLM3ForCausalLM", "smollm3", dense, map[string]any{"partial_rotary_factor": 0.5, "rope_scaling.type": "linear",
			"rope_scaling.factor": 2.0}, "", "part_key is 0.5 (hf partial_rotary_factor)"},
		{"Phi3ForCausalLM", "phi3", dense, map[string]any{"partial_rotary_factor": 0.0}, "", "dims is 0"},
		{"LlamaForCausalLM", "llama", dense, map[string]any{"rope_parameters.rope_type": "proportional",
			"partial_rotary_factor": 0.1}, "", "dims is 0"},
		{"Gemma2ForCausalLM", "gemma2", dense, map[string]any{"final_logit_softcapping": 0.0}, "", "final_cap is 0"},
		{"Gemma2ForCausalLM", "gemma2", dense, map[string]any{"attn_logit_softcapping": 0.0}, "", "cap_said is 0"},
		{"GraniteForCausalLM", "granite", dense, map[string]any{"attention_multiplier": 0.0}, "", "scale_key is 0"},
		{"LlamaForCausalLM", "llama", dense, map[string]any{"is_causal": false}, "", "is_causal of folder is false"},
		{"SmolLM3ForCausalLM", "smollm3", dense, map[string]any{"text_config.is_causal": false}, "",
			"text_config.is_causal of folder is false"},
		{"LlamaForCausalLM", "llama", dense, map[string]any{"is_causal": true}, "= silu(", ""},
		{"SmolLM3ForCausalLM", "smollm3", dense, map[string]any{"intermediate_size": []int64{5, 5, 5, 5}}, "",
			"F_said is 5 (hf intermediate_size.$i)"},
		{"CwmForCausalLM", "cwm", dense, nil, "scaling=llama3, factor=16", ""},
		{"CwmForCausalLM", "cwm", dense, map[string]any{"rope_parameters.rope_theta": 1e6}, "", "turn_said is null"},
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
	kinds := map[string]bool{"smollm3": true, "kimi_k2": true, "bailing_moe": true, "llama": true, "smollm4": false}
	for kind, ok := range kinds {
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

// TestFewSeen: attention to what an indexer chooses is attention to all as long as it chooses all, and behind refused
// where a layer that has its own has no weights for it.
func TestFewSeen(t *testing.T) {
	w := newStub("hf")
	for key, n := range map[string]int64{"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
		"num_key_value_heads": 2, "vocab_size": 64, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4,
		"qk_nope_head_dim": 8, "v_head_dim": 8, "index_topk": 32} {
		w.meta[key] = n
	}
	w.meta["architectures"], w.meta["model_type"] = []string{"GlmMoeDsaForCausalLM"}, "glm_moe_dsa"
	for name, shape := range map[string][]int{"self_attn.q_a_proj": {8, 16}, "self_attn.q_a_layernorm": {8},
		"self_attn.q_b_proj": {24, 8}, "self_attn.kv_a_proj_with_mqa": {12, 16}, "self_attn.kv_a_layernorm": {8},
		"self_attn.kv_b_proj": {32, 8}, "self_attn.o_proj": {16, 16}, "self_attn.indexer.wk": {8, 16},
		"self_attn.indexer.wq_b": {16, 8}, "input_layernorm": {16}, "post_attention_layernorm": {16},
		"mlp.gate_proj": {32, 16}, "mlp.up_proj": {32, 16}, "mlp.down_proj": {16, 32}} {
		w.add("model.layers.0."+name+".weight", tensor.BF16, shape...)
	}
	w.add("model.embed_tokens.weight", tensor.BF16, 64, 16)
	w.add("model.norm.weight", tensor.BF16, 16)
	m, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Build(Options{Weights: w, S: 1, C: 32}); err != nil {
		t.Error(err)
	}
	for _, part := range []string{"indexer.k_norm.weight", "indexer.k_norm.bias"} {
		w.add("model.layers.0.self_attn."+part, tensor.F32, 8)
	}
	w.add("model.layers.0.self_attn.indexer.weights_proj.weight", tensor.BF16, 2, 16)
	w.meta["index_n_heads"], w.meta["index_head_dim"] = int64(2), int64(8)
	if _, err := m.Build(Options{Weights: w, S: 1, C: 33}); err != nil {
		t.Error(err)
	}
	delete(w.shapes, "model.layers.0.self_attn.indexer.wk.weight")
	const says = "C is 33 (the context length); sees is 32 (hf index_topk)"
	if _, err := m.Build(Options{Weights: w, S: 1, C: 33}); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %s", err, says)
	}
}

// TestKindBeforeClass: a file that names the model_type is taken before one that names the class, which loads what has
// other names of tensors.
func TestKindBeforeClass(t *testing.T) {
	for kind, want := range map[string]string{"exaone": "models/decoder.yaml", "llama": "models/llama2_7b.yaml"} {
		w := newStub("hf")
		w.meta["architectures"], w.meta["model_type"] = []string{"LlamaForCausalLM"}, kind
		if m, err := Match(w); err != nil || m.Path() != want {
			t.Errorf("%s: %v, %v", kind, m, err)
		}
	}
}

// TestLeastStep: the steps of Nemotron-H's state spaces are at least time_step_min, whatever time_step_limit says.
func TestLeastStep(t *testing.T) {
	w, err := open.Open(testfiles.Repo(t, "testdata", "families", "nemotron_h"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	m, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Build(Options{Weights: w, S: 1, C: 64, Float: tensor.F32, Set: map[string]string{"dt_key": "0.25"}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(g.Text(), "low=0.25") {
		t.Error("no step is held above 0.25")
	}
}

// TestScaleLeftOut: classes for pictures and texts give logits without the scale that their text's class has.
func TestScaleLeftOut(t *testing.T) {
	for arch, scaled := range map[string]bool{"Cohere2ForCausalLM": true, "Cohere2VisionForConditionalGeneration": false,
		"AyaVisionForConditionalGeneration": false} {
		w := hfStub(arch, dims{l: 1, d: 64, h: 4, g: 4, f: 32, v: 8}, false)
		w.meta["model_type"], w.meta["logit_scale"] = "cohere2", 0.25
		f, err := Builtin("decoder")
		if err != nil {
			t.Fatal(err)
		}
		g, err := f.Build(Options{Weights: w})
		if err != nil {
			t.Fatal(err)
		}
		if last := g.Outputs[0].Def.Op; (last != ops.Linear) != scaled {
			t.Errorf("%s: logits are by %s", arch, last.Name)
		}
	}
}

// TestLightningActs: the function behind the products of a linear attention is what config.json says, and its norm has
// an epsilon of its own.
func TestLightningActs(t *testing.T) {
	for act, want := range map[string]*graph.Op{"silu": ops.SiLU, "gelu": ops.GELU, "relu": ops.ReLU, "tanh": ops.Tanh,
		"laplace": nil} {
		f, err := Builtin("lightning_block")
		if err != nil {
			t.Fatal(err)
		}
		g, err := f.Build(Options{Set: map[string]string{"D": "64", "H": "4", "Dh": "16", "L": "2", "act": `"` + act + `"`,
			"eps": "0.01"}})
		if (err == nil) != (want != nil) {
			t.Errorf("%s: %v", act, err)
		}
		if err != nil {
			continue
		}
		seen := false
		for _, n := range g.Nodes {
			seen = seen || n.Op == want
			if n.Op == ops.RMSNorm && n.In[1].Name == "n_out" && graph.Attr[ops.NormAttr](n).Eps != 1e-6 {
				t.Errorf("%s: epsilon %g", act, graph.Attr[ops.NormAttr](n).Eps)
			}
		}
		if !seen {
			t.Errorf("%s is not there", act)
		}
	}
}

// TestDraftLeavesFiles: what a draft adds to a built-in file, it adds to a copy: others have the file as it is written.
func TestDraftLeavesFiles(t *testing.T) {
	w, err := open.Open(testfiles.Repo(t, "testdata", "families", "apertus"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewDraft(w, "mine"); err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		f, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := ownBuiltin(name); err != nil || !reflect.DeepEqual(f, want) {
			t.Errorf("%s is not as it is written behind a draft: %v", name, err)
		}
	}
}
