package template

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/chat/jinja"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func hello() *jinja.List { return &jinja.List{Items: []any{Message("user", "Hello")}} }

func render(t *testing.T, s *Set, in Input) string {
	t.Helper()
	text, err := s.Render(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestFolderWithOneTemplate(t *testing.T) {
	s, err := OpenFolder(folder(t, map[string]string{
		"tokenizer_config.json": `{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null,
			"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ tools is none }}{{ pad_token }}"}`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := render(t, s, Input{Messages: hello()}); got != "<s>Hello</s>True" {
		t.Errorf("got %q", got)
	}
}

func TestFileWinsOverConfiguration(t *testing.T) {
	s, err := OpenFolder(folder(t, map[string]string{
		"tokenizer_config.json":                    `{"chat_template": "old"}`,
		"chat_template.jinja":                      "new{{ strftime_now('%Y') }}",
		"additional_chat_templates/tool_use.jinja": "tools",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := render(t, s, Input{Messages: hello(), Now: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}); got != "new2026" {
		t.Errorf("got %q", got)
	}
	if got := strings.Join(s.Names(), ","); got != "default,tool_use" {
		t.Errorf("names %s", got)
	}
}

func TestNamedTemplates(t *testing.T) {
	s, err := OpenFolder(folder(t, map[string]string{"tokenizer_config.json": `{"chat_template": [
		{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]}`}))
	if err != nil {
		t.Fatal(err)
	}
	tools := &jinja.List{Items: []any{jinja.NewDict()}}
	for _, c := range []struct {
		in   Input
		want string
	}{
		{Input{}, "D"}, {Input{Tools: tools}, "T"}, {Input{Name: "rag", Tools: tools}, "R"},
		{Input{Tools: &jinja.List{}}, "D"},
	} {
		if got := render(t, s, c.in); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if _, err := s.Render(Input{Name: "x"}); err == nil || !strings.Contains(err.Error(), "default, rag, tool_use") {
		t.Errorf("a name that there is not: %v", err)
	}
}

func TestNoTemplate(t *testing.T) {
	_, err := OpenFolder(folder(t, map[string]string{"tokenizer_config.json": `{"bos_token": "<s>"}`}))
	var none *None
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "chatml") {
		t.Errorf("got %v", err)
	}
}

func TestBadConfiguration(t *testing.T) {
	for _, text := range []string{`{`, `[]`, `{"chat_template": 5}`, `{"chat_template": {"a": 1}}`} {
		if _, err := OpenFolder(folder(t, map[string]string{"tokenizer_config.json": text})); err == nil ||
			!strings.Contains(err.Error(), "tokenizer_config.json") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestRefusal(t *testing.T) {
	s := New("x.jinja", "\n{{ raise_exception('No system role.') }}")
	_, err := s.Render(Input{Messages: hello()})
	var r *Refusal
	if !errors.As(err, &r) || err.Error() != "x.jinja, line 2: TemplateError: No system role." {
		t.Errorf("got %v", err)
	}
	if err := New("y", "{% if %}").Parse(); !errors.As(err, &r) {
		t.Errorf("a bad template: %v", err)
	}
}

// source is weights in GGUF's dialect with metadata only.
type source struct {
	weights.Source
	meta map[string]any
}

func (s source) Path() string                                    { return "m.gguf" }
func (s source) Dialect() string                                 { return "gguf" }
func (s source) Meta(k string) (any, bool)                       { v, ok := s.meta[k]; return v, ok }
func (s source) Lookup(string) (tensor.Type, tensor.Shape, bool) { return 0, nil, false }

func (s source) Keys() (keys []string) {
	for k := range s.meta {
		keys = append(keys, k)
	}
	return keys
}

func TestGGUF(t *testing.T) {
	s, err := FromSource(source{meta: map[string]any{
		"tokenizer.ggml.tokens": []string{"<unk>", "<s>", "</s>"}, "tokenizer.ggml.bos_token_id": int64(1),
		"tokenizer.ggml.eos_token_id": int64(99), "tokenizer.chat_template": "{{ bos_token }}|{{ eos_token }}",
		"tokenizer.chat_template.tool_use": "T", "tokenizer.chat_templates": []string{"tool_use"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := render(t, s, Input{}); got != "<s>|" {
		t.Errorf("got %q", got)
	}
	if got := strings.Join(s.Names(), ","); got != "default,tool_use" {
		t.Errorf("names %s", got)
	}
	var none *None
	if _, err := FromSource(source{}); !errors.As(err, &none) {
		t.Errorf("no template: %v", err)
	}
}

func TestKnownTemplates(t *testing.T) {
	talk := &jinja.List{Items: []any{Message("system", "Brief."), Message("user", "Hi"), Message("assistant", "Ho"),
		Message("user", "Bye")}}
	if len(KnownNames()) < 6 {
		t.Errorf("known templates: %v", KnownNames())
	}
	for _, name := range KnownNames() {
		s, err := Known(name)
		if err != nil {
			t.Fatal(err)
		}
		s.Tokens["bos_token"], s.Tokens["eos_token"] = "<s>", "</s>"
		text := render(t, s, Input{Messages: talk, AddGenerationPrompt: true})
		at := -1
		for _, part := range []string{"Brief.", "Hi", "Ho", "Bye"} {
			i := strings.Index(text, part)
			if i <= at {
				t.Errorf("%s: %q is not behind what was said before it: %q", name, part, text)
			}
			at = i
		}
	}
	if got := render(t, must(Known("chatml")), Input{Messages: hello(), AddGenerationPrompt: true}); got !=
		"<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n" {
		t.Errorf("chatml: %q", got)
	}
	talk.Items = talk.Items[1:]
	texts := must(Known("texts"))
	texts.Tokens["bos_token"] = "<s>"
	if got := render(t, texts, Input{Messages: talk, AddGenerationPrompt: true}); got != "<s>Hi\nHo\nBye" {
		t.Errorf("texts: %q", got)
	}
	for _, name := range []string{"nope", "../x", "chatml.jinja/.."} {
		if _, err := Known(name); err == nil || !strings.Contains(err.Error(), "llama3") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must(s *Set, err error) *Set {
	if err != nil {
		panic(err)
	}
	return s
}

// TestFit makes messages of OpenAI's protocol what templates expect.
func TestFit(t *testing.T) {
	list, err := FromMessages([]byte(`[
		{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
		{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
			{"id": "2", "function": {"name": "g", "arguments": "no JSON"}}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := jinja.ToJSON(list)
	const show = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
	plain := New("p", "{% for m in messages %}{{ '' + m.content }}{% endfor %}")
	got, _ := jinja.ToJSON(plain.Fit(list))
	want := `[{"role": "user", "content": "a\nb"}, {"role": "assistant", "tool_calls": [` +
		`{"id": "1", "function": {"name": "f", "arguments": {"x": 1}}}, ` +
		`{"id": "2", "function": {"name": "g", "arguments": "no JSON"}}]}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	parts := New("q", "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}")
	got, _ = jinja.ToJSON(parts.Fit(list))
	if !strings.Contains(got, `"content": [{`) {
		t.Errorf("a template that takes parts was given %s", got)
	}
	if New("r", show).TakesParts() {
		t.Error("a template that prints the parts' JSON does not take parts")
	}
	if after, _ := jinja.ToJSON(list); after != before {
		t.Errorf("the messages given were changed: %s", after)
	}
}
