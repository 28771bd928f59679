package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/greta-project/greta/chat/template"
	"github.com/greta-project/greta/internal/testfiles"
)

// callTool has parameters of each kind.
var callTool = Tool{Name: "note", Parameters: json.RawMessage(`{"type": "object", "properties": {
	"text": {"type": "string"}, "maybe": {"type": ["string", "null"]}, "kind": {"enum": ["1", "two"]},
	"either": {"anyOf": [{"type": "string"}, {"type": "array"}]}, "n": {"type": "integer"}, "x": {"type": "number"},
	"on": {"type": "boolean"}, "deep": {"type": "object"}, "list": {"type": "array"}}}`)}

// callArguments are what calls are written and read with.
var callArguments = []string{
	`{}`,
	`{"text": "plain"}`,
	`{"text": "Zürich 東京 🙂 ▁ \u00a0"}`,
	`{"text": "say \"hi\" \\ 'it' \\n / <b> & </b> {x} [y]"}`,
	`{"text": "two\nlines\n\n\tand a tab"}`, `{"text": "\nedges\n"}`,
	`{"text": "12"}`, `{"text": "true"}`, `{"text": ""}`, `{"text": "{\"a\": 1}"}`,
	`{"maybe": "12"}`, `{"maybe": null}`, `{"kind": "1"}`, `{"either": "7"}`, `{"either": [7]}`,
	`{"n": -3, "x": 2.5e-7, "on": false}`,
	`{"deep": {"a": {"b": [1, {"c": null, "d": "e\"f"}]}, "": []}, "list": [], "on": true}`,
}

// readCalls reads an answer in pieces of so many bytes.
func readCalls(c Chat, prompt, answer string, piece int) (calls []CallPart) {
	p := c.Parser(prompt, ChatOptions{Tools: []Tool{callTool}})
	var all []Part
	for len(answer) > 0 {
		n := min(piece, len(answer))
		all = append(all, p.Write(answer[:n])...)
		answer = answer[n:]
	}
	for _, part := range append(all, p.End()...) {
		if part.Call == nil {
			continue
		}
		if part.Call.Index == len(calls) {
			calls = append(calls, CallPart{Index: len(calls)})
		}
		calls[part.Call.Index].Name += part.Call.Name
		calls[part.Call.Index].Arguments += part.Call.Arguments
	}
	return calls
}

// TestTemplatesCalls: the call that a public template writes is read back with the same arguments, at once and byte by
// byte.
func TestTemplatesCalls(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testfiles.Shared(t, "data/chat"), "templates", "*.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		set := template.New(name, string(source))
		set.Tokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
		chat, err := NewTemplateChat(set)
		if err != nil {
			t.Fatal(err)
		}
		if !chat.Tools() {
			t.Logf("%s: no format", name)
			continue
		}
		read += readBack(t, name, chat)
	}
	if read < 600 {
		t.Errorf("%d calls were read", read)
	}
}

// readBack writes calls by a template, reads them, and gives how many were read.
func readBack(t *testing.T, name string, chat *TemplateChat) (read int) {
	t.Helper()
	lossy := map[string]string{ // what these templates write of it could be something else
		"ByteDance-Seed-OSS": `"\nedges`, "LFM2.5-8B-A1B": `"say `}[name]
	for _, arguments := range callArguments {
		if lossy != "" && strings.Contains(arguments, lossy) {
			continue
		}
		o := ChatOptions{Tools: []Tool{callTool}}
		messages := []Message{{Role: "user", Content: "Question."},
			{Role: "assistant", ToolCalls: []ToolCall{{ID: "call00001", Name: "note", Arguments: arguments}}},
			{Role: "tool", ToolCallID: "call00001", Name: "note", Content: "Re5ult"}}
		prompt, err := chat.Prompt(messages[:1], o)
		if err != nil { // templates that write types of parameters fail where there are several
			o.Tools[0].Parameters = json.RawMessage(`{"type": "object", "properties": {"text": {"type": "string"}}}`)
			prompt, err = chat.Prompt(messages[:1], o)
		}
		if err != nil {
			t.Logf("%s: %v", name, err)
			return read
		}
		o.NoPrompt = true
		whole, err := chat.Prompt(messages, o)
		if err != nil || !strings.Contains(whole, "Re5ult") || !strings.Contains(whole, "Question.") {
			t.Logf("%s: no conversation with results: %v", name, err)
			return read
		}
		answer, ok := strings.CutPrefix(whole, prompt)
		if !ok {
			prompt, answer = "", whole[strings.LastIndex(whole, "Question.")+len("Question."):]
			answer = strings.NewReplacer("<|eot_id|><|start_header_id|>assistant<|end_header_id|>", "").Replace(answer)
		}
		answer = answer[:strings.LastIndex(answer, "Re5ult")]
		if !strings.Contains(answer, "note") {
			t.Errorf("%s leaves calls out: %q", name, whole)
			return read
		}
		calls := readCalls(chat, prompt, answer, 1<<20)
		var got, want any
		json.Unmarshal([]byte(arguments), &want)
		if len(calls) != 1 || calls[0].Name != "note" || json.Unmarshal([]byte(calls[0].Arguments), &got) != nil ||
			!reflect.DeepEqual(got, want) {
			t.Errorf("%s as %s: %q is read as %+v", name, chat.format.Name(), answer, calls)
			continue
		}
		if slow := readCalls(chat, prompt, answer, 1); !reflect.DeepEqual(slow, calls) {
			t.Errorf("%s: %q is read as %+v, byte by byte as %+v", name, answer, calls, slow)
		}
		read++
	}
	return read
}

// A template that wants calls' names to have nine letters and digits gets such ones, whoever made the call; the result
// has its call's.
func TestCallIDs(t *testing.T) {
	chat := templateOf(t, `{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}
		{{- raise_exception('nine letters') }}{% endif %}[TOOL_CALLS]{{ c.id }} {{ c.function.name }}
		{%- endfor %}{% if m.role == 'tool' %}={{ m.tool_call_id }}{% endif %}{% endfor %}`)
	for id, want := range map[string]string{"call_mf2x7qzl": "", "toolu_01": "", "": "", "abcDEF123": "abcDEF123"} {
		text, err := chat.Prompt([]Message{{Role: "user"}, {Role: "assistant", ToolCalls: []ToolCall{{ID: id, Name: "a",
			Arguments: "{}"}}}, {Role: "tool", ToolCallID: id}}, ChatOptions{NoPrompt: true})
		parts := regexp.MustCompile(`^\[TOOL_CALLS\](\w{9}) a=(\w*)$`).FindStringSubmatch(text)
		if err != nil || parts == nil || id != "" && parts[1] != parts[2] || want != "" && parts[1] != want {
			t.Errorf("%q: %q %v", id, text, err)
		}
	}
}
