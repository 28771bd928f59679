package template

// Where templates lie: chat_template.jinja, chat_template.json and tokenizer_config.json of a folder, the metadata of
// a GGUF, a .jinja file.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/weights"
)

// mostText bounds a template's file; the longest in use has 60 kB.
const mostText = 4 << 20

// None says that weights have no chat template.
type None struct{ Path string }

func (n *None) Error() string {
	return fmt.Sprintf("%s comes without a chat template: name one by --chat-template (a .jinja file, or %s)",
		n.Path, strings.Join(KnownNames(), ", "))
}

// OpenFile reads a .jinja file. One that says nothing, is an error: every
// conversation would become nothing.
func OpenFile(path string) (*Set, error) {
	text, err := readText(path)
	if err == nil && strings.TrimSpace(text) == "" {
		err = fmt.Errorf("%s: expected a chat template, found an empty file", path)
	}
	if err != nil {
		return nil, err
	}
	return New(path, text), nil
}

// readText reads a file of text. What Stat says of its size is not relied on: some special files have none.
func readText(path string) (string, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostText+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", path, err)
	case len(data) > mostText:
		return "", fmt.Errorf("%s has more than %d bytes, the most of a template or its configuration", path, mostText)
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return "", fmt.Errorf("%s: expected text in UTF-8, found other bytes", path)
	}
	return string(data), nil
}

// OpenFolder reads what a Hugging Face folder has: chat_template.jinja, which wins over tokenizer_config.json, and
// additional_chat_templates/NAME.jinja. A folder without any is *None.
func OpenFolder(dir string) (*Set, error) {
	s := &Set{Path: dir, Tokens: map[string]string{}, texts: map[string]string{}}
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} {
		if err := s.config(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	var old struct {
		Template string `json:"chat_template"`
	}
	text, err := optional(filepath.Join(dir, "chat_template.json"))
	if err != nil {
		return nil, err
	}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &old); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "chat_template.json"), err)
		}
		if old.Template != "" {
			s.texts[Default] = old.Template
		}
	}
	if text, err = optional(filepath.Join(dir, "chat_template.jinja")); err != nil {
		return nil, err
	}
	if text != "" {
		s.texts[Default] = text
	}
	more, _ := filepath.Glob(filepath.Join(dir, "additional_chat_templates", "*.jinja"))
	for _, path := range more {
		if text, err = readText(path); err != nil {
			return nil, err
		}
		s.texts[strings.TrimSuffix(filepath.Base(path), ".jinja")] = text
	}
	if len(s.texts) == 0 {
		return s, &None{dir}
	}
	return s, nil
}

// optional reads a file that need not be there.
func optional(path string) (string, error) {
	text, err := readText(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return text, err
}

// config takes special tokens and templates from a tokenizer_config.json or special_tokens_map.json.
func (s *Set) config(path string) error {
	text, err := optional(path)
	if err != nil || text == "" {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for key, raw := range all {
		if !strings.HasSuffix(key, "_token") {
			continue
		}
		var plain string
		var object struct{ Content *string }
		if json.Unmarshal(raw, &plain) == nil && string(raw) != "null" {
			s.Tokens[key] = plain
		} else if json.Unmarshal(raw, &object) == nil && object.Content != nil {
			s.Tokens[key] = *object.Content
		}
	}
	raw, ok := all["chat_template"]
	if !ok || string(raw) == "null" {
		return nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		if one != "" {
			s.texts[Default] = one
		}
		return nil
	}
	var several []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &several); err != nil {
		return fmt.Errorf("%s: chat_template is neither a text nor a list of names with templates: %w", path, err)
	}
	for _, t := range several {
		s.texts[t.Name] = t.Template
	}
	return nil
}

// FromSource reads what opened weights have: a GGUF's metadata, or the files of its folder.
func FromSource(src weights.Source) (*Set, error) {
	if src.Dialect() != "gguf" {
		dir := src.Path()
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			dir = filepath.Dir(dir)
		}
		return OpenFolder(dir)
	}
	s := &Set{Path: src.Path(), Tokens: map[string]string{}, texts: map[string]string{}}
	tokens, _ := src.Meta("tokenizer.ggml.tokens")
	pieces, _ := tokens.([]string)
	for name, key := range map[string]string{"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown",
		"pad_token": "padding", "sep_token": "seperator", "cls_token": "cls", "mask_token": "mask"} {
		v, ok := src.Meta("tokenizer.ggml." + key + "_token_id")
		if id, isInt := v.(int64); ok && isInt && id >= 0 && id < int64(len(pieces)) {
			s.Tokens[name] = pieces[id]
		}
	}
	const key = "tokenizer.chat_template"
	for _, k := range src.Keys() {
		name, ok := strings.CutPrefix(k, key)
		v, _ := src.Meta(k)
		text, isText := v.(string)
		if !ok || !isText {
			continue
		}
		if name == "" {
			s.texts[Default] = text
		} else if strings.HasPrefix(name, ".") {
			s.texts[name[1:]] = text
		}
	}
	if len(s.texts) == 0 {
		return s, &None{src.Path()}
	}
	return s, nil
}

// Replace gives a set with other templates and this one's tokens: what --chat-template names instead of a model's own.
func (s *Set) Replace(other *Set) *Set {
	return &Set{Path: other.Path, Tokens: s.Tokens, texts: other.texts}
}

// Named finds what --chat-template names: a .jinja file, or a known template.
func Named(name string) (*Set, error) {
	if strings.HasSuffix(name, ".jinja") || strings.ContainsAny(name, `/\`) {
		return OpenFile(name)
	}
	return Known(name)
}
