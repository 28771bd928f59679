// Hugging Face folders: vocab.json with merges.txt, and tokenizer.json.
package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

func TestQwen2VocabMerges(t *testing.T) {
	tok, err := Load(testfiles.Shared(t, "data", "tokenizers", "qwen2.5"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range vocabCases(t, "qwen2") { // llama.cpp's, which brings text into no form
		if unicodeForm(c.text, false, true) == c.text {
			checkEncode(t, tok, c.text, c.want)
			checkRoundTrip(t, tok, c.text)
		}
	}
	composed, err := tok.Encode("\u00e9", Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkEncode(t, tok, "e\u0301", composed)
	id, ok := tok.ID("<|im_end|>")
	if !ok || !tok.IsControl(id) || !tok.IsEnd(id) || tok.AddBOS() {
		t.Errorf("<|im_end|> = %d, %t: control %t, end %t; adds BOS %t", id, ok, tok.IsControl(id), tok.IsEnd(id),
			tok.AddBOS())
	}
}

type object = map[string]any

func sequence(list string, parts ...object) object {
	return object{"type": "Sequence", list: parts}
}

func splitRegex(pattern, behavior string) object {
	return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": behavior, "invert": false}
}

func byteLevelPart(regex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
}

// hfFrom writes the vocabulary of tok as a tokenizer.json would have it.
func hfFrom(tok *Tokenizer, merges any, parts object) object {
	vocab := object{}
	var added []object
	for id, p := range tok.pieces {
		if p.kind == Control || p.kind == UserDefined || p.kind == Unknown {
			added = append(added, object{"id": id, "content": p.text, "special": p.kind != UserDefined})
		}
		vocab[p.text] = id
	}
	file := object{
		"version": "1.0", "added_tokens": added, "normalizer": nil, "post_processor": nil,
		"decoder": object{"type": "ByteLevel"},
		"model":   object{"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": nil, "byte_fallback": false},
	}
	for k, v := range parts {
		file[k] = v
	}
	return file
}

func fromObject(t testing.TB, file object) *Tokenizer {
	t.Helper()
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := FromTokenizerJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// The steps that the models' own tokenizer.json files have, over the
// vocabularies of the GGUF files, give the same ids.
func TestTokenizerJSONByteLevel(t *testing.T) {
	for _, c := range []struct {
		name string
		pre  object
	}{
		{"gpt-2", byteLevelPart(true)},
		{"starcoder", sequence("pretokenizers", object{"type": "Digits", "individual_digits": true}, byteLevelPart(true))},
		{"falcon", sequence("pretokenizers", object{"type": "Punctuation", "behavior": "Contiguous"}, byteLevelPart(true),
			object{"type": "Digits", "individual_digits": false}, splitRegex("[0-9][0-9][0-9]", "Isolated"))},
		{"deepseek-coder", sequence("pretokenizers", splitRegex("[\r\n]", "Isolated"), splitRegex(`\s?\p{L}+`, "Isolated"),
			splitRegex(`\s?\p{P}+`, "Isolated"), splitRegex("[一-龥ࠀ-一가-\uD7FF]+", "Isolated"),
			object{"type": "Digits", "individual_digits": true}, byteLevelPart(false))},
	} {
		t.Run(c.name, func(t *testing.T) {
			meta := readGGUF(t, testfiles.Shared(t, "data", "tokenizers", "ggml-vocab-"+c.name+".gguf"))
			base, err := FromGGUF(meta)
			if err != nil {
				t.Fatal(err)
			}
			tok := fromObject(t, hfFrom(base, meta["tokenizer.ggml.merges"], object{"pre_tokenizer": c.pre}))
			for _, v := range vocabCases(t, c.name) {
				checkEncode(t, tok, v.text, v.want)
				checkRoundTrip(t, tok, v.text)
			}
			kvs, err := tok.GGUFMetadata()
			if err != nil {
				t.Fatal(err)
			}
			if kvs[1].Value != c.name {
				t.Errorf("exported as pre-tokenizer %q", kvs[1].Value)
			}
		})
	}
}

// llamaMerges lists, best score first, every pair of pieces that makes a
// piece, as Hugging Face's conversion of SentencePiece models does.
func llamaMerges(tok *Tokenizer) [][]string {
	var merges [][]string
	order := make([]int, 0, len(tok.pieces))
	for id := range tok.pieces {
		if tok.pieces[id].kind == Normal {
			order = append(order, id)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch sa, sb := tok.pieces[a].score, tok.pieces[b].score; {
		case sa > sb:
			return -1
		case sa < sb:
			return 1
		}
		return 0
	})
	for _, id := range order {
		text := tok.pieces[id].text
		for i := range text {
			l, okL := tok.ids[text[:i]]
			r, okR := tok.ids[text[i:]]
			if i > 0 && okL && okR && tok.pieces[l].kind == Normal && tok.pieces[r].kind == Normal {
				merges = append(merges, []string{text[:i], text[i:]})
			}
		}
	}
	return merges
}

func TestTokenizerJSONLlama(t *testing.T) {
	base := loadFile(t, testfiles.Shared(t, "data", "tokenizers", "llama2-tokenizer.model"), FromSentencePiece)
	parts := func() object {
		return object{
			"normalizer": sequence("normalizers", object{"type": "Prepend", "prepend": space},
				object{"type": "Replace", "pattern": object{"String": " "}, "content": space}),
			"pre_tokenizer": nil,
			"decoder": sequence("decoders", object{"type": "Replace", "pattern": object{"String": space}, "content": " "},
				object{"type": "ByteFallback"}, object{"type": "Fuse"}, object{"type": "Strip", "content": " ", "start": 1,
					"stop": 0}),
			"post_processor": object{"type": "TemplateProcessing",
				"single": []object{{"SpecialToken": object{"id": "<s>", "type_id": 0}},
					{"Sequence": object{"id": "A", "type_id": 0}}},
				"special_tokens": object{"<s>": object{"id": "<s>", "ids": []int{1}, "tokens": []string{"<s>"}}}},
		}
	}
	metaspaced := parts()
	metaspaced["normalizer"] = nil
	metaspaced["pre_tokenizer"] = object{"type": "Metaspace", "replacement": space, "prepend_scheme": "always",
		"split": false}
	for name, p := range map[string]object{"normalizer": parts(), "metaspace": metaspaced} {
		t.Run(name, func(t *testing.T) {
			file := hfFrom(base, llamaMerges(base), p)
			model := file["model"].(object)
			model["byte_fallback"], model["unk_token"], model["fuse_unk"] = true, "<unk>", true
			tok := fromObject(t, file)
			if tok.BOS() != 1 || !tok.AddBOS() {
				t.Errorf("BOS %d, added %t", tok.BOS(), tok.AddBOS())
			}
			again := reload(t, tok)
			for _, c := range vocabCases(t, "llama-spm") {
				if name == "metaspace" && strings.HasPrefix(c.text, " ") {
					continue // Metaspace adds no prefix to text that begins with a space
				}
				checkEncode(t, tok, c.text, c.want)
				checkEncode(t, again, c.text, c.want)
				checkRoundTrip(t, tok, c.text)
			}
		})
	}
}

func TestSplitBehaviors(t *testing.T) {
	const text = "the-final--countdown"
	for _, c := range []struct {
		behavior string
		invert   bool
		want     string
	}{ // the examples of the tokenizers library's documentation
		{"Removed", false, "the|final|countdown"},
		{"Isolated", false, "the|-|final|-|-|countdown"},
		{"MergedWithPrevious", false, "the-|final-|-|countdown"},
		{"MergedWithNext", false, "the|-final|-|-countdown"},
		{"Contiguous", false, "the|-|final|--|countdown"},
		{"Removed", true, "-|-|-"},
	} {
		f, err := splitBehavior("-", c.behavior, c.invert)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := f(text, func(s string) error { got = append(got, s); return nil }); err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s, invert %t: %q, want %q", c.behavior, c.invert, strings.Join(got, "|"), c.want)
		}
	}
}

func TestMetaspace(t *testing.T) {
	for _, c := range []struct {
		text, scheme string
		first, split bool
		want         string
	}{
		{"Hey my friend", "always", false, true, "▁Hey|▁my|▁friend"},
		{"Hey  you ", "first", true, true, "▁Hey|▁|▁you|▁"},
		{" Hey you", "always", true, true, "▁Hey|▁you"},
		{"Hey you", "first", false, true, "Hey|▁you"},
		{"Hey you", "never", true, false, "Hey▁you"},
	} {
		step := metaspace(&hfPart{PrependScheme: c.scheme, SplitSpaces: &c.split})
		lead := 0
		if c.first {
			lead = 1
		}
		var got []string
		if err := step(c.text, lead, func(s string, _ int) error { got = append(got, s); return nil }); err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func unigramFile() object {
	return object{
		"added_tokens": []object{{"id": 0, "content": "<pad>", "special": true},
			{"id": 1, "content": "</s>", "special": true}, {"id": 2, "content": "<unk>", "special": true}},
		"normalizer": nil,
		"pre_tokenizer": sequence("pretokenizers", object{"type": "WhitespaceSplit"},
			object{"type": "Metaspace", "replacement": space, "add_prefix_space": true}),
		"decoder": object{"type": "Metaspace", "replacement": space, "add_prefix_space": true},
		"post_processor": object{"type": "TemplateProcessing",
			"single": []object{{"Sequence": object{"id": "A", "type_id": 0}},
				{"SpecialToken": object{"id": "</s>", "type_id": 0}}},
			"special_tokens": object{"</s>": object{"ids": []int{1}}}},
		"model": object{"type": "Unigram", "unk_id": 2, "vocab": [][]any{
			{"<pad>", 0}, {"</s>", 0}, {"<unk>", 0}, {"▁", -2}, {"a", -3}, {"b", -3.5}, {"ab", -4}, {"▁ab", -7}, {"ba", -10},
			{"abab", -8.5}, {"▁a", -4.5}}},
	}
}

// The best segmentation is checked against all segmentations.
func TestUnigramIsBest(t *testing.T) {
	tok := fromObject(t, unigramFile())
	score := map[string]float64{"▁": -2, "a": -3, "b": -3.5, "ab": -4, "▁ab": -7, "ba": -10, "abab": -8.5, "▁a": -4.5}
	var best func(text string) float64
	best = func(text string) float64 {
		if text == "" {
			return 0
		}
		top := -1e9
		for p, s := range score {
			if strings.HasPrefix(text, p) {
				top = max(top, s+best(text[len(p):]))
			}
		}
		return top
	}
	for n := range 1 << 9 {
		text := ""
		for i := range 9 {
			text += string("ab"[n>>i&1])
		}
		ids, err := tok.Encode(text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, id := range ids {
			sum += score[tok.Token(id)]
		}
		if want := best(space + text); sum < want-1e-9 || tok.Decode(ids) != text {
			t.Fatalf("%q: %d scores %g, best is %g", text, ids, sum, want)
		}
	}
	ids, err := tok.Encode("  a xyz ab ", tok.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{10, 3, 2, 3, 6, 1}; !slices.Equal(ids, want) {
		t.Errorf("unknown text: %d, want %d", ids, want)
	}
	checkSame(t, tok, reload(t, tok), "abab  ba xy a")
}

func TestLoadFolderConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "no tokenizer") {
		t.Errorf("empty folder: %v", err)
	}
	write("vocab.json", `{"a":0,"b":1,"ab":2,"<e>":3,"<b>":4}`)
	write("merges.txt", "#version: 0.2\na b\n")
	write("tokenizer_config.json",
		`{"tokenizer_class":"GPT2Tokenizer","add_bos_token":true,"bos_token":"<b>","eos_token":{"content":"<e>"},
		"added_tokens_decoder":{"3":{"content":"<e>","special":true},"4":{"content":"<b>","special":true}}}`)
	write("generation_config.json", `{"eos_token_id":[2,3]}`)
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("ab<e>", Options{AddBOS: tok.AddBOS(), ParseSpecial: true})
	if err != nil || !slices.Equal(ids, []int32{4, 2, 3}) {
		t.Errorf("ids %d, %v", ids, err)
	}
	if !slices.Equal(tok.Ends(), []int32{2, 3}) {
		t.Errorf("ends %d", tok.Ends())
	}
	write("tokenizer_config.json", `{"tokenizer_class":"MartianTokenizer"}`)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "MartianTokenizer") {
		t.Errorf("unknown class: %v", err)
	}
	write("tokenizer_config.json", `{`)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "tokenizer_config.json") {
		t.Errorf("broken configuration: %v", err)
	}
}

func TestTokenizerJSONErrors(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{``, "tokenizer.json"},
		{`{`, "tokenizer.json"},
		{`{"model":{}}`, "model.vocab is missing"},
		{`{"model":{"type":"WordPiece","vocab":{"a":0}}}`, "no unknown token"},
		{`{"model":{"type":"CharLevel","vocab":{"a":0}}}`, `"CharLevel" is not supported`},
		{`{"model":{"type":"BPE","vocab":{"a":2000000000}}}`, "token id 2000000000"},
		{`{"model":{"type":"BPE","vocab":{"a":-1}}}`, "id -1"},
		{`{"model":{"type":"BPE","vocab":{"a":0,"b":0}}}`, "share id 0"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}}`, "merge 0"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","b","c"]]}}`, "merge 0"},
		{`{"model":{"type":"Unigram","vocab":[["a"]]}}`, "a token and its score"},
		{`{"model":{"type":"Unigram","unk_id":5,"vocab":[["a",0]]}}`, "unk_id 5"},
		{`{"model":{"type":"BPE","vocab":{"a":0}},"pre_tokenizer":{"type":"Martian"}}`, `"Martian" is not supported`},
		{`{"model":{"type":"BPE","vocab":{"a":0}},"pre_tokenizer":{"type":"Split","behavior":"Isolated",
			"pattern":{"Regex":"("}}}`, `pattern "("`},
		{`{"model":{"type":"BPE","vocab":{"a":0}},"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"}}`,
			"character map"},
		{`{"model":{"type":"BPE","vocab":{"a":0}},"pre_tokenizer":{"type":"Metaspace","replacement":"  "}}`, "one character"},
		{`{"model":{"type":"BPE","vocab":{"a":0}},"normalizer":{"type":"Prepend","prepend":"` + strings.Repeat("x",
			100) + `"}}`, "Prepend of 100 bytes"},
		{`{"model":{"type":"BPE","vocab":{"a":0}},"post_processor":{"type":"TemplateProcessing",
			"single":[{"SpecialToken":{"id":"x"}}]}}`, `"x" has no ids`},
	} {
		_, err := FromTokenizerJSON([]byte(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}

func TestNormalizerGrowth(t *testing.T) {
	double := object{"type": "Replace", "pattern": object{"String": "a"}, "content": "aa"}
	parts := make([]object, 40)
	for i := range parts {
		parts[i] = double
	}
	tok := fromObject(t, object{
		"model":      object{"type": "BPE", "vocab": object{"a": 0}, "merges": []string{}},
		"normalizer": object{"type": "Sequence", "normalizers": parts},
	})
	if _, err := tok.Encode("aaaa", Options{}); err == nil || !strings.Contains(err.Error(), "times as long") {
		t.Errorf("2^40 letters: %v", err)
	}
}
