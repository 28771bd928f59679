package parse

// Which types a schema lets a parameter have: where the format does not say, texts are told from other values by them.

import (
	"encoding/json"
	"slices"
	"strings"
)

// typed is what a schema says of types.
type typed struct {
	Type                 any
	Enum                 []json.RawMessage
	Const                json.RawMessage
	AnyOf, OneOf, AllOf  []json.RawMessage
	Ref                  string `json:"$ref"`
	Properties           map[string]json.RawMessage
	PatternProperties    map[string]json.RawMessage
	AdditionalProperties json.RawMessage
}

// paramTypes gives the types of the parameters that a schema names, and of others; nil: any. Each list has all types
// that the schema allows, and may have more.
func paramTypes(schema json.RawMessage) (named map[string][]string, others []string) {
	s, ok := followed(schema, schema, 0)
	if !ok {
		return nil, nil
	}
	named = map[string][]string{}
	for name, p := range s.Properties {
		named[name] = schemaTypes(schema, p, 0)
	}
	if len(s.PatternProperties) == 0 && s.AdditionalProperties != nil {
		others = schemaTypes(schema, s.AdditionalProperties, 0)
	}
	return named, others
}

// mostRefs bounds how far references are followed.
const mostRefs = 16

// followed reads a schema, or what it is a reference to.
func followed(root, schema json.RawMessage, depth int) (s typed, ok bool) {
	for json.Unmarshal(schema, &s) == nil {
		if s.Ref == "" || s.Type != nil {
			return s, true
		}
		if schema, ok = pointed(root, s.Ref); !ok || depth > mostRefs {
			break
		}
		s, depth = typed{}, depth+1
	}
	return typed{}, false
}

// pointed finds what a reference within a document means.
func pointed(root json.RawMessage, ref string) (json.RawMessage, bool) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || path != "" && path[0] != '/' {
		return nil, false
	}
	for i, step := range strings.Split(path, "/") {
		var members map[string]json.RawMessage
		if i == 0 {
			continue
		}
		if json.Unmarshal(root, &members) != nil {
			return nil, false
		}
		if root, ok = members[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]; !ok {
			return nil, false
		}
	}
	return root, true
}

// schemaTypes are the types that a schema of a document allows; nil where it does not say.
func schemaTypes(root, schema json.RawMessage, depth int) (types []string) {
	s, ok := followed(root, schema, depth)
	if !ok || depth > mostRefs {
		return nil
	}
	switch t := s.Type.(type) {
	case string:
		return []string{t}
	case []any:
		for _, x := range t {
			if name, ok := x.(string); ok {
				types = append(types, name)
			}
		}
		return types
	}
	if s.Const != nil {
		s.Enum = []json.RawMessage{s.Const}
	}
	if len(s.Enum) > 0 {
		for _, v := range s.Enum {
			types = append(types, kindsOf(strings.TrimSpace(string(v)))...)
		}
		return types
	}
	for _, one := range s.AllOf {
		if types = schemaTypes(root, one, depth+1); types != nil {
			return types
		}
	}
	for _, list := range [][]json.RawMessage{s.AnyOf, s.OneOf} {
		if types = eitherTypes(root, list, depth); types != nil {
			return types
		}
	}
	return nil
}

// eitherTypes are the types of several schemas of which one holds.
func eitherTypes(root json.RawMessage, list []json.RawMessage, depth int) (types []string) {
	for _, one := range list {
		more := schemaTypes(root, one, depth+1)
		if more == nil {
			return nil
		}
		for _, t := range more {
			if !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	return types
}
