package convert

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/quant"
)

// Where a weight of Hugging Face's goes in GGUF. "%d" in both stands for the
// layer. Names and permutations are those of llama.cpp's converter.
type mapping struct {
	hf, gguf string
	role     role
	optional bool
}

// role says what is done to a weight on the way.
type role int

const (
	plainRole  role = iota
	queryRole       // rows of query heads: permuted where the family's GGUF rotates pairs
	keyRole         // rows of key/value heads, likewise
	normRole        // one is added where the family stores norms minus one
	qkvRole         // GPT-NeoX: heads of [q; k; v] become all q, all k, all v
	expertRole      // one tensor per expert, "%e" in the name, is stacked
)

// family is a class of Hugging Face's under the name that GGUF has for it.
type family struct {
	arch    string
	eps     float64 // the class's default
	theta   float64
	window  int64 // the class's default of sliding_window, 0: none
	pairs   bool  // GGUF rotates adjacent pairs, Hugging Face halves
	addOne  bool
	weights []mapping
}

func outer(embd, norm, head string) []mapping {
	return []mapping{{hf: embd, gguf: "token_embd.weight"}, {hf: norm, gguf: "output_norm.weight", role: normRole},
		{hf: head, gguf: "output.weight", optional: true}}
}

// layer builds mappings below a layer's prefix.
func layer(hf, gguf string, role role) mapping {
	return mapping{hf: "model.layers.%d." + hf + ".weight", gguf: "blk.%d." + gguf + ".weight", role: role}
}

// biased adds an optional bias to each mapping.
func biased(ms ...mapping) []mapping {
	var out []mapping
	for _, m := range ms {
		b := m
		b.hf, b.gguf = strings.TrimSuffix(m.hf, "weight")+"bias", strings.TrimSuffix(m.gguf, "weight")+"bias"
		b.optional = true
		out = append(out, m, b)
	}
	return out
}

var (
	llamaOuter = outer("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
	attnNorm   = layer("input_layernorm", "attn_norm", normRole)
	ffnNorm    = layer("post_attention_layernorm", "ffn_norm", normRole)
	attention  = biased(layer("self_attn.q_proj", "attn_q", queryRole), layer("self_attn.k_proj", "attn_k", keyRole),
		layer("self_attn.v_proj", "attn_v", plainRole), layer("self_attn.o_proj", "attn_output", plainRole))
	gatedMLP = biased(layer("mlp.gate_proj", "ffn_gate", plainRole), layer("mlp.down_proj", "ffn_down", plainRole),
		layer("mlp.up_proj", "ffn_up", plainRole))

	llamaWeights = slices.Concat(llamaOuter, []mapping{attnNorm}, attention, []mapping{ffnNorm}, gatedMLP)
	qwen3Weights = slices.Concat(llamaOuter, []mapping{attnNorm}, attention,
		[]mapping{layer("self_attn.q_norm", "attn_q_norm", normRole), layer("self_attn.k_norm", "attn_k_norm", normRole),
			ffnNorm}, gatedMLP)
	mixtralWeights = slices.Concat(llamaOuter, []mapping{attnNorm}, attention, []mapping{ffnNorm,
		layer("block_sparse_moe.gate", "ffn_gate_inp", plainRole),
		layer("block_sparse_moe.experts.%e.w1", "ffn_gate_exps", expertRole),
		layer("block_sparse_moe.experts.%e.w2", "ffn_down_exps", expertRole),
		layer("block_sparse_moe.experts.%e.w3", "ffn_up_exps", expertRole)})
	gemma2Weights = slices.Concat(llamaOuter, []mapping{attnNorm}, attention, []mapping{
		layer("post_attention_layernorm", "post_attention_norm", normRole),
		layer("pre_feedforward_layernorm", "ffn_norm", normRole)}, gatedMLP,
		[]mapping{layer("post_feedforward_layernorm", "post_ffw_norm", normRole)})
	phi3Weights = slices.Concat(llamaOuter, []mapping{attnNorm, layer("self_attn.qkv_proj", "attn_qkv", plainRole),
		layer("self_attn.o_proj", "attn_output", plainRole), ffnNorm,
		layer("mlp.gate_up_proj", "ffn_up", plainRole), layer("mlp.down_proj", "ffn_down", plainRole)})
	neoxWeights = func() []mapping {
		ms := biased(outer("gpt_neox.embed_in.weight", "gpt_neox.final_layer_norm.weight", "embed_out.weight")...)
		layers := biased(layer("input_layernorm", "attn_norm", normRole),
			layer("attention.query_key_value", "attn_qkv", qkvRole),
			layer("attention.dense", "attn_output", plainRole), layer("post_attention_layernorm", "ffn_norm", normRole),
			layer("mlp.dense_h_to_4h", "ffn_up", plainRole), layer("mlp.dense_4h_to_h", "ffn_down", plainRole))
		for _, m := range layers {
			m.hf = strings.Replace(m.hf, "model.", "gpt_neox.", 1)
			ms = append(ms, m)
		}
		return ms
	}()
)

// families by the class that config.json's "architectures" names.
var families = map[string]family{
	"LlamaForCausalLM":   {arch: "llama", eps: 1e-6, theta: 10000, pairs: true, weights: llamaWeights},
	"MistralForCausalLM": {arch: "llama", eps: 1e-6, theta: 10000, window: 4096, pairs: true, weights: llamaWeights},
	"MixtralForCausalLM": {arch: "llama", eps: 1e-5, theta: 1e6, pairs: true, weights: mixtralWeights},
	"Qwen2ForCausalLM":   {arch: "qwen2", eps: 1e-6, theta: 10000, window: 4096, weights: llamaWeights},
	"Qwen3ForCausalLM":   {arch: "qwen3", eps: 1e-6, theta: 10000, window: 4096, weights: qwen3Weights},
	"Gemma2ForCausalLM":  {arch: "gemma2", eps: 1e-6, theta: 10000, window: 4096, addOne: true, weights: gemma2Weights},
	"Phi3ForCausalLM":    {arch: "phi3", eps: 1e-5, theta: 10000, weights: phi3Weights},
	"GPTNeoXForCausalLM": {arch: "gptneox", eps: 1e-5, theta: 10000, weights: neoxWeights},
}

// ignored are parts of names of tensors that are computed anew anywhere.
var ignored = []string{".rotary_emb.inv_freq", ".attention.masked_bias", ".attention.bias"}

// hfPlan is a plan in the making.
type hfPlan struct {
	*plan
	family
	src                           weights.Source
	layers, heads, kvHeads, width int // width of a head
	taken                         map[string]bool
}

func planHF(src weights.Source, opt Options) (*plan, error) {
	h := &hfPlan{plan: &plan{}, src: src, taken: map[string]bool{}}
	if err := h.identify(); err != nil {
		return nil, err
	}
	if err := h.describe(); err != nil {
		return nil, err
	}
	embedded := h.weights[0].hf
	for _, m := range h.weights { // those before the layers, then the layers, then the rest
		if !strings.Contains(m.hf, "%d") && m.hf == embedded {
			if err := h.take(m, 0); err != nil {
				return nil, err
			}
		}
	}
	h.ropeTensors()
	for l := range h.layers {
		for _, m := range h.weights {
			if strings.Contains(m.hf, "%d") {
				if err := h.take(m, l); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, m := range h.weights {
		if !strings.Contains(m.hf, "%d") && m.hf != embedded {
			if err := h.take(m, 0); err != nil {
				return nil, err
			}
		}
	}
	if err := h.leftOver(); err != nil {
		return nil, err
	}
	h.traits.Read(func(key string) (int64, bool) {
		for _, kv := range h.kvs {
			if n, ok := kv.Value.(uint32); ok && kv.Key == h.arch+"."+key {
				return int64(n), true
			}
		}
		return 0, false
	})
	return h.plan, h.findTokenizer(opt)
}

// identify finds the family and the sizes that permutations need.
func (h *hfPlan) identify() error {
	v, _ := h.src.Meta("architectures")
	archs, _ := v.([]string)
	if len(archs) == 0 { // model_type is the beginning of the class's name
		archs = classOf(h.src)
	}
	if len(archs) == 0 {
		return fmt.Errorf("config.json names no architecture under \"architectures\"; expected one of %s", familyNames())
	}
	f, ok := families[archs[0]]
	if !ok {
		return fmt.Errorf("architecture %s has no mapping to GGUF; expected one of %s", archs[0], familyNames())
	}
	h.family = f
	for _, s := range []struct {
		to  *int
		key string
	}{{&h.layers, "num_hidden_layers"}, {&h.heads, "num_attention_heads"}} {
		n, ok := metaInt(h.src, s.key)
		if !ok || n < 1 || n > 1<<20 {
			return fmt.Errorf("config.json: %s is %d; expected 1 or more", s.key, n)
		}
		*s.to = int(n)
	}
	hidden, _ := metaInt(h.src, "hidden_size")
	h.kvHeads = int(h.intOr("num_key_value_heads", int64(h.heads)))
	h.width = int(h.intOr("head_dim", hidden/int64(h.heads)))
	if h.kvHeads < 1 || h.width < 2 || h.width%2 != 0 || h.width > 1<<20 {
		return fmt.Errorf("config.json: %d key/value heads of width %d; expected 1 or more of an even width", h.kvHeads,
			h.width)
	}
	return nil
}

// classOf finds the class by config.json's model_type.
func classOf(src weights.Source) []string {
	typ, _ := metaString(src, "model_type")
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for name := range families {
		if plain(strings.TrimSuffix(name, "ForCausalLM")) == plain(typ) {
			return []string{name}
		}
	}
	return nil
}

func familyNames() string {
	names := make([]string, 0, len(families))
	for name := range families {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (h *hfPlan) intOr(key string, otherwise int64) int64 {
	if n, ok := metaInt(h.src, key); ok {
		return n
	}
	return otherwise
}

// take adds one weight of a layer to the plan.
func (h *hfPlan) take(m mapping, layer int) error {
	name := strings.Replace(m.hf, "%d", fmt.Sprint(layer), 1)
	it := &item{name: strings.Replace(m.gguf, "%d", fmt.Sprint(layer), 1), parts: []string{name}}
	if m.role == expertRole {
		it.parts = nil
		for e := range h.intOr("num_local_experts", 8) {
			it.parts = append(it.parts, strings.Replace(name, "%e", fmt.Sprint(e), 1))
			if _, _, ok := h.src.Lookup(it.parts[e]); !ok {
				break // reported below; keeps a damaged count from filling memory
			}
		}
		if len(it.parts) == 0 {
			return fmt.Errorf("config.json: num_local_experts is not positive")
		}
	}
	if it.name == "output.weight" && metaBool(h.src, "tie_word_embeddings") {
		h.taken[name] = true // where it is stored it repeats the embedding
		return nil
	}
	for i, part := range it.parts {
		typ, shape, ok := h.src.Lookup(part)
		if !ok && m.optional {
			return nil
		}
		if !ok {
			return fmt.Errorf("tensor %q is missing, which %s needs", part, it.name)
		}
		if i > 0 && (typ != it.src || !shape.Equal(it.shape)) {
			return fmt.Errorf("tensor %q is %s %v, but %q is %s %v; experts must agree", part, typ, shape, it.parts[0], it.src,
				it.shape)
		}
		it.src, it.shape = typ, shape
		h.taken[part] = true
	}
	if len(it.shape) < 1 || len(it.shape) > 2 || it.shape.Elems() == 0 {
		return fmt.Errorf("tensor %q has shape %v; expected one or two sizes of 1 or more", name, it.shape)
	}
	if !it.src.IsFloat() {
		return fmt.Errorf("tensor %q is %s; expected floats: fetch the model in bf16 or f16", name, it.src)
	}
	if err := h.transform(it, m.role); err != nil {
		return fmt.Errorf("tensor %q: %w", name, err)
	}
	it.fixed = quant.KeepsType(it.name, it.shape)
	h.traits.HasOutput = h.traits.HasOutput || it.name == "output.weight"
	h.items = append(h.items, it)
	return nil
}

func (h *hfPlan) transform(it *item, r role) error {
	it.unit = 1
	if len(it.shape) == 2 {
		it.unit = it.shape[1]
	}
	rows, d := it.shape[0], h.width
	expect := func(want int) error {
		if rows != want {
			return fmt.Errorf("%d rows; expected %d by config.json's heads", rows, want)
		}
		return nil
	}
	switch r {
	case queryRole, keyRole:
		heads := h.heads
		if r == keyRole {
			heads = h.kvHeads
		}
		if h.pairs {
			it.perm = func(i int) int { // halves [a…, b…] become pairs [a0, b0, a1, b1, …]
				p := i % d
				return i - p + p/2 + p%2*(d/2)
			}
		}
		return expect(heads * d)
	case qkvRole:
		it.perm = func(i int) int { // [head, q|k|v, width] becomes [q|k|v, head, width]
			which, head := i/(h.heads*d), i/d%h.heads
			return (head*3+which)*d + i%d
		}
		return expect(3 * h.heads * d)
	case normRole:
		if h.addOne {
			it.add = 1
		}
	case expertRole:
		it.shape = append(tensor.Shape{len(it.parts)}, it.shape...)
	}
	return nil
}

// leftOver refuses tensors that would be lost.
func (h *hfPlan) leftOver() error {
	for _, name := range h.src.Names() {
		skip := h.taken[name]
		for _, part := range ignored {
			skip = skip || strings.Contains(name, part)
		}
		if !skip {
			return fmt.Errorf("tensor %q has no place in a GGUF file of architecture %s; the model is of another kind than "+
				"config.json says, or has parts that GGUF cannot hold", name, h.arch)
		}
	}
	return nil
}

// ropeTensors adds the frequency factors of llama3 and longrope scaling.
func (h *hfPlan) ropeTensors() {
	add := func(name string, data []float32) {
		h.items = append(h.items, &item{name: name, shape: tensor.Shape{len(data)}, src: tensor.F32, data: data, fixed: true})
	}
	switch h.ropeType() {
	case "llama3":
		add("rope_freqs.weight", h.llama3Factors())
	case "longrope", "su":
		for _, s := range []string{"long", "short"} {
			add("rope_factors_"+s+".weight", h.ropeFactors(s+"_factor"))
		}
	}
}

// llama3Factors divides the rotation's frequencies: long wavelengths by factor,
// short ones by 1, with a linear passage between (Llama 3.1's rope scaling).
func (h *hfPlan) llama3Factors() []float32 {
	theta := h.theta
	if v, ok := h.ropeFloat("rope_theta"); ok {
		theta = v
	}
	get := func(key string, otherwise float64) float64 {
		if v, ok := h.ropeFloat(key); ok {
			return v
		}
		return otherwise
	}
	factor, low, high := get("factor", 8), get("low_freq_factor", 1), get("high_freq_factor", 4)
	context := get("original_max_position_embeddings", 8192)
	out := make([]float32, h.width/2)
	for i := range out {
		wavelength := 2 * math.Pi * math.Pow(theta, float64(2*i)/float64(h.width))
		switch {
		case wavelength < context/high:
			out[i] = 1
		case wavelength > context/low:
			out[i] = float32(factor)
		default:
			smooth := (context/wavelength - low) / (high - low)
			out[i] = float32(1 / ((1-smooth)/factor + smooth))
		}
	}
	return out
}

func (h *hfPlan) add(key string, v any) { h.kvs = append(h.kvs, gguf.KV{Key: key, Value: v}) }

func modelName(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	base := filepath.Base(path)
	return strings.TrimSuffix(base, ".safetensors")
}
