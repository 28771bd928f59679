// Added tokens of the files beside a vocabulary, and through GGUF and back.
package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// folderWith copies the small model's tokenizer.model and writes files beside it.
func folderWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile("../testdata/tolstoy-2.7m/tokenizer.model")
	if err != nil {
		t.Fatal(err)
	}
	if files["tokenizer.json"] == "" {
		files["tokenizer.model"] = string(data)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const chatMarkers = `{"added_tokens_decoder": {
	"2048": {"content": "<|im_end|>", "lstrip": false, "rstrip": true, "normalized": false, "single_word": false,
		"special": true},
	"2049": {"content": "<|im_start|>", "lstrip": false, "rstrip": false, "normalized": false, "single_word": false,
		"special": true},
	"2050": {"content": "<tool>", "lstrip": true, "rstrip": false, "normalized": false, "single_word": false,
		"special": false}},
	"bos_token": "<s>", "eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}`

// Fine-tunes add tokens beside tokenizer.model, in either of two files.
func TestAddedTokensBesideSentencePiece(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"added_tokens_decoder": {"tokenizer_config.json": chatMarkers},
		"added_tokens.json": {"added_tokens.json": `{"<|im_end|>": 2048, "<|im_start|>": 2049, "<tool>": 2050}`,
			"special_tokens_map.json": `{"eos_token": {"content": "<|im_end|>"},
				"additional_special_tokens": ["<|im_start|>"]}`},
	} {
		tok, err := Load(folderWith(t, files))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if tok.VocabSize() != 2051 || tok.EOS() != 2048 || !tok.IsControl(2049) || tok.IsControl(2050) || !tok.IsEnd(2048) {
			t.Errorf("%s: %d tokens, eos %d, control %t and %t", name, tok.VocabSize(), tok.EOS(), tok.IsControl(2049),
				tok.IsControl(2050))
		}
		text := "<|im_start|>Prince<|im_end|>"
		ids, err := tok.Encode(text, Options{ParseSpecial: true})
		if err != nil || len(ids) < 3 || ids[0] != 2049 || ids[len(ids)-1] != 2048 {
			t.Errorf("%s: %q is %d (%v)", name, text, ids, err)
		}
		ids, err = tok.Encode("a <tool>", Options{})
		if err != nil || ids[len(ids)-1] != 2050 {
			t.Errorf("%s: a token that is not special is %d (%v)", name, ids, err)
		}
		if plain, _ := tok.Encode(text, Options{}); slices.Contains(plain, 2049) {
			t.Errorf("%s: a special token was read from plain text: %d", name, plain)
		}
		again := reload(t, tok)
		for _, text := range []string{text, "x<|im_end|>\n\nPrince <tool> a", "a  <tool>b"} {
			want, _ := tok.Encode(text, Options{ParseSpecial: true})
			checkEncodeAll(t, again, text, want)
		}
	}
}

func checkEncodeAll(t *testing.T, tok *Tokenizer, text string, want []int32) {
	t.Helper()
	got, err := tok.Encode(text, Options{ParseSpecial: true})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q: %d, want %d (%v)", text, got, want, err)
	}
}

// tokenizer.json may lack tokens that tokenizer_config.json has.
func TestAddedTokensBesideTokenizerJSON(t *testing.T) {
	data, err := json.Marshal(oracleTokenizer(object{"kind": "spm",
		"pre_tokenizer": object{"type": "Metaspace", "prepend_scheme": "first"}}))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Load(folderWith(t, map[string]string{"tokenizer.json": string(data),
		"tokenizer_config.json": chatMarkers}))
	if err != nil {
		t.Fatal(err)
	}
	checkEncodeAll(t, tok, "<|im_start|>a<|im_end|>  b", []int32{2049, 257, 2048, 258})
	if bad, err := Load(folderWith(t, map[string]string{"tokenizer.json": string(data),
		"tokenizer_config.json": `{"added_tokens_decoder": {"257": {"content": "<x>"}}}`})); err == nil {
		t.Errorf("an added token took the id of a: %v", bad)
	}
}

// Whatever GGUF can carry encodes alike after an export: flags, Metaspace's
// scheme and split, normalizers.
func TestOracleThroughGGUF(t *testing.T) {
	n := 0
	for _, c := range readOracle(t).Pipelines {
		data, err := json.Marshal(oracleTokenizer(c.Parts))
		if err != nil {
			t.Fatal(err)
		}
		tok, err := FromTokenizerJSON(data)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tok.GGUFMetadata(); err != nil {
			continue
		}
		n++
		again := reload(t, tok)
		for _, raw := range c.Texts {
			text := decodeRaw[string](t, raw[0])
			ids := decodeRaw[[]int32](t, raw[1])
			checkEncodeAll(t, again, text, ids)
			if got, want := again.Decode(ids), tok.Decode(ids); got != want {
				t.Errorf("%d: %q through GGUF, %q before", ids, got, want)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d pipelines could be exported", n)
	}
}
