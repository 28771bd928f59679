package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestSentencePieceOfClass: a tokenizer.model beside a tokenizer_config.json gives the ids of transformers 5.24, as it
// is and through GGUF.
func TestSentencePieceOfClass(t *testing.T) {
	texts := []string{"Pri ", "<s> a</s> b", " é▁", "a<|im_start|>b"}
	legacy := [][]int32{{332, 364, 1980}, {1, 1980, 261, 2, 1980, 274}, {1980, 1980, 198, 172, 1980}}
	first := [][]int32{{332, 364, 1980}, {1, 261, 2, 274}, {1980, 198, 172, 1980}}
	never := [][]int32{{2011, 364, 1980}, {1, 261, 2, 274}, {1980, 198, 172, 1980}}
	for _, c := range []struct {
		model, config string
		want          [][]int32
		before, after []int32
	}{
		{"llama", `{}`, legacy, nil, nil},
		{"llama", `{"tokenizer_class": "LlamaTokenizer"}`, first, nil, nil},
		{"llama", `{"tokenizer_class": "LlamaTokenizer", "legacy": true}`, first, nil, nil},
		{"llama", `{"tokenizer_class": "LlamaTokenizerFast", "legacy": false, "add_bos_token": true}`, first, []int32{1},
			nil},
		{"llama", `{"tokenizer_class": "LlamaTokenizer", "add_eos_token": true, "add_prefix_space": false}`, never, nil,
			[]int32{2}},
		{"mistral", `{"tokenizer_class": "LlamaTokenizer"}`, legacy, nil, nil},
		{"mistral", `{"tokenizer_class": "LlamaTokenizer", "legacy": false, "add_bos_token": true}`, first, []int32{1}, nil},
		{"mistral", `{"tokenizer_class": "LlamaTokenizer", "legacy": null}`, first, nil, nil},
		{"gemma", `{"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true}`,
			never, []int32{1}, nil},
		{"code_llama", `{"tokenizer_class": "CodeLlamaTokenizerFast"}`, first, []int32{1}, nil},
		{"internlm2", `{"tokenizer_class": "InternLM2Tokenizer", "add_bos_token": true, "added_tokens_decoder":
			{"2047": {"content": "<|im_start|>", "special": true}}}`, append(slices.Clone(legacy), []int32{261, 2047, 274}),
			[]int32{1}, nil},
	} {
		tok, err := Load(folderWith(t, map[string]string{"tokenizer_config.json": c.config,
			"config.json": `{"model_type": "` + c.model + `"}`}))
		if err != nil {
			t.Fatal(err)
		}
		again := reload(t, tok)
		for i, want := range c.want {
			o := tok.Defaults()
			o.ParseSpecial = true
			want = slices.Concat(c.before, want, c.after)
			if got, err := tok.Encode(texts[i], o); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s %s: %q gives %d, want %d (%v)", c.model, c.config, texts[i], got, want, err)
			}
			checkSame(t, tok, again, texts[i])
		}
	}
	if _, err := Load(folderWith(t, map[string]string{"tokenizer_config.json": `{"tokenizer_class": "GemmaTokenizer",
		"unk_token": null}`})); err != nil {
		t.Error(err)
	}
}

// TestByteRuns: bytes one behind the other are text together, or a U+FFFD for each, as the library's ByteFallback has
// it; tokens that are left out do not part them.
func TestByteRuns(t *testing.T) {
	tok, err := Load(folderWith(t, map[string]string{"tokenizer_config.json": `{"tokenizer_class": "LlamaTokenizer"}`}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range []*Tokenizer{tok, reload(t, tok)} {
		for tokens, want := range map[string]string{
			"<0xE4> <0xB8> <0xAD> a":        "中a",
			"<0xE4> <0xB8> <0xAD> <0xFF> a": "\uFFFD\uFFFD\uFFFD\uFFFDa",
			"<0xE4> <0xB8> a <0xAD>":        "\uFFFD\uFFFDa\uFFFD",
			"<0xE4> <0xB8> </s> <0xAD> ▁a":  "中 a",
			"<0x20> <0x41> ▁a <0xFF>":       "A a\uFFFD",
			"<0x41> <0xE4>":                 "\uFFFD\uFFFD",
		} {
			var ids []int32
			for token := range strings.SplitSeq(tokens, " ") {
				id, ok := tok.ID(token)
				if !ok {
					t.Fatal(token)
				}
				ids = append(ids, id)
			}
			if got := tok.Decode(ids); got != want {
				t.Errorf("%s gives %q, want %q", tokens, got, want)
			}
			checkStream(t, tok, ids)
		}
	}
}

// TestStepsBehindByteFallback see its text as one token.
func TestStepsBehindByteFallback(t *testing.T) {
	file := func(steps ...object) *Tokenizer {
		data, err := json.Marshal(object{"model": object{"type": "BPE", "byte_fallback": true, "merges": []string{},
			"vocab": object{"<0xC3>": 0, "<0xA9>": 1, "<0x41>": 2, "b": 3}}, "decoder": sequence("decoders", steps...)})
		if err != nil {
			t.Fatal(err)
		}
		tok, err := FromTokenizerJSON(data)
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	fallback := object{"type": "ByteFallback"}
	for _, c := range []struct {
		tok  *Tokenizer
		want string
	}{
		{file(fallback, object{"type": "Replace", "pattern": object{"String": "éA"}, "content": "x"}), "xb"},
		{file(fallback, object{"type": "Fuse"}, object{"type": "Replace", "pattern": object{"String": "é"}, "content": "x"}),
			"xAb"},
		{file(fallback, object{"type": "Strip", "content": "é", "start": 1, "stop": 0}), "Ab"},
	} {
		if got := c.tok.Decode([]int32{0, 1, 2, 3}); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
