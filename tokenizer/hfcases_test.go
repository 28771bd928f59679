// What Hugging Face's tokenizers 0.23 makes of small files, a rule each.
package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// hfCase is a file with texts and the ids that the library gives them.
type hfCase struct {
	name                   string
	normalizer, pre, model object
	decoder                object
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
		{name: "bytes and the unknown token are pieces of Unigram's and say what an unknown character costs",
			model: object{"type": "Unigram", "unk_id": 0, "vocab": [][]any{{"<unk>", -1}, {"a", -40}, {"<0x41>", -60},
				{"ab", -65}}}, texts: map[string][]int32{"<0x41>a": {2, 1}, "a<unk>": {1, 0}, "ab": {3}}},
		{name: "WordPiece behind ByteLevel", model: hfSmallWordPiece(), pre: byteLevelPart(false),
			texts: map[string][]int32{"é": {1}, "éa": {1, 2}, "b": {4}}},
		{name: "WordPiece behind the normalizer ByteLevel", model: hfSmallWordPiece(),
			normalizer: object{"type": "ByteLevel"}, texts: map[string][]int32{"é": {1}, "éa": {1, 2}, "b": {4}}},
		{name: "a word that is spelt like a continuing piece is that piece", model: hfSmallWordPiece(),
			texts: map[string][]int32{"##a": {2}, "b##a": {0}}},
		{name: "what replaces a longer match stands where that ended", model: hfSmallBPE(), pre: first,
			normalizer: object{"type": "Replace", "pattern": object{"String": "--"}, "content": "a"},
			texts:      map[string][]int32{"--b": {4}, "-": {0, 5}, "a--": {3, 1}}},
		{name: "what replaces the first character begins the text", model: hfSmallBPE(), pre: first,
			normalizer: object{"type": "Replace", "pattern": object{"String": "-"}, "content": "a"},
			texts:      map[string][]int32{"-b": {3, 2}, "--": {3, 1}}},
		{name: "all that the first character became does", model: hfSmallBPE(),
			pre:        sequence("pretokenizers", object{"type": "Digits"}, object{"type": "BertPreTokenizer"}, first),
			normalizer: object{"type": "Prepend", "prepend": "-"},
			texts:      map[string][]int32{"a": {0, 5, 3}, "ba": {0, 5, 0, 2, 1}}},
		{name: "stripped whitespace does not", model: hfSmallBPE(), pre: first,
			normalizer: object{"type": "Strip", "strip_left": true, "strip_right": true},
			texts:      map[string][]int32{"a ": {3}, " a": {1}}},
		{name: "bytes of a vocabulary without the byte alphabet", model: hfFallback(),
			normalizer: object{"type": "ByteLevel"}, texts: map[string][]int32{"a": {256}, "é": {0xC3, 0x83, 0xC2, 0xA9},
				" ": {0xC4, 0xA0}}},
		{name: "and behind the pre-tokenizer", model: hfFallback(), pre: byteLevelPart(false),
			texts: map[string][]int32{"a": {256}, "é": {0xC3, 0x83, 0xC2, 0xA9}}},
		{name: "a normalizer behind ByteLevel changes its alphabet", model: hfFallback(),
			normalizer: sequence("normalizers", object{"type": "ByteLevel"}, object{"type": "NFKD"}),
			texts:      map[string][]int32{" ": {0x47, 0xCC, 0x87}}},
	} {
		tok := c.load(t)
		for text, want := range c.texts {
			if got, err := tok.Encode(text, Options{ParseSpecial: true}); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %+q: %d, want %d (%v)", c.name, text, got, want, err)
			}
		}
	}
}

func (c *hfCase) file(t *testing.T) []byte {
	t.Helper()
	data, err := json.Marshal(object{"added_tokens": c.added, "normalizer": c.normalizer, "pre_tokenizer": c.pre,
		"decoder": c.decoder, "model": c.model})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (c *hfCase) load(t *testing.T) *Tokenizer {
	t.Helper()
	tok, err := FromTokenizerJSON(c.file(t))
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return tok
}

// hfFallback is BPE of one character, with bytes for the rest.
func hfFallback() object {
	vocab := object{"a": 256}
	for i := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", i)] = i
	}
	return object{"type": "BPE", "vocab": vocab, "merges": [][]string{}, "byte_fallback": true}
}

// TestHFDecoders holds what the library makes of ids, a rule each.
func TestHFDecoders(t *testing.T) {
	meta := func(scheme string) object {
		return object{"type": "Metaspace", "replacement": space, "prepend_scheme": scheme}
	}
	replaced := object{"type": "Replace", "pattern": object{"String": space}, "content": " "}
	strip := object{"type": "Strip", "content": " ", "start": 1, "stop": 0}
	words := object{"type": "WordPiece", "prefix": "##", "cleanup": true}
	pieces := object{"type": "BPE", "vocab": object{space: 0, "a": 1, "b": 2, space + "a": 3, " ": 4, "##a": 5, ".": 6,
		" n't": 7, "<0x41>": 8, "<0x20>": 9}, "merges": [][]string{}}
	lower := object{"type": "Lowercase"}
	special := []object{{"id": 10, "content": "É", "special": true, "normalized": true},
		{"id": 11, "content": "x", "special": true, "normalized": true}, {"id": 12, "content": "X", "normalized": true}}
	for _, c := range []struct {
		name       string
		decoder    object
		normalizer object
		ids        []int32
		want       string
	}{
		{"none puts spaces between", nil, nil, []int32{1, 3, 2}, "a " + space + "a b"},
		{"Metaspace leaves out the first token's mark alone", meta("always"), nil, []int32{3, 3, 4}, "a a "},
		{"and no space that is one", meta("always"), nil, []int32{4, 1}, " a"},
		{"never leaves it", meta("never"), nil, []int32{3, 3}, " a a"},
		{"Strip without Fuse is of every token", sequence("decoders", replaced, strip), nil, []int32{3, 3, 1}, "aaa"},
		{"Strip behind Fuse is of the text", sequence("decoders", replaced, object{"type": "Fuse"}, strip), nil,
			[]int32{3, 3, 1}, "a aa"},
		{"also of a byte", sequence("decoders", replaced, object{"type": "ByteFallback"}, object{"type": "Fuse"}, strip), nil,
			[]int32{9, 3, 8}, " aA"},
		{"bytes are told by their spelling", object{"type": "ByteFallback"}, nil, []int32{1, 8}, "aA"},
		{"replacements are one after another", sequence("decoders", replaced, object{"type": "Replace",
			"pattern": object{"String": " "}, "content": "-"}), nil, []int32{3, 1}, "-aa"},
		{"WordPiece keeps the mark of the first", words, nil, []int32{5, 5, 1, 6, 7}, "##aa a. n't"},
		{"and hides what is normalized to one", object{"type": "Fuse"}, lower, []int32{1, 12, 11}, "a"},
		{"a special token that is normalized is not known again", object{"type": "Fuse"}, lower, []int32{1, 10, 11}, "aé"},
	} {
		h := hfCase{name: c.name, model: pieces, normalizer: c.normalizer, decoder: c.decoder, added: special}
		if got := h.load(t).Decode(c.ids); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// What is not right for some text is refused by its name.
func TestHFRefused(t *testing.T) {
	fuse := object{"type": "Fuse"}
	for want, c := range map[string]hfCase{
		"Strip of":                        {decoder: object{"type": "Strip", "content": " ", "start": 0, "stop": 1}},
		"Metaspace behind":                {decoder: sequence("decoders", fuse, object{"type": "Metaspace"})},
		"WordPiece behind":                {decoder: sequence("decoders", fuse, object{"type": "WordPiece", "prefix": "##"})},
		"ByteLevel behind":                {decoder: sequence("decoders", fuse, object{"type": "ByteLevel"})},
		"leaves nothing":                  {normalizer: object{"type": "Nmt"}, added: []object{{"id": 6, "content": "\x01"}}},
		"model type \"CharLevel\" is not": {model: object{"type": "CharLevel", "vocab": object{"a": 0}}},
	} {
		if c.model == nil {
			c.model = hfSmallBPE()
		}
		if _, err := FromTokenizerJSON(c.file(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A continuing piece that begins as GGUF marks words is none that begins one.
func TestHFPhantomMark(t *testing.T) {
	c := hfCase{model: object{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
		"vocab": object{"[UNK]": 0, "a": 1, "##" + space: 2, "##" + space + "b": 3}}}
	again := reload(t, c.load(t))
	for text, want := range map[string][]int32{"a" + space: {1, 2}, "a" + space + "b": {1, 3}, space: {0}} {
		if got, err := again.Encode(text, Options{}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d, want %d (%v)", text, got, want, err)
		}
	}
}

// Scores that are no float32 decide between segmentations that are nearly as good, through GGUF too.
func TestHFScoresThroughGGUF(t *testing.T) {
	c := hfCase{model: object{"type": "Unigram", "unk_id": 0, "vocab": [][]any{{"<unk>", 0}, {"a", -3.1}, {"aa", -3.7},
		{"b", -7.3}, {"ab", -6.700000000000001}}}}
	tok := c.load(t)
	again := reload(t, tok)
	for _, text := range []string{"aab", "aaa", "baaab", "aaaaa"} {
		want, err := tok.Encode(text, Options{})
		if got, err2 := again.Encode(text, Options{}); err != nil || err2 != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d through GGUF, %d before (%v, %v)", text, got, want, err, err2)
		}
	}
	if got, want := again.model.(*pipeline).unigram.score, tok.model.(*pipeline).unigram.score; !slices.Equal(got, want) {
		t.Errorf("scores %v, want %v", got, want)
	}
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

// smallCharsMap makes a precompiled character map: every node of the trie has 256 units of its own.
func smallCharsMap(of map[string]string) []byte {
	type node struct {
		next map[byte]*node
		to   string
		ends bool
	}
	root := &node{next: map[byte]*node{}}
	for from, to := range of {
		n := root
		for i := range len(from) {
			if n.next[from[i]] == nil {
				n.next[from[i]] = &node{next: map[byte]*node{}}
			}
			n = n.next[from[i]]
		}
		n.to, n.ends = to, true
	}
	units, text := make([]uint32, 256), ""
	var place func(n *node, at int, label byte)
	place = func(n *node, at int, label byte) {
		base := len(units)
		units = append(units, make([]uint32, 256)...)
		units[at] = uint32(at^base)<<10 | uint32(label)
		if n.ends {
			units[at] |= 1 << 8
			units[base] = 1<<31 | uint32(len(text))
			text += n.to + "\x00"
		}
		for b, next := range n.next {
			place(next, base^int(b), b)
		}
	}
	place(root, 0, 0)
	blob := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		blob = binary.LittleEndian.AppendUint32(blob, u)
	}
	return append(blob, text...)
}

// What Precompiled leaves out at the beginning does not keep what follows from beginning the text: the library counts
// the characters that come out.
func TestHFPrecompiledLead(t *testing.T) {
	chars := smallCharsMap(map[string]string{"\u00ad": "", "ﬁ": "-a", "é": "e"})
	plain := object{"type": "Precompiled", "precompiled_charsmap": chars}
	dash := object{"type": "Replace", "pattern": object{"String": "-"}, "content": ""}
	for _, c := range []hfCase{
		{normalizer: plain, texts: map[string][]int32{"a": {3}, "\u00ada": {3}, "ﬁ": {0, 5, 1}}},
		{normalizer: sequence("normalizers", plain, dash), texts: map[string][]int32{"ﬁ": {3}, "ﬁ\u0301b": {4},
			"\u00adﬁ": {3}, "-a": {1}}},
	} {
		c.model, c.pre = hfSmallBPE(), object{"type": "Metaspace", "replacement": space, "prepend_scheme": "first",
			"split": false}
		tok := c.load(t)
		for text, want := range c.texts {
			if got, err := tok.Encode(text, Options{}); err != nil || !slices.Equal(got, want) {
				t.Errorf("%+q: %d, want %d (%v)", text, got, want, err)
			}
		}
	}
}
