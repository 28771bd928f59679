// The models of tokenizer.json with their settings, as Hugging Face's tokenizers 0.23.3 has them.
package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// hfPieces is a model of a vocabulary, whose ids are the places in the list.
func hfPieces(kind string, pieces []string, settings object) object {
	vocab := object{}
	for id, text := range pieces {
		vocab[text] = id
	}
	m := object{"type": kind, "vocab": vocab, "merges": [][]string{}}
	for key, value := range settings {
		m[key] = value
	}
	return m
}

func allBytes(before ...string) []string {
	for i := range 256 {
		before = append(before, fmt.Sprintf("<0x%02X>", i))
	}
	return before
}

func TestHFModels(t *testing.T) {
	words := object{"type": "Whitespace"}
	unigram := func(bytes bool, vocab ...[]any) object {
		return object{"type": "Unigram", "unk_id": 0, "byte_fallback": bytes, "vocab": vocab}
	}
	var scored [][]any
	for _, text := range allBytes("<unk>", "a") {
		scored = append(scored, []any{text, -1})
	}
	for _, c := range []hfCase{
		{name: "an added byte is one of the bytes", model: hfPieces("BPE", allBytes("<unk>", "a"),
			object{"unk_token": "<unk>", "byte_fallback": true}), added: []object{{"id": 67, "content": "<0x41>"}},
			texts: map[string][]int32{"aéa": {1, 197, 171, 1}, "<0x41>é": {67, 197, 171}}},
		{name: "of Unigram's too", model: unigram(true, scored...), added: []object{{"id": 67, "content": "<0x41>"}},
			texts: map[string][]int32{"éa": {197, 171, 1}}},
		{name: "a character is spelt whose bytes are there", model: hfPieces("BPE", []string{"<unk>", "a", "<0xC3>",
			"<0xA9>"}, object{"unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true}),
			texts: map[string][]int32{"aéa": {1, 2, 3, 1}, "aèa": {1, 0, 1}, "èéaè": {2, 3, 0, 1, 0}}},
		{name: "Unigram's bytes are a run's or none's", model: unigram(true, []any{"<unk>", 0}, []any{"a", -1},
			[]any{"<0xC3>", 0}, []any{"<0xA9>", 0}), texts: map[string][]int32{"éa": {2, 3, 1}, "èa": {0, 1}, "éèa": {0, 1}}},
		{name: "bytes are spelt in capitals", model: hfPieces("BPE", []string{"<unk>", "a", "<0xc3>", "<0xa9>"},
			object{"unk_token": "<unk>", "byte_fallback": true}), texts: map[string][]int32{"aé": {1, 0}}},
		{name: "an unknown token that is a letter merges", model: hfPieces("BPE", []string{"a", "b", "ab"},
			object{"unk_token": "a", "merges": [][]string{{"a", "b"}}}),
			texts: map[string][]int32{"ab": {2}, "xb": {2}, "axb": {0, 2}}},
		{name: "end_of_word_suffix", pre: words, model: hfPieces("BPE", []string{"a", "b</w>", "b", "ab</w>", "a</w>", "ba"},
			object{"end_of_word_suffix": "</w>", "merges": [][]string{{"a", "b</w>"}, {"b", "a"}}}),
			texts: map[string][]int32{"ab": {3}, "bab ab": {2, 3, 3}, "a": {4}, "a b ab": {4, 1, 3}}},
		{name: "continuing_subword_prefix", pre: words, model: hfPieces("BPE", []string{"a", "##b", "b", "ab", "##a", "##ba",
			"<unk>"}, object{"continuing_subword_prefix": "##", "unk_token": "<unk>",
			"merges": [][]string{{"a", "##b"}, {"##b", "##a"}}}),
			texts: map[string][]int32{"ab": {3}, "bba": {2, 5}, "aba": {3, 4}, "xa": {6, 4}, "ax": {0, 6}}},
		{name: "what is unknown is one with the unknown token's spelling", model: unigram(false, []any{"<unk>", 0},
			[]any{"a", -1}), texts: map[string][]int32{"x<unk>a": {0, 1}, "<unk><unk>": {0}, "axxa": {1, 0, 1}}},
		{name: "ties fall as the library reads numbers", model: unigram(false, []any{"<unk>", 0.0},
			[]any{".", -11.960803519594165}, []any{"..", -23.92160703918833}), texts: map[string][]int32{"..": {1, 1}}},
		{name: "a prefix of nothing", pre: words, model: hfPieces("WordPiece", []string{"[UNK]", "a", "b", "ab"},
			object{"continuing_subword_prefix": "", "unk_token": "[UNK]"}),
			texts: map[string][]int32{"abba": {3, 2, 1}, "ax": {0}}},
		{name: "words of no characters", pre: words, model: hfPieces("WordPiece", []string{"[UNK]", "a"},
			object{"max_input_chars_per_word": 0, "unk_token": "[UNK]"}), texts: map[string][]int32{"a a": {0, 0}}},
		{name: "WordLevel", pre: words, model: hfPieces("WordLevel", []string{"a", "<unk>", "b c"},
			object{"unk_token": "<unk>"}), texts: map[string][]int32{"a b a": {0, 1, 0}, "b c": {1, 1}}},
		{name: "ignore_merges finds a special token that the normalizer makes", model: hfPieces("BPE", []string{"a", "<u>",
			"<", "u", ">"}, object{"ignore_merges": true}), normalizer: object{"type": "Lowercase"},
			added: []object{{"id": 1, "content": "<u>", "special": true, "normalized": false}},
			texts: map[string][]int32{"<U>": {1}}},
	} {
		tok := c.load(t)
		for text, want := range c.texts {
			if got, err := tok.Encode(text, Options{ParseSpecial: true}); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %q: %d, want %d (%v)", c.name, text, got, want, err)
			}
		}
	}
}

// Text that needs an unknown token which is not there is an error in the library, and not left out here.
func TestHFNoUnknown(t *testing.T) {
	for _, c := range []hfCase{
		{name: "no pieces spell \"x\"", model: object{"type": "Unigram", "unk_id": nil, "vocab": [][]any{{"a", -1}}}},
		{name: "the unknown token \"<unk>\"", model: hfPieces("BPE", []string{"a"}, object{"unk_token": "<unk>"})},
		{name: "neither the word \"ax\"", model: hfPieces("WordLevel", []string{"a"}, object{"unk_token": "<unk>"})},
	} {
		tok := c.load(t)
		if ids, err := tok.Encode("a", Options{}); err != nil || !slices.Equal(ids, []int32{0}) {
			t.Errorf("%s: %d, %v", c.name, ids, err)
		}
		if _, err := tok.Encode("ax", Options{}); err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%v, want %q", err, c.name)
		}
	}
}

// BPEDecoder makes spaces of the marks of words' ends, but of the last.
func TestHFBPEDecoder(t *testing.T) {
	c := hfCase{model: hfPieces("BPE", []string{"a</w>", "b", "c</w>", " "}, object{"end_of_word_suffix": "</w>"}),
		decoder: object{"type": "BPEDecoder", "suffix": "</w>"}}
	tok := c.load(t)
	for want, ids := range map[string][]int32{"a bc": {0, 1, 2}, "a": {0}, "a a b": {0, 0, 1}, "b ": {1, 3},
		"a  ": {0, 3}} {
		if got := tok.Decode(ids); got != want {
			t.Errorf("%d: %q, want %q", ids, got, want)
		}
	}
}

// Continuing pieces whose letters alone would be read otherwise keep their mark in GGUF.
func TestHFPhantomPrefix(t *testing.T) {
	c := hfCase{pre: object{"type": "WhitespaceSplit"}, model: hfPieces("WordPiece", []string{"[UNK]", "##", "a", "####",
		"##a"}, object{"unk_token": "[UNK]", "continuing_subword_prefix": "##"})}
	again := reload(t, c.load(t))
	for text, want := range map[string][]int32{"##": {1}, "a##": {2, 3}, "####": {3}, "a####a": {2, 3, 3, 4}} {
		if got, err := again.Encode(text, Options{}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d, want %d (%v)", text, got, want, err)
		}
	}
}

func TestHFProcessors(t *testing.T) {
	token := object{"SpecialToken": object{"id": "b", "type_id": 0}}
	text := func(id string) object { return object{"Sequence": object{"id": id, "type_id": 0}} }
	single := func(items ...object) object {
		return object{"type": "TemplateProcessing", "single": items, "special_tokens": object{"b": object{"id": "b",
			"ids": []int{2}, "tokens": []string{"b"}}}}
	}
	for _, c := range []struct {
		processor object
		want      string // of the error
	}{
		{single(token, text("A")), ""},
		{single(text("A"), text("A")), "not one sequence A"},
		{single(token, text("B")), "not one sequence A"},
		{single(token), "without the sequence A"},
		{sequence("processors", single(token, text("A")), single(text("A"), token)),
			"TemplateProcessing behind TemplateProcessing"},
	} {
		file := hfCase{model: hfSmallBPE()}
		processor, err := json.Marshal(c.processor)
		if err != nil {
			t.Fatal(err)
		}
		_, err = FromTokenizerJSON([]byte(strings.Replace(string(file.file(t)), "{",
			`{"post_processor":`+string(processor)+",", 1)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.processor, err, c.want)
		}
	}
	dropout := hfCase{model: hfPieces("BPE", []string{"a"}, object{"dropout": 0.1})}
	if _, err := FromTokenizerJSON(dropout.file(t)); err == nil || !strings.Contains(err.Error(), "dropout of 0.1") {
		t.Error(err)
	}
}
