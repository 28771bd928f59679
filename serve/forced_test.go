package serve

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tokenizer"
)

// TestForced: an answer of random tokens that must call is read as that call, in every format whose calls can be
// forced.
func TestForced(t *testing.T) {
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	masks := NewGrammarMasks(tok)
	tools := []Tool{{Name: "halt"}, {Name: "march", Parameters: json.RawMessage(`{"type": "object",
		"properties": {"to": {"enum": ["Moscow", "Paris"]}}, "required": ["to"], "additionalProperties": false}`)}}
	right := map[string]*regexp.Regexp{"halt": regexp.MustCompile(`^\{\}$`),
		"march": regexp.MustCompile(`^\{"to": ?"(Moscow|Paris)"\}$`)}
	formats := 0
	for _, name := range parse.Names() {
		f, err := parse.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		chat := &TemplateChat{format: f}
		if _, err := f.Shapes(parseTools(tools), false); err != nil {
			continue // it has no calls
		}
		c, err := chat.ToolMask(tools, true, formats%2 == 1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		formats++
		fresh, err := masks.Constrain(c)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for seed := range uint64(4) {
			text, done := drive(t, tok, fresh, c.Calls, rand.New(rand.NewPCG(seed, 1)))
			if !done {
				t.Errorf("%s: no end after %q", name, text)
				continue
			}
			p := chat.Parser("", ChatOptions{Tools: tools})
			var calls []CallPart
			for _, part := range append(p.Write(text), p.End()...) {
				if part.Call == nil {
					continue
				}
				if part.Call.Index == len(calls) {
					calls = append(calls, CallPart{})
				}
				calls[part.Call.Index].Name += part.Call.Name
				calls[part.Call.Index].Arguments += part.Call.Arguments
			}
			if len(calls) == 0 || len(calls) > 1 && c.Calls.Once && !f.Lists() {
				t.Errorf("%s: %q is read as %+v", name, text, calls)
			}
			for _, call := range calls {
				if right[call.Name] == nil || !right[call.Name].MatchString(call.Arguments) {
					t.Errorf("%s: %q is read as %+v", name, text, calls)
				}
			}
		}
	}
	if formats < 28 {
		t.Errorf("only %d formats can be forced", formats)
	}
	t.Logf("%d formats", formats)
}

// drive writes what a mask allows: one of the shapes' beginnings, then any tokens.
func drive(t *testing.T, tok *tokenizer.Tokenizer, fresh func() (Mask, error), form *CallForm,
	r *rand.Rand) (string, bool) {
	m, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	ends := tok.Ends()
	bytes := map[string]int32{} // a text that the vocabulary would change, such as ▁, is written in bytes
	for id := range int32(tok.VocabSize()) {
		if b := tok.Bytes(id); len(b) == 1 {
			bytes[b] = id
		}
	}
	var begin []int32
	open := form.Group[0] + form.Shapes[r.IntN(len(form.Shapes))].Open
	for i := range len(open) {
		begin = append(begin, bytes[open[i:i+1]])
	}
	n, text := 0, ""
	bits := make([]uint32, (tok.VocabSize()+31)/32)
	for range 3000 {
		if err := m.Allowed(bits); err != nil {
			t.Fatal(err)
		}
		var may []int32
		for id := range int32(tok.VocabSize()) {
			if bits[id/32]>>(id%32)&1 != 0 {
				may = append(may, id)
			}
		}
		for _, e := range ends {
			if bits[e/32]>>(e%32)&1 != 0 {
				return text, true
			}
		}
		if len(may) == 0 {
			return text, false
		}
		id := may[r.IntN(len(may))]
		if n < len(begin) {
			id = begin[n]
		}
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		n, text = n+1, text+tok.Bytes(id)
	}
	return text, false
}

// TestForcedArguments: a forced call may have any arguments as JSON, which are read back as they are. Tagged ones
// and Python's have tests of their own.
func TestForcedArguments(t *testing.T) {
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	masks := NewGrammarMasks(tok)
	bytes := map[string]int32{}
	for id := range int32(tok.VocabSize()) {
		if b := tok.Bytes(id); len(b) == 1 {
			bytes[b] = id
		}
	}
	tools := []Tool{{Name: "note", Parameters: json.RawMessage(`{"type": "object"}`)}}
	for _, name := range parse.Names() {
		f, err := parse.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		shapes, err := f.Shapes(parseTools(tools), false)
		if err != nil || shapes[0].Params != nil || shapes[0].Python != nil {
			continue
		}
		chat := &TemplateChat{format: f}
		c, err := chat.ToolMask(tools, true, false)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := masks.Constrain(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, arguments := range callArguments {
			arguments = compact(t, arguments)
			text := c.Calls.Group[0] + forcedText(shapes[0], arguments) + c.Calls.Group[1]
			m, err := fresh()
			if err != nil {
				t.Fatal(err)
			}
			for i := range len(text) {
				if err := m.Accept(bytes[text[i:i+1]]); err != nil {
					t.Fatalf("%s: %q is not allowed from byte %d: %v", name, text, i, err)
				}
			}
			for _, piece := range []int{1, len(text)} {
				calls := readCalls(chat, "", text, piece)
				if len(calls) != 1 || calls[0].Name != "note" || calls[0].Arguments != arguments {
					t.Errorf("%s: %q is read as %+v", name, text, calls)
				}
			}
		}
	}
}

// compact writes JSON as a constrained model does.
func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// forcedText is a call of the tool note.
func forcedText(s parse.Shape, arguments string) string {
	schema := string(s.Schema)
	if !strings.Contains(schema, `"note"`) { // the name stands in the beginning
		return s.Begin + arguments + s.End
	}
	key, named := "arguments", "name"
	if strings.Contains(schema, `"parameters"`) {
		key = "parameters"
	}
	if strings.Contains(schema, `"tool_name"`) {
		named = "tool_name"
	}
	text := `{"` + named + `":"note","` + key + `":` + arguments + "}"
	if strings.HasPrefix(schema, `{"type":"array"`) {
		text = "[" + text + "]"
	}
	return s.Begin + text + s.End
}
