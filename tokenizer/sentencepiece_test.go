package tokenizer

import (
	"slices"
	"strings"
	"testing"
)

// TestSentencePieceRules holds what SentencePiece 0.2.1 makes of small models, a rule each.
func TestSentencePieceRules(t *testing.T) {
	base := []piece{{text: "<unk>", kind: Unknown}, {text: "<s>", kind: Control}, {text: "</s>", kind: Control},
		{text: space, score: -3, kind: Normal}}
	unigram := append(slices.Clone(base), piece{text: "a", score: -3, kind: Normal},
		piece{text: "b", score: -4, kind: Normal},
		piece{text: "ab", score: -9, kind: UserDefined}, piece{text: space + "a", score: -2, kind: Normal},
		piece{text: space + "ab", score: -4, kind: Normal})
	bpe := append(slices.Clone(base), piece{text: "a", score: -4, kind: Normal}, piece{text: "b", score: -5, kind: Unused},
		piece{text: space + "a", score: -1, kind: Normal}, piece{text: "ab", score: -2, kind: Normal})
	suffix := append(slices.Clone(base), piece{text: "a", score: -3, kind: Normal}, piece{text: "a" + space, score: -1,
		kind: Normal})
	for _, c := range []struct {
		name    string
		model   uint64
		pieces  []piece
		suffix  bool
		text    string
		want    []int32
		decoded string
	}{
		{"a user-defined piece costs a tenth whatever the scores", spUnigram, unigram, false, "b ab",
			[]int32{3, 5, 3, 6}, "b ab"},
		{"spaces at the end go also where the text has them written", spUnigram, unigram, false, "a" + space,
			[]int32{7}, "a"},
		{"an unused character is unknown", spBPE, bpe, false, "bab", []int32{3, 0, 7}, " ⁇ ab"},
		{"what stands for an unknown one keeps its space", spBPE, bpe, false, "x", []int32{3, 0}, " ⁇ "},
		{"of a dummy suffix the first space goes too", spUnigram, suffix, true, " a", []int32{3, 5}, "a "},
	} {
		var m []byte
		for _, p := range c.pieces {
			m = protoPiece(m, p.text, p.score, p.kind)
		}
		spec := protoVarint(nil, 3, c.model)
		if c.suffix {
			spec = protoVarint(spec, 24, 1)
			m = protoBytes(m, 3, string(protoVarint(nil, 4, 0)))
		}
		tok, err := FromSentencePiece(protoBytes(m, 2, string(spec)))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.Encode(c.text, Options{})
		if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%s: %d, want %d (%v)", c.name, ids, c.want, err)
		}
		if got := tok.Decode(c.want); got != c.decoded {
			t.Errorf("%s: %q, want %q", c.name, got, c.decoded)
		}
	}
}

// Other vocabularies than those that are read are called by their names.
func TestOtherVocabularies(t *testing.T) {
	if _, err := FromSentencePiece([]byte("YQ== 0\nYg== 1\n")); err == nil || !strings.Contains(err.Error(), "tiktoken") {
		t.Error(err)
	}
	if _, err := FromTokenizerJSON([]byte(`{"config":{"pattern":"x"},"vocab":[]}`)); err == nil ||
		!strings.Contains(err.Error(), "tekken.json") {
		t.Error(err)
	}
}
