package hfclass

import (
	"os"
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

// TestTable: every line of the table stands on another, and ends.
func TestTable(t *testing.T) {
	plain, err := os.ReadFile("reads.txt")
	if err != nil || string(plain) != readsText() {
		t.Errorf("reads.txt.gz is not reads.txt (%v): tools/gen_reads.py writes both", err)
	}
	n := 0
	for text := range strings.Lines(readsText()) {
		kind, _, _ := strings.Cut(text, " ")
		if kind == "#" || kind == "=" {
			continue
		}
		n++
		seen := map[string]bool{}
		for at := kind; at != "."; at = line(at)[0] {
			if len(line(at)) == 0 || seen[at] {
				t.Fatalf("%s: %s, which it stands on, is not there or stands on it", kind, at)
			}
			seen[at] = true
		}
	}
	if n < 200 || len(line("= classes")) == 0 || len(line("= none")) == 0 || len(Words("layer_types")) == 0 {
		t.Errorf("%d model_types, and the lines that begin with = are %v", n, line("= classes"))
	}
}

func TestUnreadBy(t *testing.T) {
	for _, c := range []struct {
		kind, key string
		want      bool
	}{
		{"llama", "sliding_window", true},
		{"llama", "rope_parameters.rope_theta", false},
		{"llama", "rope_theta", false},
		{"llama", "rms_norm_eps", false},
		{"llama", "layer_norm_eps", true},
		{"llama", "scale_emb", true},       // no class reads it
		{"llama", "no_such_key", false},    // of which the table does not tell
		{"llama", "model_type", false},     // which greta reads itself
		{"unheard_of", "scale_emb", false}, // of whose class nothing is known
		{"nomic_bert", "n_embd", false},    // whose folders bring classes of their own
		{"mistral", "sliding_window", false},
		{"mistral", "use_sliding_window", true},
		{"qwen2", "use_sliding_window", false},
		{"gpt2", "hidden_size", false}, // another name of n_embd
		{"dbrx", "attn_config.clip_qkv", false},
		{"dbrx", "attn_config.alibi", true},
		{"mpt", "attn_config.alibi_bias_max", true},
	} {
		if got := UnreadBy(c.kind).Has(c.key); got != c.want {
			t.Errorf("%s does not read %s: %t", c.kind, c.key, got)
		}
	}
}

// TestNests: of a class that reads rope_parameters by kinds of layers, what stands in the object itself is unread.
func TestNests(t *testing.T) {
	for _, c := range []struct {
		kind, key string
		want      bool
	}{
		{"olmo3", "rope_parameters.rope_theta", true},
		{"olmo3", "text_config.rope_parameters.rope_type", true},
		{"olmo3", "rope_parameters.full_attention.rope_theta", false},
		{"olmo3", "rope_parameters.sliding_attention", false},
		{"olmo3", "rope_parameters", false},
		{"olmo3", "rope_theta", false},
		{"olmo3", "rope_scaling.factor", false}, // which it takes for layers that see all
		{"olmo2", "rope_parameters.rope_theta", false},
		{"gemma3_text", "rope_parameters.rope_theta", true},
		{"deepseek_v4", "rope_parameters.factor", false},
	} {
		unread := UnreadOf(func(key string) (any, bool) { return c.kind, key == "model_type" })
		if got := unread.Has(c.key); got != c.want {
			t.Errorf("%s does not read %s: %t", c.kind, c.key, got)
		}
	}
}

func TestUnreadOf(t *testing.T) {
	for _, c := range []struct {
		meta map[string]any
		want bool // of sliding_window
	}{
		{map[string]any{"model_type": "llama"}, true},
		{map[string]any{"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}}, true},
		{map[string]any{"model_type": "llama", "architectures": []string{"AquilaForCausalLM"}}, false},
		{map[string]any{"model_type": "llama", "auto_map.AutoModel": "own.Model"}, false},
		{map[string]any{"model_type": "llava", "text_config.model_type": "llama"}, true},
		{map[string]any{"model_type": "llava", "text_config.model_type": "mistral"}, false},
		{map[string]any{"model_type": "unheard_of", "text_config.model_type": "llama"}, false},
		{map[string]any{"model_type": "mistral3", "text_config.model_type": "llama"}, false}, // which may read it there
		{map[string]any{"model_type": "aquila"}, false},
		{nil, false},
	} {
		unread := UnreadOf(func(key string) (any, bool) { v, ok := c.meta[key]; return v, ok })
		for _, key := range []string{"sliding_window", "text_config.sliding_window"} {
			if got := unread.Has(key); got != c.want {
				t.Errorf("%v: %s is unread: %t", c.meta, key, got)
			}
		}
	}
}

// TestOwn: beside the language model's object stand keys of other parts by the same words. A class makes the language
// model of that object alone.
func TestOwn(t *testing.T) {
	for _, c := range []struct {
		meta map[string]any
		key  string
		want any
	}{
		{map[string]any{"model_type": "granite_speech", "text_config.model_type": "granite", "window_size": 15},
			"window_size", nil},
		{map[string]any{"model_type": "llava", "text_config.model_type": "llama", "head_dim": 7}, "head_dim", nil},
		{map[string]any{"model_type": "llava", "text_config.model_type": "llama", "text_config.head_dim": 8, "head_dim": 7},
			"head_dim", 8},
		{map[string]any{"model_type": "llava", "text_config.model_type": "llama", "vocab_size": 9}, "vocab_size", 9},
		{map[string]any{"model_type": "unheard_of", "text_config.model_type": "llama", "head_dim": 7}, "head_dim", 7},
		{map[string]any{"model_type": "llava", "text_config.model_type": "llama", "head_dim": 7,
			"auto_map.AutoModel": "own.M"}, "head_dim", 7},
		{map[string]any{"model_type": "llama", "head_dim": 7}, "head_dim", 7},
	} {
		got, _ := Own(func(key string) (any, bool) { v, ok := c.meta[key]; return v, ok }, c.key)
		if got != c.want {
			t.Errorf("%v: %s is %v, want %v", c.meta, c.key, got, c.want)
		}
	}
}
