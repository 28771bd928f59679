// Added tokens of the files beside a vocabulary, and through GGUF and back.
package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// TestAddedTokensByConfiguration: what tokenizer_config.json says of a token's flags counts for more than
// tokenizer.json, and tokens that it names are special. Ids and texts are transformers 5.24's.
func TestAddedTokensByConfiguration(t *testing.T) {
	model := `"model":{"type":"BPE","vocab":{"a":0,"b":1," ":2,"<x>":3,"<":4,"x":5,">":6},"merges":[]},` +
		`"pre_tokenizer":null,"decoder":{"type":"Fuse"}`
	added := func(flags string) string { return `"added_tokens":[{"id":7,"content":"<m>",` + flags + `}],` }
	template := `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<m>","type_id":0}},` +
		`{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<m>":{"id":"<m>","ids":[7],"tokens":["<m>"]}}},`
	plain := `"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false`
	for _, c := range []struct {
		name, file, config, names, text string
		want                            []int32
		decoded                         string
	}{
		{"flags of the configuration", added(plain), `{"added_tokens_decoder":{"7":{"content":"<m>","lstrip":true,
			"rstrip":false,"normalized":false,"single_word":false,"special":false}}}`, "", "a <m> b", []int32{0, 7, 2, 1},
			"a<m> b"},
		{"not those of special_tokens_map.json beside a list", added(plain), `{"added_tokens_decoder":{}}`,
			`{"pad_token":"<m>"}`, "a<m>", []int32{0, 7}, "a<m>"},
		{"but without one", added(plain), `{}`, `{"pad_token":"<m>"}`, "a<m>", []int32{0, 7}, "a"},
		{"a named token of the vocabulary", "", `{"mask_token":"<x>"}`, "", "a<x>b", []int32{0, 3, 1}, "ab"},
		{"in a list of more", "", `{"extra_special_tokens":["<x>"]}`, "", "a<x>b", []int32{0, 3, 1}, "ab"},
		{"by a name of its own", "", `{"extra_special_tokens":{"image":"<x>"}}`, "", "a<x>b", []int32{0, 3, 1}, "ab"},
		{"or a key of its own", "", `{"image_token":"<x>"}`, "", "a<x>b", []int32{0, 3, 1}, "ab"},
		{"a list says nothing of one that is added", added(plain), `{"additional_special_tokens":["<m>"]}`, "", "a<m>",
			[]int32{0, 7}, "a<m>"},
		{"what a template puts before a text is no name's", added(plain) + template, `{"bos_token":"<x>"}`, "", "a",
			[]int32{7, 0}, "<m>a"},
	} {
		tok, err := Load(folderWith(t, map[string]string{"tokenizer.json": "{" + c.file + model + "}",
			"tokenizer_config.json": c.config, "special_tokens_map.json": c.names + strings.Repeat("{}",
				max(0, 1-len(c.names)))}))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		ids, err := tok.Encode(c.text, Options{ParseSpecial: true, AddBOS: tok.AddBOS()})
		if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%s: %d, want %d (%v)", c.name, ids, c.want, err)
		}
		if got := tok.Decode(ids); got != c.decoded {
			t.Errorf("%s: %q, want %q", c.name, got, c.decoded)
		}
	}
}

// TestVocabMergesClasses: what the classes of folders without a tokenizer.json do, as transformers 5.24's.
func TestVocabMergesClasses(t *testing.T) {
	vocab, byID := map[string]int{}, 0
	for _, r := range byteRunes {
		vocab[string(r)] = byID
		byID++
	}
	vocab["<|endoftext|>"], vocab["<x>"] = byID, byID+1
	data, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	end := int32(byID)
	for _, c := range []struct {
		config, text string
		want         []int32
		refused      string
	}{
		{`{"tokenizer_class":"GPT2Tokenizer","added_tokens_decoder":{"259":{"content":"<new>"}}}`, "a<|endoftext|>",
			[]int32{'a', end}, ""},
		{`{"tokenizer_class":"GPT2Tokenizer","mask_token":"<x>"}`, "a<x>", []int32{'a', end + 1}, ""},
		{`{"tokenizer_class":"GPT2Tokenizer","add_prefix_space":true}`, "a<|endoftext|>b c",
			[]int32{' ', 'a', end, ' ', 'b', ' ', 'c'}, ""},
		{`{"tokenizer_class":"GPT2Tokenizer"}`, "e\u0301", []int32{'e', 0xCC, 0x81}, ""},
		{`{"tokenizer_class":"Qwen2Tokenizer"}`, "e\u0301", []int32{0xC3, 0xA9}, ""},
		{`{"tokenizer_class":"Qwen2Tokenizer","add_prefix_space":true}`, "", nil, "add_prefix_space of Qwen2Tokenizer"},
	} {
		files := map[string]string{"vocab.json": string(data), "merges.txt": "#version: 0.2\n",
			"tokenizer_config.json": c.config}
		dir := folderWith(t, files)
		if err := os.Remove(filepath.Join(dir, "tokenizer.model")); err != nil {
			t.Fatal(err)
		}
		tok, err := Load(dir)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.config, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.Encode(c.text, Options{ParseSpecial: true})
		if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%s: %q is %d, want %d (%v)", c.config, c.text, ids, c.want, err)
		}
	}
}

// TestNamedUserDefined: a user-defined piece of a SentencePiece model that the configuration names is special, as
// transformers has it.
func TestNamedUserDefined(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{"tokenizer.model": smallModel(spBPE),
		"tokenizer_config.json": []byte(`{"additional_special_tokens":["[x]"],"pad_token":"c"}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for text, control := range map[string]bool{"[x]": true, "c": true, "a": false} {
		if id, ok := tok.ID(text); !ok || tok.IsControl(id) != control {
			t.Errorf("%q is control: %t, want %t", text, tok.IsControl(id), control)
		}
	}
}

// A text that two entries add has the flags of the last of them, and is special where either is, as the library has it:
// else text from strangers, in which no special token is read, would give one.
func TestTokenAddedTwice(t *testing.T) {
	plain := object{"id": 6, "content": "<x>", "lstrip": true, "normalized": false}
	special := object{"id": 6, "content": "<x>", "special": true, "normalized": false}
	for _, c := range []struct {
		added []object
		want  []int32
	}{{[]object{plain, special}, []int32{1, 0, 6, 2}}, {[]object{special, plain}, []int32{1, 6, 2}}} {
		small := hfCase{model: hfSmallBPE(), added: c.added, decoder: object{"type": "Fuse"},
			normalizer: object{"type": "Replace", "pattern": object{"String": " "}, "content": space}}
		tok := small.load(t)
		checkEncodeAll(t, tok, "a <x>b", c.want)
		if text := tok.Decode(c.want); strings.Contains(text, "<x>") {
			t.Errorf("%v: decodes to %q", c.added, text)
		}
		if ids, err := tok.Encode("a<x>b", Options{}); err != nil || slices.Contains(ids, 6) {
			t.Errorf("%v: %d from plain text (%v)", c.added, ids, err)
		}
	}
}
