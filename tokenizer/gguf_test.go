// The vocabularies of known models against the ids that their own tools gave.
package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// mapMeta is metadata in memory.
type mapMeta map[string]any

func (m mapMeta) Meta(key string) (any, bool) { v, ok := m[key]; return v, ok }

// ggufReader reads as much of a GGUF file as its metadata: test data is trusted.
type ggufReader struct{ data []byte }

func (r *ggufReader) u32() uint32 {
	v := binary.LittleEndian.Uint32(r.data)
	r.data = r.data[4:]
	return v
}

func (r *ggufReader) u64() uint64 {
	v := binary.LittleEndian.Uint64(r.data)
	r.data = r.data[8:]
	return v
}

func (r *ggufReader) text() string {
	n := r.u64()
	s := string(r.data[:n])
	r.data = r.data[n:]
	return s
}

func (r *ggufReader) value(kind uint32) any {
	take := func(n int) uint64 {
		var v uint64
		for i := range n {
			v |= uint64(r.data[i]) << (8 * i)
		}
		r.data = r.data[n:]
		return v
	}
	switch kind {
	case 0:
		return int64(take(1))
	case 1:
		return int64(int8(take(1)))
	case 2:
		return int64(take(2))
	case 3:
		return int64(int16(take(2)))
	case 4:
		return int64(take(4))
	case 5:
		return int64(int32(take(4)))
	case 6:
		return float64(math.Float32frombits(uint32(take(4))))
	case 7:
		return take(1) != 0
	case 8:
		return r.text()
	case 10, 11:
		return int64(take(8))
	case 12:
		return math.Float64frombits(take(8))
	}
	of, n := r.u32(), int(r.u64())
	var list reflect.Value
	for i := range n {
		v := reflect.ValueOf(r.value(of))
		if i == 0 {
			list = reflect.MakeSlice(reflect.SliceOf(v.Type()), 0, n)
		}
		list = reflect.Append(list, v)
	}
	if n == 0 {
		return []int64{}
	}
	return list.Interface()
}

func readGGUF(t testing.TB, path string) mapMeta {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &ggufReader{data}
	r.u32() // magic
	r.u32() // version
	r.u64() // tensors
	meta := mapMeta{}
	for n := r.u64(); n > 0; n-- {
		key := r.text()
		meta[key] = r.value(r.u32())
	}
	return meta
}

func fromGGUFFile(t testing.TB, path string) *Tokenizer {
	t.Helper()
	tok, err := FromGGUF(readGGUF(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// vocabCase is one text with the ids that llama.cpp's tests expect.
type vocabCase struct {
	text string
	want []int32
}

func vocabCases(t testing.TB, name string) []vocabCase {
	t.Helper()
	base := testfiles.Shared(t, "data", "tokenizers", "ggml-vocab-"+name+".gguf.inp")
	inp, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(strings.TrimSuffix(base, ".inp") + ".out")
	if err != nil {
		t.Fatal(err)
	}
	texts := strings.Split(string(inp), "\n__ggml_vocab_test__\n")
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(texts) < len(lines) || len(lines) < 40 {
		t.Fatalf("%s: %d texts, %d lines of ids", name, len(texts), len(lines))
	}
	cases := make([]vocabCase, len(lines))
	for i, line := range lines {
		cases[i].text = texts[i]
		for _, f := range strings.Fields(line) {
			id, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			cases[i].want = append(cases[i].want, int32(id))
		}
	}
	return cases
}

func checkEncode(t *testing.T, tok *Tokenizer, text string, want []int32) {
	t.Helper()
	got, err := tok.Encode(text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Encode(%q)\n got %d\nwant %d", text, got, want)
	}
}

// checkRoundTrip decodes what text encodes to: whole and as a stream.
func checkRoundTrip(t *testing.T, tok *Tokenizer, text string) {
	t.Helper()
	ids, err := tok.Encode(text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Decode(ids); got != text {
		t.Errorf("Decode(Encode(%q)) = %q", text, got)
	}
}

func TestVocabularies(t *testing.T) {
	for _, name := range []string{"bert-bge", "deepseek-coder", "falcon", "gpt-2", "llama-spm", "phi-3", "starcoder"} {
		t.Run(name, func(t *testing.T) {
			tok := fromGGUFFile(t, testfiles.Shared(t, "data", "tokenizers", "ggml-vocab-"+name+".gguf"))
			for _, c := range vocabCases(t, name) {
				checkEncode(t, tok, c.text, c.want)
				if name != "bert-bge" { // what is lowered does not come back
					checkRoundTrip(t, tok, c.text)
				}
			}
		})
	}
}

func TestLlama2SentencePiece(t *testing.T) {
	tok := loadFile(t, testfiles.Shared(t, "data", "tokenizers", "llama2-tokenizer.model"), FromSentencePiece)
	for _, c := range vocabCases(t, "llama-spm") {
		checkEncode(t, tok, c.text, c.want)
		checkRoundTrip(t, tok, c.text)
	}
}

func loadFile(t testing.TB, path string, read func([]byte) (*Tokenizer, error)) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := read(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestStories260K(t *testing.T) {
	dir := testfiles.Shared(t, "data", "stories260K")
	data, err := os.ReadFile(filepath.Join(dir, "tok512_vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Text          string
			Sentencepiece []int32
			RunC          []int32 `json:"run_c"`
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 40 {
		t.Fatalf("%d cases", len(file.Cases))
	}
	model := loadFile(t, filepath.Join(dir, "tok512.model"), FromSentencePiece)
	bin := loadFile(t, filepath.Join(dir, "tok512.bin"), FromLlama2c)
	// The GGUF file does not say that extra spaces are removed, and so they are
	// kept; with the key it equals SentencePiece.
	meta := readGGUF(t, filepath.Join(dir, "stories260K.gguf"))
	plain, err := FromGGUF(meta)
	if err != nil {
		t.Fatal(err)
	}
	meta["tokenizer.ggml.remove_extra_whitespaces"] = true
	removing, err := FromGGUF(meta)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		checkEncode(t, model, c.Text, c.Sentencepiece)
		checkEncode(t, removing, c.Text, c.Sentencepiece)
		checkEncode(t, bin, c.Text, c.RunC)
		checkEncode(t, plain, c.Text, c.RunC)
		checkRoundTrip(t, bin, c.Text)
		checkRoundTrip(t, plain, c.Text)
	}
}

func TestTolstoy(t *testing.T) {
	dir := testfiles.Shared(t, "data", "tolstoy-2.7m")
	data, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Encode []struct {
			Text string
			IDs  []int32
		}
		Greedy []struct {
			Prompt       string
			PromptTokens []int32 `json:"prompt_tokens"`
			Greedy       []int32
			Text         string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Encode) == 0 || len(file.Greedy) == 0 {
		t.Fatal("no cases")
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Encode {
		checkEncode(t, tok, c.Text, c.IDs)
	}
	for _, c := range file.Greedy {
		ids, err := tok.Encode(c.Prompt, tok.Defaults())
		if err != nil || !slices.Equal(ids, c.PromptTokens) {
			t.Errorf("Encode(%q) = %d, %v; want %d", c.Prompt, ids, err, c.PromptTokens)
		}
		if got := tok.Decode(c.Greedy); got != c.Text {
			t.Errorf("Decode = %q, want %q", got, c.Text)
		}
	}
}

func TestGGUFErrors(t *testing.T) {
	base := func() mapMeta {
		return mapMeta{
			"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
			"tokenizer.ggml.tokens": []string{"a", "b", "ab"}, "tokenizer.ggml.merges": []string{"a b"},
		}
	}
	if _, err := FromGGUF(base()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key   string
		value any
		want  string
	}{
		{"model", nil, "tokenizer.ggml.model is missing"},
		{"model", "rwkv", `"rwkv" is not known`},
		{"model", int64(3), "expected string, found int64"},
		{"pre", "martian", `pre-tokenizer "martian" is not known`},
		{"tokens", nil, "tokens is missing"},
		{"tokens", []int64{1}, "expected []string"},
		{"scores", []float64{1}, "3 tokens, but 1 scores"},
		{"scores", []float64{1, math.NaN(), 2}, "score of token 1 is not a number"},
		{"merges", nil, "merges is missing"},
		{"merges", []string{"ab"}, "expected two symbols"},
		{"bos_token_id", "x", "expected int64, found string"},
	} {
		m := base()
		m["tokenizer.ggml."+c.key] = c.value
		if c.value == nil {
			delete(m, "tokenizer.ggml."+c.key)
		}
		_, err := FromGGUF(m)
		if err == nil {
			err = errors.New("no error")
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %v: %q, want %q", c.key, c.value, err, c.want)
		}
	}
}
