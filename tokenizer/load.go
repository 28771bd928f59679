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
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/pyjson"
)

// maxFile bounds the files that are read whole; the largest tokenizer.json in
// use has under 40 MB.
const maxFile = 1 << 29

// Load reads the tokenizer at path. A folder holds tokenizer.json,
// tokenizer.model, spiece.model and its kin, vocab.json with merges.txt, or vocab.txt, preferred in this order, and
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

// Files are the names by which a folder's tokenizer is found.
func Files() []string {
	return slices.Concat([]string{"tokenizer.json", "tokenizer.model"}, pieceFiles, []string{"vocab.json", "vocab.txt"})
}

// In says whether a folder has a tokenizer that Load would read.
func In(dir string) bool {
	return slices.ContainsFunc(Files(), func(name string) bool { return exists(dir, name) })
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
	if err := readJSON(dir, "tokenizer_config.json", &config.raw); err != nil {
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
		read := fromSentencePiece
		if exists(dir, "tokenizer_config.json") {
			read, err = asConfigured(dir, &config)
		}
		if err == nil {
			t, err = loadBeside(filepath.Join(dir, "tokenizer.model"), &config, added, read)
		}
	case pieceFile(dir) != "":
		t, err = loadPieces(dir, pieceFile(dir), &config, added)
	case exists(dir, "vocab.json") && exists(dir, "merges.txt"):
		t, err = loadVocabMerges(dir, &config, added)
	case exists(dir, "vocab.txt"):
		t, err = loadBeside(filepath.Join(dir, "vocab.txt"), &config, added, func(data []byte, added []hfAdded) (*Tokenizer,
			error) {
			if config.Class == "EsmTokenizer" {
				return wholeVocabulary(data, &config, added)
			}
			return bertVocabulary(data, &config, added)
		})
	default:
		err = fmt.Errorf("%s: no tokenizer: expected tokenizer.json, tokenizer.model, %s, vocab.txt, or vocab.json with "+
			"merges.txt", dir, strings.Join(pieceFiles, ", "))
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
		var more []hfAdded
		more, err = config.named(added, func(text string) (int32, bool) {
			id, ok := t.ID(text)
			added := ok && t.pieces[id].added
			return id, ok && (t.Kind(id) == Normal || t.Kind(id) == UserDefined && added || t.Kind(id) == Unknown && !added)
		})
		if err == nil && len(more) > 0 {
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

	PrefixSpace *bool `json:"add_prefix_space"`

	raw map[string]json.RawMessage // all of it

	listsBeside bool // the lists of more special tokens in it are special_tokens_map.json's
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
	"Qwen2Tokenizer": "qwen2", "DebertaTokenizer": "gpt-2",
}

// endOfText is special to those classes whether a file says so or not.
const endOfText = "<|endoftext|>"

// encoderTokens are BERT's tokens of a vocabulary that has them: special, and put around texts.
func (t *Tokenizer) encoderTokens(find func(string) (int32, bool)) (special []hfAdded) {
	t.pad, t.unk = None, None
	for name, into := range map[string]*int32{"[CLS]": &t.bos, "[SEP]": &t.eos, "[PAD]": &t.pad, "[UNK]": &t.unk,
		"[MASK]": new(int32)} {
		if id, ok := find(name); ok {
			*into = id
			special = append(special, hfAdded{ID: id, Content: name, Special: true})
		}
	}
	t.addBOS, t.addEOS, t.pairs = true, true, bertPair(t.bos, t.eos)
	return special
}

// bpeSteps is the tokenizer.json that transformers makes of vocab.json and merges.txt.
func bpeSteps(pre string, config *tokenizerConfig) (string, error) {
	steps := `{"model":{"type":"BPE"},"decoder":{"type":"ByteLevel"},`
	prefix := config.PrefixSpace != nil && *config.PrefixSpace
	if pre == "gpt-2" {
		return fmt.Sprintf(`%s"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":%t}}`, steps, prefix), nil
	}
	if prefix {
		return "", fmt.Errorf("add_prefix_space of %s is not supported without a tokenizer.json", config.Class)
	}
	pattern := quoted(strings.Replace(patternQwen2, contractions, "(?i:'s|'t|'re|'ve|'m|'ll|'d)", 1))
	return steps + `"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[
		{"type":"Split","pattern":{"Regex":` + pattern + `},"behavior":"Isolated"},
		{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}}`, nil
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
	find := func(text string) (int32, bool) {
		id := slices.IndexFunc(t.pieces, func(p piece) bool { return p.kind == Normal && p.text == text })
		return int32(id), id >= 0
	}
	more, err := config.named(added, find)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if id, ok := find(endOfText); ok { // GPT-2's files do not say that its one special token is one
		if t.eos = id; pre == "gpt-2" {
			t.bos = id
		}
		if end := (hfAdded{ID: id, Content: endOfText, Special: true}); !slices.ContainsFunc(added, end.same) &&
			!slices.ContainsFunc(more, end.same) {
			more = append(more, end)
		}
	}
	_, begins := find("[CLS]")
	if _, ends := find("[SEP]"); begins && ends {
		for _, a := range t.encoderTokens(find) {
			if !slices.ContainsFunc(added, a.same) && !slices.ContainsFunc(more, a.same) {
				more = append(more, a)
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
	steps, err := bpeSteps(pre, config)
	if err == nil {
		unk := t.unk // of the class: its model knows none
		t.unk = None
		err = t.fromSteps(steps, merges, nil, slices.Concat(added, more))
		t.unk = unk
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	t.finish()
	return t, nil
}
