// Conversations by a model's own chat template, and its answers read as its family writes them.

package serve

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/greta-project/greta/chat/jinja"
	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/chat/template"
)

// TemplateChat is a chat template with the format of answers that it speaks of.
type TemplateChat struct {
	set    *template.Set
	format *parse.Format
	style  func() callStyle
}

// NewTemplateChat reads the templates, so that a wrong one is told before a conversation comes.
func NewTemplateChat(set *template.Set) (*TemplateChat, error) {
	if err := set.Parse(); err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, name := range set.Names() {
		all.WriteString(set.Text(name))
	}
	c := &TemplateChat{set: set.Public(), format: parse.Find(all.String())}
	c.style = sync.OnceValue(c.callStyleOf)
	return c, nil
}

// callStyle is how a template wants a message that calls tools: with a null in the place of an empty content, and with
// arguments as a text. Templates are written for either, and leave calls out or fail of the other. Those that write no
// calls get them in the content. Some want calls' names to have nine letters and digits, which others' have not.
type callStyle struct{ null, text, content, short bool }

// callStyleOf finds the first style in which the template writes calls.
func (c *TemplateChat) callStyleOf() callStyle {
	const name = "greta_probe"
	call := ToolCall{ID: newID("call_"), Name: name, Arguments: "{}"}
	messages := []Message{{Role: "user"}, {Role: "assistant", ToolCalls: []ToolCall{call}}}
	styles := []callStyle{{}, {null: true}, {text: true}, {null: true, text: true}}
	for _, style := range styles {
		styles = append(styles, callStyle{null: style.null, text: style.text, short: true})
	}
	for _, style := range append(styles, callStyle{content: true}) {
		text, err := c.render(messages, style, ChatOptions{NoPrompt: true})
		if err == nil && strings.Contains(text, name) {
			return style
		}
	}
	return callStyle{}
}

// shortID is a call's name of nine letters and digits, the same for the call and its result.
func shortID(id string) string {
	const n = 9
	if len(id) == n && strings.IndexFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])[:n]
}

// wireMessage is a message as templates know it, in OpenAI's form. They read thoughts by either of three names. By
// that of thinking some take them for what stands in the place of a calling message's content, and refuse both.
type wireMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Thoughts  string     `json:"reasoning,omitempty"`
	Thinking  string     `json:"thinking,omitempty"`
	Name      string     `json:"name,omitempty"`
	ToolCalls []wireCall `json:"tool_calls,omitempty"`
	CallID    string     `json:"tool_call_id,omitempty"`
}

type wireCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// list makes a template's value of JSON.
func list(v any) (*jinja.List, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return template.FromMessages(b.Bytes())
}

// Prompt renders.
func (c *TemplateChat) Prompt(messages []Message, o ChatOptions) (string, error) {
	var style callStyle
	if slices.ContainsFunc(messages, func(m Message) bool { return len(m.ToolCalls) > 0 }) {
		style = c.style()
	}
	text, err := c.render(messages, style, o)
	if err != nil || !o.Continue {
		return text, err
	}
	// What a template puts behind a message is taken away again, so that the message goes on. The space that it ends
	// with stays where the template left it.
	content := strings.TrimLeftFunc(messages[len(messages)-1].Content, unicode.IsSpace)
	last := strings.TrimRightFunc(content, unicode.IsSpace)
	at := strings.LastIndex(text, last)
	if last == "" || at < 0 {
		return "", errors.New("the last message cannot be gone on from: it is not in what the template makes of it")
	}
	if strings.HasPrefix(text[at:], content) {
		last = content
	}
	return text[:at+len(last)], nil
}

// render makes the text of messages.
func (c *TemplateChat) render(messages []Message, style callStyle, o ChatOptions) (string, error) {
	wires := make([]wireMessage, len(messages))
	for i, m := range messages {
		w := wireMessage{Role: m.Role, Content: &m.Content, Reasoning: m.Reasoning, Thoughts: m.Reasoning, Name: m.Name,
			CallID: m.ToolCallID}
		if len(m.ToolCalls) == 0 || m.Content == "" {
			w.Thinking = m.Reasoning
		}
		if style.short && m.ToolCallID != "" {
			w.CallID = shortID(m.ToolCallID)
		}
		if m.Role == "developer" {
			w.Role = "system" // what templates call it
		}
		for _, call := range m.ToolCalls {
			x := wireCall{ID: call.ID, Type: "function"}
			if style.short {
				x.ID = shortID(call.ID)
			}
			x.Function.Name, x.Function.Arguments = call.Name, call.Arguments
			w.ToolCalls = append(w.ToolCalls, x)
		}
		if len(w.ToolCalls) > 0 && m.Content == "" && style.null {
			w.Content = nil
		}
		if style.content && len(m.ToolCalls) > 0 {
			text, _ := c.format.Write(parseCalls(m.ToolCalls))
			text = m.Content + text
			w.Content, w.ToolCalls = &text, nil
		}
		wires[i] = w
	}
	in := template.Input{AddGenerationPrompt: !o.Continue && !o.NoPrompt, Vars: variables(o)}
	msgs, err := list(wires)
	if err != nil {
		return "", err
	}
	if in.Messages = msgs; !style.text {
		in.Messages = c.set.Fit(msgs)
	}
	if len(o.Tools) > 0 {
		tools, err := list(wireTools(o.Tools))
		if err != nil {
			return "", err
		}
		in.Tools = tools
	}
	return c.set.Render(in)
}

type wireTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

func wireTools(tools []Tool) []wireTool {
	out := make([]wireTool, len(tools))
	for i, t := range tools {
		out[i].Type = "function"
		f := &out[i].Function
		if f.Name, f.Description, f.Parameters = t.Name, t.Description, t.Parameters; f.Parameters == nil {
			f.Parameters = json.RawMessage(`{"type": "object", "properties": {}}`)
		}
	}
	return out
}

// variables are what clients hand to templates; an effort of reasoning is known by several names.
func variables(o ChatOptions) *jinja.Dict {
	d := jinja.NewDict()
	switch o.Effort {
	case "":
	case "none", "minimal":
		d.Set("enable_thinking", false)
		d.Set("thinking", false)
	default:
		d.Set("enable_thinking", true)
		d.Set("thinking", true)
		if o.Effort != someEffort { // which templates refuse where it is none of theirs
			d.Set("reasoning_effort", o.Effort)
		}
	}
	for k, raw := range o.Variables {
		if value, err := jinja.FromJSON(raw); err == nil { // it came from JSON
			d.Set(k, value)
		}
	}
	return d
}

// Tools says whether the family's calls are known.
func (c *TemplateChat) Tools() bool { return c.format.Tools() }

// Reasoning says whether the family's thoughts are.
func (c *TemplateChat) Reasoning() bool { return c.format.Reasoning() }

// Sees says whether the family's tags have this control token.
func (c *TemplateChat) Sees(token string) bool { return c.format.Sees(token) }

// Parser reads an answer.
func (c *TemplateChat) Parser(prompt string, o ChatOptions) Parser {
	return templateParser{c.format.New(parse.Options{Prompt: prompt, Tools: parseTools(o.Tools), Form: o.Form})}
}

type templateParser struct{ p *parse.Parser }

func parts(in []parse.Part) []Part {
	var out []Part
	for _, p := range in {
		o := Part{Text: p.Text, Reasoning: p.Reasoning}
		if p.Call != nil {
			o.Call = &CallPart{Index: p.Call.Index, Name: p.Call.Name, Arguments: p.Call.Arguments}
		}
		out = append(out, o)
	}
	return out
}

func (t templateParser) Write(text string) []Part { return parts(t.p.Write(text)) }
func (t templateParser) End() []Part              { return parts(t.p.End()) }

// asked says whether a request wants thoughts: by an effort, or by the template's own variables.
func (o ChatOptions) asked() bool {
	d := variables(o)
	for _, name := range []string{"enable_thinking", "thinking"} {
		if on, _ := d.Get(name); on == true {
			return true
		}
	}
	return false
}

// Thoughts are the tags around thoughts, where a prompt begins them or the request asks for them.
func (c *TemplateChat) Thoughts(prompt string, o ChatOptions) [2]string {
	tags, _ := c.format.Around()
	switch {
	case c.format.Thinks(prompt):
		return [2]string{"", tags[1]}
	case o.asked():
		return tags
	}
	return [2]string{}
}

// ToolMask is the form of calls.
func (c *TemplateChat) ToolMask(tools []Tool, must, several bool) (Constraint, error) {
	shapes, err := c.format.Shapes(parseTools(tools), several)
	if err != nil {
		return Constraint{}, fmt.Errorf("a call cannot be forced of this model: %w; tool_choice auto lets it choose", err)
	}
	form := &CallForm{Must: must, Once: !several || c.format.Lists(), Group: c.format.Group()}
	form.NotInText, form.NotInThoughts = c.format.Beginnings(shapes)
	form.Lead, form.Between = c.format.Around()
	for _, s := range shapes {
		if s.Begin == "" && !must {
			return Constraint{}, errors.New("nothing tells a call from a text before it has come")
		}
		if overlaps(form.Group[0] + s.Begin) {
			return Constraint{}, fmt.Errorf("a call cannot be forced of this model: what begins one, %q, ends as it "+
				"begins, so that text before it could be read as a part of it; tool_choice auto lets it choose", s.Begin)
		}
		form.Shapes = append(form.Shapes, CallShape{s.Begin, s.End, s.Schema, s.Params, s.Python})
	}
	return Constraint{Calls: form}, nil
}

// overlaps says whether a text's end is its beginning too: free text then may end in what the next one begins with.
func overlaps(s string) bool {
	for n := 1; n < len(s); n++ {
		if s[:n] == s[len(s)-n:] {
			return true
		}
	}
	return false
}

func parseTools(tools []Tool) []parse.Tool {
	var out []parse.Tool
	for _, t := range tools {
		out = append(out, parse.Tool{Name: t.Name, Schema: t.Parameters})
	}
	return out
}

func parseCalls(calls []ToolCall) []parse.Call {
	var out []parse.Call
	for _, c := range calls {
		out = append(out, parse.Call{Name: c.Name, Arguments: c.Arguments})
	}
	return out
}
