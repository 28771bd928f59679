// Package open finds out what a path holds and opens it as weights.
package open

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/llama2c"
	"github.com/greta-project/greta/weights/packed"
	"github.com/greta-project/greta/weights/safetensors"
)

const expected = "expected a GGUF file, a .safetensors file, a llama2.c .bin file, or a folder with config.json and " +
	"safetensors"

// Open recognises weights by content: a folder of safetensors (or one that
// holds a single model in GGUF), a GGUF, safetensors or llama2.c file. Anything
// else is an error that says what was found.
func Open(path string) (weights.Source, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, expected)
	}
	if st.IsDir() {
		return openFolder(path)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a model: %s; found neither a file nor a folder", path, expected)
	}
	head, err := readHead(path)
	if err != nil {
		return nil, err
	}
	switch found := recognise(head, st.Size()); found {
	case "gguf":
		return openGGUF(path)
	case "safetensors":
		return openSafetensors(path)
	case "llama2c":
		return source(llama2c.Open(path))
	default:
		return nil, fmt.Errorf("%s is not a model: %s; found %s", path, expected, found)
	}
}

// openSafetensors presents matrices that lie in several tensors as one.
func openSafetensors(path string) (weights.Source, error) {
	src, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := packed.Wrap(src)
	if err != nil {
		return nil, errlist.Join(err, src.Close())
	}
	return s, nil
}

// openGGUF presents a file in the dialect of its names.
func openGGUF(path string) (weights.Source, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	return gguf.Present(f), nil
}

// source keeps a nil of one package from becoming a Source that is not nil.
func source[S weights.Source](s S, err error) (weights.Source, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func readHead(path string) ([]byte, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return head[:n], nil
}

// recognise names the format that a file's first bytes and size speak for, or
// describes what they are instead.
func recognise(head []byte, size int64) string {
	switch {
	case len(head) == 0:
		return "an empty file"
	case bytes.HasPrefix(head, []byte("GGUF")):
		return "gguf"
	case isSafetensors(head):
		return "safetensors"
	case llama2c.Plausible(head, size):
		return "llama2c"
	}
	for _, k := range []struct{ magic, what string }{
		{"PK\x03\x04", "a zip archive, such as PyTorch's pickles; convert it to safetensors"},
		{"\x80\x02", "a Python pickle; convert it to safetensors"},
		{"lmgg", "a GGML file from before GGUF; fetch the model as GGUF"},
		{"fmgg", "a GGML file from before GGUF; fetch the model as GGUF"},
		{"tjgg", "a GGML file from before GGUF; fetch the model as GGUF"},
		{"\x89HDF", "an HDF5 file; convert it to safetensors"},
		{"\x28\xb5\x2f\xfd", "a file compressed by zstd; decompress it first"},
		{"\x1f\x8b", "a file compressed by gzip; decompress it first"},
		{"version https://git-lfs", "a Git LFS pointer instead of the file; run git lfs pull"},
		{"<!DOCTYPE", "an HTML page; the download went wrong"},
		{"<html", "an HTML page; the download went wrong"},
	} {
		if bytes.HasPrefix(head, []byte(k.magic)) {
			return k.what
		}
	}
	return fmt.Sprintf("%d bytes that start with %q", size, head[:min(8, len(head))])
}

// isSafetensors sees a length and the start of the JSON that it announces. A
// truncated file is recognised too, so that its error speaks of truncation.
func isSafetensors(head []byte) bool {
	return len(head) > 8 && binary.LittleEndian.Uint64(head) < 1<<32 && head[8] == '{'
}

func openFolder(path string) (weights.Source, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var models []string
	hf := false
	for _, e := range entries {
		ok, _ := filepath.Match("*.safetensors", e.Name())
		hf = hf || ok || e.Name() == "config.json"
		first, _ := filepath.Match("*-00001-of-?????.gguf", e.Name())
		other, _ := filepath.Match("*-?????-of-?????.gguf", e.Name())
		if any, _ := filepath.Match("*.gguf", e.Name()); any && (first || !other) {
			models = append(models, e.Name())
		}
	}
	switch {
	case hf:
		return openSafetensors(path)
	case len(models) == 1:
		return openGGUF(filepath.Join(path, models[0]))
	case len(models) > 1:
		return nil, fmt.Errorf("%s holds %d models in GGUF, such as %s; name one of them", path, len(models), models[0])
	}
	return nil, fmt.Errorf("%s is not a model: %s; found a folder with neither config.json nor .safetensors nor .gguf "+
		"among its %d entries", path, expected, len(entries))
}
