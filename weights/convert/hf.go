package convert

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/quant"
)

// ignored are parts of names of tensors that are computed anew anywhere.
var ignored = []string{".rotary_emb.inv_freq", ".attention.masked_bias", ".attention.bias"}

// hfPlan is a plan in the making.
type hfPlan struct {
	*plan
	family
	src                           weights.Source
	unread                        hfclass.Unread
	layers, heads, kvHeads, width int // width of a head
	taken                         map[string]bool
}

func planHF(src weights.Source, opt Options) (*plan, error) {
	h := &hfPlan{plan: &plan{}, src: src, unread: hfclass.UnreadOf(src.Meta), taken: map[string]bool{}}
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
	return h.plan, h.findTokenizer(opt, h.weights[0].hf)
}

// Meta gives a value of config.json that the class which it names reads, or may read.
func (h *hfPlan) Meta(key string) (any, bool) {
	if h.unread.Has(key) {
		return nil, false
	}
	return h.src.Meta(key)
}

// null says whether such a value is null.
func (h *hfPlan) null(key string) bool {
	null, is := h.src.(interface{ Null(key string) bool })
	return is && !h.unread.Has(key) && null.Null(key)
}

// Named says whether GGUF has names for the family of a Hugging Face folder, by which other programs read it.
func Named(src weights.Source) bool {
	v, _ := src.Meta("architectures")
	archs, _ := v.([]string)
	if len(archs) == 0 {
		archs = classOf(src)
	}
	if len(archs) == 0 {
		return false
	}
	_, ok := families[archs[0]]
	return ok
}

// identify finds the family and the sizes that permutations need.
func (h *hfPlan) identify() error {
	v, _ := h.src.Meta("architectures")
	archs, _ := v.([]string)
	if len(archs) == 0 {
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
		n, ok := metaInt(h, s.key)
		if !ok || n < 1 || n > 1<<20 {
			return fmt.Errorf("config.json: %s is %d; expected 1 or more", s.key, n)
		}
		*s.to = int(n)
	}
	hidden, _ := metaInt(h, "hidden_size")
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
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if hfclass.Means(typ, name) {
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
	if n, ok := metaInt(h, key); ok {
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
	if it.name == "output.weight" && metaBool(h, "tie_word_embeddings") {
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
