// Fuzzing: no file and no text makes anything panic, and what loads encodes.
package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"
)

func exercise(t *testing.T, tok *Tokenizer) {
	for _, text := range []string{"", "ab abc\n <s>[x]\xff\xe2\x82 中", " \t  a"} {
		for _, special := range []bool{false, true} {
			ids, err := tok.Encode(text, Options{AddBOS: true, AddEOS: true, ParseSpecial: special})
			if err != nil {
				continue // a pattern that ran into its limit
			}
			for _, id := range ids {
				if id < 0 || int(id) >= tok.VocabSize() {
					t.Fatalf("id %d in a vocabulary of %d", id, tok.VocabSize())
				}
			}
			checkStream(t, tok, ids)
		}
	}
	if kvs, err := tok.GGUFMetadata(); err == nil && len(kvs) < 5 {
		t.Fatalf("%d entries of metadata", len(kvs))
	}
}

func FuzzTokenizerJSON(f *testing.F) {
	data, err := json.Marshal(unigramFile())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(
		`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<0x41>":3},"merges":["a b"],"byte_fallback":true,
			"unk_token":"a"},
		"added_tokens":[{"id":4,"content":"<s>","special":true,"lstrip":true,"rstrip":true}],
		"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"▁"},{"type":"Replace",
			"pattern":{"String":" "},"content":"▁"}]},
		"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\s+"},
			"behavior":"MergedWithNext"},{"type":"Punctuation"},{"type":"Digits"},{"type":"ByteLevel"},{"type":"Metaspace"}]},
		"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ",
			"start":1}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := FromTokenizerJSON(data); err == nil {
			exercise(t, tok)
		}
	})
}

func FuzzTokenizerModel(f *testing.F) {
	f.Add(smallModel(spBPE))
	f.Add(smallModel(spUnigram))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := FromSentencePiece(data); err == nil {
			exercise(t, tok)
		}
	})
}

func smallBin() []byte {
	bin := []byte{5, 0, 0, 0}
	for i, text := range []string{"<unk>", "\n<s>\n", "\n</s>\n", "<0x00>", " ", "a", "b", "ab", " ab"} {
		bin = binary.LittleEndian.AppendUint32(bin, math.Float32bits(float32(-i)))
		bin = binary.LittleEndian.AppendUint32(bin, uint32(len(text)))
		bin = append(bin, text...)
	}
	return bin
}

func FuzzTokenizerBin(f *testing.F) {
	f.Add(smallBin())
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := FromLlama2c(data); err == nil {
			exercise(t, tok)
		}
	})
}

func FuzzEncode(f *testing.F) {
	var toks []*Tokenizer
	for _, modelType := range []uint64{spBPE, spUnigram} {
		tok, err := FromSentencePiece(smallModel(modelType))
		if err != nil {
			f.Fatal(err)
		}
		toks = append(toks, tok)
	}
	bin, err := FromLlama2c(smallBin())
	if err != nil {
		f.Fatal(err)
	}
	toks = append(toks, bin)
	tokens := make([]string, 256) // every byte, then one merge
	for i := range tokens {
		tokens[i] = toByteAlphabet(string([]byte{byte(i)}))
	}
	for _, pre := range preTokenizers {
		tok, err := FromGGUF(mapMeta{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre.names[0],
			"tokenizer.ggml.tokens": append(tokens[:256:256], "ab"), "tokenizer.ggml.merges": []string{"a b"}})
		if err != nil {
			f.Fatal(err)
		}
		toks = append(toks, tok)
	}
	f.Add("ab c\xff\xfe中 12345's\r\n\n x")
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range toks {
			ids, err := tok.Encode(text, Options{AddBOS: true, ParseSpecial: true})
			if err != nil {
				t.Fatal(err)
			}
			checkStream(t, tok, ids)
			if tok.origin.model == "gpt2" { // byte-level vocabularies lose nothing
				raw := ""
				for _, id := range ids[1:] {
					raw += tok.output[id]
				}
				if raw != text {
					t.Fatalf("%q came back as %q", text, raw)
				}
			}
		}
	})
}
