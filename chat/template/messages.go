package template

// Messages as clients send them, and as templates want them.

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/greta-project/greta/chat/jinja"
)

// FromMessages reads messages, or tools, from JSON: a list of objects whose order of keys is kept.
func FromMessages(data []byte) (*jinja.List, error) {
	v, err := jinja.FromJSON(data)
	if err != nil {
		return nil, err
	}
	l, ok := v.(*jinja.List)
	if !ok {
		return nil, fmt.Errorf("expected a list, found %s", kind(data))
	}
	return l, nil
}

func kind(data []byte) string {
	var v any
	_ = json.Unmarshal(data, &v)
	switch v.(type) {
	case map[string]any:
		return "an object"
	case string:
		return "a text"
	case nil:
		return "null"
	}
	return "a value of another kind"
}

// Message makes one message of plain text.
func Message(role, content string) *jinja.Dict {
	d := jinja.NewDict()
	d.Set("role", role)
	d.Set("content", content)
	return d
}

// probe is a text that no template has.
const probe = "\u2042probe\u2042"

// TakesParts says whether the template reads content that is a list of parts, {"type": "text", "text": …}.
func (s *Set) TakesParts() bool {
	part := jinja.NewDict()
	part.Set("type", "text")
	part.Set("text", probe)
	m := jinja.NewDict()
	m.Set("role", "user")
	m.Set("content", &jinja.List{Items: []any{part}})
	text, err := s.Render(Input{Messages: &jinja.List{Items: []any{m}}, AddGenerationPrompt: true})
	return err == nil && strings.Contains(text, probe) && !strings.Contains(text, "'text'") &&
		!strings.Contains(text, `"text"`)
}

// Fit changes messages of OpenAI's protocol to what templates expect: the arguments of tool calls become objects where
// they are JSON objects in a text, and text parts one text where the template takes no parts. The messages
// given stay as they are.
func (s *Set) Fit(messages *jinja.List) *jinja.List {
	out := &jinja.List{Items: make([]any, len(messages.Items))}
	flat, asked := false, false
	for i, item := range messages.Items {
		m, ok := item.(*jinja.Dict)
		if !ok {
			out.Items[i] = item
			continue
		}
		m = m.Copy()
		if calls, ok := get(m, "tool_calls").(*jinja.List); ok {
			m.Set("tool_calls", fitCalls(calls))
		}
		if parts, ok := get(m, "content").(*jinja.List); ok {
			if !asked {
				flat, asked = !s.TakesParts(), true
			}
			if text, all := joinParts(parts); flat && all {
				m.Set("content", text)
			}
		}
		out.Items[i] = m
	}
	return out
}

func get(d *jinja.Dict, key string) any {
	v, _ := d.Get(key)
	return v
}

func fitCalls(calls *jinja.List) *jinja.List {
	out := &jinja.List{Items: make([]any, len(calls.Items))}
	for i, item := range calls.Items {
		out.Items[i] = item
		call, ok := item.(*jinja.Dict)
		if !ok {
			continue
		}
		f, ok := get(call, "function").(*jinja.Dict)
		if !ok {
			continue
		}
		text, ok := get(f, "arguments").(string)
		if !ok {
			continue
		}
		v, err := jinja.FromJSON([]byte(text))
		if _, isObject := v.(*jinja.Dict); err != nil || !isObject {
			continue
		}
		f, call = f.Copy(), call.Copy()
		f.Set("arguments", v)
		call.Set("function", f)
		out.Items[i] = call
	}
	return out
}

// joinParts gives the text of parts, and false where one is no text.
func joinParts(parts *jinja.List) (string, bool) {
	var texts []string
	for _, p := range parts.Items {
		d, ok := p.(*jinja.Dict)
		if !ok {
			return "", false
		}
		text, ok := get(d, "text").(string)
		if !ok {
			return "", false
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), true
}
