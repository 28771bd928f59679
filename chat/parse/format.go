// Package parse divides a model's answer, as it comes, into text, reasoning and calls of tools. How a family writes
// them is data: formats.yaml, found by marks in the family's chat template.
package parse

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Part is a piece of an answer; one of its fields is set.
type Part struct {
	Text, Reasoning string
	Call            *CallPart
}

// CallPart is a piece of a call: the first of a call has its name, the others more of its arguments, which are JSON
// when joined.
type CallPart struct {
	Index           int // of the call in the answer, from 0
	Name, Arguments string
}

// Tool is a function that may be called.
type Tool struct {
	Name   string
	Schema json.RawMessage // of its arguments: says which values are texts where the format does not
}

// Format is how a family writes.
type Format struct {
	think *reasoning // nil: none
	calls *calls     // nil: none
}

type reasoning struct {
	Name        string
	Marks       []string
	Open, Close string
}

type calls struct {
	Name    string
	Marks   []string
	Without []string
	Body    string
	Open    []string
	Start   []string
	Bare    bool
	Head    string
	Sep     string
	Close   string
	Drop    []string
	Param   struct {
		Open, Value, Typed, Close string
		KeyEnd                    string `yaml:"key_end"`
		Exact                     bool
		Quote                     []string
	}
	NameKeys []string `yaml:"name_keys"`
	Write    *struct {
		Open, Begin, End, Close string
		List                    bool
		Text, Value             []string
	}
	head *regexp.Regexp
}

//go:embed formats.yaml
var formatsText []byte

type formats struct {
	Reasoning []*reasoning
	Calls     []*calls
}

var known = mustRead(formatsText)

// mustRead reads the formats of this package; that they are right is tested.
func mustRead(data []byte) *formats {
	f, err := read(data)
	if err != nil {
		panic(err)
	}
	return f
}

func read(data []byte) (*formats, error) {
	var all formats
	d := yaml.NewDecoder(strings.NewReader(string(data)))
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("formats: %w", err)
	}
	for _, r := range all.Reasoning {
		if r.Open == "" || r.Close == "" || len(r.Marks) == 0 {
			return nil, fmt.Errorf("formats: reasoning %s needs marks, open and close", r.Name)
		}
	}
	for _, c := range all.Calls {
		if !slices.Contains([]string{"json", "named", "params", "python"}, c.Body) {
			return nil, fmt.Errorf("formats: calls %s: body %q is none of json, named, params, python", c.Name, c.Body)
		}
		if len(c.Open)+len(c.Start) == 0 || len(c.Marks) == 0 {
			return nil, fmt.Errorf("formats: calls %s need marks and open or start", c.Name)
		}
		if c.Body == "named" && c.Sep == "" || c.Body == "params" && (c.Param.Open == "" || c.Close == "") {
			return nil, fmt.Errorf("formats: calls %s: something of sep, param.open, close is missing", c.Name)
		}
		if n := len(c.Param.Quote); n != 0 && n != 2 {
			return nil, fmt.Errorf("formats: calls %s: param.quote has %d texts, two are expected", c.Name, n)
		}
		if w := c.Write; w != nil && c.Body == "params" {
			if w.Value == nil {
				w.Value = w.Text
			}
			if len(w.Text) != 2 || len(w.Value) != 2 {
				return nil, fmt.Errorf("formats: calls %s: write.text and write.value are two texts each", c.Name)
			}
		}
		if w := c.Write; w != nil && c.Body == "python" && !w.List {
			return nil, fmt.Errorf("formats: calls %s: write.list is missing, Python's calls stand in one list", c.Name)
		}
		if c.Head == "" {
			c.Head = `^\s*(?P<name>\S+)\s*$`
		}
		var err error
		if c.head, err = regexp.Compile(c.Head); err != nil || c.head.SubexpIndex("name") < 0 {
			return nil, fmt.Errorf("formats: calls %s: head %s is no expression with a group of the name name: %v",
				c.Name, c.Head, err)
		}
		if len(c.NameKeys) == 0 {
			c.NameKeys = []string{"name"}
		}
	}
	return &all, nil
}

func contains(text string, marks, without []string) bool {
	for _, m := range marks {
		if !strings.Contains(text, m) {
			return false
		}
	}
	return !slices.ContainsFunc(without, func(m string) bool { return strings.Contains(text, m) })
}

// Find gives the format that a chat template speaks of; one without reasoning and calls where it speaks of none.
// A text of marks beside the template, such as a prompt that it made, may be joined to it.
func Find(template string) *Format {
	f := &Format{}
	for _, r := range known.Reasoning {
		if f.think == nil && contains(template, r.Marks, nil) {
			f.think = r
		}
	}
	for _, c := range known.Calls {
		if f.calls == nil && contains(template, c.Marks, c.Without) {
			f.calls = c
		}
	}
	return f
}

// Names lists the formats of calls; "plain" has neither calls nor reasoning.
func Names() []string {
	names := []string{"plain"}
	for _, c := range known.Calls {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	for _, r := range known.Reasoning {
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names
}

// Named gives a format by name: of calls, of reasoning, or of both as "hermes+think".
func Named(name string) (*Format, error) {
	f := &Format{}
	for part := range strings.SplitSeq(name, "+") {
		ok := part == "plain"
		for _, c := range known.Calls {
			if c.Name == part && f.calls == nil {
				f.calls, ok = c, true
			}
		}
		for _, r := range known.Reasoning {
			if r.Name == part && f.think == nil {
				f.think, ok = r, true
			}
		}
		if !ok {
			return nil, fmt.Errorf("no format is named %q: there are %s", part, strings.Join(Names(), ", "))
		}
	}
	return f, nil
}

// Name says which format it is.
func (f *Format) Name() string {
	switch {
	case f.calls != nil && f.think != nil && f.calls.Name != f.think.Name:
		return f.calls.Name + "+" + f.think.Name
	case f.calls != nil:
		return f.calls.Name
	case f.think != nil:
		return f.think.Name
	}
	return "plain"
}

// Tools says whether calls can be read, Reasoning the same of thoughts.
func (f *Format) Tools() bool { return f.calls != nil }

// Reasoning says whether thoughts can be read.
func (f *Format) Reasoning() bool { return f.think != nil }

// Thinks says whether a prompt ends within thoughts.
func (f *Format) Thinks(prompt string) bool {
	return f.think != nil && strings.HasSuffix(strings.TrimRight(prompt, " \n\r\t"), strings.TrimSpace(f.think.Open))
}

// Special lists the tags that a parser must see as text. Where they are control tokens, which decoding leaves out,
// they must be put in.
func (f *Format) Special() []string {
	var all []string
	add := func(tags ...string) {
		for _, t := range tags {
			if t != "" && !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	if f.think != nil {
		add(f.think.Open, f.think.Close)
	}
	if c := f.calls; c != nil {
		add(c.Open...)
		add(c.Start...)
		add(c.Drop...)
		add(c.Sep, c.Close, c.Param.Open, c.Param.KeyEnd, c.Param.Value, c.Param.Close)
	}
	return all
}

// Sees says whether a control token's text is one that the parser must see: a tag, or a part of one.
func (f *Format) Sees(token string) bool {
	if len(token) < 3 {
		return false
	}
	return slices.ContainsFunc(f.Special(), func(tag string) bool { return strings.Contains(tag, token) }) ||
		f.calls != nil && strings.Contains(f.calls.Head, regexp.QuoteMeta(token))
}
