package serve

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tokenizer"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// paramSchemas are of arguments of many kinds; what they leave open a random model fills.
var paramSchemas = []string{
	`{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false}`,
	`{"type": "object", "properties": {"maybe": {"type": ["string", "null"]}, "n": {"type": "integer", "minimum": 5}},
		"required": ["maybe"], "additionalProperties": false}`,
	`{"type": "object", "properties": {"either": {"anyOf": [{"type": "integer", "minimum": 100},
		{"type": "string", "maxLength": 9}]}}, "required": ["either"], "additionalProperties": false}`,
	`{"type": "object", "properties": {"any": {}, "on": {"type": "boolean"}}, "required": ["any", "on"],
		"additionalProperties": false}`,
	`{"type": "object", "properties": {"deep": {"type": "object", "properties": {"s": {"type": "string"}},
		"required": ["s"], "additionalProperties": false}, "list": {"type": "array", "items": {"type": "string"},
		"minItems": 1, "maxItems": 2}}, "required": ["deep", "list"], "additionalProperties": false}`,
	`{"type": "object", "properties": {"e": {"enum": ["1", "two", "</parameter>", 3, null]},
		"x": {"type": "number"}}, "required": ["e", "x"], "additionalProperties": false}`,
	`{"type": "object", "$defs": {"digits": {"type": "string", "pattern": "^[0-9]{1,3}$"}},
		"properties": {"d": {"$ref": "#/$defs/digits"}, "c": {"allOf": [{"type": "string"}, {"minLength": 2}]}},
		"required": ["d", "c"], "additionalProperties": false}`,
	`{"type": "object", "maxProperties": 2, "minProperties": 1, "additionalProperties": {"type": ["boolean", "string"],
		"maxLength": 12}}`,
	`{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [
		{"required": ["a"], "not": {"required": ["b"]}}, {"required": ["b"], "not": {"required": ["a"]}}],
		"additionalProperties": false}`,
	`{"type": "object", "properties": {"v": {"not": {"type": "string"}, "maxItems": 1, "maxProperties": 0}},
		"required": ["v"], "additionalProperties": false}`,
}

// temptations are texts that a reader could take for something else.
var temptations = []string{"null", "None", "true", "True", " 12", "12", "1.5e3", "[1]", `["a"]`, "{}", `{"a": 1}`,
	`"q"`, "(1,)", "\n", "\n\n", " ", "\u00a0", "é", "<", "</", "</parameter", "</param>", "</arg_value",
	"</arg_value>x", "</function>", "</tool_call>", "<parameter=x>", "<invoke name=\"y\">", "]]>", "<![CDATA[", "&lt;",
	"\\", `\"`, "▁"}

// writer is a model that writes at random, and often what it should not.
type writer struct {
	t     *testing.T
	tok   *tokenizer.Tokenizer
	bytes map[string]int32
	mask  Mask
	bits  []uint32
	text  string
	r     *rand.Rand
}

// newWriter begins an answer under a fresh mask.
func newWriter(t *testing.T, tok *tokenizer.Tokenizer, bytes map[string]int32, fresh func() (Mask, error),
	seed, stream uint64) *writer {
	t.Helper()
	m, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{t: t, tok: tok, bytes: bytes, mask: m, bits: make([]uint32, (tok.VocabSize()+31)/32),
		r: rand.New(rand.NewPCG(seed, stream))}
	w.look()
	return w
}

// formatsOf are the families whose calls are written so.
func formatsOf(t *testing.T, so func(s parse.Shape) bool) map[string]*TemplateChat {
	t.Helper()
	chats := map[string]*TemplateChat{}
	for _, name := range parse.Names() {
		f, err := parse.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if shapes, err := f.Shapes([]parse.Tool{{Name: "a"}}, false); err == nil && so(shapes[0]) {
			chats[name] = &TemplateChat{format: f}
		}
	}
	return chats
}

// forcedNote requires calls of a tool without arguments, or of one called note, whose arguments have a schema.
func forcedNote(t *testing.T, masks *GrammarMasks, chat *TemplateChat, schema string, several bool) (tools []Tool,
	c Constraint, fresh func() (Mask, error)) {
	t.Helper()
	tools = []Tool{{Name: "halt"}, {Name: "note", Parameters: json.RawMessage(schema)}}
	c, err := chat.ToolMask(tools, true, several)
	if err == nil {
		fresh, err = masks.Constrain(c)
	}
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return tools, c, fresh
}

// may says whether a token may come.
func (w *writer) may(id int32) bool { return w.bits[id/32]>>(id%32)&1 != 0 }

func (w *writer) take(id int32) {
	if err := w.mask.Accept(id); err != nil {
		w.t.Fatal(err)
	}
	w.text += w.tok.Bytes(id)
	w.look()
}

func (w *writer) look() {
	clear(w.bits)
	if err := w.mask.Allowed(w.bits); err != nil {
		w.t.Fatal(err)
	}
}

// try writes a text byte by byte as far as it may.
func (w *writer) try(text string) {
	for i := range len(text) {
		id, ok := w.bytes[text[i:i+1]]
		if !ok || !w.may(id) {
			return
		}
		w.take(id)
	}
}

// write writes until it may end, and gives whether it could.
func (w *writer) write(endings []string) bool {
	for range 1200 {
		for _, e := range w.tok.Ends() {
			if w.may(e) {
				return true
			}
		}
		switch n := w.r.IntN(10); {
		case n < 4:
			w.try(endings[w.r.IntN(len(endings))])
		case n < 7:
			w.try(temptations[w.r.IntN(len(temptations))])
		}
		var may []int32
		for id := range int32(w.tok.VocabSize()) {
			if w.may(id) && w.tok.Bytes(id) != "" {
				may = append(may, id)
			}
		}
		if len(may) > 0 {
			w.take(may[w.r.IntN(len(may))])
		}
	}
	return false
}

// TestForcedParams: what a random model is made to write as a call with tagged parameters is read as valid arguments.
func TestForcedParams(t *testing.T) {
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	masks := NewGrammarMasks(tok)
	bytes := byteTokens(tok)
	written := 0
	formats := formatsOf(t, func(s parse.Shape) bool { return s.Params != nil })
	for name, chat := range formats {
		for i, schema := range paramSchemas {
			valid := validator(t, schema)
			tools, c, fresh := forcedNote(t, masks, chat, schema, i%2 == 0)
			p := c.Calls.Shapes[1].Params
			endings := []string{p.Text[1], p.Value[1],
				c.Calls.Shapes[1].Close + c.Calls.Group[1],
				p.Text[1], p.Text[0]}
			for seed := range uint64(3) {
				w := newWriter(t, tok, bytes, fresh, seed, uint64(i))
				w.try(c.Calls.Group[0] + c.Calls.Shapes[1].Open)
				if !w.write(endings) {
					t.Logf("%s: no end after %q", name, w.text)
					continue
				}
				written++
				checkCalls(t, name, chat, tools, w.text, valid)
			}
		}
	}
	if len(formats) < 9 || written < len(formats)*20 {
		t.Errorf("%d formats, %d answers", len(formats), written)
	}
	t.Logf("%d formats, %d answers", len(formats), written)
}

// byteTokens are the tokens of single bytes.
func byteTokens(tok *tokenizer.Tokenizer) map[string]int32 {
	bytes := map[string]int32{}
	for id := range int32(tok.VocabSize()) {
		if b := tok.Bytes(id); len(b) == 1 {
			bytes[b] = id
		}
	}
	return bytes
}

func validator(t *testing.T, schema string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("s.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkCalls reads an answer at once and byte by byte: calls alone, with valid arguments.
func checkCalls(t *testing.T, name string, chat *TemplateChat, tools []Tool, text string, valid *jsonschema.Schema) {
	t.Helper()
	var first []CallPart
	for _, piece := range []int{len(text), 1} {
		p := chat.Parser("", ChatOptions{Tools: tools})
		var all []Part
		for rest := text; rest != ""; rest = rest[min(piece, len(rest)):] {
			all = append(all, p.Write(rest[:min(piece, len(rest))])...)
		}
		var calls []CallPart
		for _, part := range append(all, p.End()...) {
			if part.Call == nil {
				if strings.TrimSpace(part.Text) != "" {
					t.Errorf("%s: %q has the text %q", name, text, part.Text)
				}
				continue
			}
			if part.Call.Index == len(calls) {
				calls = append(calls, CallPart{Index: len(calls)})
			}
			calls[part.Call.Index].Name += part.Call.Name
			calls[part.Call.Index].Arguments += part.Call.Arguments
		}
		if first == nil {
			first = calls
		}
		if len(calls) == 0 || !reflect.DeepEqual(calls, first) {
			t.Errorf("%s: %q is read as %+v, and as %+v", name, text, first, calls)
		}
	}
	for _, call := range first {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(call.Arguments))
		if err == nil && call.Name == "note" {
			err = valid.Validate(v)
		}
		if err != nil || call.Name != "note" && call.Arguments != "{}" {
			t.Errorf("%s: %q is read as %+v: %v", name, text, call, err)
		}
	}
}

// TestTaggedArguments: what a family can write in tagged parameters is allowed and read back as it is, what it cannot
// is not allowed.
func TestTaggedArguments(t *testing.T) {
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	masks := NewGrammarMasks(tok)
	bytes := byteTokens(tok)
	for name, refused := range map[string][]string{
		"qwen3-coder": {`"</parameter>"`}, "seed": {`edges`, `"</parameter>"`}, "invoke": {`edges`, `"</parameter>"`},
		"glm": {}, "glm-4.7": {}, "hy3": {}, "minicpm": {}, "muse": {}, "deepseek-3.2": {}, "deepseek-4": {},
	} {
		f, err := parse.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		chat := &TemplateChat{format: f}
		c, err := chat.ToolMask([]Tool{callTool}, true, false)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := masks.Constrain(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, arguments := range append(callArguments[:len(callArguments)-1:len(callArguments)-1],
			`{"text": "</parameter>"}`, `{"list": ["</p>", "<parameter=x>"]}`, `{"other": [1, "a"], "more": "text"}`,
			`{"deep": {"a": {"b": [1, {"c": null, "d": "e\"f"}]}, "": []}, "list": []}`) {
			var want, got any
			if err := json.Unmarshal([]byte(arguments), &want); err != nil {
				t.Fatal(err)
			}
			var packed strings.Builder
			e := json.NewEncoder(&packed)
			e.SetEscapeHTML(false)
			if err := e.Encode(json.RawMessage(arguments)); err != nil {
				t.Fatal(err)
			}
			text, _ := f.Write([]parse.Call{{Name: "note", Arguments: packed.String()}})
			may := reads(t, fresh, bytes, text)
			can := true
			for _, r := range refused {
				can = can && !strings.Contains(arguments, r)
			}
			if may != can {
				t.Errorf("%s: %q is allowed: %v", name, text, may)
			}
			calls := readCalls(chat, "", text, 1)
			if can && (len(calls) != 1 || json.Unmarshal([]byte(calls[0].Arguments), &got) != nil ||
				!reflect.DeepEqual(got, want)) {
				t.Errorf("%s: %q is read as %+v", name, text, calls)
			}
		}
	}
}

// reads says whether a mask lets a text pass.
func reads(t *testing.T, fresh func() (Mask, error), bytes map[string]int32, text string) bool {
	t.Helper()
	m, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(text) {
		if m.Accept(bytes[text[i:i+1]]) != nil {
			return false
		}
	}
	return true
}
