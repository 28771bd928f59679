package parse

// What a call looks like to a grammar: so that a model can only write calls of tools that there are, with
// arguments that their schemas allow.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Shape is a way to write a call: a text, JSON that a schema allows, a text. Begin is "" where the call is the whole
// answer.
type Shape struct {
	Begin, End string
	Schema     json.RawMessage
}

// Shapes gives the ways to call tools, several where a family writes them into one list. A format whose calls are not
// JSON has none, which is an error.
func (f *Format) Shapes(tools []Tool, several bool) ([]Shape, error) {
	c := f.calls
	if c == nil || c.Write == nil {
		return nil, fmt.Errorf("the calls of the format %s cannot be constrained: they are not JSON", f.Name())
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("there is no tool to call")
	}
	var shapes []Shape
	var either []string
	for i, t := range tools {
		schema := t.Schema
		if len(schema) == 0 || string(schema) == "null" {
			schema = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
		}
		if !json.Valid(schema) {
			return nil, fmt.Errorf("the schema of the tool %s is no JSON", t.Name)
		}
		if c.Body == "named" {
			begin := strings.ReplaceAll(c.Write.Begin, "{name}", t.Name)
			shapes = append(shapes, Shape{Begin: begin, End: c.Write.End, Schema: schema})
			continue
		}
		key := "arguments"
		if c.argumentsKey() != "" {
			key = c.argumentsKey()
		}
		at := "#/anyOf/"
		if c.Write.List {
			at = "#/items/anyOf/"
		}
		inner, err := rebase(schema, at+strconv.Itoa(i)+"/properties/"+key)
		if err != nil {
			return nil, fmt.Errorf("the schema of the tool %s: %w", t.Name, err)
		}
		either = append(either, fmt.Sprintf(`{"type":"object","properties":{%s:{"const":%s},%s:%s},`+
			`"required":[%s,%s],"additionalProperties":false}`, quote(c.NameKeys[0]), quote(t.Name), quote(key), inner,
			quote(c.NameKeys[0]), quote(key)))
	}
	if c.Body == "named" {
		return shapes, nil
	}
	one := `{"anyOf":[` + strings.Join(either, ",") + `]}`
	switch {
	case c.Write.List && several:
		one = `{"type":"array","minItems":1,"items":` + one + `}`
	case c.Write.List:
		one = `{"type":"array","minItems":1,"maxItems":1,"items":` + one + `}`
	}
	return []Shape{{c.Write.Begin, c.Write.End, json.RawMessage(one)}}, nil
}

// Call is a call with its arguments as JSON.
type Call struct{ Name, Arguments string }

// Write gives calls as the family writes them; false where its calls are not JSON.
func (f *Format) Write(calls []Call) (string, bool) {
	c := f.calls
	if c == nil || c.Write == nil {
		return "", false
	}
	key := "arguments"
	if k := c.argumentsKey(); k != "" {
		key = k
	}
	var all []string
	for _, call := range calls {
		arguments := call.Arguments
		if arguments == "" {
			arguments = "{}"
		}
		text := arguments
		if c.Body != "named" {
			text = fmt.Sprintf("{%s: %s, %s: %s}", quote(c.NameKeys[0]), quote(call.Name), quote(key), arguments)
		}
		if !c.Write.List {
			text = strings.ReplaceAll(c.Write.Begin, "{name}", call.Name) + text + c.Write.End
		}
		all = append(all, text)
	}
	if c.Write.List {
		return c.Write.Begin + "[" + strings.Join(all, ", ") + "]" + c.Write.End, true
	}
	return strings.Join(all, "\n"), true
}

// Lists says whether all calls of an answer stand in one list.
func (f *Format) Lists() bool { return f.calls != nil && f.calls.Write != nil && f.calls.Write.List }

// Beginnings are what a parser takes for the beginning of a call and a shape begins with or has within its beginning: a
// text before a call must not have them. In thoughts those of markers that the thoughts themselves
// begin with may stand.
func (f *Format) Beginnings(shapes []Shape) (text, thoughts []string) {
	if f.calls == nil {
		return nil, nil
	}
	for _, open := range f.calls.Open {
		if slices.ContainsFunc(shapes, func(s Shape) bool { return strings.Contains(s.Begin, open) }) {
			text = append(text, open)
		}
	}
	for _, t := range text {
		marker := t[:strings.IndexAny(t, ">]\n")+1]
		if f.think == nil || marker == "" || !strings.Contains(f.think.Open, marker) {
			thoughts = append(thoughts, t)
		}
	}
	return text, thoughts
}

// argumentsKey is what the family calls a call's arguments.
func (c *calls) argumentsKey() string {
	if c.Bare || c.NameKeys[0] == "tool_name" {
		return "parameters"
	}
	return ""
}

// rebase makes references within a schema lead to where it lies in another.
func rebase(schema json.RawMessage, at string) ([]byte, error) {
	if !strings.Contains(string(schema), `"$ref"`) {
		return schema, nil
	}
	var v any
	d := json.NewDecoder(strings.NewReader(string(schema)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && strings.HasPrefix(ref, "#") {
				v["$ref"] = at + strings.TrimPrefix(ref, "#")
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(v)
	return json.Marshal(v)
}

// Around gives what may stand beside calls that are not free to have text there: thoughts before the first one, by
// their two tags, and the marks that a parser leaves out.
func (f *Format) Around() (thoughts [2]string, marks []string) {
	if f.think != nil {
		thoughts = [2]string{f.think.Open, f.think.Close}
	}
	if f.calls != nil {
		marks = slices.Clone(f.calls.Drop)
	}
	return thoughts, marks
}
