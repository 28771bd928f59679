package serve

import (
	"strings"
	"testing"
)

// TestEarlierThoughts: templates read an assistant's thoughts by one of three names, and those that take them for a
// calling message's content refuse both.
func TestEarlierThoughts(t *testing.T) {
	for _, name := range []string{"reasoning_content", "reasoning", "thinking"} {
		fake := newFake()
		fake.chat = templateOf(t, "{% for m in messages %}{% if m.tool_calls and m.content and m.thinking %}"+
			"{{ raise_exception('both') }}{% endif %}{{ m.role }}: {{ m.content }} [{{ m."+name+" }}]"+
			"{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %};{% endfor %}<think></think>")
		_, h := testServer(t, fake)
		call := `"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]`
		both := map[string]string{"thinking": ""}
		for _, c := range []struct{ message, want string }{
			{`"content": "b", "reasoning_content": "so"`, "assistant: b [so];"},
			{`"content": "b", "reasoning": "so"`, "assistant: b [so];"},
			{`"content": "", "reasoning": "so", ` + call, "assistant:  [so]f;"},
			{`"content": "b", "reasoning": "so", ` + call, "assistant: b [so]f;"},
		} {
			if text, ok := both[name]; ok && strings.HasPrefix(c.want, "assistant: b [so]f") {
				c.want = "assistant: b [" + text + "]f;"
			}
			status, _, body := post(t, h.URL+"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"},
				{"role": "assistant", `+c.message+`}, {"role": "user", "content": "d"}]}`)
			if prompt := (fakeText{}).Decode(fake.lastRequest().Prompt); status != 200 || !strings.Contains(prompt, c.want) {
				t.Errorf("%s, %s: %d %s, the prompt is %q", name, c.message, status, body, prompt)
			}
		}
	}
}

// TestThoughtsOfItems: thoughts among a response's input belong to the assistant's item behind them.
func TestThoughtsOfItems(t *testing.T) {
	fake := newFake()
	fake.chat = templateOf(t, "{% for m in messages %}{{ m.role }}: {{ m.content }} [{{ m.reasoning_content }}]"+
		"{% for c in m.tool_calls or [] %} {{ c.function.name }}{% endfor %};{% endfor %}<think></think>")
	_, h := testServer(t, fake)
	thought := func(text string) string {
		return `{"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "` + text +
			`"}]}, `
	}
	call := func(id string) string {
		return `{"type": "function_call", "call_id": "` + id + `", "name": "f", "arguments": "{}"}, `
	}
	status, _, body := post(t, h.URL+"/v1/responses", `{"input": [{"role": "user", "content": "a"}, `+thought("one")+
		call("c1")+call("c2")+`{"type": "function_call_output", "call_id": "c1", "output": "x"}, `+thought("two")+
		`{"role": "assistant", "content": "b"}, `+thought("three")+call("c3")+
		thought("lost")+`{"role": "user", "content": "d"}]}`)
	want := "user: a [];assistant:  [one] f f;tool: x [];assistant: b [two];assistant:  [three] f;user: d [];"
	if prompt := (fakeText{}).Decode(fake.lastRequest().Prompt); status != 200 || !strings.Contains(prompt, want) {
		t.Errorf("%d %s, the prompt is %q, want %q", status, body, prompt, want)
	}
}

// TestContinuedSpace: a message that is gone on from keeps the space that it ends with where the template keeps it.
func TestContinuedSpace(t *testing.T) {
	for content, want := range map[string][2]string{
		"The ": {"assistant: The ", "assistant: The"}, "a:\\n\\n": {"assistant: a:\n\n", "assistant: a:"},
		" b": {"assistant:  b", "assistant: b"}, "c": {"assistant: c", "assistant: c"},
	} {
		for i, filter := range []string{"", " | trim"} {
			fake := newFake()
			fake.chat = templateOf(t, "{% for m in messages %}{{ m.role }}: {{ m.content"+filter+" }}</s>\n{% endfor %}")
			_, h := testServer(t, fake)
			status, _, body := post(t, h.URL+"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"},
				{"role": "assistant", "content": "`+content+`"}], "continue_final_message": true}`)
			if prompt := (fakeText{}).Decode(fake.lastRequest().Prompt); status != 200 || !strings.HasSuffix(prompt, want[i]) {
				t.Errorf("%q%s: %d %s, the prompt is %q", content, filter, status, body, prompt)
			}
		}
	}
}

// TestVariablesOfTheRequest: a template's variables do not take the place of the conversation, and their objects keep
// the order of their keys.
func TestVariablesOfTheRequest(t *testing.T) {
	fake := newFake()
	fake.chat = templateOf(t, "{{ messages[0].content }} {{ kind | tojson }}")
	_, h := testServer(t, fake)
	for _, path := range []string{"/v1/chat/completions", "/tokenize"} {
		for _, name := range []string{"messages", "tools", "add_generation_prompt", "continue_final_message"} {
			status, _, body := post(t, h.URL+path, ask("x", `"chat_template_kwargs": {"`+name+`": []}`))
			if e := as[struct{ Error openAIError }](t, body).Error; status != 400 || e.Param == nil ||
				*e.Param != "chat_template_kwargs."+name {
				t.Errorf("%s %s: %d %s", path, name, status, body)
			}
		}
	}
	post(t, h.URL+"/v1/chat/completions", ask("x", `"chat_template_kwargs": {"kind": {"b": 12345678901234567, "a": 1}}`))
	prompt := fakeText{}.Decode(fake.lastRequest().Prompt)
	if want := `x {"b": 12345678901234567, "a": 1}`; strings.TrimPrefix(prompt, "<s>") != want {
		t.Errorf("%q, want %q", prompt, want)
	}
}

// TestThoughtsBeforeForms: a form of the answer comes behind thoughts that the prompt began, or that are asked for.
func TestThoughtsBeforeForms(t *testing.T) {
	const form = `"guided_choice": ["a", "b"]`
	const tools = `"tools": [{"type": "function", "function": {"name": "f"}}]`
	for _, c := range []struct {
		end, more string
		want      [2]string
	}{
		{"assistant:", form, [2]string{}},
		{"assistant:", form + `, "reasoning_effort": "none"`, [2]string{}},
		{"assistant:", form + `, "reasoning_effort": "high"`, [2]string{"<think>", "</think>"}},
		{"assistant: <think>\n", form + `, "reasoning_effort": "high"`, [2]string{"", "</think>"}},
		{"assistant: <think>\n", form, [2]string{"", "</think>"}},
		{"assistant:", form + `, "chat_template_kwargs": {"enable_thinking": true}`, [2]string{"<think>", "</think>"}},
		{"assistant:", form + `, "reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false,
			"thinking": false}`, [2]string{}},
		{"assistant:", tools + `, "reasoning_effort": "high"`, [2]string{"<think>", "</think>"}},
	} {
		fake := newFake()
		fake.chat = templateOf(t, "{# <think> <tool_call> #}{% for m in messages %}{{ m.content }}{% endfor %}"+
			"{{ tools | tojson if tools }}"+c.end)
		_, h := testServer(t, fake)
		status, _, body := post(t, h.URL+"/v1/chat/completions", ask("x", c.more))
		if status != 200 {
			t.Fatalf("%s: %d %s", c.more, status, body)
		}
		mask, err := fake.lastRequest().Mask()
		if err != nil {
			t.Fatal(err)
		}
		own := mask.(fakeMask).Constraint
		if own.Thoughts != c.want {
			t.Errorf("%s behind %q: %q", c.more, c.end, own.Thoughts)
		}
		if _, o := own.source(); o.After != "" && c.want[0] != "" || o.After == "" && c.want[0] == "" && c.want[1] != "" {
			t.Errorf("%s behind %q: free until %q", c.more, c.end, o.After)
		}
	}
}
