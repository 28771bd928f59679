package grammar

import (
	"errors"
	"strings"
	"testing"
)

var xmlTags = Tags{Open: "<p=", Text: [2]string{">", "</p>"}, Value: [2]string{">", "</p>"}, NameEnd: ">", End: "</p>"}

// TestParams: which tagged objects are allowed, by the types that their reader knows.
func TestParams(t *testing.T) {
	const schema = `{"type": "object", "properties": {"s": {"type": "string", "maxLength": 8}, "n": {"type": "integer"},
		"m": {"type": ["string", "null"]}}, "required": ["s"], "additionalProperties": {"type": "array"}}`
	tags := xmlTags
	tags.Types = map[string][]string{"s": {"string"}, "n": {"integer"}, "m": {"string", "null"}}
	tags.Others = []string{"array"}
	for text, ok := range map[string]bool{
		"<p=s>a</p>": true, "<p=s></p>": true, "<p=s>12</p>": true, "<p=s>null</p>": true, "<p=s> </p>": true,
		"<p=s>123456789</p>": false, "<p=s>a": false, "": false, "<p=n>1</p>": false, "<p=s>a</p><p=s>a</p>": false,
		"<p=s>a</p><p=n>1</p>": true, "<p=s>a</p><p=n>x</p>": false, "<p=s>a</p><p=m>null</p>": true,
		"<p=s>a</p><p=m>None</p>": false, "<p=s>a</p><p=m> null</p>": false, "<p=s>a</p><p=m>nullx</p>": true,
		"<p=s>a</p><p=x>[1,\"a\"]</p>": true, "<p=s>a</p><p=x>text</p>": false, "<p=s>a</p><p=x>[\"</p>\"]</p>": false,
		"<p=s>a</p><p= x>[]</p>": false, "<p=s>a</p><p=x >[]</p>": false, "<p=s>a</p><p=>[]</p>": true,
	} {
		if got := accepts(t, Params(schema, tags), text); got != ok {
			t.Errorf("%q: %v", text, got)
		}
	}
	lines := tags
	lines.Lines = true
	for text, ok := range map[string]bool{"<p=s>\na</p>": false, "<p=s>a\n</p>": false, "<p=s>a\nb</p>": true} {
		if got := accepts(t, Params(schema, lines), text); got != ok {
			t.Errorf("with lines, %q: %v", text, got)
		}
	}
	apart := tags
	apart.Text = [2]string{"=text>", "</p>"}
	for text, ok := range map[string]bool{"<p=s=text>1</p><p=m=text>null</p>": true, "<p=s=text>a</p><p=m>null</p>": true,
		"<p=s>a</p>": false, "<p=s=text>a</p><p=m>\"null\"</p>": false} {
		if got := accepts(t, Params(schema, apart), text); got != ok {
			t.Errorf("with tags of texts, %q: %v", text, got)
		}
	}
}

// accepts compiles a source for instances and reads a text.
func accepts(t *testing.T, src Source, text string) bool {
	t.Helper()
	m, err := build(src, Options{Compact: true, Ordered: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	end, at := m.read(m.start, text)
	return at < 0 && m.configs[end].accept
}

// TestParamsRefused: what cannot be written between tags is told.
func TestParamsRefused(t *testing.T) {
	for schema, word := range map[string]string{
		`{"properties": {"a>b": {}}}`:                                 `"a>b"`,
		`{"required": ["a"], "properties": {"a": {"const": "</p>"}}}`: "no ",
		`{"properties": {"a": {"properties": {"</p>": {}}}}}`:         `"</p>"`,
		`{"type": "string"}`:                                          "no object",
		`{"properties": {"a": {"uniqueItems": true}}}`:                "uniqueItems",
		`{"properties": {" a": {"type": "string"}}}`:                  `" a"`,
		`{"required": ["a"], "properties": {"a": false}}`:             "no ",
	} {
		_, err := build(Params(schema, xmlTags), Options{Compact: true, Ordered: true}, nil)
		var refused *Refused
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", schema, err)
		}
	}
	if _, err := build(Params(`{}`, Tags{}), Options{}, nil); err == nil {
		t.Error("tags without texts")
	}
}
