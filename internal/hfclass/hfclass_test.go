package hfclass

import (
	"strings"
	"testing"
)

func TestMeans(t *testing.T) {
	for _, c := range []struct {
		kind, class string
		want        bool
	}{
		{"llama", "LlamaForCausalLM", true},
		{"gpt_neox", "GPTNeoXForCausalLM", true},
		{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", true},
		{"gemma3_text", "Gemma3ForCausalLM", true},
		{"aria_text", "AriaTextForCausalLM", true},
		{"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", true},
		{"gpt2", "GPT2LMHeadModel", true},
		{"xlm-roberta", "XLMRobertaModel", true},
		{"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", true},
		{"gemma3", "Gemma3nForCausalLM", false},
		{"gemma3n_text", "Gemma3ForCausalLM", false},
		{"text", "ForCausalLM", false},
		{"", "LlamaForCausalLM", false},
		{"llama_llama", "LlamaForCausalLM", false},
		{"bert", "BertForMaskedLM", false},
		{strings.Repeat("a_", 500), strings.Repeat("a", 499) + "bForCausalLM", false},
	} {
		if got := Means(c.kind, c.class); got != c.want {
			t.Errorf("%s means %s: %t", c.kind, c.class, got)
		}
	}
}
