package convert

import (
	"fmt"
	"slices"
	"strings"

	"greta/tensor"
)

// A mix is a name that users give: one format for most matrices, and by rules
// below better ones for those that suffer most. fileType is general.file_type.
type mix struct {
	name     string
	base     tensor.Type
	fileType uint32
}

// mixes are the names that llama-quantize knows too, with its numbers.
var mixes = []mix{
	{"f32", tensor.F32, 0}, {"f16", tensor.F16, 1}, {"bf16", tensor.BF16, 32},
	{"q8_0", tensor.Q8_0, 7}, {"q4_0", tensor.Q4_0, 2}, {"q4_1", tensor.Q4_1, 3}, {"q5_0", tensor.Q5_0, 8}, {"q5_1", tensor.Q5_1, 9},
	{"q2_k", tensor.Q2_K, 10}, {"q2_k_s", tensor.Q2_K, 21},
	{"q3_k_s", tensor.Q3_K, 11}, {"q3_k_m", tensor.Q3_K, 12}, {"q3_k_l", tensor.Q3_K, 13},
	{"q4_k_s", tensor.Q4_K, 14}, {"q4_k_m", tensor.Q4_K, 15},
	{"q5_k_s", tensor.Q5_K, 16}, {"q5_k_m", tensor.Q5_K, 17}, {"q6_k", tensor.Q6_K, 18},
	{"iq4_nl", tensor.IQ4_NL, 25}, {"iq4_xs", tensor.IQ4_XS, 30}, {"tq1_0", tensor.TQ1_0, 36}, {"tq2_0", tensor.TQ2_0, 37},
}

var aliases = map[string]string{"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}

// Names lists what Options.Type may be, besides "" for the source's own types.
func Names() []string {
	names := make([]string, len(mixes))
	for i, m := range mixes {
		names[i] = m.name
	}
	return names
}

func findMix(name string) (mix, error) {
	lower := strings.ToLower(name)
	if a, ok := aliases[lower]; ok {
		lower = a
	}
	for _, m := range mixes {
		if m.name == lower {
			return m, nil
		}
	}
	return mix{}, fmt.Errorf("type %q is unknown; expected one of %s", name, strings.Join(Names(), ", "))
}

// traits are what the rules ask of a model.
type traits struct {
	layers, groups, experts int // groups: query heads per key/value head
	hasOutput               bool
	is70B                   bool
}

// rule gives some tensors of some mixes a type; the first that fits counts.
// The rules are llama-quantize's (llama-quant.cpp, llama_tensor_get_type), so
// that a mix here means what its name means elsewhere.
type rule struct {
	tensor string // part of the name
	mixes  string // " " divides; "" is all that are not plain
	when   func(t traits, layer int) bool
	typ    tensor.Type
}

func always(traits, int) bool            { return true }
func grouped(t traits, _ int) bool       { return t.groups >= 4 }
func eightExperts(t traits, _ int) bool  { return t.experts == 8 }
func notEight(t traits, _ int) bool      { return t.experts != 8 }
func seventy(t traits, _ int) bool       { return t.is70B }
func firstEighth(t traits, l int) bool   { return l < t.layers/8 }
func first16th(t traits, l int) bool     { return l < t.layers/16 }
func below(n int) func(traits, int) bool { return func(_ traits, l int) bool { return l < n } }

// moreBits picks the first and last eighth of the layers, and every third between.
func moreBits(t traits, l int) bool {
	return l < t.layers/8 || l >= 7*t.layers/8 || (l-t.layers/8)%3 == 2
}

var rules = []rule{
	{"token_embd.weight", "tq1_0 tq2_0", always, tensor.Q4_K},

	{"attn_v.weight", "", eightExperts, tensor.Q8_0},
	{"attn_v.weight", "q4_k_m q5_k_m", moreBits, tensor.Q6_K},
	{"attn_v.weight", "q2_k q2_k_s q3_k_s q3_k_m q4_k_s q4_k_m", seventy, tensor.Q5_K},
	{"attn_v.weight", "q2_k q2_k_s", grouped, tensor.Q4_K},
	{"attn_v.weight", "q2_k", always, tensor.Q3_K},
	{"attn_v.weight", "q3_k_m", below(2), tensor.Q5_K},
	{"attn_v.weight", "q3_k_m", always, tensor.Q4_K},
	{"attn_v.weight", "q3_k_l", always, tensor.Q5_K},
	{"attn_v.weight", "iq4_nl iq4_xs", grouped, tensor.Q5_K},
	{"attn_v.weight", "q4_k_s", below(4), tensor.Q5_K},

	{"attn_k.weight", "", eightExperts, tensor.Q8_0},

	{"ffn_down", "q2_k", always, tensor.Q3_K},
	{"ffn_down", "q2_k_s", firstEighth, tensor.Q4_K},
	{"ffn_down", "q3_k_m", first16th, tensor.Q5_K},
	{"ffn_down", "q3_k_m", always, tensor.Q4_K},
	{"ffn_down", "q3_k_l", always, tensor.Q5_K},
	{"ffn_down", "q4_k_m q5_k_m", moreBits, tensor.Q6_K},
	{"ffn_down", "q4_k_s iq4_nl iq4_xs", firstEighth, tensor.Q5_K},

	{"attn_output.weight", "q2_k q3_k_s q3_k_m q4_k_s q4_k_m iq4_nl iq4_xs", eightExperts, tensor.Q5_K},
	{"attn_output.weight", "q2_k", notEight, tensor.Q3_K},
	{"attn_output.weight", "q3_k_m", notEight, tensor.Q4_K},
	{"attn_output.weight", "q3_k_l", notEight, tensor.Q5_K},

	{"attn_qkv.weight", "q3_k_m q3_k_l", always, tensor.Q4_K},
	{"attn_qkv.weight", "q4_k_m", always, tensor.Q5_K},
	{"attn_qkv.weight", "q5_k_m", always, tensor.Q6_K},
}

// choose gives the type of a matrix with rows of n elements.
func (m mix) choose(name string, n int, t traits) tensor.Type {
	if !m.base.IsBlock() {
		return m.base
	}
	// The output matrix, or the embedding where it serves as one, matters most.
	if name == "output.weight" || name == "token_embd.weight" && !t.hasOutput {
		if m.base.CheckRow(n) != nil || m.base == tensor.Q8_0 {
			return fit(tensor.Q8_0, n)
		}
		return fit(tensor.Q6_K, n)
	}
	layer := 0
	fmt.Sscanf(name, "blk.%d.", &layer) // other tensors have no rule that asks
	for _, r := range rules {
		applies := r.mixes == "" || slices.Contains(strings.Fields(r.mixes), m.name)
		if applies && strings.Contains(name, r.tensor) && r.when(t, layer) {
			return fit(r.typ, n)
		}
	}
	return fit(m.base, n)
}

// smaller are the formats of 32 elements that stand in for those of 256 where
// rows do not divide.
var smaller = map[tensor.Type]tensor.Type{
	tensor.Q2_K: tensor.IQ4_NL, tensor.Q3_K: tensor.IQ4_NL, tensor.IQ4_XS: tensor.IQ4_NL,
	tensor.Q4_K: tensor.Q5_0, tensor.Q5_K: tensor.Q5_1, tensor.Q6_K: tensor.Q8_0,
	tensor.TQ1_0: tensor.Q4_0, tensor.TQ2_0: tensor.Q4_0,
}

func fit(t tensor.Type, n int) tensor.Type {
	if t.CheckRow(n) == nil {
		return t
	}
	if s, ok := smaller[t]; ok && s.CheckRow(n) == nil {
		return s
	}
	return tensor.F16
}
