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

// Shape is a way to write a call: a text, what a schema allows, a text. Begin is "" where the call is the whole
// answer. Between the texts stands JSON, or tagged parameters where Params is set, or a list of calls where Python is.
type Shape struct {
	Begin, End string
	Schema     json.RawMessage
	Params     *Params
	Python     *Python
}

// Python says which functions a list of calls may call: [f(a=1), g(b="x")]. The schema of each one is of its arguments.
type Python struct {
	Tools   []Tool
	Several bool
}

// Params say how a call's arguments are written as tagged parameters: Open, the name, then a text between the two of
// Text, or another value as JSON between the two of Value.
type Params struct {
	Open        string
	Text, Value [2]string
	NameEnd     string // ends a name to the parser
	End         string // ends a value to the parser
	Lines       bool   // the parser takes an end of line away at both ends of a value
	// Types are those by which the parser tells a text from another value, Others those of names that the schema does
	// not have; nil: any.
	Types  map[string][]string
	Others []string
}

// params are those of a tool.
func (c *calls) params(schema json.RawMessage) *Params {
	p := &Params{Open: c.Param.Open, Text: [2]string(c.Write.Text), Value: [2]string(c.Write.Value),
		NameEnd: c.Param.KeyEnd, End: c.Param.Close}
	p.Lines = !c.Param.Exact && len(c.Param.Quote) == 0 && !strings.HasSuffix(p.Text[0], "\n")
	if c.Param.Typed == "" {
		p.Types, p.Others = paramTypes(schema)
	}
	return p
}

// Group is what begins and ends all calls of an answer together.
func (f *Format) Group() [2]string {
	if f.calls == nil || f.calls.Write == nil {
		return [2]string{}
	}
	return [2]string{f.calls.Write.Open, f.calls.Write.Close}
}

// Shapes gives the ways to call tools, several where a family writes them into one list. A format whose calls cannot
// be constrained has none, which is an error.
func (f *Format) Shapes(tools []Tool, several bool) ([]Shape, error) {
	c := f.calls
	if c == nil || c.Write == nil {
		return nil, fmt.Errorf("how a call is written is not known of the format %s", f.Name())
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("there is no tool to call")
	}
	tools, err := constrained(tools)
	if err != nil {
		return nil, err
	}
	if c.Body == "python" {
		return []Shape{{Begin: c.Write.Begin, End: c.Write.End, Python: &Python{tools, several}}}, nil
	}
	var shapes []Shape
	var either []string
	for i, t := range tools {
		schema := t.Schema
		if c.Body != "json" {
			shape := Shape{Begin: strings.ReplaceAll(c.Write.Begin, "{name}", t.Name), End: c.Write.End, Schema: schema}
			if c.Body == "params" {
				shape.Params = c.params(schema)
			}
			shapes = append(shapes, shape)
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
	if c.Body != "json" {
		return shapes, nil
	}
	one := `{"anyOf":[` + strings.Join(either, ",") + `]}`
	switch {
	case c.Write.List && several:
		one = `{"type":"array","minItems":1,"items":` + one + `}`
	case c.Write.List:
		one = `{"type":"array","minItems":1,"maxItems":1,"items":` + one + `}`
	}
	return []Shape{{Begin: c.Write.Begin, End: c.Write.End, Schema: json.RawMessage(one)}}, nil
}

// constrained gives tools whose schemas say something: one without parameters takes none.
func constrained(tools []Tool) ([]Tool, error) {
	tools = slices.Clone(tools)
	for i, t := range tools {
		if len(t.Schema) == 0 || string(t.Schema) == "null" {
			tools[i].Schema = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
		} else if !json.Valid(t.Schema) {
			return nil, fmt.Errorf("the schema of the tool %s is no JSON", t.Name)
		}
	}
	return tools, nil
}

// Call is a call with its arguments as JSON.
type Call struct{ Name, Arguments string }

// Write gives calls as the family writes them; false where it does not know how.
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
		switch c.Body {
		case "params":
			text = c.writeParams(arguments)
		case "json":
			text = fmt.Sprintf("{%s: %s, %s: %s}", quote(c.NameKeys[0]), quote(call.Name), quote(key), arguments)
		case "python":
			text = call.Name + "(" + pythonArguments(arguments) + ")"
		}
		if !c.Write.List {
			text = strings.ReplaceAll(c.Write.Begin, "{name}", call.Name) + text + c.Write.End
		}
		all = append(all, text)
	}
	if c.Write.List {
		return c.Write.Begin + "[" + strings.Join(all, ", ") + "]" + c.Write.End, true
	}
	if c.Write.Open != "" {
		return c.Write.Open + strings.Join(all, "") + c.Write.Close, true
	}
	return strings.Join(all, "\n"), true
}

// writeParams writes arguments as tagged parameters, in their order.
func (c *calls) writeParams(arguments string) string {
	var b strings.Builder
	d := json.NewDecoder(strings.NewReader(arguments))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return ""
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			break
		}
		around, text := c.Write.Value, string(value)
		if value[0] == '"' && json.Unmarshal(value, &text) == nil {
			around = c.Write.Text
		}
		b.WriteString(c.Param.Open + name.(string) + around[0] + text + around[1])
	}
	return b.String()
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
