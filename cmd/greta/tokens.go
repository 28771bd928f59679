package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/greta-project/greta/tokenizer"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/open"
)

// findTokenizer opens the tokenizer that the user names, or the one that lies
// in or with the weights. nil: there is none, which only text needs.
func (f *modelFlags) findTokenizer(src weights.Source) (*tokenizer.Tokenizer, error) {
	if f.tokenizer != "" {
		return openTokenizer(f.tokenizer)
	}
	if src == nil {
		return nil, nil
	}
	return tokenizerOf(src)
}

// openTokenizer opens a tokenizer's own file, or the one of a model.
func openTokenizer(path string) (*tokenizer.Tokenizer, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		ours := slices.Contains([]string{".json", ".model", ".bin", ".txt"}, filepath.Ext(path))
		if ours {
			var t *tokenizer.Tokenizer
			if t, err = tokenizer.Load(path); err == nil {
				return t, nil
			}
		}
		src, srcErr := open.Open(path)
		switch {
		case srcErr != nil && ours:
			return nil, err
		case srcErr != nil:
			return nil, fmt.Errorf("neither tokenizer.json, *.model, *.bin or vocab.txt, nor a model with a tokenizer: %w",
				srcErr)
		}
		defer src.Close()
		t, err := tokenizerOf(src)
		if err == nil && t == nil {
			err = fmt.Errorf("%s: no tokenizer lies with these weights", path)
		}
		return t, err
	}
	return tokenizer.Load(path)
}

// tokenizerOf finds the tokenizer in GGUF's metadata, in a Hugging Face folder,
// or beside a file of weights; nil where there is none.
func tokenizerOf(src weights.Source) (*tokenizer.Tokenizer, error) {
	if kind, _ := src.Meta("tokenizer.ggml.model"); kind == "no_vocab" || kind == "none" {
		return nil, nil // GGUF's words for a file that goes by ids alone
	}
	if _, ok := src.Meta("tokenizer.ggml.tokens"); ok {
		return tokenizer.FromGGUF(src)
	}
	dir := src.Path()
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		dir = filepath.Dir(dir)
	}
	if tokenizer.In(dir) {
		return tokenizer.Load(dir) // with the configuration files beside it
	}
	if bin := filepath.Join(dir, "tokenizer.bin"); src.Format() == "llama2c" && exists(bin) {
		return tokenizer.Load(bin)
	}
	return nil, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
