package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGrammar: each kind of source, instances accepted and not, and what the verb
// ends with.
func TestGrammar(t *testing.T) {
	model := trained(t)
	schema := put(t, "s.json", `{"type":"object","properties":{"b":{"type":"integer"},"a":{}},"required":["b"]}`)
	for _, c := range []struct {
		args     []string
		stdin    string
		code     int
		accepted []bool
	}{
		{[]string{"--schema", schema}, "[{\"b\": 1, \"a\": [null]}, {\"a\":1}, 3]", 1, []bool{true, false, false}},
		{[]string{"--schema", schema}, `[{"data":{"b":1},"valid":true},{"data":{"b":"1"},"valid":false}]`, 0,
			[]bool{true, false}},
		{[]string{"--schema", schema}, `{"data":{"b":"x"},"valid":true}`, exitMismatch, []bool{false}},
		{[]string{"--schema", schema, "--compact"}, "{\"b\":1}\n{\"b\": 1}", 1, []bool{true, false}},
		{[]string{"--schema", schema, "--ordered"}, "{\"b\":1,\"a\":2}\n{\"a\":2,\"b\":1}", 1, []bool{true, false}},
		{[]string{"--any-json"}, "[1, [2.5e3, \"\\u00e9\"]]", 0, []bool{true, true}},
		{[]string{"--regex", "[a-c]+ é"}, "abc é\n", 0, []bool{true}},
		{[]string{"--choice", "yes,no"}, "yes\nno\nnot\n", 1, []bool{true, true, false}},
		{[]string{"--gbnf", put(t, "g", "root ::= \"(\" root* \")\"")}, "(()())\n(()\n", 1, []bool{true, false}},
	} {
		args := append([]string{"grammar", model, "--instances", "-", "--json"}, c.args...)
		r := gretaIn(t, c.stdin, args...)
		var got grammarReport
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != c.code || !got.Compiled {
			t.Errorf("%q: exit code %d, %d is wanted; %v\n%s%s", args, r.code, c.code, err, r.out, r.err)
			continue
		}
		for i, one := range got.Instances {
			if len(got.Instances) != len(c.accepted) || one.Accepted != c.accepted[i] || !one.Accepted && one.At == nil {
				t.Errorf("%q: instance %d: %+v", args, i, one)
			}
		}
		if got.Masks == nil || got.Masks.N == 0 || got.Vocabulary != 2048 {
			t.Errorf("%q: no times, or %d tokens", args, got.Vocabulary)
		}
		table := gretaIn(t, c.stdin, append([]string{"grammar", model, "--instances", "-"}, c.args...)...)
		if table.code != c.code || !strings.Contains(table.out, "masks: mean") {
			t.Errorf("%q as a table: %d\n%s", c.args, table.code, table.out)
		}
	}
}

func TestGrammarRefusals(t *testing.T) {
	model := trained(t)
	bad := put(t, "s.json", `{"items":{"uniqueItems":true}}`)
	r := greta(t, "grammar", model, "--schema", bad, "--json")
	var got grammarReport
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitUsage || got.Compiled ||
		got.Keyword != "uniqueItems" || got.At != "#/items" {
		t.Errorf("exit code %d, %v: %s", r.code, err, r.out)
	}
	for want, args := range map[string][]string{
		"keyword uniqueItems at #/items": {"--schema", bad},
		"just one of --schema":           {},
		"not 2 --choice --regex":         {"--regex", "a", "--choice", "b"},
		"1:10: there is no rule x":       {"--gbnf", put(t, "g", "root ::= x")},
		"a ( without its )":              {"--regex", "(a"},
		"no such file":                   {"--schema", "./nothing"},
		"--instances: instance 1":        {"--any-json", "--instances", put(t, "i", `{"a":1} {`)},
	} {
		r := greta(t, append([]string{"grammar", model}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: exit code %d, %s", args, r.code, r.err)
		}
	}
}
