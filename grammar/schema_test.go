package grammar

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestKeywords holds each keyword, and what it makes of its contrary, to examples:
// a schema, values that are valid, values that are not.
func TestKeywords(t *testing.T) {
	for _, c := range []struct{ schema, yes, no string }{
		{`true`, `1|"x"|null|[1,{"a":[]}]|{"b":{"c":1.5e3}}|"\ud83d\ude00"`,
			"\"\xc3\\u00a9\"|\"\xc3\"|" + `nul|01|"a|{"a"}|[1,]|"\ud83d"|'x'`},
		{`{"type":["integer","null"]}`, `1|-3|2.0|null|1e3`, `1.5|"1"|true`},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer"}`, `1`, `1.0`},
		{`{"enum":["a","bc",1,null,{"x":[1]}]}`, `"a"|"\u0061"|1|1.0|null|{"x":[1]}`, `"b"|2|{"x":[1,2]}|{}`},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","enum":[["a"],{"x":[1,{}]}]}`, `["a"]|{"x":[1,{}]}`,
			`["b"]|[1]|{"x":[2,{}]}|{"x":[1,{"y":1}]}|{"x":1}|[]|{}`},
		{`{"const":"é\n"}`, `"é\n"|"\u00e9\u000A"`, `"e"`},
		{`{"minLength":2,"maxLength":3}`, `"ab"|"äöü"|"😀😀"|1`, `"a"|"abcd"|"😀"`},
		{`{"type":"string","pattern":"^a+$"}`, `"a"|"aaa"`, `""|"ab"|1`},
		{`{"type":"string","pattern":"b"}`, `"abc"|"b"`, `"ac"`},
		{`{"type":"string","format":"date"}`, `"2024-02-29"|"1999-12-31"`, `"2023-02-29"|"2024-13-01"|"x"`},
		{`{"minimum":-5,"exclusiveMaximum":10.5}`, `-5|0|10.4|9|10.49999|-4.9`, `-5.1|10.5|11|100`},
		{`{"minimum":0}`, `0|-0|1e9|0.1|-0.0e4`, `-0.1|-1|-1e-9`},
		{`{"exclusiveMinimum":0}`, `1|0.001|1e-3`, `0|0.00|0e5|-1`},
		{`{"multipleOf":3}`, `0|3|-6|9.0|"x"`, `1|3.5`},
		{`{"multipleOf":0.25}`, `0.5|1|2.75|1.250`, `0.3|1.255`},
		{`{"type":"object","required":["b"],"properties":{"a":{"type":"null"},"b":true}}`,
			`{"b":1}|{"b":1,"a":null}|{"a":null,"b":[]}|{"c":1,"b":2}`, `{}|{"a":null}|{"b":1,"a":2}`},
		{`{"properties":{"a":{}},"additionalProperties":false}`, `{}|{"a":1}|3`, `{"b":1}|{"a":1,"a":2}`},
		{`{"patternProperties":{"^x":{"type":"number"},"y$":{"minimum":5}},"additionalProperties":{"type":"string"}}`,
			`{"xa":1,"b":"c"}|{"xy":7}|{"y":9}|{"y":"s"}`, `{"xa":"s"}|{"xy":3}|{"b":1}`},
		{`{"propertyNames":{"maxLength":2}}`, `{"ab":1}`, `{"abc":1}`},
		{`{"properties":{"a":{},"b":{}},"required":["a"],"minProperties":2}`, `{"a":1,"b":2}|{"a":1,"c":2}`, `{"a":1}`},
		{`{"properties":{"a":{},"b":{},"c":{}},"minProperties":2,"additionalProperties":false}`, `{"a":1,"c":2}`, `{"a":1}`},
		{`{"minProperties":1,"maxProperties":2}`, `{"a":1}|{"a":1,"b":2}`, `{}|{"a":1,"b":2,"c":3}`},
		{`{"items":{"type":"number"},"minItems":1,"maxItems":2}`, `[1]|[1,2]|{}`, `[]|[1,2,3]|["a"]`},
		{`{"prefixItems":[{"type":"number"},{"type":"string"}],"items":false}`, `[]|[1]|[1,"a"]`, `["a"]|[1,"a",2]`},
		{`{"items":[{"type":"number"}],"additionalItems":{"type":"null"}}`, `[]|[1]|[1,null,null]`, `[null]|[1,1]`},
		{`{"contains":{"const":1},"maxItems":3}`, `[1]|[0,1]|[0,1,0]|"x"`, `[]|[0]|[0,0,0]`},
		{`{"contains":{"const":1},"minContains":2,"maxContains":2}`, `[1,1]|[0,1,1,5]`, `[1]|[1,1,1]`},
		{`{"uniqueItems":true,"maxItems":1}`, `[]|[1]`, `[1,2]`},
		{`{"anyOf":[{"type":"string","maxLength":1},{"minimum":3}]}`, `"a"|"abc"|4|null`, `1`},
		{`{"oneOf":[{"multipleOf":2},{"multipleOf":3}]}`, `2|3|4|9`, `6|1|12`},
		{`{"oneOf":[{"required":["a"]},{"required":["b"]}],"type":"object"}`, `{"a":1}|{"b":1}|{"b":1,"c":2}`,
			`{}|{"a":1,"b":2}|{"c":1}`},
		{`{"allOf":[{"properties":{"a":{"minimum":2}}},{"properties":{"a":{"maximum":3}}}],"required":["a"]}`,
			`{"a":2}|{"a":3}|{"a":"x"}`, `{"a":1}|{"a":4}|{}`},
		{`{"not":{"type":"object","properties":{"a":{"const":1}}}}`, `3|{"a":2}|[]`, `{}|{"a":1}|{"b":1}`},
		{`{"not":{"required":["a"]}}`, `{}|{"b":1}`, `{"a":1}|3`},
		{`{"not":{"additionalProperties":{"type":"number"}}}`, `{"a":"x"}|{"b":1,"c":null}`, `{}|{"a":1}|3`},
		{`{"not":{"items":{"type":"number"}},"maxItems":2}`, `["a"]|[1,"a"]`, `[]|[1]|[1,2]|[1,2,"a"]`},
		{`{"not":{"enum":["ab",3]}}`, `"a"|"abc"|4|33|null`, `"ab"|3|3.0`},
		{`{"if":{"properties":{"k":{"const":"n"}},"required":["k"]},"then":{"required":["v"]},
			"else":{"maxProperties":1}}`,
			`{"k":"n","v":1}|{}|{"k":"m"}|{"v":1,"k":"n"}`, `{"k":"n"}|{"k":"m","v":1}`},
		{`{"dependentRequired":{"a":["b"]}}`, `{}|{"b":1}|{"b":1,"a":2}|5`, `{"a":1}`},
		{`{"dependencies":{"a":["b"],"c":{"properties":{"d":{"type":"null"}}}}}`, `{"d":1}|{"c":1,"d":null}`,
			`{"a":1}|{"c":1,"d":1}`},
		{`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"}},
			"additionalProperties":false}}}`, `{}|{"l":{"l":{}}}`, `{"l":1}|{"m":1}`},
		{`{"$defs":{"a":{"$anchor":"q","type":"null"}},"items":{"$ref":"#q"}}`, `[null]|[]`, `[1]`},
		{`{"type":"object","properties":{"a":false,"b":{"not":{}}},"additionalProperties":true}`, `{}|{"c":1}`,
			`{"a":1}|{"b":1}`},
	} {
		example(t, c.schema, c.yes, c.no)
	}
}

// TestKeywordsOfCases: items that differ, and members and items that other schemas see.
func TestKeywordsOfCases(t *testing.T) {
	for _, c := range []struct{ schema, yes, no string }{
		{`{"items":{"enum":["a",1,1.0,[1],{"x":1,"y":2}]},"uniqueItems":true}`,
			`[]|["a"]|["a",1]|[1.0,"\u0061",[1]]|[{"y":2,"x":1},1]|5`,
			`["a","a"]|["a","\u0061"]|[1,1.0]|[[1],[1.0]]|[{"x":1,"y":2},"a",{"y":2,"x":1}]|[2]`},
		{`{"items":{"type":"boolean"},"uniqueItems":true,"minItems":2}`, `[true,false]|[false,true]`,
			`[true]|[true,true]|[true,false,true]`},
		{`{"items":{"$ref":"#/$defs/e","not":{"const":"b"}},"uniqueItems":true,"$defs":{"e":{"enum":["a","b","c"]}}}`,
			`["c","a"]|["a"]`, `["a","b"]|["a","c","a"]`},
		{`{"allOf":[{"properties":{"a":{}}}],"properties":{"b":{"type":"null"}},"unevaluatedProperties":false}`,
			`{}|{"a":1,"b":null}|3`, `{"c":1}|{"b":1}|{"a":1,"c":1}`},
		{`{"anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{}}}],
			"unevaluatedProperties":{"type":"string"}}`, `{"a":1,"b":2}|{"a":"x","b":2}|{"b":[],"c":"x"}|{"a":1,"c":"x"}`,
			`{"a":2}|{"a":1,"c":2}|{"c":3}`},
		{`{"oneOf":[{"properties":{"k":{"const":"a"},"x":{}}},{"properties":{"k":{"const":"b"},"y":{}}}],"required":["k"],
			"unevaluatedProperties":false}`, `{"k":"a","x":1}|{"k":"b","y":1}`, `{"k":"a","y":1}|{"k":"b","x":1}|{"k":"c"}`},
		{`{"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"properties":{"x":{}}},
			"else":{"properties":{"y":{}}},"unevaluatedProperties":false}`, `{"k":1,"x":1}|{"y":1}|{}`,
			`{"k":1,"y":1}|{"x":1}|{"k":2}`},
		{`{"dependentSchemas":{"a":{"properties":{"a":{},"b":{}}}},"unevaluatedProperties":false}`, `{}|{"a":1,"b":2}`,
			`{"b":2}|{"a":1,"c":1}`},
		{`{"$ref":"#/$defs/n","unevaluatedItems":{"type":"null"},"$defs":{"n":{"prefixItems":[{"type":"number"}]}}}`,
			`[]|[1]|[1,null,null]`, `[null]|[1,2]`},
		{`{"properties":{"a":{"not":{"properties":{"x":{}}}}},"allOf":[{"unevaluatedProperties":false}]}`, `{}|1`,
			`{"a":1}`},
	} {
		example(t, c.schema, c.yes, c.no)
	}
}

// TestReferences: references are relative to the nearest schema with an identifier, as are anchors.
func TestReferences(t *testing.T) {
	for _, c := range []struct{ schema, yes, no string }{
		{`{"$id":"https://e.com/a.json","$ref":"#n","$defs":{"z":{"$anchor":"n","type":"null"},
			"x":{"$id":"b.json","$defs":{"y":{"$anchor":"n","type":"string"}}}}}`, `null`, `"s"`},
		{`{"properties":{"a":{"$id":"in.json","$defs":{"t":{"type":"null"}},"items":{"$ref":"#/$defs/t"}}},
			"$defs":{"t":{"type":"string"}}}`, `{"a":[null]}`, `{"a":["x"]}`},
		{`{"$id":"http://e.com/d/a.json","items":{"$ref":"/d/b.json#/$defs/t"},"$defs":{"x":{"$id":"b.json",
			"$defs":{"t":{"type":"null"}}}}}`, `[null]`, `[1]`},
		{`{"properties":{"a":{"$id":"in.json","items":{"$ref":"#/$defs/t"}}},"$defs":{"t":{"type":"null"}}}`,
			`{"a":[null]}`, `{"a":[1]}`}, // which is not allowed, but meant
		{`{"enum":[{"$id":"b.json","$anchor":"n"}],"$defs":{"x":{"$id":"b.json","type":"object"}},"$ref":"b.json"}`,
			`{"$id":"b.json","$anchor":"n"}`, `{}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":{"$ref":"#n"},
			"definitions":{"x":{"$id":"#n","type":"null"}}}`, `[null]`, `[1]`},
		{`{"$dynamicAnchor":"n","type":"object","properties":{"c":{"$dynamicRef":"#n"}},"additionalProperties":false}`,
			`{"c":{"c":{}}}|{}`, `{"c":1}|{"c":{"d":1}}`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"object","additionalProperties":
			{"$recursiveRef":"#"}}`, `{"a":{"b":{}}}`, `{"a":1}`},
	} {
		example(t, c.schema, c.yes, c.no)
	}
}

// TestConditions: conditions one behind the other, each of another value of a member, are no more alternatives than
// there are values.
func TestConditions(t *testing.T) {
	var b strings.Builder
	const n = 20
	for i := range n {
		fmt.Fprintf(&b, `,{"if":{"properties":{"kind":{"const":"k%d"}},"required":["kind"]},
			"then":{"properties":{"v":{"const":%d}},"required":["v"]},"else":{"not":{"required":["w%d"]}}}`, i, i, i)
	}
	schema := `{"type":"object","properties":{"kind":{"type":"string"}},"allOf":[` + b.String()[1:] + `]}`
	example(t, schema, `{}|{"kind":"other","v":"x"}|{"kind":"k3","v":3}|{"v":19,"kind":"k19","w19":1}|{"v":7}`,
		`{"kind":"k3"}|{"kind":"k3","v":4}|{"kind":"k19","v":19,"w18":1}|{"w2":1}|3`)
	example(t, strings.ReplaceAll(schema, `,"required":["kind"]}`, `}`), `{"kind":"other"}|{"kind":"k3","v":3}`,
		`{}|{"kind":"k3"}|{"v":3}|{"kind":"k3","v":4}`)
}

// example holds a schema to values that are valid and values that are not.
func example(t *testing.T, schema, yes, no string) {
	t.Helper()
	m, err := build(Schema(schema), Options{}, nil)
	if err != nil {
		t.Errorf("%s: %v", schema, err)
		return
	}
	for _, s := range strings.Split(yes, "|") {
		if !m.accepts(s) {
			t.Errorf("%s refuses %s", schema, s)
		}
	}
	for _, s := range strings.Split(no, "|") {
		if m.accepts(s) {
			t.Errorf("%s accepts %s", schema, s)
		}
	}
}

// TestRefusals: what cannot be honoured names its keyword and place.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ schema, keyword, at string }{
		{`{"properties":{"a":{"uniqueItems":true}}}`, "uniqueItems", "#/properties/a"},
		{`{"minProperties":2}`, "minProperties", "#"},
		{`{"properties":{"a":{}},"required":["a"],"minProperties":3}`, "minProperties", "#"},
		{`{"items":{"pattern":"a(?<=b)"}}`, "pattern", "#/items"},
		{`{"pattern":"(a)\\1"}`, "pattern", "#"},
		{`{"$ref":"https://example.com/x.json"}`, "$ref", "#"},
		{`{"$ref":"#/nowhere"}`, "$ref", "#"},
		{`{"$ref":"#"}`, "$ref", "#"},
		{`{"format":"regex"}`, "format", "#"},
		{`{"not":{"unevaluatedProperties":false}}`, "unevaluatedProperties", "#/not"},
		{`{"items":{"$dynamicRef":"#n"},"$defs":{"a":{"$dynamicAnchor":"n"},"b":{"$id":"b","$dynamicAnchor":"n"}}}`,
			"$dynamicRef", "#/items"},
		{`{"contains":{"const":1},"unevaluatedItems":false}`, "unevaluatedItems", "#"},
		{`{"items":{"enum":[1,2]},"uniqueItems":true,"contains":{"const":1}}`, "uniqueItems", "#"},
		{`{"type":"any"}`, "type", "#"},
		{`{"minLength":-1}`, "minLength", "#"},
		{`{"properties":[]}`, "properties", "#"},
		{`{"required":true}`, "required", "#"},
		{`{"anyOf":[]}`, "anyOf", "#"},
		{`{"properties":{"a/b":{"items":3}}}`, "items", "#/properties/a~1b/items"},
		{`false`, "schema", "#"},
		{`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}}`, "schema", "#"},
	} {
		_, err := build(Schema(c.schema), Options{}, nil)
		var r *Refused
		if !errors.As(err, &r) || r.Keyword != c.keyword || r.At != c.at {
			t.Errorf("%s: %v, %s at %s is wanted", c.schema, err, c.keyword, c.at)
		}
	}
	for _, bad := range []string{``, `{`, `{"a":}`, `[1,]`, `{"type":"string"} x`, "\"\xff\"", `{"a":1,}`, `nul`, `-`} {
		if _, err := build(Schema(bad), Options{}, nil); err == nil {
			t.Errorf("%q is read as a schema", bad)
		}
	}
}

// TestOrdered: with Ordered and Compact a schema's properties come in its order.
func TestOrdered(t *testing.T) {
	m, err := build(Schema(`{"properties":{"b":{"type":"null"},"a":{"enum":[1.0]},"c":{}},"required":["a"]}`),
		Options{Ordered: true, Compact: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{`{"b":null,"a":1.0,"c":2}`: true, `{"a":1.0}`: true,
		`{"a":1.0,"x":[1,2]}`: true, `{"x":1,"a":1.0}`: false,
		`{"a":1.0,"b":null}`: false, `{"b":null,"c":1}`: false, `{"a":1}`: false, `{ "a":1.0}`: false} {
		if m.accepts(text) != want {
			t.Errorf("%s: accepted is %v", text, !want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct{ pattern, yes, no string }{
		{`a|bc`, `a|bc`, `b|abc|`},
		{`(?:ab){2,3}c?`, `abab|ababab|ababc`, `ab|abababab`},
		{`[^a-c]\d+`, `x1|é42`, `a1|x`},
		{`[\w-.]+`, `a-.|_`, `a b`},
		{`\u{1F600}|\x41|\u0042`, `😀|A|B`, `C`},
		{`(?!ab).*z`, `xz|az|ba z`, `abz|a`},
		{`(?=.{3}$)[a-z]*`, `abc`, `ab|abcd`},
		{`^(a$|b)c?$`, `a|b|bc`, `ac`},
		{`x{,2}`, `x{,2}`, `xx`},
		{`\p{Lu}\p{Script=Greek}`, `Αα|Bα`, `aα|AA`},
		{`.`, `a|é|😀`, "\n|ab|"},
		{`a*?b+?`, `aab|b`, `a`},
		{`[]a]`, ``, `]|a`}, // an empty class: ECMA's []
	} {
		m, err := build(Regex(c.pattern), Options{}, nil)
		if c.pattern == `[]a]` {
			if err == nil {
				t.Error("[] matches something")
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, s := range strings.Split(c.yes, "|") {
			if !m.accepts(s) {
				t.Errorf("%s does not match %q", c.pattern, s)
			}
		}
		for _, s := range strings.Split(c.no, "|") {
			if m.accepts(s) {
				t.Errorf("%s matches %q", c.pattern, s)
			}
		}
	}
	for _, bad := range []string{`(`, `)`, `[a`, `a**`, `*`, `a{2,1}`, `\`, `(?<=a)`, `\1`, `\bx`,
		`a{9999999}`, `[z-a]`, `\p{Nope}`, `(?i)a`} {
		if _, err := parsePattern(bad); err == nil {
			t.Errorf("%q is read as a pattern", bad)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ format, yes, no string }{
		{"time", "12:00:00Z|23:59:60Z|01:02:03.5+09:30", "24:00:00Z|12:00:00|12:60:00Z|12:00:60Z"},
		{"date-time", "2024-02-29T12:00:00Z|2000-01-01t00:00:00.1-05:00", "2024-02-30T12:00:00Z|2024-01-01"},
		{"duration", "P1D|PT5M|P1Y2M3DT4H5M6S|P3W", "P|PT|1D|P1S|P1DT"},
		{"email", "a@b.co|a.b+c@x-y.org|\\\"a b\\\"@c.d", "a|@b|a@|a..b@c|a@-b.c"},
		{"hostname", "a|a-b.c|x1.example.com", "-a|a-|a..b|"},
		{"ipv4", "1.2.3.4|255.255.255.255", "256.1.1.1|1.2.3|01.2.3.4"},
		{"ipv6", "::|::1|1::|2001:db8::8:800:200c:417a|1:2:3:4:5:6:7:8|::ffff:1.2.3.4|1::8",
			":|:::|1:2:3:4:5:6:7|1::2::3|12345::|1:2:3:4:5:6:7:8:9|1:2:3:4:5:6:7::8"},
		{"uri", "http://a.b/c?d#e|urn:x:y|mailto:a@b|http://[::1]:80/|a:", "a|/a|http://a b|http://[::/|://a"},
		{"uri-reference", "a/b|#x|../c?d|http://a|", "a b|http://a{}"},
		{"uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000|x"},
		{"json-pointer", "|/a/~0~1", "a|/~2"},
		{"something-else", "x|", "1"},
	} {
		m, err := build(Schema(`{"type":"string","format":"`+c.format+`"}`), Options{}, nil)
		if err != nil {
			t.Errorf("%s: %v", c.format, err)
			continue
		}
		for _, s := range strings.Split(c.yes, "|") {
			if !m.accepts(`"` + s + `"`) {
				t.Errorf("format %s refuses %q", c.format, s)
			}
		}
		for _, s := range strings.Split(c.no, "|") {
			if m.accepts(`"`+s+`"`) && c.format != "something-else" {
				t.Errorf("format %s accepts %q", c.format, s)
			}
		}
	}
}

// TestEscapeWithinCharacter: behind the first byte of a character comes its second, and no escape.
func TestEscapeWithinCharacter(t *testing.T) {
	for _, schema := range []string{`{"enum":["\u05d4","\u05d4\u05d5"]}`, `{"type":"string"}`, `{"pattern":"^\u05d4+$"}`} {
		m, err := build(Schema(schema), Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for text, may := range map[string]bool{"\"\xd7": true, "\"\xd7\x94": true,
			"\"\xd7\x94\\u05": true, "\"\xd7\\": false} {
			if _, at := m.read(m.start, text); at < 0 != may {
				t.Errorf("%s: %q: %v", schema, text, at)
			}
		}
	}
}
