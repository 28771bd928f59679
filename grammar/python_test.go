package grammar

import (
	"errors"
	"strings"
	"testing"
)

// TestPython: which lists of calls are allowed.
func TestPython(t *testing.T) {
	calls := []Call{{"f", `{"type": "object", "properties": {"s": {"type": "string", "maxLength": 4},
		"n": {"type": "integer"},
		"v": {}, "e": {"enum": ["it's", "two"]}, "d-1": {"type": ["boolean", "null"]}}, "additionalProperties": false}`},
		{"g.h", `{"type": "object", "required": ["x"], "properties": {"x": {"type": "array", "items": {"type": "number"}}},
		"additionalProperties": {"const": {"a": true}}}`}}
	for text, ok := range map[string]bool{
		`[f()]`: true, `[]`: false, `f()`: false, `[f(), f()]`: true, `[f(),f()]`: false, `[f() ]`: false, `[h()]`: false,
		`[f(n=1)]`: true, `[f(n=1, s='a')]`: false, `[f(s='a', n=1)]`: true, `[f(n=1.5)]`: false, `[f(m=1)]`: false,
		`[f(s="a'b")]`: true, `[f(s='a"b')]`: true, `[f(s='a'b')]`: false, `[f(s='a\'b')]`: true, `[f(s="a\'b")]`: true,
		`[f(s='abcde')]`: false, `[f(s='\x41\u00e9\U0001f600é')]`: true, `[f(s='\x4')]`: false, `[f(s='\U00110000')]`: false,
		`[f(s='\ud83d')]`: false, `[f(s='\n\t\\')]`: true, `[f(s='\d')]`: false, "[f(s='\n')]": false, `[f(s='\0')]`: false,
		`[f(s=None)]`: false, `[f(d-1=None)]`: true, `[f(d-1=True)]`: true, `[f(d-1=true)]`: false, `[f(d-1=null)]`: false,
		`[f(v=[None, {'a': True, "b": [[], {}, ""]}, -1.5e3])]`: true, `[f(v={a: 1})]`: false, `[f(v={1: 1})]`: false,
		`[f(v=(1, 2))]`: false, `[f(v=[1,2])]`: false, `[f(e="it's")]`: true, `[f(e='it\'s')]`: true,
		`[f(e="it\'s")]`: false, `[f(e='\x69t\'s')]`: false, `[f(e='three')]`: false,
		`[g.h(x=[1, 2.5])]`: true, `[g.h()]`: false, `[g.h(x=[], y={'a': True})]`: true, `[g.h(x=[], 1y={'a': True})]`: false,
		`[g.h(x=[], y=1)]`: false, `[g.h(x=[], x=[])]`: false, `[g.h(x=["a"])]`: false,
	} {
		if got := accepts(t, Python(calls, true), text); got != ok {
			t.Errorf("%q: %v", text, got)
		}
	}
	if accepts(t, Python(calls, false), `[f(), f()]`) || !accepts(t, Python(calls, false), `[f(n=1)]`) {
		t.Error("a list of one call has two, or none")
	}
}

// TestPythonRefused: what Python cannot write is told.
func TestPythonRefused(t *testing.T) {
	for schema, word := range map[string]string{
		`{"properties": {"a b": {}}}`:                     `"a b"`,
		`{"type": "string"}`:                              "no object",
		`{"properties": {"a": {"uniqueItems": true}}}`:    "uniqueItems",
		`{"required": ["a"], "properties": {"a": false}}`: "no object",
	} {
		_, err := build(Python([]Call{{"f", schema}}, true), Options{}, nil)
		var refused *Refused
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), word) ||
			!strings.Contains(err.Error(), "arguments of f") {
			t.Errorf("%s: %v", schema, err)
		}
	}
	for _, calls := range [][]Call{nil, {{"f g", `{}`}}, {{"f", `{`}}} {
		if _, err := build(Python(calls, true), Options{}, nil); err == nil {
			t.Errorf("%v: no error", calls)
		}
	}
}
