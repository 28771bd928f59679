package profile

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int
	}{
		{"1,8,512", []int{1, 8, 512}},
		{"4096..16384*2", []int{4096, 8192, 16384}},
		{"64..256+64", []int{64, 128, 192, 256}},
		{"1..4", []int{1, 2, 3, 4}},
		{"1-4", []int{1, 2, 3, 4}},
		{"128-1024*2", []int{128, 256, 512, 1024}},
		{"3..10+4, 7, 5", []int{3, 7, 5}},
		{"1..100*7", []int{1, 7, 49}},
		{"0", []int{0}},
		{" 5 .. 5 ", []int{5}},
	} {
		got, err := Sizes(c.text)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("Sizes(%q) = %v, %v; want %v", c.text, got, err, c.want)
		}
	}
}

func TestSizesSayWhere(t *testing.T) {
	for _, c := range []struct {
		text   string
		column int
		part   string
	}{
		{"", 1, "a number is expected at the end"},
		{"1,x", 3, `not "x"`},
		{"4096..", 7, "at the end"},
		{"8..4", 4, "ends below its start"},
		{"8..64*1", 7, "factor of 2"},
		{"0..64*2", 7, "above 0"},
		{"8..64+0", 7, "never ends"},
		{"1 2", 3, "a comma is expected"},
		{"99999999999", 1, "below 2^31"},
		{"1..100000", 10, "more than 4096"},
		{strings.Repeat("1..4096,", 10_000) + "1", 16, "more than 4096"}, // at once
		{"-3", 1, "a number is expected"},
	} {
		_, err := Sizes(c.text)
		var e *SizeError
		if !errors.As(err, &e) || e.Column != c.column || !strings.Contains(e.Msg, c.part) {
			t.Errorf("Sizes(%q): %v; want column %d with %q", c.text, err, c.column, c.part)
		}
	}
}

func FuzzSizes(f *testing.F) {
	f.Add("1,8..64*2,3-9+2")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Sizes(text)
		if (err == nil) == (len(list) == 0) {
			t.Fatalf("Sizes(%q) = %v, %v", text, list, err)
		}
	})
}

func TestProfilesOfTheProgram(t *testing.T) {
	want := []string{"compute_only", "perf", "smoke", "standard", "verify"}
	if got := Names(); !slices.Equal(got, want) {
		t.Fatalf("profiles are %v, want %v", got, want)
	}
	for _, name := range want {
		p, err := Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Name != name || p.About == "" || len(p.Op) == 0 || len(p.Model) == 0 || len(p.Platform) == 0 {
			t.Errorf("%s: a profile has its name, a sentence, and benchmarks of all three kinds: %+v", name, p)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for text, part := range map[string]string{
		"":                                      "empty",
		"nmae: x":                               "line 1: field nmae not found",
		"op: [{sizes: {m: 1}}]":                 "line 1, op 1: either op or model",
		"op: [{op: [add], model: x}]":           "line 1, op 1: either op or model",
		`op: [{op: [add], sizes: {n: 4..x}}]`:   "line 1, op 1, sizes.n: \"4..x\", column 4",
		"op: [{op: [add], prompt: 5}]":          "go with model",
		"op: [{op: [add], set: {L: 4}}]":        "go with model",
		"op: [{model: x, sizes: {m: 1}}]":       "sizes of its own",
		"op: [{model: x, at: 1}]":               "sizes of its own",
		"op: [{model: x, context: -1}]":         "context -1",
		"name: a\n---\nname: b":                 "more follows",
		"cache: hot":                            "cold, warm or both",
		"model: [{prompt: 5}]":                  "line 1, model 1: model must be given",
		"platform: [{params: {n: 1}}]":          "line 1, platform 1: bench must be given",
		"min_time: soon":                        "line 1",
		"op: [{op: [add], sizes: {n: {a: 1}}}]": "line 1: a number",
	} {
		if _, err := Read("mine.yaml", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), part) ||
			!strings.Contains(err.Error(), "mine.yaml") {
			t.Errorf("%q: %v; want the file's name and %q", text, err, part)
		}
	}
	if _, err := Load("smok"); err == nil || !strings.Contains(err.Error(), "did you mean smoke") {
		t.Errorf("a misspelt name: %v", err)
	}
}

func TestTextTakesLists(t *testing.T) {
	p, err := Read("x", strings.NewReader("op: [{op: [linear], sizes: {m: [1, 8], n: 64..128*2}, types: f32}]"))
	if err != nil {
		t.Fatal(err)
	}
	if o := p.Op[0]; o.Sizes["m"] != "1,8" || o.Sizes["n"] != "64..128*2" || o.Types != "f32" || p.Name != "x" {
		t.Errorf("read %+v", o)
	}
}

// TestWhere: errors name the line of the value that they are about, also behind an anchor.
func TestWhere(t *testing.T) {
	p, err := Read("mine.yaml", strings.NewReader("name: x\nop:\n  - op: [add]\n  - &a\n    op: [linear]\n    sizes:\n "+
		"     m: 1\n      k: 64\n  - *a\n"))
	if err != nil {
		t.Fatal(err)
	}
	for want, keys := range map[string][]string{
		"profile mine.yaml, line 4, op 2":          nil,
		"profile mine.yaml, line 8, op 2, sizes.k": {"sizes", "k"},
		"profile mine.yaml, line 4, op 2, kv":      {"kv"},
	} {
		if got := p.Where("op", 1, keys...); got != want {
			t.Errorf("%s, %s is expected", got, want)
		}
	}
	if got := p.Where("op", 2, "sizes", "m"); got != "profile mine.yaml, line 7, op 3, sizes.m" {
		t.Error(got)
	}
	if _, err := Read("big", strings.NewReader(strings.Repeat("#", 2<<20))); err == nil ||
		!strings.Contains(err.Error(), "no profile") {
		t.Errorf("two megabytes: %v", err)
	}
}
