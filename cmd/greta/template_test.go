package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// templateRun gives what greta template prints and says.
func templateRun(t *testing.T, in string, args ...string) (code int, out, said string) {
	t.Helper()
	var o, e bytes.Buffer
	code = execute(context.Background(), append([]string{"template"}, args...), strings.NewReader(in), &o, &e)
	return code, o.String(), e.String()
}

func TestTemplateVerb(t *testing.T) {
	file := write(t, "x.jinja", "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"+
		"{% if tools %}{{ tools|length }}{% endif %}{{ strftime_now('%d.%m.%Y') if date }}{{ '>' if add_generation_prompt }}"+
		"{% if not messages %}{{ raise_exception('nobody spoke') }}{% endif %}\n")
	const talk = `[{"role": "user", "content": "Hi"}]`
	tools := write(t, "tools.json", `[{"type": "function"}]`)
	for _, c := range []struct {
		in   string
		args []string
		want string
	}{
		{talk, []string{"--messages", "-"}, "user:Hi;"},
		{talk, []string{"--messages", "-", "--bos", "<s>", "--add-generation-prompt", "--tools", tools}, "<s>user:Hi;1>"},
		{`{"messages": ` + talk + `, "date": true, "add_generation_prompt": true}`,
			[]string{"--messages", "-", "--now", "2026-01-02T03:04:05"}, "user:Hi;02.01.2026>"},
		{talk, []string{"--messages", "-", "--var", "date=true", "--now", "2026-01-02"}, "user:Hi;02.01.2026"},
		{talk, []string{"--messages", "-", "--chat-template", "chatml"}, "<|im_start|>user\nHi<|im_end|>\n"},
		{"", []string{"--list"}, "default\n"},
		{talk, []string{"--messages", "-", "--name", "default", "--eos", "</s>"}, "user:Hi;"},
		{talk, []string{"--messages", "-", "--json"}, "{\n  \"text\": \"user:Hi;\"\n}\n"},
	} {
		code, out, said := templateRun(t, c.in, append([]string{file}, c.args...)...)
		if code != 0 || out != c.want {
			t.Errorf("%v: exit %d, %q, %s; want %q", c.args, code, out, said, c.want)
		}
	}
	for _, c := range []struct {
		in   string
		args []string
		want string
	}{
		{"[]", []string{file, "--messages", "-"}, "TemplateError: nobody spoke"},
		{"{", []string{file, "--messages", "-"}, "no JSON"},
		{"5", []string{file, "--messages", "-"}, "list of messages"},
		{"{}", []string{file, "--messages", "-"}, `no "messages"`},
		{talk, []string{file}, "--messages is missing"},
		{talk, []string{file, "--messages", "-", "--now", "soon"}, "--now soon"},
		{talk, []string{file, "--messages", "-", "--chat-template", "nope"}, "chatml"},
		{talk, []string{trained(t), "--messages", "-"}, "comes without a chat template"},
		{talk, []string{filepath.Join(t.TempDir(), "none"), "--messages", "-"}, "no such file"},
	} {
		code, out, said := templateRun(t, c.in, c.args...)
		if code != exitUsage || out != "" || !strings.Contains(said, c.want) {
			t.Errorf("%v: exit %d, %q, %s; want exit 2 and %q", c.args, code, out, said, c.want)
		}
	}
	if code, out, _ := templateRun(t, talk, trained(t), "--messages", "-", "--chat-template", "llama3"); code != 0 ||
		!strings.Contains(out, "Hi<|eot_id|>") {
		t.Errorf("a known template for a model without one: exit %d, %q", code, out)
	}
}
