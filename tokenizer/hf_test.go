// Hugging Face folders: vocab.json with merges.txt, and tokenizer.json.
package tokenizer

import (
	"testing"

	"greta/internal/testfiles"
)

func TestQwen2VocabMerges(t *testing.T) {
	tok, err := Load(testfiles.Shared(t, "data", "tokenizers", "qwen2.5"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range vocabCases(t, "qwen2") {
		checkEncode(t, tok, c.text, c.want)
		checkRoundTrip(t, tok, c.text)
	}
	id, ok := tok.ID("<|im_end|>")
	if !ok || !tok.IsControl(id) || !tok.IsEnd(id) || tok.AddBOS() {
		t.Errorf("<|im_end|> = %d, %t: control %t, end %t; adds BOS %t", id, ok, tok.IsControl(id), tok.IsEnd(id), tok.AddBOS())
	}
}
