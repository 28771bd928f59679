package convert

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
)

// planNamed keeps the names and the configuration of a Hugging Face folder whose family GGUF has no names for. Only
// greta reads the file.
func planNamed(src weights.Source, opt Options) (*plan, error) {
	p := &plan{keep: true}
	kind, _ := metaString(src, "model_type")
	p.set("general.architecture", "hf-"+kind)
	p.set("general.type", "model")
	p.set("general.name", modelName(src.Path()))
	p.set(gguf.DialectKey, "hf")
	for _, key := range src.Keys() {
		v, _ := src.Meta(key)
		p.kvs = append(p.kvs, gguf.KV{Key: gguf.HFPrefix + key, Value: v})
	}
	if s, ok := src.(interface{ Nulls() []string }); ok && len(s.Nulls()) > 0 {
		p.set(gguf.NullsKey, s.Nulls())
	}
	embedding := ""
	for _, name := range src.Names() {
		typ, shape, ok := src.Lookup(name)
		if !ok || typ == tensor.Invalid {
			return nil, fmt.Errorf("tensor %q is of a type that is not read", name)
		}
		role, matrix := opt.Matrices[name]
		if role == "token_embd.weight" {
			embedding = name
		}
		if len(shape) == 0 {
			shape = tensor.Shape{1}
		}
		p.items = append(p.items, &item{name: name, shape: shape, src: typ, parts: []string{name},
			fixed: !matrix || len(shape) < 2, role: role})
	}
	if len(p.items) == 0 {
		return nil, fmt.Errorf("it holds no tensors")
	}
	p.traits.HasOutput = true
	p.notes = append(p.notes, "the file keeps Hugging Face's names and configuration, which only greta reads")
	if file, ok := src.(interface{ KV() []gguf.KV }); ok && opt.Tokenizer == "" { // such a file once more
		for _, kv := range file.KV() {
			if strings.HasPrefix(kv.Key, "tokenizer.") {
				p.kvs = append(p.kvs, kv)
			}
		}
		return p, nil
	}
	h := &hfPlan{plan: p, src: src}
	return p, h.findTokenizer(opt, embedding)
}
