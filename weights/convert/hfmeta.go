package convert

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/greta-project/greta/tokenizer"
)

// describe turns config.json into GGUF's metadata under the keys of llama.cpp's
// converter. Keys beyond those, which say what would otherwise be lost, are
// attention.sliding_window and attention.sliding_window_start, attention.scale and
// rope.scaling.yarn_truncate.
func (h *hfPlan) describe() error {
	h.add("general.architecture", h.arch)
	h.add("general.type", "model")
	h.add("general.name", modelName(h.src.Path()))
	hidden := h.intOr("hidden_size", 0)
	_, embedding, ok := h.src.Lookup(h.weights[0].hf)
	if !ok || len(embedding) != 2 {
		return fmt.Errorf("tensor %q is missing or not a matrix", h.weights[0].hf)
	}
	for _, s := range []struct {
		key string
		v   int64
	}{
		{"block_count", int64(h.layers)},
		{"context_length", h.intOr("max_position_embeddings", 2048)},
		{"embedding_length", hidden},
		{"feed_forward_length", h.intOr("intermediate_size", 0)},
		{"attention.head_count", int64(h.heads)},
		{"attention.head_count_kv", int64(h.kvHeads)},
		{"vocab_size", int64(embedding[0])},
	} {
		if s.v < 1 || s.v > math.MaxUint32 {
			return fmt.Errorf("config.json gives %d as %s; expected 1 or more", s.v, s.key)
		}
		h.add(h.arch+"."+s.key, uint32(s.v))
	}
	if _, ok := metaInt(h, "head_dim"); ok {
		h.add(h.arch+".attention.key_length", uint32(h.width))
		h.add(h.arch+".attention.value_length", uint32(h.width))
	}
	eps := h.eps
	if h.layernorm {
		if v, ok := metaFloat(h, "layer_norm_eps"); ok {
			eps = v
		}
		h.add(h.arch+".attention.layer_norm_epsilon", float32(eps))
	} else {
		if v, ok := metaFloat(h, "rms_norm_eps"); ok {
			eps = v
		}
		h.add(h.arch+".attention.layer_norm_rms_epsilon", float32(eps))
	}
	if h.parallelKey != "" {
		parallel := true // the class's default
		if v, ok := h.Meta(h.parallelKey); ok {
			parallel, _ = v.(bool)
		}
		h.add(h.arch+"."+h.parallelKey, parallel)
	}
	if n, ok := metaInt(h, "num_local_experts"); ok && n > 0 && n <= math.MaxUint32 {
		h.add(h.arch+".expert_count", uint32(n))
		h.add(h.arch+".expert_used_count", uint32(h.intOr("num_experts_per_tok", 2)))
	}
	h.describeWindow()
	h.describeCaps()
	if err := h.checkActivation(); err != nil {
		return err
	}
	return h.describeRope()
}

// checkActivation refuses what GGUF, which has no key for it, would lose: readers know a family by
// one activation. (GELU is computed by some of them by its approximation by tanh, by greta as the
// family was trained.)
func (h *hfPlan) checkActivation() error {
	for key, want := range h.activation {
		if act, ok := metaString(h, key); ok && act != want {
			return fmt.Errorf("config.json: %s is %s, but a GGUF file of architecture %s stands for %s and cannot say otherwise",
				key, act, h.arch, want)
		}
	}
	return nil
}

func (h *hfPlan) describeWindow() {
	n, ok := metaInt(h, "sliding_window")
	if !ok && !h.null("sliding_window") {
		n, ok = h.window, h.window > 0
	}
	if !ok || n < 1 || n > math.MaxUint32 {
		return
	}
	if h.windowAsked {
		if v, _ := h.Meta("use_sliding_window"); v != true {
			return
		}
		start := h.intOr("max_window_layers", 28)
		if h.layerTypes() == nil && start >= int64(h.layers) {
			return
		}
		h.add(h.arch+".attention.sliding_window_start", uint32(max(start, 0)))
		h.notes = append(h.notes, fmt.Sprintf("the sliding window of the layers from %d on is kept as "+
			"%s.attention.sliding_window_start, which other programs may not read", start, h.arch))
	}
	h.add(h.arch+".attention.sliding_window", uint32(n))
	if slides := h.layerTypes(); slides != nil {
		h.add(h.arch+".attention.sliding_window_pattern", slides)
		h.notes = append(h.notes, fmt.Sprintf("layer_types is kept as %s.attention.sliding_window_pattern, which other "+
			"programs may not read", h.arch))
	}
}

// layerTypes says of each layer whether it slides; nil where config.json leaves
// that to the family.
func (h *hfPlan) layerTypes() []bool {
	v, _ := h.Meta("layer_types")
	types, _ := v.([]string)
	if len(types) == 0 {
		return nil
	}
	slides := make([]bool, len(types))
	for i, t := range types {
		slides[i] = t == "sliding_attention"
	}
	return slides
}

func (h *hfPlan) describeCaps() {
	for _, key := range h.caps {
		if v, ok := metaFloat(h, key); ok {
			h.add(h.arch+"."+key, float32(v))
		} else if h.null(key) {
			h.add(h.arch+"."+key, float32(0)) // readers take an absent key for the family's cap
		}
	}
	if h.scaleKey == "" {
		return
	}
	per, ok := metaFloat(h, h.scaleKey)
	usual := float64(h.width)
	if h.layers == h.scaleByWidthAt { // a size that readers know by its layers
		usual = float64(h.intOr("hidden_size", 0)) / float64(h.heads)
	}
	if ok && per > 0 && per != usual {
		h.add(h.arch+".attention.scale", float32(1/math.Sqrt(per)))
		h.notes = append(h.notes, fmt.Sprintf("%s %g is kept as %s.attention.scale, which other programs may not read",
			h.scaleKey, per, h.arch))
	}
}

// ropeFactors gives a list of the rotation's, nil where there is none.
func (h *hfPlan) ropeFactors(key string) []float32 {
	var out []float32
	for _, prefix := range []string{"rope_parameters.", "rope_scaling."} {
		switch v, _ := h.Meta(prefix + key); v := v.(type) {
		case []float64:
			for _, f := range v {
				out = append(out, float32(f))
			}
			return out
		case []int64:
			for _, f := range v {
				out = append(out, float32(f))
			}
			return out
		}
	}
	return nil
}

// ropeFloat finds a number of the rotation in the places where versions of
// transformers put it.
func (h *hfPlan) ropeFloat(key string) (float64, bool) {
	return metaFloat(h, "rope_parameters."+key, "rope_scaling."+key, key)
}

func (h *hfPlan) ropeType() string {
	s, _ := metaString(h, "rope_parameters.rope_type", "rope_scaling.rope_type", "rope_parameters.type",
		"rope_scaling.type")
	return s
}

func (h *hfPlan) describeRope() error {
	key := func(k string) string { return h.arch + ".rope." + k }
	theta, ok := h.ropeFloat("rope_theta")
	if !ok {
		if theta, ok = metaFloat(h, "rotary_emb_base"); !ok {
			theta = h.theta
		}
	}
	h.add(key("freq_base"), float32(theta))
	part := 1.0
	for _, k := range []string{"partial_rotary_factor", "rotary_pct"} {
		if v, ok := h.ropeFloat(k); ok && v > 0 && v <= 1 {
			part = v
		}
	}
	h.add(key("dimension_count"), uint32(part*float64(h.width)))
	factor, hasFactor := h.ropeFloat("factor")
	original, hasOriginal := h.ropeFloat("original_max_position_embeddings")
	switch typ := h.ropeType(); typ {
	case "", "default", "llama3": // llama3 is a tensor of factors
	case "dynamic":
		h.notes = append(h.notes,
			"rope scaling of type dynamic is left out: it changes nothing up to the context of training")
	case "linear", "yarn":
		if longest := float64(h.intOr("max_position_embeddings", 0)); typ == "yarn" && !hasFactor && hasOriginal &&
			original > 0 {
			factor, hasFactor = longest/original, true
		}
		if !hasFactor || factor <= 0 {
			return fmt.Errorf("config.json: %s rope scaling without a positive factor", typ)
		}
		h.add(key("scaling.type"), typ)
		h.add(key("scaling.factor"), float32(factor))
		if typ == "yarn" {
			h.describeYarn(factor, original, hasOriginal)
		}
	case "longrope", "su":
		if err := h.checkLongRope(part); err != nil {
			return err
		}
		scale, said := h.ropeFloat("factor")
		if !said {
			scale = float64(h.intOr("max_position_embeddings", 0)) / original
		}
		attn, said := h.ropeFloat("attention_factor")
		if !said && scale > 1 {
			attn = math.Sqrt(1 + math.Log(scale)/math.Log(original))
		} else if !said {
			attn = 1
		}
		if said || hasOriginal && original > 1 {
			h.add(key("scaling.attn_factor"), float32(attn))
		}
	default:
		return fmt.Errorf("config.json: rope scaling of type %q has no form in GGUF; expected default, dynamic, linear, "+
			"yarn, llama3 or longrope", typ)
	}
	if h.originalContext && hasOriginal && original >= 1 && original < math.MaxUint32 {
		h.add(key("scaling.original_context_length"), uint32(original))
	}
	return nil
}

// describeYarn writes YaRN's parameters. Hugging Face's attention_factor stands
// in place of 0.1·ln(factor) + 1, GGUF's attn_factor multiplies it.
func (h *hfPlan) describeYarn(factor, original float64, hasOriginal bool) {
	key := func(k string) string { return h.arch + ".rope.scaling." + k }
	if hasOriginal && original >= 1 && original < math.MaxUint32 {
		h.add(key("original_context_length"), uint32(original))
	}
	usual := func(scale float64) float64 { return 0.1*scale*math.Log(max(factor, 1)) + 1 }
	gain, ok := h.ropeFloat("attention_factor")
	if !ok {
		m, _ := h.ropeFloat("mscale")
		all, _ := h.ropeFloat("mscale_all_dim")
		if ok = m != 0 && all != 0; ok {
			gain = usual(m) / usual(all)
		}
	}
	if ok {
		h.add(key("attn_factor"), float32(gain/usual(1)))
	}
	for _, prefix := range []string{"rope_parameters.", "rope_scaling."} {
		if v, _ := h.Meta(prefix + "truncate"); v == false {
			h.add(key("yarn_truncate"), false)
			h.notes = append(h.notes, "yarn's truncate: false is kept as "+key("yarn_truncate")+
				", which other programs may not read")
		}
	}
	for _, b := range []string{"beta_fast", "beta_slow"} {
		if v, ok := h.ropeFloat(b); ok {
			h.add(key("yarn_"+b), float32(v))
		}
	}
}

func (h *hfPlan) checkLongRope(part float64) error {
	want := int(part*float64(h.width)) / 2
	for _, k := range []string{"long_factor", "short_factor"} {
		if n := len(h.ropeFactors(k)); n != want {
			return fmt.Errorf("config.json: %s has %d numbers; expected %d, half the rotated width", k, n, want)
		}
	}
	return nil
}

// findTokenizer adds the tokenizer that the options name or that lies beside
// the model; without one the file is weights only.
func (h *hfPlan) findTokenizer(opt Options, embedding string) error {
	hints := tokenizerHints{vocab: embeddingRows(h.src, embedding)}
	if opt.Tokenizer != "" {
		return h.addTokenizer(opt.Tokenizer, hints)
	}
	dir := h.src.Path()
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		dir = filepath.Dir(dir)
	}
	if tokenizer.In(dir) {
		return h.addTokenizer(dir, hints)
	}
	h.notes = append(h.notes, "no tokenizer beside the model ("+strings.Join(tokenizer.Files(), ", ")+"): the file holds "+
		"weights only")
	return nil
}

type tokenizerHints struct {
	vocab int // rows of the embedding, 0 if unknown
}

// addTokenizer describes the tokenizer at path, padded to the vocabulary of the
// weights, which may have more rows than there are tokens.
func (p *plan) addTokenizer(path string, hints tokenizerHints) error {
	tok, err := tokenizer.Load(path)
	if err != nil {
		return err
	}
	kvs, err := tok.GGUFMetadata()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if n := tok.VocabSize(); hints.vocab > 0 && n > hints.vocab {
		return fmt.Errorf("%s has %d tokens, but the embedding has %d rows; it is another model's tokenizer", path, n,
			hints.vocab)
	}
	for _, kv := range kvs {
		p.set(kv.Key, padTokens(kv.Value, kv.Key, tok.VocabSize(), hints.vocab))
	}
	return nil
}

// padTokens lengthens the arrays that run over the vocabulary.
func padTokens(v any, key string, have, want int) any {
	const unused = 5 // SentencePiece's kind of piece
	switch key {
	case "tokenizer.ggml.tokens":
		tokens, _ := v.([]string)
		for i := have; i < want; i++ {
			tokens = append(tokens, fmt.Sprintf("[PAD%d]", i))
		}
		return tokens
	case "tokenizer.ggml.scores":
		scores, _ := v.([]float32)
		for i := have; i < want; i++ {
			scores = append(scores, -1000)
		}
		return scores
	case "tokenizer.ggml.token_type":
		types, _ := v.([]int32)
		for i := have; i < want; i++ {
			types = append(types, unused)
		}
		return types
	}
	return v
}
