package gguf

import (
	"strings"

	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
)

// A GGUF file may keep the names and the configuration of a Hugging Face folder: greta.dialect is "hf" then, every
// value of config.json stands under HFPrefix and its dotted key, and NullsKey lists the keys whose value is null. So a
// family that GGUF has no names for can be stored in its types.
const (
	DialectKey = "greta.dialect"
	HFPrefix   = "hf."
	NullsKey   = "greta.hf_nulls"
)

// hf is such a file, which speaks the folder's dialect.
type hf struct {
	*File
	nulls map[string]bool
}

var _ weights.Source = hf{}

// Present gives the file as what it says that it is: a Source in the dialect of its names.
func Present(f *File) weights.Source {
	if v, _ := f.Meta(DialectKey); v != "hf" {
		return f
	}
	s := hf{f, map[string]bool{}}
	if v, _ := f.Meta(NullsKey); v != nil {
		if list, ok := v.([]string); ok {
			for _, k := range list {
				s.nulls[k] = true
			}
		}
	}
	return s
}

// Dialect is "hf".
func (s hf) Dialect() string { return "hf" }

// Meta gives a value of the folder's config.json, or of the tokenizer.
func (s hf) Meta(key string) (any, bool) {
	if strings.HasPrefix(key, "tokenizer.") || strings.HasPrefix(key, "general.") || key == DialectKey {
		return s.File.Meta(key)
	}
	return hfclass.Anywhere(func(k string) (any, bool) { return s.File.Meta(HFPrefix + k) }, key)
}

// Null says that config.json gave null for a key.
func (s hf) Null(key string) bool { return s.nulls[key] || s.nulls[hfclass.Inside+key] }

// Keys lists those of config.json.
func (s hf) Keys() []string {
	var keys []string
	for _, k := range s.File.Keys() {
		if k, ok := strings.CutPrefix(k, HFPrefix); ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// Lookup gives a tensor's type and shape.
func (s hf) Lookup(name string) (tensor.Type, tensor.Shape, bool) { return s.File.Lookup(name) }
