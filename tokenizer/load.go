// Load finds a tokenizer in a folder or file, and what the configuration files
// beside it say of its special tokens.

package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/pyjson"
)

// maxFile bounds the files that are read whole; the largest tokenizer.json in
// use has under 40 MB.
const maxFile = 1 << 29

// Load reads the tokenizer at path. A folder holds tokenizer.json,
// tokenizer.model, vocab.json with merges.txt, or vocab.txt, preferred in this order, and
// beside them tokenizer_config.json, generation_config.json and config.json,
// which are optional. A file is one of tokenizer.json (*.json), tokenizer.model
// (*.model), llama2.c's tokenizer.bin (*.bin) and BERT's vocab.txt (*.txt). For GGUF see FromGGUF.
func Load(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if info.IsDir() {
		return loadFolder(path)
	}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var t *Tokenizer
	switch filepath.Ext(path) {
	case ".json":
		t, err = FromTokenizerJSON(data)
	case ".model":
		t, err = FromSentencePiece(data)
	case ".bin":
		t, err = FromLlama2c(data)
	case ".txt":
		t, err = bertVocabulary(data, &tokenizerConfig{}, nil)
	default:
		err = errors.New("expected tokenizer.json, *.model, *.bin or vocab.txt")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s: expected a file of at most %d bytes", path, maxFile)
	}
	data, err := plainfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if bytes.HasPrefix(data, []byte("version https://git-lfs")) {
		return nil, fmt.Errorf("%s: a Git LFS pointer instead of the file; run git lfs pull", path)
	}
	return data, nil
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func loadFolder(dir string) (*Tokenizer, error) {
	var config tokenizerConfig
	if err := readJSON(dir, "tokenizer_config.json", &config); err != nil {
		return nil, err
	}
	if err := config.readSpecialsMap(dir); err != nil {
		return nil, err
	}
	added, err := readAdded(dir, &config)
	if err != nil {
		return nil, err
	}
	var t *Tokenizer
	switch {
	case exists(dir, "tokenizer.json"):
		t, err = loadBeside(filepath.Join(dir, "tokenizer.json"), &config, added, fromTokenizerJSON)
	case exists(dir, "tokenizer.model"):
		t, err = loadBeside(filepath.Join(dir, "tokenizer.model"), &config, added, fromSentencePiece)
	case exists(dir, "vocab.json") && exists(dir, "merges.txt"):
		t, err = loadVocabMerges(dir, &config, added)
	case exists(dir, "vocab.txt"):
		t, err = loadBeside(filepath.Join(dir, "vocab.txt"), &config, added, func(data []byte, added []hfAdded) (*Tokenizer,
			error) {
			return bertVocabulary(data, &config, added)
		})
	default:
		err = fmt.Errorf("%s: no tokenizer: expected tokenizer.json, tokenizer.model, vocab.txt, or vocab.json with "+
			"merges.txt", dir)
	}
	if err != nil {
		return nil, err
	}
	return t, t.configure(dir, &config)
}

// loadBeside reads a vocabulary with the added tokens of the files beside it. It is
// read again where these name special tokens that the vocabulary has as plain ones.
func loadBeside(path string, config *tokenizerConfig, added []hfAdded,
	read func([]byte, []hfAdded) (*Tokenizer, error)) (*Tokenizer, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	t, err := read(data, added)
	if err == nil {
		more := config.named(added, func(text string) (int32, bool) {
			id, ok := t.ID(text)
			return id, ok && t.Kind(id) == Normal
		})
		if len(more) > 0 {
			t, err = read(data, append(added, more...))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// readJSON reads an optional file.
func readJSON(dir, name string, into any) error {
	if !exists(dir, name) {
		return nil
	}
	path := filepath.Join(dir, name)
	data, err := readFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(pyjson.Replace(data, "null", "null", "null"), into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// tokenizerConfig is what tokenizer_config.json says beyond the tokenizer.
type tokenizerConfig struct {
	Class  string             `json:"tokenizer_class"`
	AddBOS *bool              `json:"add_bos_token"`
	AddEOS *bool              `json:"add_eos_token"`
	BOS    *tokenName         `json:"bos_token"`
	EOS    *tokenName         `json:"eos_token"`
	UNK    *tokenName         `json:"unk_token"`
	PAD    *tokenName         `json:"pad_token"`
	Added  map[string]hfAdded `json:"added_tokens_decoder"`

	CLS     *tokenName `json:"cls_token"`
	SEP     *tokenName `json:"sep_token"`
	Mask    *tokenName `json:"mask_token"`
	Lower   *bool      `json:"do_lower_case"`
	Accents *bool      `json:"strip_accents"`
	Chinese *bool      `json:"tokenize_chinese_chars"`

	Additional tokenNames `json:"additional_special_tokens"`
}

// tokenName is "<s>" or {"content": "<s>"}.
type tokenName string

func (n *tokenName) UnmarshalJSON(data []byte) error {
	var object struct{ Content string }
	if len(data) > 0 && data[0] == '{' {
		err := json.Unmarshal(data, &object)
		*n = tokenName(object.Content)
		return err
	}
	return json.Unmarshal(data, (*string)(n))
}

// tokenNames is a list of names; other forms that are in use say nothing of text.
type tokenNames []tokenName

func (n *tokenNames) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return nil
	}
	return json.Unmarshal(data, (*[]tokenName)(n))
}

// idList is an id or a list of ids.
type idList []int32

func (l *idList) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]int32)(l))
	}
	var id *int32
	if err := json.Unmarshal(data, &id); err != nil || id == nil {
		return err
	}
	*l = idList{*id}
	return nil
}

// configure takes special tokens from the files beside the tokenizer: names in
// tokenizer_config.json first, then ids in the models' configurations.
func (t *Tokenizer) configure(dir string, config *tokenizerConfig) error {
	for _, s := range []struct {
		id   *int32
		name *tokenName
	}{{&t.bos, config.BOS}, {&t.eos, config.EOS}, {&t.unk, config.UNK}, {&t.pad, config.PAD}} {
		if s.name == nil {
			continue
		}
		if id, ok := t.ids[string(*s.name)]; ok {
			*s.id = id
		}
	}
	var ends []int32
	for _, name := range []string{"generation_config.json", "config.json"} {
		var ids struct {
			BOS idList `json:"bos_token_id"`
			EOS idList `json:"eos_token_id"`
		}
		if err := readJSON(dir, name, &ids); err != nil {
			return err
		}
		if t.bos == None && len(ids.BOS) > 0 {
			t.bos = ids.BOS[0]
		}
		if t.eos == None && len(ids.EOS) > 0 {
			t.eos = ids.EOS[0]
		}
		ends = append(ends, ids.EOS...)
	}
	if config.AddBOS != nil {
		t.addBOS = *config.AddBOS
	}
	if config.AddEOS != nil {
		t.addEOS = *config.AddEOS
	}
	t.finish()
	t.addEnd(ends...)
	return nil
}

// bpeClasses names the pre-tokenizers of the classes that come as vocab.json
// and merges.txt, where no file says how text is cut.
var bpeClasses = map[string]string{
	"": "gpt-2", "GPT2Tokenizer": "gpt-2", "GPTNeoXTokenizer": "gpt-2", "CodeGenTokenizer": "gpt-2",
	"Qwen2Tokenizer": "qwen2",
}

func loadVocabMerges(dir string, config *tokenizerConfig, added []hfAdded) (*Tokenizer, error) {
	pre, ok := bpeClasses[strings.TrimSuffix(config.Class, "Fast")]
	if !ok {
		return nil, fmt.Errorf("%s: how %q cuts text is in none of the files: expected a tokenizer.json", dir, config.Class)
	}
	vocab, err := readFile(filepath.Join(dir, "vocab.json"))
	if err != nil {
		return nil, err
	}
	text, err := readFile(filepath.Join(dir, "merges.txt"))
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{bos: None, eos: None, eot: None, unk: None, pad: None}
	if err := t.hfVocab(vocab, added); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := t.hfKinds(&hfModel{}, added); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if len(added) == 0 { // GPT-2's files do not say that its one special token is one
		for i, p := range t.pieces {
			if p.text == "<|endoftext|>" {
				t.pieces[i].kind = Control
				t.bos, t.eos = int32(i), int32(i)
			}
		}
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && !strings.HasPrefix(line, "#version") {
			lines = append(lines, line)
		}
	}
	merges, err := splitMerges(lines)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "merges.txt"), err)
	}
	if err := t.setByteLevel(pre, merges); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return t, nil
}
