package grammar

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// words is a vocabulary with what is awkward: parts of characters, bytes, tokens of
// the same bytes, tokens that span several parts of a JSON text, special ones.
func words(t testing.TB) *Vocabulary {
	t.Helper()
	list := [][]byte{nil, nil, nil, nil, nil} // </s>, <|call|>, <think>, </think>, <pad>
	for b := range 256 {
		list = append(list, []byte{byte(b)})
	}
	for _, w := range []string{"a", `":`, `{"`, `"}`, `","`, `":"`,
		"\xc3", "\xa9", "\xf0\x9f", "\x98\x80", "ab", "abc", " a",
		"  ", "\n\n", "true", "false", "null", "12", "123", "[]", "[[", "]]", `\"`, `\u00`, "hello world and more text",
		"é", "日本", "a\"", "name", "call", "<|call|>", "</think>", "lower", "UPPER", " Mixed", "-1", ".5", "e9", "+"} {
		list = append(list, []byte(w))
	}
	return newVocabulary(list, []int32{0}, map[string]int32{"<|call|>": 1, "<think>": 2, "</think>": 3, "<pad>": 4})
}

var sources = map[string]struct {
	src Source
	opt Options
}{
	"any json": {JSON(), Options{}},
	"schema": {Schema(`{"properties":{"name":{"type":"string","maxLength":9},"a":{"enum":["ab","é",12]}},
		"required":["a"]}`), Options{}},
	"compact": {Schema(`{"properties":{"name":{"pattern":"^[a-z]+$"},"a":{"items":{"type":"integer"}}},"required":["a"],
		"additionalProperties":false}`), Options{Compact: true, Ordered: true}},
	"regex":  {Regex(`(é|😀|日本)*[a-z ]{0,30}`), Options{}},
	"choice": {Choice("true", "name", "日本語", "abc"), Options{}},
	"gbnf":   {GBNF(`root ::= e` + "\n" + `e ::= e "+" e | "[" e "]" | [0-9]+`), Options{}},
	"after":  {Choice("name"), Options{After: "</think>"}},
	"lazy": {Source{}, Options{Triggers: []Trigger{{"<|call|>", JSON(), "\n"}, {"{\"", Regex("[a-z]+"), "\""}},
		Must: true}},
}

// TestMaskIsWhatBytesSay: a mask has a token just where its bytes can be read.
func TestMaskIsWhatBytesSay(t *testing.T) {
	for _, v := range []*Vocabulary{words(t), small(t)} {
		for name, s := range sources {
			g, err := Compile(v, s.src, s.opt)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			rng := rand.New(rand.NewPCG(3, 4))
			set := make([]uint32, v.Words()+3)
			for range 6 {
				k := g.NewMask()
				for n := 0; n < 25 && !k.Ended(); n++ {
					set[len(set)-1] = 7
					if err := k.Allowed(set); err != nil {
						t.Fatal(err)
					}
					if set[len(set)-1] != 0 {
						t.Fatal("what is beyond the vocabulary is allowed")
					}
					var allowed []int32
					for id := range int32(v.size) {
						ends := slices.Contains(v.ends, id)
						want := ends && g.m.configs[k.now()].accept
						if w := v.words[id]; !ends && len(w) > 0 {
							_, at := g.m.read(k.now(), string(w))
							want = at < 0
						}
						if got := set[id>>5]>>(id&31)&1 != 0; got != want {
							t.Fatalf("%s: token %d (%q) is allowed: %v, its bytes say %v", name, id, v.words[id], got, want)
						}
						if want {
							allowed = append(allowed, id)
						}
					}
					if len(allowed) == 0 {
						t.Fatalf("%s: a dead end", name)
					}
					if err := k.Accept(allowed[rng.IntN(len(allowed))]); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// feed reads tokens by their spelling; a word in < > is a special token.
func feed(t *testing.T, k *Mask, list ...string) error {
	t.Helper()
	for _, w := range list {
		id, special := k.g.vocab.special[w]
		if !special {
			for _, id := range k.g.vocab.Spell(w) {
				if err := k.Accept(id); err != nil {
					return err
				}
			}
			continue
		}
		if err := k.Accept(id); err != nil {
			return err
		}
	}
	return nil
}

// tagged is a text, in pieces, under options.
type tagged struct {
	opt  Options
	src  Source
	text []string
	ok   bool // it can be read
	ends bool // and may end there
}

func readTags(t *testing.T, v *Vocabulary, cases []tagged) {
	t.Helper()
	for _, c := range cases {
		g, err := Compile(v, c.src, c.opt)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		k := g.NewMask()
		if err := feed(t, k, c.text...); (err == nil) != c.ok {
			t.Errorf("%+v %q: %v", c.opt, c.text, err)
			continue
		}
		if may, err := k.MayEnd(); err != nil || c.ok && may != c.ends {
			t.Errorf("%q may end: %v, %v", c.text, may, err)
		}
	}
}

// TestDirect: calls without free text beside them, or a source instead of them.
func TestDirect(t *testing.T) {
	v := words(t)
	call := []Trigger{{"<|call|>", Schema(`{"type":"array","items":{"type":"integer"}}`), "</think>"}}
	list := []Trigger{{"<|call|>[", Schema(`{"type":"array","items":{"type":"integer"}}`), "]</think>"}}
	readTags(t, v, []tagged{
		{Options{Triggers: call, Direct: true}, Source{}, []string{"free"}, false, false},
		{Options{Triggers: call, Direct: true}, Source{}, nil, true, false},
		{Options{Triggers: call, Direct: true}, Source{}, []string{"\n", "<|call|>", "[1]", "</think>", " ", "<|call|>",
			"[2]",
			"</think>"}, true, true},
		{Options{Triggers: call, Direct: true}, Source{}, []string{"<|call|>", "[1]", "</think>", "x"}, false, false},
		{Options{Triggers: call, Direct: true, Between: []string{"abc"}}, Source{}, []string{"abc", "<|call|>", "[1]",
			"</think>"}, true, true},
		{Options{Triggers: call, Direct: true}, Choice("x"), []string{"x"}, true, true},
		{Options{Triggers: call, Direct: true}, Choice("x"), []string{"x", "<|call|>"}, false, false},
		{Options{Triggers: call, Direct: true}, Choice("x"), []string{"<|call|>", "[1]", "</think>"}, true, true},
		{Options{Triggers: call, Direct: true}, Choice("x"), nil, true, false},
		{Options{Triggers: call, Direct: true, After: "<think>"}, Choice("x"), []string{"hm", "<think>", "x"}, true, true},
		{Options{Triggers: call, Direct: true, After: "<think>"}, Choice("x"), []string{"hm"}, true, false},
		{Options{Triggers: list, Direct: true, Lead: [2]string{"<think>", "</think>"}}, Choice("x"),
			[]string{"<think>", "hm", "</think>", "\n", "<|call|>", "[", "[1]", "]", "</think>"}, true, true},
		{Options{Triggers: list, Direct: true, Lead: [2]string{"<think>", "</think>"}}, Choice("x"),
			[]string{"<think>", "hm", "</think>", "x"}, true, true},
		{Options{Triggers: list, Direct: true, Lead: [2]string{"<think>", "</think>"}}, Choice("x"),
			[]string{"<think>", "hm"}, true, false},
		{Options{Triggers: list, Direct: true, Lead: [2]string{"<think>", "</think>"}}, Choice("x"),
			[]string{"<think>", "hm", "</think>", "hm"}, false, false},
	})
}

// TestLead: thoughts between two tags may come before a source, and nothing else may.
func TestLead(t *testing.T) {
	think := Options{Lead: [2]string{"<think>", "</think>"}}
	readTags(t, words(t), []tagged{
		{think, Choice("abc"), []string{"abc"}, true, true},
		{think, Choice("abc"), nil, true, false},
		{think, Choice("abc"), []string{"hello"}, false, false},
		{think, Choice("abc"), []string{"\n"}, false, false},
		{think, Choice("abc"), []string{"</think>"}, false, false},
		{think, Choice("abc"), []string{"<think>", "hello"}, true, false},
		{think, Choice("abc"), []string{"<think>", "hello", "</think>"}, true, false},
		{think, Choice("abc"), []string{"<think>", "hello", "</think>", "abc"}, true, true},
		{think, Choice("abc"), []string{"<", "think", ">", "abc", "<", "/", "think", ">", "abc"}, true, true},
		{think, Choice("abc"), []string{"<think>", "</think>", "<think>"}, false, false},
		{think, Choice("abc"), []string{"<think>", "</think>", "hello"}, false, false},
		{think, Choice("abc"), []string{"abc", "<think>"}, false, false},
	})
}

// TestTags: free text until a tag, by its text or its special token, then the
// grammar; special tokens match no text.
func TestTags(t *testing.T) {
	v := words(t)
	call := []Trigger{{"<|call|>", Schema(`{"type":"array","items":{"type":"integer"}}`), "</think>"}}
	list := []Trigger{{"<|call|>[", Schema(`{"type":"array","items":{"type":"integer"}}`), "]</think>"}}
	readTags(t, v, []tagged{
		{Options{After: "</think>"}, Choice("abc"), []string{"hello", "</think>", "abc"}, true, true},
		{Options{After: "</think>"}, Choice("abc"), []string{"<think>", "a", "<", "/", "think", ">", "abc"}, true, true},
		{Options{After: "</think>"}, Choice("abc"), []string{"hello"}, true, false},
		{Options{After: "</think>"}, Choice("abc"), []string{"</think>", "a", "</think>"}, false, false},
		{Options{After: "</think>"}, Choice("abc"), []string{"</think>", "x"}, false, false},
		{Options{Triggers: call}, Source{}, []string{"free {\"text"}, true, true},
		{Options{Triggers: call}, Source{}, []string{"x", "<|call|>", "[1, 2]", "</think>", "more"}, true, true},
		{Options{Triggers: call}, Source{}, []string{"<|call|>", "[1]", "</think>", "<|call|>", "[]",
			"</think>"}, true, true},
		{Options{Triggers: call}, Source{}, []string{"<|call|>", "[1]"}, true, false},
		{Options{Triggers: call}, Source{}, []string{"<|call|>", "\"x"}, false, false},
		{Options{Triggers: call, Once: true}, Source{}, []string{"<|call|>", "[1]", "</think>", "x"}, false, false},
		{Options{Triggers: call, Must: true}, Source{}, []string{"free"}, true, false},
		{Options{Triggers: list, Must: true}, Source{}, []string{"<|call|>", "[[1, 2]", "]", "</think>"}, true, true},
		{Options{Triggers: list, Must: true}, Source{}, []string{"<|call|>", "[", "[1]", "]", "</think>", "x"}, true, true},
		{Options{Triggers: list, Must: true}, Source{}, []string{"<", "|call|>", "[", "[1]", "]", "</think>"}, true, true},
		{Options{Triggers: list, Must: true}, Source{}, []string{"<|call|>", "x"}, false, false},
		{Options{Triggers: list}, Source{}, []string{"free", "<think>", "more"}, true, true},
		{Options{Triggers: list}, Source{}, []string{"<|call|>", "[\"x"}, false, false},
		{Options{Triggers: call, Must: true, After: "<think>"}, Source{},
			[]string{"<|call|>", "any", "<think>", "<|call|>", "[]", "</think>"}, true, true},
	})
	for _, special := range []string{"<pad>", "<think>"} {
		g, err := Compile(v, JSON(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if feed(t, g.NewMask(), `"`, special) == nil {
			t.Errorf("%s is read as text", special)
		}
	}
	for _, bad := range []Options{{Triggers: []Trigger{{Begin: ""}}}, {Triggers: []Trigger{{Begin: "x"}}}} {
		if _, err := Compile(v, Source{}, bad); err == nil {
			t.Errorf("%+v compiles", bad)
		}
	}
	if _, err := Compile(v, JSON(), Options{Triggers: call}); err == nil {
		t.Error("a source and triggers compile")
	}
}

func TestForced(t *testing.T) {
	v := words(t)
	g, err := Compile(v, Schema(`{"type":"object","properties":{"name":{"type":"boolean"}},"required":["name"],
		"additionalProperties":false}`), Options{Compact: true})
	if err != nil {
		t.Fatal(err)
	}
	k := g.NewMask()
	var text strings.Builder
	for _, id := range k.Forced() {
		if err := k.Accept(id); err != nil {
			t.Fatal(err)
		}
		text.Write(v.words[id])
	}
	if got := text.String(); got != `{"name` { // what may follow the quote is a choice of tokens
		t.Errorf("%q is forced", got)
	}
	if err := feed(t, k, `":`, "t"); err != nil {
		t.Fatal(err)
	}
	if ids := k.Forced(); len(ids) == 0 || string(v.words[ids[0]]) != "r" {
		t.Errorf("%v is forced after t", ids)
	}
}

func TestRollbackAndClone(t *testing.T) {
	v := words(t)
	g, err := Compile(v, Regex(`a{3}|b`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := g.NewMask()
	if err := feed(t, k, "a", "a"); err != nil {
		t.Fatal(err)
	}
	c := k.Clone().(*Mask)
	if err := feed(t, c, "a"); err != nil {
		t.Fatal(err)
	}
	if err := c.Accept(0); err != nil || !c.Ended() || c.Accept(5) == nil || c.Accept(0) != nil {
		t.Errorf("the end: %v", err)
	}
	if err := k.Accept(0); err == nil {
		t.Error("the text ends after two of three")
	}
	if err := k.Rollback(2); err != nil || feed(t, k, "b") != nil {
		t.Errorf("after taking back: %v", err)
	}
	if k.Rollback(2) == nil || k.Rollback(-1) == nil || c.Rollback(1) != nil || c.Ended() {
		t.Error("too many tokens are taken back, or the end is not")
	}
	if k.Accept(-1) == nil || k.Accept(int32(v.size)) == nil || k.Accept(4) == nil {
		t.Error("tokens that are none are accepted")
	}
	if k.Allowed(make([]uint32, 1)) == nil {
		t.Error("a mask that is too short is filled")
	}
}

// TestMadeAnew: a grammar that has grown too large begins again, and texts go on.
func TestMadeAnew(t *testing.T) {
	defer func(n int) { maxKept = n }(maxKept)
	v := words(t)
	g, err := Compile(v, Schema(`{"type":"array","items":{"type":"string"},"maxItems":400}`), Options{Compact: true})
	if err != nil {
		t.Fatal(err)
	}
	maxKept = g.m.size() + 2000
	old, k := g.NewMask(), g.NewMask()
	if err := feed(t, old, `["a`); err != nil {
		t.Fatal(err)
	}
	set := make([]uint32, v.Words())
	for i := 0; g.epoch == 0; i++ {
		if i > 390 {
			t.Fatal("it is never made anew")
		}
		word := `,"a"`
		if i == 0 {
			word = `["a"`
		}
		if err := feed(t, k, word); err != nil {
			t.Fatal(err)
		}
		if err := k.Allowed(set); err != nil {
			t.Fatal(err)
		}
	}
	maxKept = 1 << 30
	if err := feed(t, old, `b"`, "]"); err != nil {
		t.Errorf("an older text: %v", err)
	}
	if may, err := old.MayEnd(); !may || err != nil {
		t.Errorf("an older text may not end: %v", err)
	}
	if err := feed(t, k, "]"); err != nil {
		t.Errorf("the long text: %v", err)
	}
}

// TestMaskAllocates nothing once a configuration's mask is known.
func TestMaskAllocates(t *testing.T) {
	v := words(t)
	g, err := Compile(v, JSON(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := g.NewMask()
	set := make([]uint32, v.Words())
	for _, text := range []string{"", `{"na`, `":[`} {
		if err := feed(t, k, text); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(20, func() {
			if err := k.Allowed(set); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("after %q: %v allocations a mask", text, n)
		}
	}
}

// TestTooComplex: what grows without bound is an error, and soon.
func TestTooComplex(t *testing.T) {
	for _, src := range []Source{
		Schema(`{"type":"number","allOf":[{"multipleOf":99991},{"multipleOf":99989}],"not":{"multipleOf":99971}}`),
		Schema(`{"type":"string","allOf":[{"pattern":"^(.{1,900}){1,900}a.{900}$"},{"pattern":"b.{901}$"}]}`),
	} {
		if _, err := build(src, Options{}, nil); err == nil {
			m, _ := build(src, Options{}, nil)
			var err error
			func() {
				defer catch(&err)
				m.read(m.start, `"`+strings.Repeat("ab", 4000))
			}()
			if !TooComplex(err) {
				t.Errorf("%s: %v", src.text, err)
			}
		} else if !TooComplex(err) {
			t.Errorf("%s: %v", src.text, err)
		}
	}
	_, err := build(Schema(`{"properties":{"a":{"type":"number","allOf":[{"multipleOf":99991},{"multipleOf":99989},`+
		`{"maximum":-3,"multipleOf":99971}]}}}`), Options{}, nil)
	var refused *Refused
	if !errors.As(err, &refused) || !strings.Contains(refused.Keyword, "multipleOf") ||
		!strings.HasPrefix(refused.At, "#/properties/a") {
		t.Errorf("%v", err)
	}
}

// TestNeverGivesUp: however little a mask may cost, what it allows leads to a valid text.
func TestNeverGivesUp(t *testing.T) {
	defer func(work, search int) { maskWork, maxSearch = work, search }(maskWork, maxSearch)
	v := small(t)
	rng := rand.New(rand.NewPCG(5, 6))
	ended, n := 0, 20
	if testfiles.Exhaustive() {
		n = 5
	}
	for _, c := range suite(t, n) {
		maskWork, maxSearch = 5_000_000, 30000
		g, err := Compile(v, Schema(string(c.Schema)), Options{Compact: true, Ordered: true})
		check := validator(c)
		if err != nil || check == nil {
			continue
		}
		maskWork, maxSearch = 60, 4
		text, ok := write(t, g, rng, "", 40)
		if !ok {
			continue // it found no end by chance
		}
		ended++
		if err := validate(check, text); err != nil {
			t.Errorf("%s: %.300q is not valid: %v", c.name, text, err)
		}
	}
	if ended < 20 {
		t.Errorf("%d texts ended", ended)
	}
	t.Logf("%d texts ended", ended)
}

// TestLongTexts: what a text of many characters may go on with is found, also where its beginning is taken for
// something else.
func TestLongTexts(t *testing.T) {
	v := small(t)
	g, err := Compile(v, Params(`{"properties": {"a": {"type": "string", "maxLength": 32767}}}`, xmlTags), Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := g.NewMask()
	if err := feed(t, k, "<p=a>true"); err != nil {
		t.Fatal(err)
	}
	set := make([]uint32, v.Words())
	if err := k.Allowed(set); err != nil || set[v.Spell("x")[0]>>5]>>(v.Spell("x")[0]&31)&1 == 0 {
		t.Errorf("an x is not allowed: %v", err)
	}
	if n := g.m.a.work; n > 100_000 { // that no text has the tag in it is not looked for in all lengths
		t.Errorf("the mask took %d steps", n)
	}
	if err := feed(t, k, "</p>"); err == nil {
		t.Error("a value that is read as true is allowed")
	}
}

// constrained is a text that a source allows.
type constrained struct {
	text string
	src  Source
	opt  Options
}

// constrainedTexts have long texts in them that a tag or a quote ends.
func constrainedTexts() map[string]constrained {
	const schema = `{"type": "object", "properties": {"text": {"type": "string"}, "maybe": {"type": ["string", "null"]},
		"kind": {"enum": ["1", "two"]}, "short": {"type": "string", "maxLength": 200}, "n": {"type": "integer"},
		"either": {"anyOf": [{"type": "string"}, {"type": "array"}]}, "any": {}}, "additionalProperties": false}`
	const code = "def f(x):\n\tif x < 3 and y[0] > 'a':  # \"why\"\n\t\treturn {1: \\n}\n\n<div>Zürich 東京 — plain words " +
		"go on and on, as they do in letters and in books.</div>\n"
	tags := Tags{Open: "<parameter=", Text: [2]string{">\n", "\n</parameter>\n"},
		Value: [2]string{">\n", "\n</parameter>\n"}, NameEnd: ">", End: "</parameter>",
		Types: map[string][]string{"text": {"string"}, "maybe": {"string", "null"},
			"kind": {"string"}, "short": {"string"}, "n": {"integer"}, "either": {"string", "array"}}}
	tagged, python := "", ""
	escapes := strings.NewReplacer("\\", "\\\\", "'", "\\'", "\n", "\\n", "\t", "\\t")
	for _, name := range []string{"text", "maybe", "short", "either", "any"} {
		tagged += "<parameter=" + name + ">\n" + code + "\n</parameter>\n"
	}
	for _, name := range []string{"text", "maybe", "short", "either", "any"} {
		python += ", " + name + "='" + escapes.Replace(code) + "'"
	}
	call := Trigger{"<tool_call>\n", Params(schema, tags), "</tool_call>"}
	return map[string]constrained{
		"params": {tagged, Params(schema, tags), Options{}},
		"python": {"[f(" + python[2:] + ")]", Python([]Call{{"f", schema}}, true), Options{}},
		"free":   {code + code + "<tool_call>\n" + tagged + "</tool_call>", Source{}, Options{Triggers: []Trigger{call}}},
		"think":  {code + code + "</think>{}", JSON(), Options{After: "</think>"}},
	}
}

// TestSlices: masks that slices of the vocabulary make are those that a look at each token makes.
func TestSlices(t *testing.T) {
	v, n := qwen(t), 3
	if testfiles.Exhaustive() {
		n = 1
	}
	compared := 0
	for name, p := range constrainedTexts() {
		p.opt.Compact, p.opt.Ordered = true, true
		g, err := Compile(v, p.src, p.opt)
		if err != nil {
			t.Fatal(err)
		}
		compared += compareMasks(t, g, name, p.text, n)
	}
	if compared < 200/n {
		t.Errorf("%d masks are compared", compared)
	}
}

// compareMasks has the mask before each token of a text, and makes one of n again by a look at each token.
func compareMasks(t *testing.T, g *Grammar, name, text string, n int) int {
	v, k, known := g.vocab, g.NewMask(), map[int32]bool{}
	set, want := make([]uint32, v.Words()), make([]uint32, v.Words())
	for i, id := range v.Spell(text) {
		if err := k.Allowed(set); err != nil {
			t.Fatal(err)
		}
		if clear(want); i%n == 0 && !known[k.now()] {
			known[k.now()] = true
			for i := range v.slices {
				g.walk(&v.slices[i].tree, k.now(), want)
			}
			if g.m.configs[k.now()].accept {
				g.setEnds(want)
			}
			if !slices.Equal(set, want) {
				for id, w := range v.words {
					if x, y := set[id>>5]>>(id&31)&1, want[id>>5]>>(id&31)&1; x != y {
						t.Fatalf("%s: after %d tokens %q is allowed: %d, looked at alone: %d", name, len(k.tokens), w, x, y)
					}
				}
			}
		}
		if err := k.Accept(id); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return len(known)
}

// TestCounted: masks that are made with round counts are those that a look at each token makes.
func TestCounted(t *testing.T) {
	v, n := qwen(t), 6
	if testfiles.Exhaustive() {
		n = 1
	}
	words := strings.Repeat("they say so, é and 東京, in  letters ", 12)
	cut := func(n int) string { return string([]rune(words)[:n]) }
	ab := strings.Repeat("ab", 100)
	tags := Tags{Open: "<p=", Text: [2]string{">", "</p>"}, Value: [2]string{">", "</p>"}, NameEnd: ">", End: "</p>"}
	for _, c := range []struct {
		src  Source
		text string
	}{
		{Schema(`{"type": "string", "maxLength": 300}`), `"` + cut(300) + `"`},
		{Schema(`{"type": "string", "minLength": 200}`), `"` + cut(220) + `"`},
		{Schema(`{"type": "string", "minLength": 100, "maxLength": 350}`), `"` + cut(350) + `"`},
		{Schema(`{"type": "string", "minLength": 300, "maxLength": 300}`), `"` + cut(300) + `"`},
		{Schema(`{"type": "string", "maxLength": 70, "not": {"pattern": "xy"}}`), `"` + cut(70) + `"`},
		{Schema(`{"type": "string", "not": {"maxLength": 150}}`), `"` + cut(180) + `"`},
		{Schema(`{"type": "string", "pattern": "^(ab){50,100}$"}`), `"` + ab + `"`},
		{Schema(`{"type": "string", "pattern": "^[ab]{0,200}x$", "maxLength": 100}`), `"` + ab[:99] + `x"`},
		{Schema(`{"type": "string", "pattern": "^.{0,300}z{40}$", "maxLength": 120}`),
			`"` + cut(80) + strings.Repeat("z", 40) + `"`},
		{Schema(`{"anyOf": [{"maxLength": 40, "pattern": "^t"}, {"minLength": 90}, {"maxItems": 3}]}`), `"` + cut(140) + `"`},
		{Schema(`{"type": "string", "maxLength": 200, "enum": ["` + cut(130) + `", "` + cut(140) + `"]}`),
			`"` + cut(140) + `"`},
		{Regex(`([a-z, ]|é|東|京){3,333}`), cut(333)},
		{Regex(`(a|ab|b){40,64}c{0,90}`), strings.Repeat("ab", 32) + strings.Repeat("c", 90)},
		{GBNF(`root ::= [^"]{0,150} "\"" root?`), cut(150) + `"` + cut(3) + `"`},
		{Params(`{"properties": {"s": {"type": "string", "maxLength": 130}}}`, tags), "<p=s>" + cut(130) + "</p>"},
		{Python([]Call{{"f", `{"properties": {"s": {"type": "string", "maxLength": 140}}}`}}, true), `[f(s='` + cut(140) +
			`')]`},
	} {
		g, err := Compile(v, c.src, Options{Compact: true, Ordered: true})
		if err != nil {
			t.Fatalf("%s: %v", c.src.text, err)
		}
		compareMasks(t, g, c.src.text, c.text, n)
	}
}
