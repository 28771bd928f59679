// What the library knows of Unicode, where that is not what Go knows.
package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestUnicode16 holds characters that differ between Go's Unicode and that of the library's patterns: parts of a text
// as tokenizers 0.23.3 cuts them out.
func TestUnicode16(t *testing.T) {
	for pattern, c := range map[string]struct{ in, out string }{
		`\p{L}`:          {"\u1C89\U000143FA\U0002EE5D", "\u2FFC\U00016E9F0"},
		`\w`:             {"\u0897\U000116D0\u00B2", "\u31EF"},
		`[\w]`:           {"\u0363\U000113C2", "\u00B2"},
		`\p{Word}`:       {"\u00BC\u1DE6", "\u2FFC"},
		`[\p{Word}]`:     {"\u1DE6", "\u00BC\u00B2"},
		`[\P{Word}]`:     {"\u00BC\u00B2", "\u1DE6"},
		`\p{Mn}`:         {"\U0001E5EE", "\U0001171E"},
		`\p{Mc}`:         {"\U0001171E", "\U0001E5EE"},
		`\p{M}`:          {"\U0001171E\U0001E5EE\u0897", "a"},
		`\p{Nd}`:         {"\U0001CCF9", "\U00011DE0"},
		`\p{S}`:          {"\u2FFC\U0001FAE9", "\u1B4E"},
		`[[:punct:]]`:    {"\u1B4E\U00010D8E", "a"},
		`\p{Han}`:        {"\U0002EBF0", "\u2FFC"},
		`\p{Cn}`:         {"\U00011DE0\U00016EA0", "\u1C89"},
		`\p{STerm}`:      {"\u2024\u17D4", "\u0836"},
		`(?i:\p{Lu})`:    {"A\u1C89", "a\u1C8A"},
		`(?i:\P{Lu})`:    {"a\u1C8A", "A\u1C89"},
		`(?i:[\p{Lu}])`:  {"Aa\u1C8A\u019B\u0264", "1\u0238"},
		`(?i:[^\p{Lu}])`: {"1\u0238", "Aa\u1C8A\u019B\u0264"},
		`(?i:\x{A7CB})`:  {"\u0264\uA7CB", "\u0238"},
	} {
		re, err := compileOnig(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [2]string{c.in, c.out} {
			for _, r := range text {
				found := false
				if err := eachMatch(re, string(r), func(int, int) error { found = true; return nil }); err != nil {
					t.Fatal(err)
				}
				if in := strings.ContainsRune(c.in, r); found != in {
					t.Errorf("%s, U+%04X: found is %t", pattern, r, found)
				}
			}
		}
	}
	for _, c := range []struct {
		pre   object
		text  string
		parts []string
	}{
		{object{"type": "Digits", "individual_digits": false}, "a\U00011DE0\U00016FF61b",
			[]string{"a", "\U00011DE0\U00016FF61", "b"}},
		{object{"type": "Digits", "individual_digits": true}, "a\U00010D401b", []string{"a", "\U00010D40", "1", "b"}},
		{object{"type": "Punctuation"}, "a\u061Db\u166Dc\u1B7Dd\u2E52e", []string{"a\u061Db", "\u166D", "c\u1B7Dd\u2E52e"}},
		{object{"type": "Punctuation", "behavior": "Removed"}, "a+b\u2014c", []string{"a", "b", "c"}},
	} {
		if got := cutBy(t, c.pre, c.text); !slices.Equal(got, c.parts) {
			t.Errorf("%v cuts %+q into %+q, want %+q", c.pre, c.text, got, c.parts)
		}
	}
}

// cutBy cuts a text by a pre-tokenizer.
func cutBy(t *testing.T, pre object, text string) (parts []string) {
	t.Helper()
	data, err := json.Marshal(pre)
	if err != nil {
		t.Fatal(err)
	}
	var p pipeline
	if err := p.readPreTokenizer(decodeRaw[*hfPart](t, data)); err != nil {
		t.Fatal(err)
	}
	if err := p.cut(p.steps, text, 0, func(s string) error { parts = append(parts, s); return nil }); err != nil {
		t.Fatal(err)
	}
	return parts
}

// What the engine would match as something else is refused by its name.
func TestOnigRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		`\Ga`:             `\G, where the search begins,`,
		`(?<=a(?>b|bc))d`: "look-behind at something possessive or atomic",
		`(?<!a++)b`:       "look-behind at something possessive or atomic",
	} {
		if _, err := compileOnig(pattern); err == nil || !strings.Contains(err.Error(), want+" is not supported") {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
}
