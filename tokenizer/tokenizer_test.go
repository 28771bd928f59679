// What holds for every tokenizer: scanners equal their patterns, streams equal
// whole texts, exports load again, and long runs take no longer than long texts.
package tokenizer

import (
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/testfiles"
)

// alphabet is what random texts are made of: every class of character that the
// patterns distinguish, and what trips decoders.
var alphabet = []string{
	"a", "Zz", "the", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "1", "23", "٣", "½", "²", "'", "'s", "'RE", "’",
	"!", "...", "$", "+", "_",
	"é", "e\u0301", "ǅ", "ß", "Я", "中文", "한", "か", "👩‍👩‍👧", "🏳️‍🌈", "\u200b", "\u2581", "\ufffd", "\x00", "ｱ", "ſ", "ก็",
	"<s>", "<0x41>", "\ufeff",
}

func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

func TestScannersEqualPatterns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for pattern, scan := range scanners {
		re, err := compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		collect := func(f splitFunc, s string) (parts []string) {
			if err := f(s, func(p string) error { parts = append(parts, p); return nil }); err != nil {
				t.Fatal(err)
			}
			return parts
		}
		for range 2000 {
			s := randomText(r, 1+r.IntN(30))
			if r.IntN(4) == 0 {
				s += "\xff\xe2\x82" + s // not UTF-8
			}
			if got, want := collect(scan, s), collect(isolate(re), s); !slices.Equal(got, want) {
				t.Fatalf("%s\n on %q\n got %q\nwant %q", pattern, s, got, want)
			}
		}
	}
}

func TestPreTokenizersKeepText(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, pre := range preTokenizers {
		steps, err := splitAll(pre.steps)
		if err != nil {
			t.Errorf("%s: %v", pre.names[0], err)
			continue
		}
		for range 200 {
			s := randomText(r, 1+r.IntN(40))
			var b strings.Builder
			if err := chain(steps, s, func(p string) error { b.WriteString(p); return nil }); err != nil {
				t.Fatal(err)
			}
			if b.String() != s {
				t.Fatalf("%s: %q became %q", pre.names[0], s, b.String())
			}
		}
	}
}

func checkSame(t *testing.T, a, b *Tokenizer, text string) {
	t.Helper()
	opts := a.Defaults()
	opts.ParseSpecial = true
	x, err := a.Encode(text, opts)
	if err != nil {
		t.Fatal(err)
	}
	opts = b.Defaults()
	opts.ParseSpecial = true
	y, err := b.Encode(text, opts)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(x, y) {
		t.Errorf("Encode(%q)\n got %d\nwant %d", text, y, x)
	}
	if got, want := b.Decode(x), a.Decode(x); got != want {
		t.Errorf("Decode(%d) = %q, want %q", x, got, want)
	}
}

// reload exports tok and loads it again, as through a GGUF file.
func reload(t *testing.T, tok *Tokenizer) *Tokenizer {
	t.Helper()
	kvs, err := tok.GGUFMetadata()
	if err != nil {
		t.Fatal(err)
	}
	meta := mapMeta{}
	for _, kv := range kvs {
		switch v := kv.Value.(type) {
		case uint32:
			meta[kv.Key] = int64(v)
		case []float32:
			meta[kv.Key] = convert(v, func(x float32) float64 { return float64(x) })
		case []int32:
			meta[kv.Key] = convert(v, func(x int32) int64 { return int64(x) })
		case []int8:
			meta[kv.Key] = convert(v, func(x int8) int64 { return int64(x) })
		default:
			meta[kv.Key] = v
		}
	}
	again, err := FromGGUF(meta)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func convert[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, x := range in {
		out[i] = f(x)
	}
	return out
}

// loaded is what everyTokenizer gives.
var loaded map[string]*Tokenizer

// everyTokenizer gives one tokenizer of each kind and source, loaded once.
func everyTokenizer(t testing.TB) map[string]*Tokenizer {
	t.Helper()
	if loaded != nil {
		return maps.Clone(loaded)
	}
	data := testfiles.Shared(t, "data")
	load := func(elem ...string) *Tokenizer {
		tok, err := Load(filepath.Join(append([]string{data}, elem...)...))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	gguf := func(name string) *Tokenizer {
		return fromGGUFFile(t, filepath.Join(data, "tokenizers", "ggml-vocab-"+name+".gguf"))
	}
	loaded = map[string]*Tokenizer{
		"llama2.model": load("tokenizers", "llama2-tokenizer.model"), "tok512.bin": load("stories260K", "tok512.bin"),
		"tolstoy": load("tolstoy-2.7m"), "qwen2.5": load("tokenizers", "qwen2.5"), "phi-3": gguf("phi-3"),
		"gpt-2":  gguf("gpt-2"),
		"falcon": gguf("falcon"), "starcoder": gguf("starcoder"), "deepseek-coder": gguf("deepseek-coder"),
		"llama-spm": gguf("llama-spm"),
	}
	return maps.Clone(loaded)
}

func TestRoundTripAndStream(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for name, tok := range everyTokenizer(t) {
		again := reload(t, tok)
		for range 100 {
			text := randomText(r, r.IntN(40))
			if name == "qwen2.5" {
				checkSame(t, tok, again, text)
				text = unicodeForm(text, false, true) // which it is brought into
			}
			if tok.lead != dropAll && !strings.Contains(text, space) { // ▁ is a space to SentencePiece
				checkRoundTrip(t, tok, text)
			}
			if name != "tok512.bin" { // in GGUF, ▁ in the text is a space
				checkSame(t, tok, again, text)
			}
		}
		for range 100 { // any ids: pieces of characters, control tokens, ids out of range
			ids := make([]int32, r.IntN(50))
			for i := range ids {
				ids[i] = int32(r.IntN(min(tok.VocabSize(), 600)+2)) - 1
			}
			checkStream(t, tok, ids)
		}
	}
}

func checkStream(t *testing.T, tok *Tokenizer, ids []int32) {
	t.Helper()
	d := tok.NewDecoder()
	var b strings.Builder
	for _, id := range ids {
		part := d.Write(id)
		if !utf8.ValidString(part) {
			t.Fatalf("id %d of %d: %q is not UTF-8", id, ids, part)
		}
		b.WriteString(part)
	}
	b.WriteString(d.Flush())
	if want := tok.Decode(ids); b.String() != want || !utf8.ValidString(want) {
		t.Fatalf("%d streams as %q, decodes to %q", ids, b.String(), want)
	}
}

func TestStreamWaitsForCharacters(t *testing.T) {
	tok := everyTokenizer(t)["llama2.model"]
	var ids []int32 // 🦙 byte by byte: U+1F999
	for _, b := range []string{"<0xF0>", "<0x9F>", "<0xA6>", "<0x99>"} {
		id, ok := tok.ID(b)
		if !ok {
			t.Fatal(b)
		}
		ids = append(ids, id)
	}
	d := tok.NewDecoder()
	for i, id := range ids {
		if got, want := d.Write(id), []string{"", "", "", "🦙"}[i]; got != want {
			t.Errorf("byte %d: %q, want %q", i, got, want)
		}
	}
	d.Write(ids[0])
	d.Write(ids[1])
	if got := d.Flush(); got != "\ufffd\ufffd" {
		t.Errorf("Flush = %q", got)
	}
	hello, _ := tok.ID("▁Hello")
	if got := tok.Decode([]int32{tok.BOS(), hello, hello}); got != "Hello Hello" {
		t.Errorf("leading space: %q", got)
	}
}

func TestSpecialTokens(t *testing.T) {
	all := everyTokenizer(t)
	for _, c := range []struct {
		name, text string
		special    bool
		want       []string
	}{
		{"qwen2.5", "<|im_start|>user\nhi<|im_end|>", true, []string{"<|im_start|>", "user", "Ċ", "hi", "<|im_end|>"}},
		{"qwen2.5", "<|im_end|>", false, []string{"<", "|", "im", "_end", "|", ">"}},
		{"llama-spm", "a</s>a", true, []string{"▁a", "</s>", "▁a"}},
		{"llama2.model", "a</s>", true, []string{"▁a", "</s>"}},
		{"llama2.model", "</s>", false, []string{"▁</", "s", ">"}},
		{"phi-3", "<|user|>\nhi<|end|>\n", true, []string{"<|user|>", "▁hi", "<|end|>"}},
	} {
		tok := all[c.name]
		ids, err := tok.Encode(c.text, Options{ParseSpecial: c.special})
		if err != nil {
			t.Fatal(err)
		}
		if got := convert(ids, tok.Token); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q = %q, want %q", c.name, c.text, got, c.want)
		}
	}
	for name, end := range map[string]string{"phi-3": "<|end|>", "qwen2.5": "<|endoftext|>", "tolstoy": "</s>",
		"tok512.bin": "</s>"} {
		if id, ok := all[name].ID(end); !ok || !all[name].IsEnd(id) {
			t.Errorf("%s: %s does not end generation", name, end)
		}
	}
}

// A megabyte takes seconds at most, whatever it is made of.
func TestLongTexts(t *testing.T) {
	const limit = time.Minute // on a busy machine too; a text's square would take many
	n := 1 << 15
	if testfiles.Exhaustive() {
		n = 1 << 18
	}
	prose := strings.Repeat("The quick brown fox, 1234 years old, jumps över the lazy dog's back.\n", n/64)
	texts := map[string]string{
		"prose": prose, "letters": strings.Repeat("a", n), "spaces": strings.Repeat(" ", n),
		"lines":  strings.Repeat("\n", n),
		"digits": strings.Repeat("7", n), "han": strings.Repeat("中", n/2), "capitals": strings.Repeat("ABC", n/4),
		"marks": strings.Repeat("<|im", n/4),
	}
	all := everyTokenizer(t)
	all["unigram"] = fromObject(t, unigramFile())
	for name, tok := range all {
		for kind, text := range texts {
			start := time.Now()
			ids, err := tok.Encode(text, Options{ParseSpecial: true})
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			t.Logf("%-15s %-8s %v", name, kind, took)
			if took > limit {
				t.Errorf("%s, %s: %v for %d bytes, %d ids", name, kind, took, len(text), len(ids))
			}
		}
	}
}

func TestCharsMap(t *testing.T) {
	// A double array by hand: "A" maps to "bc", "AB" to " ". The root's children
	// lie at 256^byte; a leaf of a node lies at the node's own base.
	units := make([]uint32, 1024)
	offset := func(n uint32) uint32 { return n << 10 }
	units[0] = offset(256)
	a := uint32(256 ^ 'A')
	units[a] = uint32('A') | 1<<8 | offset(a^512)
	units[512] = 1 << 31 // value 0: "bc"
	b := uint32(512 ^ 'B')
	units[b] = uint32('B') | 1<<8 | offset(b^768)
	units[768] = 1<<31 | 3 // " "
	blob := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		blob = binary.LittleEndian.AppendUint32(blob, u)
	}
	blob = append(blob, "bc\x00 \x00"...)
	chars, err := newCharsMap(blob)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		norm spNormalizer
		text string
		want string
	}{
		{spNormalizer{chars: chars}, "xAyABz\xff", "xbcy z\ufffd"},
		{spNormalizer{chars: chars, prefix: prefixEach, removeExtra: true, escape: true}, "AB  xABABy ", "▁x▁y"},
		{spNormalizer{chars: chars, prefix: prefixFirst, escape: true, suffix: true}, "A", "bc▁"},
		{spNormalizer{removeExtra: true, prefix: prefixEach}, "   ", ""},
	} {
		if got := c.norm.normalize(c.text, true); got != c.want {
			t.Errorf("normalize(%q) = %q, want %q", c.text, got, c.want)
		}
	}
	for _, n := range []int{1, 3, 5, 100} {
		if _, err := newCharsMap(blob[:n]); err == nil {
			t.Errorf("%d bytes of a character map were accepted", n)
		}
	}
}

// protoBytes, protoVarint and protoFloat write fields of a message.
func protoBytes(msg []byte, field int, data string) []byte {
	msg = binary.AppendUvarint(msg, uint64(field)<<3|wireBytes)
	msg = binary.AppendUvarint(msg, uint64(len(data)))
	return append(msg, data...)
}

func protoVarint(msg []byte, field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(msg, uint64(field)<<3|wireVarint), v)
}

func protoPiece(msg []byte, text string, score float32, kind Kind) []byte {
	p := protoBytes(nil, 1, text)
	p = binary.AppendUvarint(p, 2<<3|wireFixed32)
	p = binary.LittleEndian.AppendUint32(p, math.Float32bits(score))
	return protoBytes(msg, 1, string(protoVarint(p, 3, uint64(kind))))
}

// smallModel is a SentencePiece model with user-defined and unused pieces.
func smallModel(modelType uint64) []byte {
	var m []byte
	for _, p := range []piece{
		{text: "<unk>", kind: Unknown}, {text: "<s>", kind: Control}, {text: "</s>", kind: Control},
		{text: "[x]", kind: UserDefined},
		{text: "ab", score: -1, kind: Unused}, {text: "abc", score: -2, kind: Normal}, {text: "▁", score: -3, kind: Normal},
		{text: "a", score: -4, kind: Normal}, {text: "b", score: -5, kind: Normal}, {text: "c", score: -6, kind: Normal},
	} {
		m = protoPiece(m, p.text, p.score, p.kind)
	}
	return protoBytes(m, 2, string(protoVarint(nil, 3, modelType)))
}

func TestSmallSentencePiece(t *testing.T) {
	for _, c := range []struct {
		modelType uint64
		text      string
		want      []string
	}{
		{spBPE, "abc", []string{"▁", "abc"}},   // through the unused "ab"
		{spBPE, "ab", []string{"▁", "a", "b"}}, // which is never written
		{spBPE, "a[x]bc", []string{"▁", "a", "[x]", "b", "c"}},
		{spBPE, "zz a", []string{"▁", "<unk>", "▁", "a"}}, // one unknown for a run
		{spUnigram, "abc", []string{"▁", "abc"}},
		{spUnigram, "ab[x]zz", []string{"▁", "a", "b", "[x]", "<unk>"}},
	} {
		tok, err := FromSentencePiece(smallModel(c.modelType))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.Encode(c.text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := convert(ids, tok.Token); !slices.Equal(got, c.want) {
			t.Errorf("type %d: %q = %q, want %q", c.modelType, c.text, got, c.want)
		}
	}
}

// Cut anywhere, the binary files give an error or a shorter vocabulary.
func TestTruncatedFiles(t *testing.T) {
	model := smallModel(spBPE)
	for n := range model {
		if tok, err := FromSentencePiece(model[:n]); err == nil && tok.VocabSize() == 0 {
			t.Errorf("%d bytes of a model: no error and no pieces", n)
		}
	}
	bin, err := os.ReadFile(testfiles.Shared(t, "data", "stories260K", "tok512.bin"))
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for n := range bin[:2000] {
		if _, err := FromLlama2c(bin[:n]); err == nil {
			whole++ // a file that ends between two tokens is whole: the format has no count
		}
	}
	if whole > 200 {
		t.Errorf("%d of 2000 truncations were accepted", whole)
	}
	if _, err := FromLlama2c(append(slices.Clone(bin), 0, 0, 0, 0, 255, 255, 255, 127)); err == nil ||
		!strings.Contains(err.Error(), "2147483647") {
		t.Errorf("absurd length: %v", err)
	}
}
