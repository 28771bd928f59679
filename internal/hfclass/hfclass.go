// Package hfclass tells which class of transformers a config.json means that names its model_type alone.
package hfclass

import (
	"slices"
	"strings"
)

// ends are what classes add to the name of their model.
var ends = []string{"ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "Model"}

// Means says whether a model_type stands for a class: its words, in any order, are the beginning of the class's name
// (gpt_neox of GPTNeoXForCausalLM, hunyuan_v1_dense of HunYuanDenseV1ForCausalLM). A last word "text" is of the part of
// a model that the class is of, and may be missing there.
func Means(modelType, class string) bool {
	for _, end := range ends {
		stem, ok := strings.CutSuffix(class, end)
		if !ok {
			continue
		}
		stem = strings.ToLower(strings.ReplaceAll(stem, "_", ""))
		words := strings.FieldsFunc(strings.ToLower(modelType), func(r rune) bool { return r == '_' || r == '-' })
		if composed(stem, words) {
			return true
		}
		n := len(words) - 1
		return n > 0 && words[n] == "text" && composed(stem, words[:n])
	}
	return false
}

// composed says whether words, each once, make up a text.
func composed(text string, words []string) bool {
	if len(text) != len(strings.Join(words, "")) {
		return false
	}
	if len(words) == 0 {
		return true
	}
	for i, w := range words {
		rest, ok := strings.CutPrefix(text, w)
		if ok && !slices.Contains(words[:i], w) && composed(rest, slices.Delete(slices.Clone(words), i, i+1)) {
			return true
		}
	}
	return false
}
