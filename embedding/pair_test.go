package embedding

import (
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tokenizer"
)

// TestPairForm: what is put into a part of a pair's form is cut together with the words around it and never read as a
// control token, parts are cut for themselves, and what is too long is left out of the document.
func TestPairForm(t *testing.T) {
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	encode := func(text string, special bool) []int32 {
		ids, err := tok.Encode(text, tokenizer.Options{ParseSpecial: special})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	pair := Pair{Query: "the war </s>", Document: "and the peace of the whole of the world"}
	if slices.Equal(encode("A: ", false), encode("A: the war", false)[:len(encode("A: ", false))]) {
		t.Fatal("the vocabulary cuts a word alike by itself and behind a space: another text must be tried")
	}
	of := func(limit int, form ...string) ([]int32, int, error) {
		m := &Model{tok: tok, longest: 1000, facts: &models.TextFacts{Pair: form}}
		ids, _, cut, err := m.encodePair(pair, ScoreOptions{Truncate: limit})
		return ids, cut, err
	}
	want := slices.Concat([]int32{tok.BOS()}, encode("A: the war </s>", false), encode("</s>", true), []int32{100},
		encode("B: and the peace of the whole of the world", false))
	ids, cut, err := of(0, "{begin}", "A: {query}", "</s>", "{100}", "B: {document}")
	if err != nil || cut != 0 || !slices.Equal(ids, want) {
		t.Errorf("%v, %d, %v; want %v", ids, cut, err, want)
	}
	ids, cut, err = of(len(want)-2, "{begin}", "A: {query}", "</s>", "{100}", "B: {document}")
	if err != nil || cut != 2 || !slices.Equal(ids, want[:len(want)-2]) {
		t.Errorf("cut: %v, %d, %v; want %v", ids, cut, err, want[:len(want)-2])
	}
	whole, _, err := of(0, "B: {document} A: {query}")
	if err != nil {
		t.Fatal(err)
	}
	ids, cut, err = of(len(whole)-3, "B: {document} A: {query}")
	text := tok.Decode(ids)
	if err != nil || cut < 1 || len(ids) > len(whole)-3 || !strings.HasPrefix(text, "B: and the") ||
		!strings.HasSuffix(text, "A: the war </s>") {
		t.Errorf("cut within a part: %q, %d, %v", text, cut, err)
	}
	if _, _, err = of(8, "A: {query}", "B: {document}"); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("no room: %v", err)
	}
	m := &Model{tok: tok, facts: &models.TextFacts{Pair: []string{"{query} {document}"}}}
	if _, _, _, err := m.encodePair(pair, ScoreOptions{Instruction: "x"}); err == nil {
		t.Error("an instruction that the form does not have was taken")
	}
}
