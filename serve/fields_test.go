package serve

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/greta-project/greta/chat/template"
)

func templateOf(t *testing.T, text string) Chat {
	t.Helper()
	chat, err := NewTemplateChat(template.New("test", text))
	if err != nil {
		t.Fatal(err)
	}
	return chat
}

// fieldCase is a request whose field is refused in these words.
type fieldCase struct{ path, body, param, says string }

// refusedAs asks, and compares what is said of which field.
func refusedAs(t *testing.T, url string, cases []fieldCase) {
	t.Helper()
	for _, c := range cases {
		status, _, body := post(t, url+"/v1/"+c.path, c.body)
		e := as[struct {
			Error struct{ Message, Param string }
		}](t, body)
		if status != 400 || e.Error.Param != c.param || !strings.Contains(e.Error.Message, c.says) {
			t.Errorf("%s %.300s: %d %s", c.path, c.body, status, body)
		}
	}
}

// What a field asks for happens, or is refused with the field's name.
func TestFieldsAreHeard(t *testing.T) {
	_, h := testServer(t, newFake())
	tool := `{"type": "function", "function": {"name": "a"}}`
	claude := func(more string) string {
		return `{"model": "fake", "max_tokens": 2000, "messages": [{"role": "user", "content": "say x"}], ` + more + `}`
	}
	respond := func(more string) string { return `{"model": "fake", "input": "say x", ` + more + `}` }
	refusedAs(t, h.URL, []fieldCase{
		{"chat/completions", ask("x", `"min_tokens": 9, "max_tokens": 5`), "min_tokens", "more than the 5 tokens"},
		{"completions", `{"prompt": "x", "min_tokens": 17}`, "min_tokens", "more than the 16 tokens"},
		{"chat/completions", ask("x", `"repetition_penalty": 0`), "repetition_penalty", "more than 0"},
		{"chat/completions", ask("x", `"structured_outputs": {"structural_tag": "{}"}`),
			"structured_outputs.structural_tag", "not supported"},
		{"chat/completions", ask("x", `"structured_outputs": {"choice": []}`), "structured_outputs.choice", "empty"},
		{"chat/completions", ask("x", `"guided_choice": []`), "guided_choice", "empty"},
		{"chat/completions", ask("x", `"guided_json": "{bad"`), "guided_json", "no JSON"},
		{"chat/completions", ask("x", `"tools": [`+tool+`, `+tool+`]`), "tools", `two are called "a"`},
		{"chat/completions", ask("x", `"tools": [{"type": "function", "function": {"name": "a",
			"parameters": {"type": "string"}}}]`), "tools[0].function.parameters", "arguments of a tool are an object"},
		{"chat/completions", `{"messages": ["x"]}`, "messages", "each value in messages must be an object"},
		{"completions", `{"prompt": "` + strings.Repeat("x", 100001) + `"}`, "prompt", "maximum context length"},
		{"responses", `{"model": "fake", "input": "` + strings.Repeat("x", 100001) + `"}`, "input", "maximum context length"},
		{"chat/completions", ask(strings.Repeat("x", 100001), ""), "messages", "maximum context length"},
		{"completions", `{"prompt": [null]}`, "prompt[0]", "is null"},
		{"chat/completions", ask("x", `"stop_token_ids": [1, null]`), "stop_token_ids[1]", "is null"},
		{"chat/completions", ask("x", `"guided_choice": [null]`), "guided_choice[0]", "is null"},
		{"completions", `{"prompt": [[1, null]]}`, "prompt[0]", "a string or an array of tokens"},
		{"responses", respond(`"metadata": {"a": 1}`), "metadata", "each value in metadata must be a string"},
		{"responses", respond(`"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"name": "b"}]}`),
			"tool_choice", `names "b"`},
		{"messages", claude(`"thinking": {"type": "enabled", "budget_tokens": 2000}`), "", "less than max_tokens"},
		{"messages", claude(`"tools": [{"name": "a", "input_schema": {"type": "object"}},
			{"name": "a", "input_schema": {"type": "object"}}]`), "", `two are called "a"`},
		{"messages", claude(`"tools": [{"name": "a", "input_schema": {"type": "array"}}]`), "", "are an object"},
	})
	named := `"tools": [{"type": "function", "name": "a"}, {"type": "function", "name": "b"}], "tool_choice":
		{"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "b"}]}`
	if status, _, body := post(t, h.URL+"/v1/responses", respond(named)); status != 200 ||
		!strings.Contains(body, `"type":"function_call"`) || !strings.Contains(body, `"name":"b"`) {
		t.Errorf("%d %s", status, body)
	}
	_, head, body := post(t, h.URL+"/v1/messages", claude(`"thinking": {"type": "enabled", "budget_tokens": 1024}`))
	if got := head.Get(ignoredHeader); got != "thinking.budget_tokens" {
		t.Errorf("ignored %q %s", got, body)
	}
	// A name in other letters is another name, beside the right one and alone.
	_, head, body = post(t, h.URL+"/v1/chat/completions", ask("say hello", `"MAX_TOKENS": 2, "Stream": true`))
	if got := head.Get(ignoredHeader); got != "MAX_TOKENS, Stream" || !strings.Contains(body, `"content":"hello"`) {
		t.Errorf("ignored %q %s", got, body)
	}
	// So are names within the objects and lists of a request; what is known there is not named.
	_, head, body = post(t, h.URL+"/v1/chat/completions", `{"messages": [{"role": "user", "content": "say hello",
		"name": "me", "mood": 1}, {"role": "user", "content": "say hello", "mood": 2, "n\r": 1, "nothing": null}],
		"stream": true, "stream_options": {"include_usage": true, "every": 2}, "tools": [{"type": "function", "cache": true,
		"function": {"name": "f", "strict": false, "description": "x", "parameters": {"any": {"thing": 1}}, "kind": 2}}]}`)
	if got, want := head.Get(ignoredHeader), "messages.mood, messages.n?, stream_options.every, tools.cache, "+
		"tools.function.kind"; got != want {
		t.Errorf("ignored %q, want %q %.200s", got, want, body)
	}
	_, head, body = post(t, h.URL+"/v1/chat/completions", ask("say hello", `"stream": true, "stream_options":
		{"Include_Usage": true}`))
	if got := head.Get(ignoredHeader); got != "stream_options.Include_Usage" || strings.Contains(body, `"usage"`) {
		t.Errorf("ignored %q %s", got, body)
	}
}

// With continuous_usage_stats each chunk says what was used until then.
func TestRunningUsage(t *testing.T) {
	_, h := testServer(t, newFake())
	for path, body := range map[string]string{"chat/completions": ask("say abc", `"stream": true,
		"stream_options": {"continuous_usage_stats": true}`),
		"completions": `{"prompt": "say abc", "stream": true, "stream_options": {"continuous_usage_stats": true}}`} {
		_, _, text := post(t, h.URL+"/v1/"+path, body)
		_, data := frames(t, text)
		last := 0
		for _, d := range data[:len(data)-1] {
			c := as[struct {
				Usage *struct {
					Prompt     int `json:"prompt_tokens"`
					Completion int `json:"completion_tokens"`
				}
			}](t, d)
			if c.Usage == nil || c.Usage.Prompt == 0 || c.Usage.Completion < last {
				t.Fatalf("%s: %s behind %d tokens", path, d, last)
			}
			last = c.Usage.Completion
		}
		if last != 4 { // three letters and the end
			t.Errorf("%s: %d tokens at the end\n%s", path, last, text)
		}
	}
}

// Lists have pages, and Anthropic's clients see models and errors as they know them.
func TestListsOfBoth(t *testing.T) {
	_, h := testServer(t, newFake())
	claude := []string{"anthropic-version", "2023-06-01"}
	type page struct {
		Data []struct {
			ID, Type string
			Created  string `json:"created_at"`
			Name     string `json:"display_name"`
		}
		More bool `json:"has_more"`
	}
	_, _, body := get(t, h.URL+"/v1/models?limit=1", claude...)
	p := as[page](t, body)
	if len(p.Data) != 1 || !p.More || p.Data[0].Type != "model" || p.Data[0].Name != "fake" ||
		!strings.HasSuffix(p.Data[0].Created, "Z") {
		t.Errorf("%s", body)
	}
	_, _, body = get(t, h.URL+"/v1/models?limit=1&after_id=fake", claude...)
	if p := as[page](t, body); len(p.Data) != 1 || p.More || p.Data[0].ID != "gpt-4o" {
		t.Errorf("%s", body)
	}
	_, _, body = get(t, h.URL+"/v1/models?before_id=gpt-4o", claude...)
	if p := as[page](t, body); len(p.Data) != 1 || p.Data[0].ID != "fake" {
		t.Errorf("%s", body)
	}
	for _, path := range []string{"/v1/models/none", "/v1/nothing"} {
		if status, _, body := get(t, h.URL+path, claude...); status != 404 ||
			!strings.Contains(body, `"type":"not_found_error"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, body := get(t, h.URL+"/v1/models?limit=0", claude...); status != 400 {
		t.Errorf("%d %s", status, body)
	}
	if _, _, body := get(t, h.URL+"/v1/models"); strings.Contains(body, "display_name") {
		t.Errorf("OpenAI's list has Anthropic's fields: %s", body)
	}
	_, _, body = post(t, h.URL+"/v1/responses", `{"model": "fake", "input": [{"role": "user", "content": "a"},
		{"role": "user", "content": "say b"}]}`)
	id := as[struct{ ID string }](t, body).ID
	_, _, body = get(t, h.URL+"/v1/responses/"+id+"/input_items?limit=1&order=asc")
	first := as[page](t, body)
	if len(first.Data) != 1 || !first.More {
		t.Fatalf("%s", body)
	}
	_, _, body = get(t, h.URL+"/v1/responses/"+id+"/input_items?order=asc&after="+first.Data[0].ID)
	if p := as[page](t, body); len(p.Data) != 1 || p.More || p.Data[0].ID == first.Data[0].ID {
		t.Errorf("%s", body)
	}
	_, _, body = post(t, h.URL+"/v1/responses/input_tokens", `{"model": "fake", "input": "x"}`)
	counted := as[struct {
		Object string
		Tokens int `json:"input_tokens"`
	}](t, body)
	_, _, body = post(t, h.URL+"/v1/responses", `{"model": "fake", "input": "x"}`)
	used := as[struct {
		Usage struct {
			Tokens int `json:"input_tokens"`
		}
	}](t, body)
	if counted.Tokens == 0 || counted.Tokens != used.Usage.Tokens || counted.Object != "response.input_tokens" {
		t.Errorf("%+v, used %+v", counted, used)
	}
}

// Tokens of a conversation are those of what was asked for: with the answer's beginning, without, or going on.
func TestTokenizeConversation(t *testing.T) {
	fake := newFake()
	fake.chat = templateOf(t, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"+
		"{% if add_generation_prompt %}assistant:{{ mood }}{% endif %}")
	_, h := testServer(t, fake)
	for _, c := range []struct{ more, want string }{
		{``, "user: a\nassistant: b\nassistant:"},
		{`, "add_generation_prompt": false`, "user: a\nassistant: b\n"},
		{`, "continue_final_message": true, "add_generation_prompt": false`, "user: a\nassistant: b"},
		{`, "chat_template_kwargs": {"mood": "glad"}`, "user: a\nassistant: b\nassistant:glad"},
	} {
		_, head, body := post(t, h.URL+"/tokenize", `{"model": "fake", "messages": [{"role": "user", "content": "a"},
			{"role": "assistant", "content": "b"}]`+c.more+`}`)
		ids, _ := json.Marshal(map[string]any{"model": "fake", "tokens": as[struct{ Tokens []int }](t, body).Tokens})
		_, _, text := post(t, h.URL+"/detokenize", string(ids))
		if got := as[struct{ Prompt string }](t, text).Prompt; strings.TrimPrefix(got, "<s>") != c.want ||
			head.Get(ignoredHeader) != "" {
			t.Errorf("%s: %q, ignored %q", c.more, got, head.Get(ignoredHeader))
		}
	}
	status, _, body := post(t, h.URL+"/tokenize", `{"messages": [{"role": "assistant", "content": "b"}],
		"continue_final_message": true, "add_generation_prompt": true}`)
	if status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
}

// TestIntegers: what is integral is an integer however it is written, what is not is refused by the field's name.
func TestIntegers(t *testing.T) {
	_, h := testServer(t, newFake())
	for text, ok := range map[string]bool{"10.0": true, "1e1": true, "1E+1": true, "1.0e1": true, "100e-1": true,
		"10": true, "10.5": false, "1e-1": false, "1e999": false, "1e400000000": false, "1e-400000000": false,
		"9223372036854775808.0": false, "true": false, `"10"`: false, "10.00000000000000000000000001": false} {
		for path, body := range map[string]string{
			"chat/completions": ask("say a b c", `"max_tokens": `+text),
			"completions":      `{"prompt": "x", "max_tokens": ` + text + `}`,
			"responses":        `{"input": "x", "max_output_tokens": ` + text + `}`,
		} {
			param := "max_tokens"
			if path == "responses" {
				param = "max_output_tokens"
			}
			status, _, got := post(t, h.URL+"/v1/"+path, body)
			e := as[struct{ Error struct{ Param string } }](t, got)
			if want := map[bool]int{true: 200, false: 400}[ok]; status != want || !ok && e.Error.Param != param {
				t.Errorf("%s %s: %d %.300s", path, text, status, got)
			}
		}
	}
	for body, status := range map[string]int{
		`{"prompt": [1.0, 2e0], "max_tokens": 1}`:                  200,
		`{"prompt": [[1.0], [2]], "max_tokens": 1}`:                200,
		`{"prompt": [1.5], "max_tokens": 1}`:                       400,
		`{"prompt": "x", "stop_token_ids": [5.0], "n": 1.0}`:       200,
		`{"prompt": "x", "stop_token_ids": [5.5]}`:                 400,
		`{"prompt": "x", "seed": -7.0, "logprobs": 1e0}`:           200,
		`{"prompt": "x", "seed": 0.0, "logit_bias": {"5": 1.5}}`:   200,
		`{"prompt": "x", "seed": -0.0, "stream_options": {"a":1}}`: 400,
	} {
		if got, _, answer := post(t, h.URL+"/v1/completions", body); got != status {
			t.Errorf("%s: %d %.300s", body, got, answer)
		}
	}
}

// TestTemplateErrors: what a template says against a conversation has its name and line, and no path of the server's.
func TestTemplateErrors(t *testing.T) {
	for path, name := range map[string]string{"/srv/secret/own.jinja": "own.jinja",
		"/srv/secret/model": "the chat template",
		"chatml":            "chatml", "/srv/secret/m.gguf": "the chat template"} {
		chat, err := NewTemplateChat(template.New(path, "\n{{ raise_exception('no such thing') }}"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = chat.Prompt([]Message{{Role: "user", Content: "x"}}, ChatOptions{})
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), name+", line 2") ||
			!strings.Contains(err.Error(), "no such thing") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestBadArguments: where a template wants a call's arguments as an object, what is none is told as that.
func TestBadArguments(t *testing.T) {
	chat := templateOf(t, `{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}`+
		`{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}`)
	fake := newFake()
	fake.chat = chat
	_, h := testServer(t, fake)
	body := func(arguments string) string {
		return `{"messages": [{"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f",
			"arguments": ` + arguments + `}}]}, {"role": "tool", "tool_call_id": "c1", "content": "x"}]}`
	}
	if status, _, got := post(t, h.URL+"/v1/chat/completions", body(`"{\"a\": 1}"`)); status != 200 {
		t.Errorf("%d %s", status, got)
	}
	status, _, got := post(t, h.URL+"/v1/chat/completions", body(`"{\"a\": "`))
	if status != 400 || !strings.Contains(got, "the arguments of the call c1 of f are no JSON object") {
		t.Errorf("%d %s", status, got)
	}
}

// TestPaths: two slashes for one, and one behind a path, are nothing; a path that leads out is unknown, in the
// protocol's own words.
func TestPaths(t *testing.T) {
	_, h := testServer(t, newFake())
	for path, want := range map[string]int{"/v1//models": 200, "//v1/models": 200, "/v1/models//": 200, "/v1/models/": 200,
		"/v1/./models/fake": 200, "/v1/responses/%2e%2e%2f": 404, "/v1/responses/..": 404, "/%00": 404} {
		status, _, got := get(t, h.URL+path)
		if status != want || !json.Valid([]byte(got)) {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
	if status, _, got := post(t, h.URL+"//v1//chat/completions/", ask("say hello", "")); status != 200 {
		t.Errorf("%d %s", status, got)
	}
}

// TestFieldsWithoutMeaning: values that no protocol has are refused, and are not taken for none.
func TestFieldsWithoutMeaning(t *testing.T) {
	_, h := testServer(t, newFake())
	claude := func(more string) string {
		return `{"model": "fake", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], ` + more + `}`
	}
	respond := func(more string) string { return `{"model": "fake", "input": "x", ` + more + `}` }
	refusedAs(t, h.URL, []fieldCase{
		{"chat/completions", ask("x", `"service_tier": "odd"`), "service_tier", "one of auto"},
		{"chat/completions", ask("x", `"response_format": {}`), "response_format.type", "is missing"},
		{"chat/completions", ask("x", `"response_format": {"json_schema": {"name": "n", "schema": {}}}`),
			"response_format.type", "must be json_schema"},
		{"chat/completions", ask("x", `"response_format": {"type": "text", "json_schema": {"name": "n", "schema": {}}}`),
			"response_format.type", "must be json_schema"},
		{"responses", respond(`"service_tier": "odd"`), "service_tier", "one of auto"},
		{"responses", `{"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]}`,
			"input[0].arguments", "must be a string, it is an object"},
		{"responses", `{"input": ["x"]}`, "input[0]", "must be an object"},
		{"responses", `{"input": [{"role": "user", "content": "x"}, null]}`, "input[1]", "is null"},
		{"responses", respond(`"conversation": ""`), "conversation", "the id of one"},
		{"messages", claude(`"service_tier": "flex"`), "", "one of auto, standard_only"},
		{"messages", `{"model": "fake", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}, {"role": "assistant",
			"content": [{"type": "tool_use", "id": "t", "name": "f", "input": [1]}]}]}`, "", ".input: it must be an object"},
	})
}
