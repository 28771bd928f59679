package open

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/gguf"
)

func TestShared(t *testing.T) {
	for path, want := range map[string]string{
		"data/stories260K/stories260K.bin":          "llama2c",
		"data/stories260K/stories260K.gguf":         "gguf",
		"data/tolstoy-2.7m":                         "safetensors",
		"data/tolstoy-2.7m/model.safetensors":       "safetensors",
		"goldens/mixtral":                           "safetensors",
		"data/tokenizers/ggml-vocab-starcoder.gguf": "gguf",
	} {
		s, err := Open(testfiles.Shared(t, path))
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Format() != want {
			t.Errorf("%s: format %s, expected %s", path, s.Format(), want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func model(t *testing.T, path string) {
	t.Helper()
	w, err := gguf.Create(path, nil, []gguf.Info{{Name: "w", Type: tensor.F32, Shape: tensor.Shape{1}}})
	if err != nil {
		t.Fatal(err)
	}
	w.Write(make([]byte, 4))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFolderOfGGUF(t *testing.T) {
	dir := t.TempDir()
	model(t, filepath.Join(dir, "a.gguf"))
	s, err := Open(dir)
	if err != nil || s.Format() != "gguf" {
		t.Fatal(s, err)
	}
	s.Close()
	model(t, filepath.Join(dir, "b.gguf"))
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "holds 2 models") {
		t.Errorf("two models: error %v", err)
	}
}

func TestNotAModel(t *testing.T) {
	dir := t.TempDir()
	for want, content := range map[string]string{
		"found an empty file":                       "",
		`found 11 bytes that start with "hello wo"`: "hello world",
		"a zip archive":                             "PK\x03\x04....",
		"Git LFS pointer":                           "version https://git-lfs.github.com/spec/v1\n",
		"a GGML file from before":                   "tjgg\x03\x00\x00\x00",
		"truncated or damaged":                      "\x90\x00\x00\x00\x00\x00\x00\x00{\"w\":",
		"gguf: ":                                    "GGUF\x03",
		"llama2c: ":                                 "24ka\x01\x00\x00\x00",
		"28 bytes that start with":                  strings.Repeat("\x01\x00\x00\x00", 7),
	} {
		path := filepath.Join(dir, "x")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path)
		if err == nil || s != nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v, expected one with %q and the path", content, err, want)
		}
	}
	if _, err := Open(filepath.Join(dir, "absent")); err == nil || !strings.Contains(err.Error(), "expected a GGUF file") {
		t.Errorf("absent: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not a model") {
		t.Errorf("empty folder: %v", err)
	}
}
