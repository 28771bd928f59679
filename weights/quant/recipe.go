package quant

// Recipes: which type each matrix has in a file that is named after a mix of types: Q4_K_M keeps most in Q4_K and
// some in Q6_K.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/greta-project/greta/tensor"
)

// A Recipe is a mix of types by the name that users give it: one format, Base, for most matrices, and by rules
// below better ones for those that suffer most. FileType is general.file_type.
type Recipe struct {
	Name     string
	Base     tensor.Type
	FileType uint32
}

// Recipes are the mixes, whose names llama-quantize knows too, with its numbers.
var Recipes = []Recipe{
	{"f32", tensor.F32, 0}, {"f16", tensor.F16, 1}, {"bf16", tensor.BF16, 32},
	{"q8_0", tensor.Q8_0, 7}, {"q4_0", tensor.Q4_0, 2}, {"q4_1", tensor.Q4_1, 3}, {"q5_0", tensor.Q5_0, 8},
	{"q5_1", tensor.Q5_1, 9},
	{"q2_k", tensor.Q2_K, 10}, {"q2_k_s", tensor.Q2_K, 21},
	{"q3_k_s", tensor.Q3_K, 11}, {"q3_k_m", tensor.Q3_K, 12}, {"q3_k_l", tensor.Q3_K, 13},
	{"q4_k_s", tensor.Q4_K, 14}, {"q4_k_m", tensor.Q4_K, 15},
	{"q5_k_s", tensor.Q5_K, 16}, {"q5_k_m", tensor.Q5_K, 17}, {"q6_k", tensor.Q6_K, 18},
	{"iq4_nl", tensor.IQ4_NL, 25}, {"iq4_xs", tensor.IQ4_XS, 30}, {"tq1_0", tensor.TQ1_0, 36}, {"tq2_0", tensor.TQ2_0, 37},
	{"mxfp4", tensor.MXFP4, 38},
}

var aliases = map[string]string{"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}

// Names lists all of them.
func RecipeNames() []string {
	names := make([]string, len(Recipes))
	for i, m := range Recipes {
		names[i] = m.Name
	}
	return names
}

// Find gives the mix of a name; q4_k is short for q4_k_m, and so on.
func FindRecipe(name string) (Recipe, error) {
	lower := strings.ToLower(name)
	if a, ok := aliases[lower]; ok {
		lower = a
	}
	for _, m := range Recipes {
		if m.Name == lower {
			return m, nil
		}
	}
	return Recipe{}, fmt.Errorf("type %q is unknown; expected one of %s", name, strings.Join(RecipeNames(), ", "))
}

// Several lists the mixes that no single type shares its name with.
func MixedRecipes() []string {
	return slices.DeleteFunc(RecipeNames(), func(name string) bool {
		_, single := tensor.ParseType(name)
		return single
	})
}

// ModelTraits are what the rules ask of a model.
type ModelTraits struct {
	Layers, Groups, Experts int // Groups: query heads per key/value head
	HasOutput               bool
	Is70B                   bool
}

// Read fills the sizes from GGUF's metadata, whose keys are without the architecture's prefix.
func (t *ModelTraits) Read(get func(key string) (int64, bool)) {
	number := func(key string, otherwise int64) int64 {
		if n, ok := get(key); ok && n > 0 && n < math.MaxInt32 {
			return n
		}
		return otherwise
	}
	heads := number("attention.head_count", 1)
	kvHeads := number("attention.head_count_kv", heads)
	t.Layers = int(number("block_count", 1))
	t.Groups = int(heads / kvHeads)
	t.Experts = int(number("expert_count", 0))
	t.Is70B = t.Layers == 80 && t.Groups > 1
}

// rule gives some tensors of some mixes a type; the first that fits counts.
// The rules are llama-quantize's (llama-quant.cpp, llama_tensor_get_type), so
// that a mix here means what its name means elsewhere.
type recipeRule struct {
	tensor string // part of the name
	mixes  string // " " divides; "" is all that are not plain
	when   func(t ModelTraits, layer int) bool
	typ    tensor.Type
}

func always(ModelTraits, int) bool           { return true }
func grouped(t ModelTraits, _ int) bool      { return t.Groups >= 4 }
func eightExperts(t ModelTraits, _ int) bool { return t.Experts == 8 }
func notEight(t ModelTraits, _ int) bool     { return t.Experts != 8 }
func seventy(t ModelTraits, _ int) bool      { return t.Is70B }
func firstEighth(t ModelTraits, l int) bool  { return l < t.Layers/8 }
func first16th(t ModelTraits, l int) bool    { return l < t.Layers/16 }
func below(n int) func(ModelTraits, int) bool {
	return func(_ ModelTraits, l int) bool { return l < n }
}

// moreBits picks the first and last eighth of the layers, and every third between.
func moreBits(t ModelTraits, l int) bool {
	return l < t.Layers/8 || l >= 7*t.Layers/8 || (l-t.Layers/8)%3 == 2
}

var recipeRules = []recipeRule{
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

// Fixed says which tensors llama-quantize leaves alone, whatever the mix.
func KeepsType(name string, shape tensor.Shape) bool {
	if len(shape) < 2 || !strings.HasSuffix(name, "weight") {
		return true
	}
	for _, part := range []string{"_norm.weight", "ffn_gate_inp", "pos_embd", "token_types", "rope_f"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// Type is that of a matrix with rows of n elements, by its name in GGUF files, if it is not Fixed.
func (m Recipe) Type(name string, n int, t ModelTraits) tensor.Type {
	if !m.Base.IsBlock() {
		return m.Base
	}
	// The output matrix, or the embedding where it serves as one, matters most.
	if name == "output.weight" || name == "token_embd.weight" && !t.HasOutput {
		if m.Base.CheckRow(n) != nil || m.Base == tensor.Q8_0 {
			return fitRow(tensor.Q8_0, n)
		}
		return fitRow(tensor.Q6_K, n)
	}
	layer := 0
	fmt.Sscanf(name, "blk.%d.", &layer) // other tensors have no rule that asks
	for _, r := range recipeRules {
		applies := r.mixes == "" || slices.Contains(strings.Fields(r.mixes), m.Name)
		if applies && strings.Contains(name, r.tensor) && r.when(t, layer) {
			return fitRow(r.typ, n)
		}
	}
	return fitRow(m.Base, n)
}

// smaller are the formats of 32 elements that stand in for those of 256 where
// rows do not divide.
var smaller = map[tensor.Type]tensor.Type{
	tensor.Q2_K: tensor.IQ4_NL, tensor.Q3_K: tensor.IQ4_NL, tensor.IQ4_XS: tensor.IQ4_NL,
	tensor.Q4_K: tensor.Q5_0, tensor.Q5_K: tensor.Q5_1, tensor.Q6_K: tensor.Q8_0,
	tensor.TQ1_0: tensor.Q4_0, tensor.TQ2_0: tensor.Q4_0,
}

// Narrow is the type of matrices that are wanted in blocks of t, which rows of n elements are not divided into: a
// format of shorter blocks, or what is stored where that is no wider than f16, or f16.
func Narrow(t, stored tensor.Type, n int) tensor.Type {
	if t = fitRow(t, n); t == tensor.F16 && stored == tensor.BF16 {
		return stored
	}
	return t
}

func fitRow(t tensor.Type, n int) tensor.Type {
	if t.CheckRow(n) == nil {
		return t
	}
	if s, ok := smaller[t]; ok && s.CheckRow(n) == nil {
		return s
	}
	return tensor.F16
}
