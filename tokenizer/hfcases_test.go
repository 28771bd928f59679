// What Hugging Face's tokenizers 0.23 makes of small files, a rule each.
package tokenizer

import (
	"encoding/json"
	"slices"
	"testing"
)

// hfCase is a file with texts and the ids that the library gives them.
type hfCase struct {
	name                   string
	normalizer, pre, model object
	added                  []object
	texts                  map[string][]int32
}

func hfSmallBPE() object {
	return object{"type": "BPE", "vocab": object{space: 0, "a": 1, "b": 2, space + "a": 3, "ab": 4, "-": 5},
		"merges": [][]string{{space, "a"}, {"a", "b"}}}
}

func hfSmallUnigram() object {
	return object{"type": "Unigram", "unk_id": 0, "vocab": [][]any{{"<unk>", 0}, {"c", -3}, {"a", -3}, {"t", -3},
		{"cat", -4}, {"s", -3}, {"at", -2}}}
}

func hfSmallWordPiece() object {
	return object{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
		"vocab": object{"[UNK]": 0, "Ã©": 1, "##a": 2, "é": 3, "b": 4}}
}

func TestHFCases(t *testing.T) {
	first := object{"type": "Metaspace", "replacement": space, "prepend_scheme": "first", "split": false}
	bert := object{"type": "BertNormalizer", "clean_text": true, "lowercase": true}
	removed := func(kind, pattern string) object {
		return object{"type": "Replace", "pattern": object{kind: pattern}, "content": ""}
	}
	for _, c := range []hfCase{
		{name: "a word behind whitespace does not begin the text", model: hfSmallBPE(),
			pre:   sequence("pretokenizers", object{"type": "BertPreTokenizer"}, first),
			texts: map[string][]int32{"a b": {3, 2}, " a b": {1, 2}, "-a": {0, 5, 1}}},
		{name: "nor what stands behind an accent", model: hfSmallBPE(), pre: first,
			normalizer: object{"type": "StripAccents"}, texts: map[string][]int32{"a": {3}, "\u0301a": {1}}},
		{name: "where a part of the first character is left, that does", model: hfSmallBPE(), pre: first,
			normalizer: sequence("normalizers", object{"type": "NFKD"}, object{"type": "StripAccents"}),
			texts:      map[string][]int32{"\u0e33a": {3}, "\u0340a": {1}}},
		{name: "nor behind a control character", model: hfSmallBPE(), pre: first, normalizer: object{"type": "Nmt"},
			texts: map[string][]int32{"a": {3}, "\x01a": {1}}},
		{name: "nor behind what BERT cleans away", model: hfSmallBPE(), pre: first, normalizer: bert,
			texts: map[string][]int32{"a": {3}, "\u200ba": {1}}},
		{name: "nor behind what is replaced by nothing", model: hfSmallBPE(), pre: first,
			normalizer: removed("String", "-"), texts: map[string][]int32{"a": {3}, "-a": {1}, "a-": {3}}},
		{name: "by a pattern too", model: hfSmallBPE(), pre: first, normalizer: removed("Regex", "[-x]+"),
			texts: map[string][]int32{"a": {3}, "x-a": {1}, "ax": {3}}},
		{name: "without an unknown token, neighbours of an unknown character merge", model: hfSmallBPE(),
			texts: map[string][]int32{"aéb": {4}, "éa": {1}, "a日本b": {4}}},
		{name: "a special token of one character is spelt", model: hfSmallBPE(),
			added: []object{{"id": 1, "content": "a", "special": true, "single_word": true}},
			texts: map[string][]int32{"a": {1}, "ba": {2, 1}, "bab": {2, 4}}},
		{name: "so is one of Unigram's vocabulary", model: hfSmallUnigram(),
			added: []object{{"id": 4, "content": "cat", "special": true, "single_word": true}},
			texts: map[string][]int32{"cat": {4}, "cats": {4, 5}, "acat": {2, 4}}},
		{name: "an added one of Unigram's has its own score within words", model: hfSmallUnigram(),
			added: []object{{"id": 6, "content": "at", "single_word": true}},
			texts: map[string][]int32{"at": {6}, "cat": {4}, "cats": {4, 5}}},
		{name: "one that swallows what is before it is not found in what the one before swallowed", model: hfSmallBPE(),
			added: []object{{"id": 6, "content": "  ", "lstrip": true, "rstrip": true, "special": true}},
			texts: map[string][]int32{"a    b": {1, 6, 2}, "a  b": {1, 6, 2}, "a     ": {1, 6}}},
		{name: "one that swallows only what is behind it is", model: hfSmallBPE(),
			added: []object{{"id": 6, "content": "  ", "rstrip": true, "special": true}},
			texts: map[string][]int32{"a    b": {1, 6, 6, 2}, "a  b": {1, 6, 2}}},
		{name: "WordPiece behind ByteLevel", model: hfSmallWordPiece(), pre: byteLevelPart(false),
			texts: map[string][]int32{"é": {1}, "éa": {1, 2}, "b": {4}}},
		{name: "WordPiece behind the normalizer ByteLevel", model: hfSmallWordPiece(),
			normalizer: object{"type": "ByteLevel"}, texts: map[string][]int32{"é": {1}, "éa": {1, 2}, "b": {4}}},
	} {
		tok := c.load(t)
		for text, want := range c.texts {
			if got, err := tok.Encode(text, Options{ParseSpecial: true}); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %+q: %d, want %d (%v)", c.name, text, got, want, err)
			}
		}
	}
}

func (c *hfCase) load(t *testing.T) *Tokenizer {
	t.Helper()
	data, err := json.Marshal(object{"added_tokens": c.added, "normalizer": c.normalizer, "pre_tokenizer": c.pre,
		"model": c.model})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := FromTokenizerJSON(data)
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return tok
}

// A control token is not spelt by chance where special tokens are not read.
func TestHFControlNotSpelt(t *testing.T) {
	c := hfCase{model: hfSmallUnigram(), added: []object{{"id": 4, "content": "cat", "special": true}}}
	if got, err := c.load(t).Encode("cats", Options{}); err != nil || slices.Contains(got, 4) {
		t.Errorf("cats: %d (%v), with the control token 4", got, err)
	}
}

// The library's tables are of other versions of Unicode than Go's.
func TestHFAges(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"NFKC", "㋿", "㋿"}, {"NFKC", "㋾", "ヲ"}, {"NFKD", "\ua7f2", "\ua7f2"}, {"NFD", "\U00011938", "\U00011938"},
		{"NFC", "\U00011935\U00011930", "\U00011935\U00011930"}, {"NFC", "a\u0d3b\u0301", "a\u0d3b\u0301"},
		{"NFD", "\u0323\u0c3c\u0301", "\u0323\u0c3c\u0301"}, {"StripAccents", "a\u0d3b\u0301", "a\u0d3b"},
		{"StripAccents", "\u08d4", ""}, {"BertNormalizer", "\u08d4É", "\u08d4e"}, {"Lowercase", "\u1c89Ꟃ", "\u1c8aꟃ"},
		{"Lowercase", "\U00010d50\ua7cb", "\U00010d70\u0264"},
	} {
		var p pipeline
		if err := p.readNormalizer(&hfPart{Type: c.kind}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := p.normalize(c.text, true); err != nil || got != c.want {
			t.Errorf("%s of %+q: %+q, want %+q (%v)", c.kind, c.text, got, c.want, err)
		}
	}
}
