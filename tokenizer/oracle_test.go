// What Hugging Face's tokenizers make of patterns, normalizers, added tokens
// and decoders (testdata/oracle.py asks them), and what is made of them here.
package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// oracleFile is testdata/oracle.json. A text comes with its answers.
type oracleFile struct {
	Splits []struct {
		Pattern, Behavior string
		Invert, Must      bool
		Texts             [][2]json.RawMessage // text, parts
	}
	Norms []struct {
		Normalizer json.RawMessage
		Texts      [][2]string
	}
	Pipelines []struct {
		Parts object
		Texts [][3]json.RawMessage // text, ids, decoded text
	}
}

// readOracle reads the stored answers, or those of $GRETA_TOKENIZER_ORACLE.
func readOracle(t *testing.T) oracleFile {
	t.Helper()
	path := "testdata/oracle.json"
	if other := os.Getenv("GRETA_TOKENIZER_ORACLE"); other != "" {
		path = other
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file oracleFile
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func decodeRaw[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// refused says that a construct was refused by name, which is as good as right
// where a case does not insist.
func refused(err error) bool { return strings.Contains(err.Error(), "is not supported") }

func TestOracleSplits(t *testing.T) {
	left := 0
	for _, c := range readOracle(t).Splits {
		f, err := splitBehavior(c.Pattern, c.Behavior, c.Invert)
		if err != nil {
			if c.Must || !refused(err) {
				t.Errorf("%s: %v", c.Pattern, err)
			}
			left++
			continue
		}
		for _, raw := range c.Texts {
			text, want := decodeRaw[string](t, raw[0]), decodeRaw[[]string](t, raw[1])
			got := []string{}
			if err := f(text, func(s string) error { got = append(got, s); return nil }); err != nil {
				t.Errorf("%s: %q: %v", c.Pattern, text, err)
			} else if !slices.Equal(got, want) && text != "" {
				t.Errorf("%s, %s, invert %t: %q is cut to %q, want %q", c.Pattern, c.Behavior, c.Invert, text, got, want)
			}
		}
	}
	t.Logf("%d patterns were refused", left)
}

func TestOracleNormalizers(t *testing.T) {
	for _, c := range readOracle(t).Norms {
		var p pipeline
		if err := p.readNormalizer(decodeRaw[*hfPart](t, c.Normalizer)); err != nil {
			t.Errorf("%s: %v", c.Normalizer, err)
			continue
		}
		for _, text := range c.Texts {
			got, err := text[0], error(nil)
			for _, n := range p.normal {
				if err == nil {
					got, err = n.apply(got)
				}
			}
			if err != nil || got != text[1] {
				t.Errorf("%s: %+q becomes %+q, want %+q (%v)", c.Normalizer, text[0], got, text[1], err)
			}
		}
	}
}

// oracleTokenizer builds the file that oracle.py's full builds.
func oracleTokenizer(parts object) object {
	const plain = "abcA_-" + space
	vocab := object{}
	set := func(text string) {
		if _, ok := vocab[text]; !ok {
			vocab[text] = len(vocab)
		}
	}
	var merges [][]string
	spm := parts["kind"] == "spm"
	added := []object{}
	pairs := "abcA _-"
	spell := toByteAlphabet
	if spm {
		pairs, spell = "abA"+space, func(s string) string { return s }
		set("<unk>")
		for i := range 256 {
			set("<0x" + strings.ToUpper(string("0123456789abcdef"[i>>4])+string("0123456789abcdef"[i&15])) + ">")
		}
		for _, r := range plain {
			set(string(r))
		}
		added = append(added, object{"id": 0, "content": "<unk>", "special": true, "normalized": false})
	} else {
		for _, r := range byteRunes {
			set(string(r))
		}
	}
	for _, x := range pairs {
		for _, y := range pairs {
			merges = append(merges, []string{spell(string(x)), spell(string(y))})
		}
	}
	for _, m := range merges {
		set(m[0] + m[1])
	}
	list, _ := parts["added_tokens"].([]any)
	next := len(vocab)
	for _, a := range list {
		token := a.(object)
		id, ok := vocab[token["content"].(string)] // a token of the vocabulary keeps its id
		if !ok {
			id = next
			next++
		}
		token["id"] = id
		added = append(added, token)
	}
	model := object{"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": nil, "byte_fallback": spm,
		"fuse_unk": spm}
	if spm {
		model["unk_token"] = "<unk>"
	}
	return object{"added_tokens": added, "normalizer": parts["normalizer"], "pre_tokenizer": parts["pre_tokenizer"],
		"decoder": parts["decoder"], "model": model}
}

func TestOraclePipelines(t *testing.T) {
	bad := 0
	for _, c := range readOracle(t).Pipelines {
		data, err := json.Marshal(oracleTokenizer(c.Parts))
		if err != nil {
			t.Fatal(err)
		}
		said, _ := json.Marshal(c.Parts)
		tok, err := FromTokenizerJSON(data)
		if err != nil {
			t.Errorf("%s: %v", said, err)
			continue
		}
		for _, raw := range c.Texts {
			text, want, decoded := decodeRaw[string](t, raw[0]), decodeRaw[[]int32](t, raw[1]), decodeRaw[string](t, raw[2])
			ids, err := tok.Encode(text, Options{ParseSpecial: true})
			if err != nil || !slices.Equal(ids, want) {
				if bad++; bad < 40 {
					t.Errorf("%s:\n%q: %d, want %d (%v)", said, text, ids, want, err)
				}
			} else if got := tok.Decode(ids); got != decoded && string(raw[2]) != "null" {
				if bad++; bad < 40 {
					t.Errorf("%s:\n%d decodes to %q, want %q", said, ids, got, decoded)
				}
			}
		}
	}
}

// TestRepeatsOfGroups: what is repeated gives back whole rounds of a possessive part, and space and comments that a
// pattern is written with part nothing from its repeat. The parts are those of Hugging Face's tokenizers 0.23.
func TestRepeatsOfGroups(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          []string
	}{
		{`(?:a++)*a`, "aab", []string{"a", "a", "b"}},
		{`a*+*a`, "aab", []string{"a", "a", "b"}},
		{`(?>a*)*a`, "aab", []string{"a", "a", "b"}},
		{`(?:a++)?a`, "aab", []string{"a", "a", "b"}},
		{`(?:a?+){0,3}a`, "aaab", []string{"aaa", "b"}},
		{`(?:a++){0,3}a`, "aab", []string{"a", "a", "b"}},
		{`(?:[ab]++)*bc`, "abbc", []string{"ab", "bc"}},
		{`(?:a*+|b)*a`, "ba", []string{"ba"}},
		{`(?x:a +)`, "aab", []string{"aa", "b"}},
		{"(?x:a # c\n {2})", "aaab", []string{"aa", "ab"}},
		{`(?x:a+ ?b)`, "aab b", []string{"aab", " ", "b"}},
		{`a(?#c)+`, "aab", []string{"aa", "b"}},
		{`a(?#)(?#c)?b`, "ab b", []string{"ab", " ", "b"}},
		{`(?i:s(?#c)s)`, "ß", []string{"ß"}},
		{`(?ix: s s )+`, "ßSS", []string{"ßSS"}},
		// The alternative that is empty comes before those behind it, also where a pattern is a known one but for that.
		{`(?i:'s|'t|'re|'ve|'m|'ll|'d|)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|` +
			`\s+(?!\S)|\s+`, "it's ok", []string{"i", "t", "'s", " ", "o", "k"}},
	} {
		f, err := splitBehavior(c.pattern, "Isolated", false)
		if err != nil {
			t.Error(err)
			continue
		}
		var got []string
		if err := f(c.text, func(s string) error { got = append(got, s); return nil }); err != nil ||
			!slices.Equal(got, c.want) {
			t.Errorf("%s: %q is cut to %q, want %q (%v)", c.pattern, c.text, got, c.want, err)
		}
	}
	if _, err := compileOnig(`a|(?#c)+`); err == nil {
		t.Error("a repeat of nothing but a comment was read")
	}
}
