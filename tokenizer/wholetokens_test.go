package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// folder writes files into a folder of the test.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFoldersOfEncoders: vocabularies without a tokenizer.json whose class says how texts are cut give the ids that
// transformers gives.
func TestFoldersOfEncoders(t *testing.T) {
	protein := folder(t, map[string]string{
		"vocab.txt": strings.ReplaceAll("<cls> <pad> <eos> <unk> L A K T Y M B <null_1> <mask>", " ", "\n"),
		"tokenizer_config.json": `{"tokenizer_class": "EsmTokenizer", "cls_token": "<cls>", "eos_token": "<eos>",
			"mask_token": "<mask>", "pad_token": "<pad>", "unk_token": "<unk>"}`})
	words := folder(t, map[string]string{
		"vocab.json": `{"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "a": 4, "b": 5, "c": 6, "t": 7, "Ġ": 8, "at": 9,
			"cat": 10, "Ġcat": 11, "[MASK]": 12}`,
		"merges.txt": "#version: 0.2\na t\nc at\nĠ cat\n"})
	for _, c := range []struct {
		dir, text string
		ids       []int32
	}{
		{protein, "MKTAY", []int32{0, 9, 6, 7, 5, 8, 2}},
		{protein, "MK<mask>AY M", []int32{0, 9, 6, 12, 5, 8, 9, 2}},
		{protein, "mkt M", []int32{0, 3, 9, 2}},
		{protein, "J J*K", []int32{0, 3, 3, 6, 2}},
		{protein, "<null_1", []int32{0, 3, 2}},
		{protein, "", []int32{0, 2}},
		{words, "cat a [MASK] cat", []int32{1, 10, 8, 4, 8, 12, 11, 2}},
		{words, "catb", []int32{1, 10, 5, 2}},
	} {
		tok, err := Load(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		o := tok.Defaults()
		o.ParseSpecial = true
		if ids, err := tok.Encode(c.text, o); err != nil || !slices.Equal(ids, c.ids) {
			t.Errorf("%q gives %v, %v; want %v", c.text, ids, err, c.ids)
		}
	}
	for dir, want := range map[string][]int32{protein: {0, 9, 2, 6, 2}, words: {1, 3, 2, 3, 2}} {
		tok, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		a, b := "M", "K"
		if dir == words {
			a, b = "[UNK]", "[UNK]"
		}
		if ids, _, _, err := tok.EncodePair(a, b, 0); err != nil || !slices.Equal(ids, want) {
			t.Errorf("a pair gives %v, %v; want %v", ids, err, want)
		}
	}
	without := folder(t, map[string]string{"vocab.txt": "<pad>\nA\n", "tokenizer_config.json": `{"tokenizer_class":
		"EsmTokenizer"}`})
	if _, err := Load(without); err == nil || !strings.Contains(err.Error(), "<cls>") {
		t.Errorf("without <cls>: %v", err)
	}
}
