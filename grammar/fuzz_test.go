package grammar

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzSources: no schema, expression or grammar panics or runs on, and where one
// compiles any text can be read with it.
func FuzzSources(f *testing.F) {
	for _, s := range []string{`{"type":"object","properties":{"a":{"enum":["b",{"c":[1]}]}},"required":["a"]}`,
		`{"oneOf":[{"required":["a"]},{"not":{"minProperties":2}}],"patternProperties":{"^x|y$":false}}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/a"},"contains":{"const":null}}}}`,
		`{"multipleOf":0.3,"minimum":-1e9,"exclusiveMaximum":5,"not":{"multipleOf":7}}`,
		`{"if":{"pattern":"a{2,3}$"},"then":{"maxLength":4},"else":{"format":"date-time"}}`} {
		f.Add(byte(0), s, `{"a":"b","x":[1,2.5e3,null]}`)
	}
	f.Add(byte(1), `^(a|b)*?[^c-d\w]{2,}(?=x)$|\u{1F600}`, "abab")
	f.Add(byte(2), "root ::= a \"x\"{1,3} | [a-z]* # c\na ::= root \"+\" a | \"\\x41\"", "xx")
	f.Fuzz(func(t *testing.T, kind byte, source, text string) {
		if len(source) > 2000 || len(text) > 200 {
			return
		}
		src := Schema(source)
		switch kind % 3 {
		case 1:
			src = Regex(source)
		case 2:
			src = GBNF(source)
		}
		m, err := build(src, Options{Compact: kind&64 != 0, Ordered: kind&128 != 0, MaxWork: 200_000}, nil)
		if err != nil {
			return
		}
		defer catch(&err)
		m.a.work = 0
		conf := m.start
		for i := range len(text) {
			if conf = m.stepByte(conf, text[i]); conf == dead {
				return
			}
		}
		if accepted := m.configs[conf].accept; accepted && kind%3 == 0 && !json.Valid([]byte(text)) {
			t.Errorf("%s accepts %q, which is no JSON", source, text)
		}
		if m.configs[conf].accept && kind%3 != 0 && strings.ContainsRune(text, 0xfffd) && len(text) == 1 {
			t.Errorf("%q accepts what is not UTF-8", source)
		}
	})
}
