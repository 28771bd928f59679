package serve

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tokenizer"
)

// TestThoughtfulForms: of an answer of random tokens that may think and must be of a form, what is read behind the
// thoughts is of the form, in every format of reasoning; where the prompt does not begin thoughts, the answer begins
// with their tag or is the form at once.
func TestThoughtfulForms(t *testing.T) {
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	masks := NewGrammarMasks(tok)
	schema := json.RawMessage(`{"type": "object", "properties": {"a": {"enum": [1, "a<b", true]}}, "required": ["a"],
		"additionalProperties": false}`)
	formats, thoughtful := 0, map[bool]int{}
	for _, name := range parse.Names() {
		f, err := parse.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if !f.Reasoning() {
			continue
		}
		formats++
		chat := &TemplateChat{format: f}
		tags, _ := f.Around()
		for seed := range uint64(20) {
			prompt := []string{"", "ask: " + tags[0]}[seed%2]
			c := Constraint{Schema: schema, Thoughts: chat.Thoughts(prompt, ChatOptions{Effort: "high"})}
			fresh, err := masks.Constrain(c)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			begin := ""
			if seed%2 == 0 && seed%4 == 0 {
				begin = tags[0]
			}
			text := think(t, tok, fresh, begin, tags[1], seed%2 == 1 || begin != "", rand.New(rand.NewPCG(seed, 1)))
			p := chat.Parser(prompt, ChatOptions{Form: true})
			var content, thoughts strings.Builder
			for _, part := range append(p.Write(text), p.End()...) {
				content.WriteString(part.Text)
				thoughts.WriteString(part.Reasoning)
				if part.Call != nil {
					t.Errorf("%s: a call in %q", name, text)
				}
			}
			thoughtful[thoughts.Len() > 0]++
			if c := content.String(); c != `{"a":1}` && c != `{"a":"a<b"}` && c != `{"a":true}` {
				t.Errorf("%s, seed %d: %q is read as %q behind %q", name, seed, text, c, thoughts.String())
			}
		}
	}
	if formats < 12 || thoughtful[true] == 0 || thoughtful[false] == 0 {
		t.Errorf("%d formats, thoughts %v", formats, thoughtful)
	}
}

// think writes random tokens that a mask allows until the text may end. Some tokens behind the beginning of thoughts
// their end is written, which random tokens would not find.
func think(t *testing.T, tok *tokenizer.Tokenizer, fresh func() (Mask, error), begin, end string, thinks bool,
	r *rand.Rand) string {
	t.Helper()
	m, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	bytes := map[string]int32{}
	for id := range int32(tok.VocabSize()) {
		if b := tok.Bytes(id); len(b) == 1 {
			bytes[b] = id
		}
	}
	text := ""
	write := func(s string) {
		for i := range len(s) {
			if err := m.Accept(bytes[s[i:i+1]]); err != nil {
				t.Fatalf("%q after %q: %v", s, text, err)
			}
		}
		text += s
	}
	write(begin)
	bits := make([]uint32, (tok.VocabSize()+31)/32)
	for n := range 1000 {
		if err := m.Allowed(bits); err != nil {
			t.Fatal(err)
		}
		if e := bytes[end[:1]]; n > 30 && thinks && bits[e/32]>>(e%32)&1 != 0 { // not within a character
			write(end)
			thinks = false
			continue
		}
		var may []int32
		for id := range int32(tok.VocabSize()) {
			if bits[id/32]>>(id%32)&1 != 0 {
				may = append(may, id)
			}
		}
		for _, e := range tok.Ends() {
			if bits[e/32]>>(e%32)&1 != 0 {
				return text
			}
		}
		if !thinks && text == "" { // not one of the tag's
			may = []int32{bytes["{"]}
		}
		id := may[r.IntN(len(may))]
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		text += tok.Bytes(id)
	}
	t.Fatalf("no end after %q", text)
	return ""
}
