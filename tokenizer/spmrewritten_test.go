package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// piecesFile is testdata/pieces.json, or what pieces.py writes with another seed.
type piecesFile struct {
	Texts   []string
	Models  map[string]string // base64
	Folders []struct {
		Model, Name string
		Files       map[string]json.RawMessage
		IDs         [][]int32
		Decoded     []string
	}
}

func readPieces(t *testing.T) (f piecesFile) {
	t.Helper()
	path := "testdata/pieces.json"
	if other := os.Getenv("GRETA_TOKENIZER_PIECES"); other != "" {
		path = other
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// piecesFolder writes a folder with a model under a name, and files beside it.
func (f *piecesFile) folder(t *testing.T, model, name string, files map[string]json.RawMessage) string {
	t.Helper()
	dir := t.TempDir()
	data, err := base64.StdEncoding.DecodeString(f.Models[model])
	if err != nil {
		t.Fatal(err)
	}
	files[name] = data
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRewrittenPieces: folders whose SentencePiece model has another name than tokenizer.model give the ids and texts
// of transformers 5.24, and through GGUF where it has words for what stands around a text.
func TestRewrittenPieces(t *testing.T) {
	f := readPieces(t)
	exported := 0
	for _, c := range f.Folders {
		tok, err := Load(f.folder(t, c.Model, c.Name, c.Files))
		if err != nil {
			t.Errorf("%s %s: %v", c.Model, c.Files["tokenizer_config.json"], err)
			continue
		}
		again := tok
		if _, err := tok.GGUFMetadata(); err == nil {
			again = reload(t, tok)
			exported++
		}
		for i, text := range f.Texts {
			o := tok.Defaults()
			o.ParseSpecial = true
			got, err := tok.Encode(text, o)
			if err != nil || !slices.Equal(got, c.IDs[i]) {
				t.Errorf("%s %s: %q gives %d, want %d (%v)", c.Model, c.Files["tokenizer_config.json"], text, got, c.IDs[i], err)
				continue
			}
			if got := tok.Decode(c.IDs[i]); got != c.Decoded[i] {
				t.Errorf("%s %s: %d gives %q, want %q", c.Model, c.Files["tokenizer_config.json"], c.IDs[i], got, c.Decoded[i])
			}
			checkSame(t, tok, again, text)
		}
	}
	if exported < 8 {
		t.Errorf("only %d of %d go through GGUF", exported, len(f.Folders))
	}
}

// TestRewrittenPiecesRefused: a folder is refused where no file says, or nobody knows, how its model is read.
func TestRewrittenPiecesRefused(t *testing.T) {
	f := readPieces(t)
	for _, c := range []struct{ name, kind, config, want string }{
		{"spiece.model", "xlnet", `{"tokenizer_class": "XLNetTokenizer"}`, "how XLNetTokenizer reads it is not known"},
		{"sentencepiece.bpe.model", "t5", `{"tokenizer_class": "T5Tokenizer"}`, "how T5Tokenizer reads it"},
		{"spiece.model", "umt5", `{"tokenizer_class": "T5Tokenizer"}`, "how a model of the type umt5 reads it"},
		{"spiece.model", "other", `{}`, "tokenizer_class"},
		{"spiece.model", "t5", `{"extra_ids": -1}`, "extra_ids is -1"},
	} {
		_, err := Load(f.folder(t, "t5", c.name, map[string]json.RawMessage{"tokenizer_config.json": []byte(c.config),
			"config.json": []byte(`{"model_type": "` + c.kind + `"}`)}))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s %s: %v", c.kind, c.config, err)
		}
	}
}
