package models

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/safetensors"
)

// dims are the sizes of a published model, for lists of tensors that owe nothing to
// the model files.
type dims struct{ l, d, h, g, dh, f, v, e int }

// hfStub gives the tensors and the configuration that Hugging Face publishes.
func hfStub(arch string, s dims, tied bool) *stub {
	w := newStub("hf")
	w.meta["architectures"] = []string{arch}
	for k, v := range map[string]int{"num_hidden_layers": s.l, "hidden_size": s.d, "num_attention_heads": s.h,
		"num_key_value_heads": s.g, "intermediate_size": s.f, "vocab_size": s.v, "head_dim": s.dh, "num_local_experts": s.e} {
		if v != 0 {
			w.meta[k] = int64(v)
		}
	}
	if s.dh == 0 {
		s.dh = s.d / s.h
	}
	put := func(name string, shape ...int) { w.add(name, tensor.BF16, shape...) }
	if arch == "GPTNeoXForCausalLM" {
		put("gpt_neox.embed_in.weight", s.v, s.d)
		put("embed_out.weight", s.v, s.d)
		for i := range s.l {
			p := fmt.Sprintf("gpt_neox.layers.%d.", i)
			for name, shape := range map[string][]int{"attention.query_key_value": {3 * s.d, s.d}, "attention.dense": {s.d, s.d},
				"mlp.dense_h_to_4h": {s.f, s.d}, "mlp.dense_4h_to_h": {s.d, s.f}, "input_layernorm": {s.d},
				"post_attention_layernorm": {s.d}} {
				put(p+name+".weight", shape...)
				put(p+name+".bias", shape[0])
			}
		}
		put("gpt_neox.final_layer_norm.weight", s.d)
		put("gpt_neox.final_layer_norm.bias", s.d)
		return w
	}
	put("model.embed_tokens.weight", s.v, s.d)
	for i := range s.l {
		p := fmt.Sprintf("model.layers.%d.", i)
		put(p+"input_layernorm.weight", s.d)
		put(p+"post_attention_layernorm.weight", s.d)
		put(p+"self_attn.o_proj.weight", s.d, s.h*s.dh)
		if arch == "Phi3ForCausalLM" {
			put(p+"self_attn.qkv_proj.weight", (s.h+2*s.g)*s.dh, s.d)
			put(p+"mlp.gate_up_proj.weight", 2*s.f, s.d)
			put(p+"mlp.down_proj.weight", s.d, s.f)
			continue
		}
		for name, heads := range map[string]int{"q": s.h, "k": s.g, "v": s.g} {
			put(p+"self_attn."+name+"_proj.weight", heads*s.dh, s.d)
			if arch == "Qwen2ForCausalLM" {
				put(p+"self_attn."+name+"_proj.bias", heads*s.dh)
			}
		}
		switch arch {
		case "Qwen3ForCausalLM":
			put(p+"self_attn.q_norm.weight", s.dh)
			put(p+"self_attn.k_norm.weight", s.dh)
		case "Gemma2ForCausalLM":
			put(p+"pre_feedforward_layernorm.weight", s.d)
			put(p+"post_feedforward_layernorm.weight", s.d)
		}
		if s.e > 0 {
			put(p+"block_sparse_moe.gate.weight", s.e, s.d)
			for e := range s.e {
				q := fmt.Sprintf("%sblock_sparse_moe.experts.%d.", p, e)
				put(q+"w1.weight", s.f, s.d)
				put(q+"w2.weight", s.d, s.f)
				put(q+"w3.weight", s.f, s.d)
			}
			continue
		}
		put(p+"mlp.gate_proj.weight", s.f, s.d)
		put(p+"mlp.up_proj.weight", s.f, s.d)
		put(p+"mlp.down_proj.weight", s.d, s.f)
	}
	put("model.norm.weight", s.d)
	if !tied {
		put("lm_head.weight", s.v, s.d)
	}
	return w
}

// withAct sets activations other than SiLU.
func withAct(w *stub) *stub {
	arch := w.meta["architectures"].([]string)[0]
	if act, ok := map[string]string{"Gemma2ForCausalLM": "gelu_pytorch_tanh", "GPTNeoXForCausalLM": "gelu"}[arch]; ok {
		w.meta["hidden_act"], w.meta["hidden_activation"] = act, act
	}
	return w
}

// TestPublishedTotals compares the weights of each family's graphs with the
// totals that its makers publish: none is missing, none is there twice.
func TestPublishedTotals(t *testing.T) {
	for _, c := range []struct {
		name, arch, file string
		d                dims
		tied             bool
		want             int
	}{
		{"Llama-2-7B", "LlamaForCausalLM", "llama2_7b", dims{l: 32, d: 4096, h: 32, g: 32, f: 11008, v: 32000}, false,
			6_738_415_616},
		{"Llama-2-13B", "LlamaForCausalLM", "llama2_7b", dims{l: 40, d: 5120, h: 40, g: 40, f: 13824, v: 32000}, false,
			13_015_864_320},
		{"Llama-2-70B", "LlamaForCausalLM", "llama2_7b", dims{l: 80, d: 8192, h: 64, g: 8, f: 28672, v: 32000}, false,
			68_976_648_192},
		{"Llama-3-8B", "LlamaForCausalLM", "llama2_7b", dims{l: 32, d: 4096, h: 32, g: 8, f: 14336, v: 128256}, false,
			8_030_261_248},
		{"Llama-3.2-1B", "LlamaForCausalLM", "llama2_7b", dims{l: 16, d: 2048, h: 32, g: 8, dh: 64, f: 8192, v: 128256}, true,
			1_235_814_400},
		{"Mistral-7B", "MistralForCausalLM", "decoder", dims{l: 32, d: 4096, h: 32, g: 8, f: 14336, v: 32000}, false,
			7_241_732_096},
		{"Mixtral-8x7B", "MixtralForCausalLM", "mixtral_8x7b", dims{l: 32, d: 4096, h: 32, g: 8, f: 14336, v: 32000, e: 8},
			false, 46_702_792_704},
		{"Gemma-2-2B", "Gemma2ForCausalLM", "gemma2_2b", dims{l: 26, d: 2304, h: 8, g: 4, dh: 256, f: 9216, v: 256000}, true,
			2_614_341_888},
		{"Gemma-2-9B", "Gemma2ForCausalLM", "gemma2_2b", dims{l: 42, d: 3584, h: 16, g: 8, dh: 256, f: 14336, v: 256000},
			true, 9_241_705_984},
		{"Qwen2-0.5B", "Qwen2ForCausalLM", "qwen2", dims{l: 24, d: 896, h: 14, g: 2, f: 4864, v: 151936}, true, 494_032_768},
		{"Qwen2-7B", "Qwen2ForCausalLM", "qwen2", dims{l: 28, d: 3584, h: 28, g: 4, f: 18944, v: 152064}, false,
			7_615_616_512},
		{"Qwen3-8B", "Qwen3ForCausalLM", "qwen3_8b", dims{l: 36, d: 4096, h: 32, g: 8, dh: 128, f: 12288, v: 151936}, false,
			8_190_735_360},
		{"Phi-3-mini", "Phi3ForCausalLM", "phi3", dims{l: 32, d: 3072, h: 32, g: 32, f: 8192, v: 32064}, false,
			3_821_079_552},
		{"Pythia-70M", "GPTNeoXForCausalLM", "gpt_neox_20b", dims{l: 6, d: 512, h: 8, f: 2048, v: 50304}, false, 70_426_624},
		{"Pythia-6.9B", "GPTNeoXForCausalLM", "gpt_neox_20b", dims{l: 32, d: 4096, h: 32, f: 16384, v: 50432}, false,
			6_857_302_016},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := withAct(hfStub(c.arch, c.d, c.tied))
			f, err := Match(w)
			if err != nil {
				t.Fatal(err)
			}
			if f.stem() != c.file {
				t.Errorf("matched %s, want %s", f.stem(), c.file)
			}
			g, err := f.Build(Options{Weights: w, S: 1, C: 64})
			if err != nil {
				t.Fatal(err)
			}
			if got := total(g); got != c.want {
				t.Errorf("%d weights, published are %d", got, c.want)
			}
			if u := Unused(g, w); len(u) > 0 {
				t.Errorf("%d tensors are not read: %s …", len(u), u[0])
			}
		})
	}
}

func total(g *graph.Graph) int {
	n := 0
	for _, w := range g.Weights {
		n += w.Shape.Elems()
	}
	return n
}

// TestGoldens builds the graph of each golden folder as it lies on disk.
func TestGoldens(t *testing.T) {
	for family, file := range map[string]string{"llama2_mha": "llama2_7b", "llama2_gqa_tied": "llama2_7b",
		"mistral_swa": "decoder",
		"mixtral":     "mixtral_8x7b", "gemma2": "gemma2_2b", "phi3": "phi3", "qwen2": "qwen2", "qwen3": "qwen3_8b",
		"gpt_neox": "gpt_neox_20b"} {
		t.Run(family, func(t *testing.T) {
			w, err := safetensors.Open(testfiles.Shared(t, "goldens", family))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			f, err := Match(w)
			if err != nil {
				t.Fatal(err)
			}
			if f.stem() != file {
				t.Errorf("matched %s, want %s", f.stem(), file)
			}
			for _, s := range []int{1, 5} {
				g, err := f.Build(Options{Weights: w, S: s, C: 64})
				if err != nil {
					t.Fatal(err)
				}
				if u := Unused(g, w); len(u) > 0 {
					t.Errorf("tensors that are not read: %v", u)
				}
				if out := g.Outputs[0]; !out.Shape.Equal(tensor.Shape{1, 320}) {
					t.Errorf("the result is %v, want [1, 320]", out)
				}
			}
		})
	}
}

// TestWeightsOfSizes: a model of the sizes that it is named after has as many weights as it is known to have; without
// weights none is tied, which Qwen2 is at these sizes.
func TestWeightsOfSizes(t *testing.T) {
	for stem, want := range map[string]int{"llama2_7b": 6_738_415_616, "gemma2_2b": 2_614_341_888,
		"mixtral_8x7b": 46_702_792_704,
		"phi3":         3_821_079_552, "qwen2": 494_032_768 + 151_936*896, "qwen3_8b": 8_190_735_360} {
		f, err := Builtin(stem)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		g, err := f.Build(Options{S: 2, C: 8})
		if err != nil {
			t.Errorf("%v", err)
		} else if got := total(g); got != want {
			t.Errorf("%s: %d weights, want %d", stem, got, want)
		}
	}
}

// TestBlocksAlone builds each block with its own sizes and synthetic weights.
func TestBlocksAlone(t *testing.T) {
	for _, name := range Names() {
		f, err := Builtin("models/" + name + ".yaml")
		if err != nil {
			t.Error(err)
			continue
		}
		if f.IsBlock() != strings.HasSuffix(name, "_block") {
			t.Errorf("%s: IsBlock is %v", name, f.IsBlock())
		}
		g, err := f.Build(Options{S: 3, C: 7, Float: tensor.F64, KV: tensor.F64})
		if err != nil {
			t.Error(err)
			continue
		}
		if f.IsBlock() && !g.Outputs[0].Shape.Equal(g.Input("x").Shape) {
			t.Errorf("%s: %v for %v", name, g.Outputs[0], g.Input("x"))
		}
		norms := 0
		for _, w := range g.Weights {
			if w.Load.Norm {
				norms++
			}
		}
		normed := slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return strings.HasSuffix(n.Op.Name, "norm") })
		if norms == 0 && normed { // some keep lengths without weights
			t.Errorf("%s: no weight is marked as a norm's", name)
		}
	}
}

// TestRopeLayout: GGUF files of the Llama and Mixtral classes hold Wq and Wk
// permuted for adjacent pairs, and no other; at position 0 both layouts agree,
// so numbers for one token do not show a mistake.
func TestRopeLayout(t *testing.T) {
	for _, c := range []struct{ file, dialect, want string }{
		{"llama2_block", "hf", "half"}, {"llama2_7b", "gguf", "pair"}, {"llama2_7b", "hf", "half"},
		{"mixtral_8x7b", "gguf", "pair"}, {"mixtral_8x7b", "hf", "half"}, {"qwen2", "gguf", "half"},
		{"gpt_neox_20b", "gguf", "half"},
	} {
		f, err := Builtin(c.file)
		if err != nil {
			t.Fatal(err)
		}
		w := newStub(c.dialect)
		var es errs
		o := Options{Weights: w}
		o.defaults()
		b := f
		if !f.IsBlock() {
			b = f.blocks()[0]
		}
		got := "half"
		if b.param("layout") != nil {
			v, _ := newScope(&es, b, &o, 0, nil).lookup("layout")
			got = v.(string)
		}
		if got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.file, c.dialect, got, c.want)
		}
	}
}

// TestRopeScaling reads every spelling of the extensions of the context.
func TestRopeScaling(t *testing.T) {
	d := dims{l: 1, d: 64, h: 4, g: 4, f: 32, v: 8}
	lists := []float64{1, 1, 2, 2, 3, 3, 4, 4}
	for _, c := range []struct {
		name string
		meta map[string]any
		want ops.RoPEAttr // of what differs from the defaults
	}{
		{"none", nil, ops.RoPEAttr{Scaling: "none", Factor: 1, Original: 128, Base: 10000}},
		{"new spelling", map[string]any{"rope_parameters.rope_type": "linear", "rope_parameters.factor": 4.0,
			"rope_parameters.rope_theta": 5e5},
			ops.RoPEAttr{Scaling: "linear", Factor: 4, Original: 128, Base: 5e5}},
		{"old spelling", map[string]any{"rope_scaling.type": "linear", "rope_scaling.factor": 2.0, "rope_theta": 1e6},
			ops.RoPEAttr{Scaling: "linear", Factor: 2, Original: 128, Base: 1e6}},
		{"llama3", map[string]any{"rope_scaling.rope_type": "llama3", "rope_scaling.factor": 8.0,
			"rope_scaling.original_max_position_embeddings": int64(64)},
			ops.RoPEAttr{Scaling: "llama3", Factor: 8, Original: 64, Base: 10000}},
		{"yarn, factor from the lengths", map[string]any{"rope_parameters.rope_type": "yarn",
			"rope_parameters.original_max_position_embeddings": int64(32)},
			ops.RoPEAttr{Scaling: "yarn", Factor: 4, Original: 32, Base: 10000}},
		{"yarn", map[string]any{"rope_parameters.rope_type": "yarn", "rope_parameters.factor": 2.0,
			"rope_parameters.attention_factor": 1.5},
			ops.RoPEAttr{Scaling: "yarn", Factor: 2, Original: 128, Base: 10000, AttnFactor: 1.5}},
		{"dynamic, within the length of training", map[string]any{"rope_parameters.rope_type": "dynamic",
			"rope_parameters.factor": 2.0}, ops.RoPEAttr{Scaling: "none", Factor: 2, Original: 128, Base: 10000}},
		// The gain is sqrt(1 + ln(factor)/ln(original)), of the factor that is said or of the lengths' quotient.
		{"longrope, factor", map[string]any{"rope_scaling.type": "longrope", "rope_scaling.factor": 4.0,
			"rope_scaling.original_max_position_embeddings": int64(16), "rope_scaling.long_factor": lists,
			"rope_scaling.short_factor": lists},
			ops.RoPEAttr{Scaling: "factors", Factor: 4, Original: 16, Base: 10000, AttnFactor: math.Sqrt(1.5)}},
		{"longrope, factor from the lengths", map[string]any{"rope_parameters.rope_type": "longrope",
			"rope_parameters.original_max_position_embeddings": int64(16), "rope_parameters.long_factor": lists,
			"rope_parameters.short_factor": lists},
			ops.RoPEAttr{Scaling: "factors", Factor: 8, Original: 16, Base: 10000, AttnFactor: math.Sqrt(1.75)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := hfStub("LlamaForCausalLM", d, false)
			w.meta["max_position_embeddings"] = int64(128)
			for k, v := range c.meta {
				w.meta[k] = v
			}
			f, err := Builtin("llama2_7b")
			if err != nil {
				t.Fatal(err)
			}
			g, err := f.Build(Options{Weights: w})
			if err != nil {
				t.Fatal(err)
			}
			seen := 0
			for _, n := range g.Nodes {
				if n.Op != ops.RoPE {
					continue
				}
				seen++
				a := graph.Attr[ops.RoPEAttr](n)
				got := ops.RoPEAttr{Scaling: a.Scaling, Factor: a.Factor, Original: a.Original, Base: a.Base,
					AttnFactor: a.AttnFactor}
				if got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
			}
			if seen != 2 {
				t.Errorf("%d rotations, want 2", seen)
			}
		})
	}
	w := hfStub("LlamaForCausalLM", d, false)
	w.meta["rope_scaling.type"] = "longrope"
	f, _ := Builtin("llama2_7b")
	if _, err := f.Build(Options{Weights: w}); err == nil || !strings.Contains(err.Error(), "long_list") {
		t.Errorf("longrope without its lists: %v", err)
	}
}

// TestMissing: a weight whose condition holds must be there. Left out without a word, a norm that is missing would give
// other logits.
func TestMissing(t *testing.T) {
	f, err := Builtin("decoder")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "model.norm.weight", "model.layers.1.input_layernorm.weight",
		"model.layers.0.post_attention_layernorm.weight"} {
		w := hfStub("SeedOssForCausalLM", dims{l: 2, d: 64, h: 4, g: 4, dh: 16, f: 32, v: 8}, false)
		w.meta["model_type"] = "seed_oss"
		delete(w.shapes, name)
		delete(w.types, name)
		w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
		_, err := f.Build(Options{Weights: w})
		if (err == nil) != (name == "") || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("without %q: %v", name, err)
		}
	}
}

// TestRefusals: what a family's file cannot compute is refused, not computed wrong.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		arch, key string
		val       any
		want      string
	}{
		{"LlamaForCausalLM", "hidden_act", "laplace", "no activation is called laplace"},
		{"Phi3ForCausalLM", "rope_scaling.type", "longrope", "phi3 needs scaling != factors or has(long_list)"},
		// Heads that would not turn as is meant: a word in the place of an object, and no factor.
		{"LlamaForCausalLM", "rope_scaling", "linear", "llama2 needs not has(bare_text)"},
		{"LlamaForCausalLM", "rope_scaling.rope_type", "linear", "or has(said_factor)"},
		{"LlamaForCausalLM", "rope_scaling.rope_type", "llama3", "or has(said_factor)"},
		{"LlamaForCausalLM", "rope_parameters.rope_type", "yarn", "or has(said_factor)"},
	} {
		w := hfStub(c.arch, dims{l: 1, d: 64, h: 4, g: 4, f: 32, v: 8}, false)
		w.meta[c.key] = c.val
		f, err := Match(w)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Build(Options{Weights: w}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s=%v: %v; want %q", c.arch, c.key, c.val, err, c.want)
		}
	}
}

// TestQwen3Biases: attention_bias adds four to each block, which must be read:
// without them the logits are wrong and nothing else shows it.
func TestQwen3Biases(t *testing.T) {
	w := hfStub("Qwen3ForCausalLM", dims{l: 2, d: 64, h: 4, g: 4, dh: 16, f: 32, v: 8}, false)
	w.meta["attention_bias"] = true
	const dh = 16
	for i := range 2 {
		for name, n := range map[string]int{"q": 4 * dh, "k": 4 * dh, "v": 4 * dh, "o": 64} {
			w.add(fmt.Sprintf("model.layers.%d.self_attn.%s_proj.bias", i, name), tensor.F32, n)
		}
	}
	f, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Build(Options{Weights: w})
	if err != nil {
		t.Fatal(err)
	}
	if left := Unused(g, w); len(left) > 0 {
		t.Errorf("nothing reads %v", left)
	}
}

// TestDynamic: a dynamic scaling changes nothing up to the length of training,
// and beyond it the frequencies would depend on the step: refused.
func TestDynamic(t *testing.T) {
	w := hfStub("LlamaForCausalLM", dims{l: 1, d: 64, h: 4, g: 4, f: 32, v: 8}, false)
	w.meta["rope_scaling.type"], w.meta["rope_scaling.factor"], w.meta["max_position_embeddings"] = "dynamic", 2.0,
		int64(64)
	f, err := Match(w)
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Build(Options{Weights: w, C: 64})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Nodes {
		if n.Op == ops.RoPE && graph.Attr[ops.RoPEAttr](n).Scaling != "none" {
			t.Errorf("%v: %s", n, n.AttrText())
		}
	}
	if _, err := f.Build(Options{Weights: w, C: 65}); err == nil ||
		!strings.Contains(err.Error(), "C is 65 (the context length)") {
		t.Errorf("a longer context: %v", err)
	}
}

// TestSchema validates every model file, and that the schema refuses what the
// reader refuses by its form.
func TestSchema(t *testing.T) {
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	rs, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	validate := func(data []byte) error {
		var v any
		if err := yaml.Unmarshal(data, &v); err != nil {
			return err
		}
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		var plain any
		if err := json.Unmarshal(text, &plain); err != nil {
			return err
		}
		return rs.Validate(plain)
	}
	for _, name := range Names() {
		_, data, _ := readBuiltin(name)
		first, _, _ := strings.Cut(string(data), "\n") // empty: a block behind a model
		if first != "" && first != "# yaml-language-server: $schema=schema.json" {
			t.Errorf("%s opens with %q, not with its schema", name, first)
		}
		for _, doc := range bytes.Split(data, []byte("\n---\n")) {
			if err := validate(doc); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, bad := range []string{
		"model: m\nblock: b\nbody: {y: x}\nout: y", "model: m\nout: y", "model: m\nbody: {y: x}\nout: y\nextra: 1",
		"model: m\nin: {x: 'f16[S]'}\nbody: {y: x}\nout: y", "model: m\nweights: {w: {gguf: w}}\nbody: {y: x}\nout: y",
		"model: m\nparams: {p: {if: 1}}\nbody: {y: x}\nout: y", "model: m\nbody: {y: [1]}\nout: y",
	} {
		if validate([]byte(bad)) == nil {
			t.Errorf("the schema accepts %q", bad)
		}
	}
	onDisk, err := os.ReadFile("schema.json")
	if err != nil || !slices.Equal(onDisk, Schema()) {
		t.Errorf("models/schema.json is not what `greta schema` prints (%v)", err)
	}
}
