package convert

import (
	"fmt"
	"math"
	"strings"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/quant"
)

// planGGUF keeps names, order and metadata of a source that speaks GGUF.
func planGGUF(src weights.Source, opt Options) (*plan, error) {
	p := &plan{keep: true}
	if typed, ok := src.(interface{ KV() []gguf.KV }); ok {
		for _, kv := range typed.KV() {
			if !strings.HasPrefix(kv.Key, "split.") { // the new file is whole
				p.kvs = append(p.kvs, kv)
			}
		}
	} else {
		for _, key := range src.Keys() {
			v, _ := src.Meta(key)
			kv, err := narrow(key, v)
			if err != nil {
				return nil, err
			}
			p.kvs = append(p.kvs, kv)
		}
	}
	for _, name := range src.Names() {
		typ, shape, ok := src.Lookup(name)
		if !ok {
			return nil, fmt.Errorf("tensor %q is listed but cannot be looked up", name)
		}
		p.items = append(p.items, &item{name: name, shape: shape, src: typ, parts: []string{name},
			fixed: quant.KeepsType(name, shape)})
		p.traits.HasOutput = p.traits.HasOutput || name == "output.weight"
	}
	if len(p.items) == 0 {
		return nil, fmt.Errorf("it holds no tensors, only metadata; name a file with weights")
	}
	arch, _ := metaString(src, "general.architecture")
	p.traits.Read(func(key string) (int64, bool) { return metaInt(src, arch+"."+key) })
	if opt.Tokenizer == "" {
		return p, nil
	}
	return p, p.addTokenizer(opt.Tokenizer, tokenizerHints{vocab: embeddingRows(src, "token_embd.weight")})
}

// narrow gives a widened metadata value the type that GGUF files use for it.
func narrow(key string, v any) (gguf.KV, error) {
	switch v := v.(type) {
	case int64:
		if v < 0 || v > math.MaxUint32 {
			return gguf.KV{Key: key, Value: v}, nil
		}
		return gguf.KV{Key: key, Value: uint32(v)}, nil
	case float64:
		return gguf.KV{Key: key, Value: float32(v)}, nil
	case string, bool:
		return gguf.KV{Key: key, Value: v}, nil
	}
	return gguf.KV{}, fmt.Errorf("metadata %s has type %T, which has no counterpart", key, v)
}

// metadata are values by their keys.
type metadata interface{ Meta(key string) (any, bool) }

func metaInt(src metadata, keys ...string) (int64, bool) {
	for _, key := range keys {
		if v, ok := src.Meta(key); ok {
			switch v := v.(type) {
			case int64:
				return v, true
			case []int64: // per layer; the first stands for all
				if len(v) > 0 {
					return v[0], true
				}
			}
		}
	}
	return 0, false
}

func metaFloat(src metadata, keys ...string) (float64, bool) {
	for _, key := range keys {
		switch v, _ := src.Meta(key); v := v.(type) {
		case int64:
			return float64(v), true
		case float64:
			return v, true
		}
	}
	return 0, false
}

func metaString(src metadata, keys ...string) (string, bool) {
	for _, key := range keys {
		if v, _ := src.Meta(key); v != nil {
			if s, ok := v.(string); ok {
				return s, true
			}
		}
	}
	return "", false
}

func metaBool(src metadata, key string) bool {
	v, _ := src.Meta(key)
	b, _ := v.(bool)
	return b
}

func embeddingRows(src weights.Source, name string) int {
	_, shape, ok := src.Lookup(name)
	if !ok || len(shape) != 2 {
		return 0
	}
	return tensor.Shape(shape).Rows()
}
