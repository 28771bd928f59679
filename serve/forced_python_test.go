package serve

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tokenizer"
)

// pythonFormats are the families whose calls are Python.
func pythonFormats(t *testing.T) map[string]*TemplateChat {
	chats := formatsOf(t, func(s parse.Shape) bool { return s.Python != nil })
	if len(chats) < 2 {
		t.Fatalf("%d formats are Python", len(chats))
	}
	return chats
}

// TestForcedPython: the calls that a random model is made to write in Python are read as valid arguments.
func TestForcedPython(t *testing.T) {
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	masks := NewGrammarMasks(tok)
	bytes := byteTokens(tok)
	nested := `{"type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}}, "required": ["tree"],
		"additionalProperties": {"type": "null"}, "maxProperties": 3, "$defs": {"tree": {"type": "object",
		"required": ["it's"], "properties": {
		"it's": {"type": ["boolean", "null", "string"], "maxLength": 5}, "kids": {"type": "array",
		"maxItems": 2, "items": {"$ref": "#/$defs/tree"}}}, "additionalProperties": false}}}`
	written, several := 0, 0
	for name, chat := range pythonFormats(t) {
		for i, schema := range append([]string{nested}, paramSchemas...) {
			valid := validator(t, schema)
			tools, c, fresh := forcedNote(t, masks, chat, schema, i%2 == 0)
			for seed := range uint64(8) {
				w := newWriter(t, tok, bytes, fresh, seed, uint64(i))
				w.try(c.Calls.Shapes[0].Open + "[note(")
				if !w.write([]string{`"`, "'", ")]" + c.Calls.Shapes[0].Close, "}", "]", ", note("}) {
					t.Logf("%s: no end after %q", name, w.text)
					continue
				}
				written++
				if strings.Count(w.text, "note(") > 1 {
					several++
				}
				checkCalls(t, name, chat, tools, w.text, valid)
			}
		}
	}
	if written < 140 || several < 20 {
		t.Errorf("%d answers, %d of several calls", written, several)
	}
	t.Logf("%d answers, %d of several calls", written, several)
}

// TestPythonArguments: calls with any arguments are written in Python, are allowed, and are read back as they are.
func TestPythonArguments(t *testing.T) {
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	masks := NewGrammarMasks(tok)
	bytes := byteTokens(tok)
	for name, chat := range pythonFormats(t) {
		c, err := chat.ToolMask([]Tool{callTool}, true, true)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := masks.Constrain(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, arguments := range append(callArguments[:len(callArguments)-1:len(callArguments)-1],
			`{"on": true, "deep": {"a": {"b": [1, {"c": null, "d": "e\"f"}]}, "": []}, "list": []}`,
			`{"text": "<|tool_call_end|>)]", "list": [")]", "'", {"'": "\\'"}, null, true, 1.5]}`,
			`{"other": {"a": ["\u0001"]}}`,
			`{"deep": `+strings.Repeat(`{"a":[`, 300)+strings.Repeat("]}", 300)+`}`) {
			var want, got any
			if err := json.Unmarshal([]byte(arguments), &want); err != nil {
				t.Fatal(err)
			}
			text, ok := chat.format.Write([]parse.Call{{Name: "note", Arguments: arguments}, {Name: "note"}})
			if !ok || !reads(t, fresh, bytes, text) {
				t.Errorf("%s: %q is not allowed", name, text)
			}
			for _, piece := range []int{1, len(text)} {
				calls := readCalls(chat, "", text, piece)
				if len(calls) != 2 || json.Unmarshal([]byte(calls[0].Arguments), &got) != nil || !reflect.DeepEqual(got, want) ||
					calls[1].Arguments != "{}" {
					t.Errorf("%s: %q is read as %+v", name, text, calls)
				}
			}
		}
	}
}
