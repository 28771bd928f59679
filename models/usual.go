package models

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/hfclass"
	"gopkg.in/yaml.v3"
)

//go:embed usual/transformers.yaml
var usualText []byte

// usualKeys is what transformers takes for keys that config.json lacks: by model_type, then by dotted key. The text has
// for each key lists of a value and the model_types that have it.
var usualKeys = sync.OnceValue(func() map[string]map[string]any {
	var text map[string][][]any
	if err := yaml.Unmarshal(usualText, &text); err != nil {
		panic("usual/transformers.yaml: " + err.Error())
	}
	all := map[string]map[string]any{}
	for key, values := range text {
		for _, v := range values {
			for _, kind := range v[1:] {
				name := kind.(string)
				if all[name] == nil {
					all[name] = map[string]any{}
				}
				all[name][key] = v[0]
			}
		}
	}
	return all
})

// usualOrigin is the origin of a parameter that config.json does not give and transformers' class for it does.
const usualOrigin = "transformers' default "

// usual gives what transformers takes where config.json has none of a parameter's keys. A null is not absent: a class
// takes it as it is. Nor is a key of an object absent where the object is there, under any of the names that the
// parameter has for it: it stands for the whole of the class's own.
func (s *scope) usual(p *param) (lang.Val, string, bool) {
	w := s.o.Weights
	if w.Dialect() != "hf" || len(p.hf) == 0 {
		return nil, "", false
	}
	kind, _ := hfclass.Own(w.Meta, "model_type")
	name, _ := kind.(string)
	values := usualKeys()[name]
	if values == nil {
		return nil, "", false
	}
	null, _ := w.(interface{ Null(key string) bool })
	whole := false
	for _, k := range p.hf {
		k = s.spelled(k)
		if null != nil && null.Null(s.key(k)) && !s.o.unread.Has(k) {
			return nil, "", false
		}
		if object, _, dotted := strings.Cut(k, "."); dotted {
			whole = whole || !s.o.unread.Has(object) && (hasObject(w, object) || hasObject(w, hfclass.Inside+object))
		}
		whole = whole || s.turned(k) != k
	}
	for _, k := range p.hf {
		k = s.spelled(k)
		m, ok := values[k]
		if !ok || whole && strings.Contains(k, ".") || s.o.unread.Has(k) {
			continue
		}
		if n, is := m.(int); is {
			m = int64(n)
		}
		if v, ok := metaValue(m); ok {
			return v, usualOrigin + k, true
		}
	}
	return nil, "", false
}
