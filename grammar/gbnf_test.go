package grammar

import (
	"strings"
	"testing"
)

func TestGBNF(t *testing.T) {
	for _, c := range []struct{ grammar, yes, no string }{
		{"root ::= \"a\" [b-d]+ # more\n", "ab|abcd", "a|e|abe"},
		{"# begin\nroot ::= (\n  \"x\" |\n  y\n)\ny ::= \"\\x41\\u00e9\" .?", "x|Aé|Aé!", "|A|xx"},
		{"root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= \"(\" expr \")\" | [0-9]{1,2}\n", // left recursion
			"1|12+(3+4)+5|((1))", "1+|123|(1|)"},
		{"root ::= \"a\" root \"b\" | \"\"", "|ab|aabb", "a|abb|ba"},
		{"root ::= (\"a\" root \"b\"){2} | \"c\"", "c|acbacb|aacbacbbacb", "acb|acbacbacb"},
		{"root ::= item* \"!\"\nitem ::= \"[\" item* \"]\"", "!|[]!|[[][]][]!", "[|]!|[!"},
		{"root ::= ws \"k\"\nws ::= | \" \" ws", "k|   k", "|  "},
		{"root ::= [^\"\\n\\]]{2,} | \"\\\"\" \"\\\\\"", "ab|é😀|\"\\", "a|a\"|a]"},
		{"root ::= (x | \"y\")?\nx ::= \"(\" root \")\"", "|y|(y)|(())", "x|(|yy"},
		{"root ::= [-a] [a\\-z] [+-]", "-a-|a-+|az-", "b|--b"},
	} {
		m, err := build(GBNF(c.grammar), Options{}, nil)
		if err != nil {
			t.Errorf("%q: %v", c.grammar, err)
			continue
		}
		for _, s := range strings.Split(c.yes, "|") {
			if !m.accepts(s) {
				t.Errorf("%q refuses %q", c.grammar, s)
			}
		}
		for _, s := range strings.Split(c.no, "|") {
			if m.accepts(s) {
				t.Errorf("%q accepts %q", c.grammar, s)
			}
		}
	}
}

func TestGBNFErrors(t *testing.T) {
	for grammar, want := range map[string]string{
		"":                                  "no rule root",
		"root ::= \"a":                      `1:12: a " is expected`,
		"root ::= \"a\"\nx = \"b\"":         "2:3: ::= is expected after x",
		"root ::= [a":                       "1:12: a ] is expected",
		"root ::= a b\na ::= \"x\"":         "1:12: there is no rule b",
		"root ::= (\"a\"":                   "1:14: ) is expected for the ( at 1:10",
		"root ::= \"a\")":                   "1:13: a line end is expected",
		"root ::= *":                        `1:10: '*' repeats nothing`,
		"root ::= \"a\"{2,1}":               "{m,n} wants",
		"root ::= \"a\"{x}":                 "{m}, {m,} or {m,n}",
		"root ::= \"\\q\"":                  `1:12: the escape \q`,
		"root ::= \"a\"\nroot ::= \"b\"":    "2:1: the rule root is there twice",
		"root ::= \"a\" root":               "1:1: the rule root never ends",
		"root ::= \"a\" | x\nx ::= x \"a\"": "2:1: the rule x never ends",
		"root ::= %":                        "1:10: '%' begins no part",
		"root ::= <think>":                  "tokens in < >",
		"root ::= [z-a]":                    "ends before it begins",
		"root ::= \"a\"{30000}":             "more than 20000",
	} {
		_, err := build(GBNF(grammar), Options{}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %q is wanted", grammar, err, want)
		}
	}
}
