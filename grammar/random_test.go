package grammar

import (
	"bytes"
	"encoding/json"
	"math/bits"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tokenizer"
)

// small is the vocabulary of the trained model in testdata: 2,048 tokens, bytes among them.
func small(t testing.TB) *Vocabulary {
	t.Helper()
	tok, err := tokenizer.Load(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	return NewVocabulary(tok)
}

// write lets a model that knows nothing go on with a text: any allowed token is as
// likely as another, and after patience tokens it looks for the end.
func write(t *testing.T, g *Grammar, rng *rand.Rand, begin string, patience int) (string, bool) {
	t.Helper()
	v := g.vocab
	set := make([]uint32, v.Words())
	k := g.NewMask()
	var text []byte
	var allowed []int32
	closing := []string{"}", "]", `"`}
	for _, id := range v.Spell(begin) {
		if k.Accept(id) != nil {
			break // members in another order than the schema's
		}
		text = append(text, v.words[id]...)
	}
	for n := 0; !k.Ended(); n++ {
		if n > 2000 {
			return string(text), false
		}
		if err := k.Allowed(set); err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		allowed = allowed[:0]
		for i, w := range set {
			for ; w != 0; w &= w - 1 {
				allowed = append(allowed, int32(32*i+bits.TrailingZeros32(w)))
			}
		}
		if len(allowed) == 0 {
			t.Fatalf("a dead end after %q in %.1000s", text, g.src.text)
		}
		id := allowed[rng.IntN(len(allowed))]
		if n > patience {
			var closers []int32
			for _, o := range allowed {
				if v.words[o] == nil {
					closers = []int32{o}
					break
				} else if slices.Contains(closing, string(v.words[o])) {
					closers = append(closers, o)
				}
			}
			if len(closers) > 0 {
				id = closers[rng.IntN(len(closers))]
			}
		}
		if err := k.Accept(id); err != nil {
			t.Fatalf("after %q token %d (%q) is in the mask, but: %v", text, id, v.words[id], err)
		}
		text = append(text, v.words[id]...)
	}
	return string(text), true
}

// TestRandomOutputs: texts that a random model is made to write, 2,000 of all schemas or 150 of one in eight, half of
// them begun as instances are, are all valid, as another validator sees it.
func TestRandomOutputs(t *testing.T) {
	n, want := 8, 150
	if testfiles.Exhaustive() {
		n, want = 1, 2000
	}
	v, cases := small(t), suite(t, n)
	rng := rand.New(rand.NewPCG(1, 2))
	valid, endless, skipped := 0, 0, 0
	for round := 0; valid < want && round < 16; round++ {
		for i, c := range cases {
			if valid >= want {
				break
			}
			opt := Options{Compact: (i+round)%2 == 0, Ordered: (i+round)%4 != 3}
			g, err := Compile(v, Schema(string(c.Schema)), opt)
			if err != nil {
				continue
			}
			check := validator(c)
			if check == nil {
				skipped++
				continue
			}
			begin := ""
			if len(c.Tests) > 0 && (i/2+round)%2 == 1 { // deep within a value
				var text bytes.Buffer
				if err := json.Compact(&text, c.Tests[rng.IntN(len(c.Tests))].Data); err != nil {
					t.Fatal(err)
				}
				begin = text.String()[:rng.IntN(text.Len())]
			}
			text, ended := write(t, g, rng, begin, 40)
			if !ended { // it did not find a required key's name by chance
				endless++
				continue
			}
			if err := validate(check, text); err != nil {
				t.Errorf("%s: %.300q is not valid: %v", c.name, text, err)
			}
			valid++
		}
	}
	t.Logf("%d texts, %d without end, %d schemas that the other validator does not read", valid, endless, skipped)
	if valid < want || endless > valid/4 {
		t.Errorf("%d texts of %d ended, %d did not", valid, want, endless)
	}
}

// TestRandomCases: a random model that writes items which differ, or members that other schemas see, comes to no dead
// end, and to what another validator takes.
func TestRandomCases(t *testing.T) {
	v := small(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, schema := range []string{
		`{"type":"array","items":{"enum":["a","ab","b",1,-2.5,true,null,["x"],{"k":"v"}]},"uniqueItems":true,"minItems":6}`,
		`{"type":"array","items":{"enum":["red","green","blue","re"]},"uniqueItems":true,"minItems":4}`,
		`{"type":"array","items":{"type":"boolean"},"uniqueItems":true,"minItems":2}`,
		`{"type":"object","properties":{"kind":{"enum":["a","b"]}},"required":["kind"],"oneOf":[{"properties":
			{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["x"]},{"properties":{"kind":{"const":"b"},"y":
			{"type":"array","items":{"enum":[1,2,3]},"uniqueItems":true}},"required":["y"]}],"unevaluatedProperties":false}`,
		`{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}}}],"anyOf":[{"properties":{"b":{"const":1}},
			"required":["b"]},{"properties":{"c":{"const":2}},"required":["c"]}],"unevaluatedProperties":false}`,
		`{"type":"array","prefixItems":[{"const":1}],"allOf":[{"prefixItems":[true,{"const":2}]}],"unevaluatedItems":false,
			"minItems":2}`,
	} {
		c := suiteCase{Schema: json.RawMessage(schema)}
		check := validator(c)
		for round := range 24 {
			g, err := Compile(v, Schema(schema), Options{Compact: round%2 == 0, Ordered: round%4 < 2})
			if err != nil {
				t.Fatal(err)
			}
			text, ended := write(t, g, rng, "", 30)
			if err := validate(check, text); ended && err != nil {
				t.Errorf("%s: %q is not valid: %v", schema, text, err)
			} else if !ended && round%2 == 0 {
				t.Errorf("%s: %.200q does not end", schema, text)
			}
		}
	}
}

// validate catches the other validator's panic at numbers beyond its bounds.
func validate(s *jsonschema.Schema, text string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = nil
		}
	}()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(value)
}

// ecmaSpace gives \s the meaning of ECMA-262: all of Unicode's blanks, where Go's has those of ASCII.
func ecmaSpace(pattern string) string {
	var b strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			i++
			switch {
			case pattern[i] != 's':
				b.WriteString(pattern[i-1 : i+1])
			case class:
				b.WriteString(`\s\v\p{Z}\x{feff}`)
			default:
				b.WriteString(`[\s\v\p{Z}\x{feff}]`)
			}
			continue
		case c == '[':
			class = true
		case c == ']':
			class = false
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// validator is the other validator, nil where it cannot read the schema.
func validator(c suiteCase) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Schema))
	if err != nil {
		return nil
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.UseRegexpEngine(func(s string) (jsonschema.Regexp, error) { return regexp.Compile(ecmaSpace(s)) })
	for _, name := range []string{"semver", "period"} { // names that no draft of JSON schema has
		compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	if compiler.AddResource("file:///schema.json", doc) != nil {
		return nil
	}
	s, err := compiler.Compile("file:///schema.json")
	if err != nil {
		return nil
	}
	return s
}
