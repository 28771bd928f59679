package serve

import (
	"strings"
	"testing"
)

func claude(text, more string) string {
	if more != "" {
		more = ", " + more
	}
	return `{"model": "fake", "max_tokens": 100, "messages": [{"role": "user", "content": "` + text + `"}]` + more + `}`
}

// TestMessages: requests of the messages protocol and what they are answered; a table, in one
// piece.
func TestMessages(t *testing.T) {
	_, h := testServer(t, newFake())
	url := h.URL + "/v1/messages"
	tools := `"tools": [{"name": "weather", "input_schema": {"type": "object"}}]`
	for _, c := range []struct {
		body, types, text, reason string
	}{
		{claude("say hello", ""), "text", "hello", "end_turn"},
		{claude("think four", `"max_tokens": 3000, "thinking": {"type": "enabled", "budget_tokens": 2000}`), "thinking text",
			"It is four",
			"end_turn"},
		{claude("say hello", `"stop_sequences": ["ll"]`), "text", "he", "stop_sequence"},
		{strings.Replace(claude("say hello", ""), "100", "3", 1), "text", "hel", "max_tokens"},
		{claude("call weather {}", tools), "text tool_use", "Let me look. ", "tool_use"},
		{claude("hello", tools+`, "tool_choice": {"type": "any"}`), "tool_use", "", "tool_use"},
		{`{"model": "fake", "max_tokens": 50, "system": [{"type": "text", "text": "be short",
			"cache_control": {"type": "ephemeral"}}],
			"messages": [{"role": "user", "content": "weather?"}, {"role": "assistant", "content": [{"type": "text",
				"text": "I look"},
			{"type": "tool_use", "id": "t1", "name": "weather", "input": {"a": 1}}]},
			{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text",
				"text": "sunny"}]}]}]}`,
			"text", "The tool said sunny", "end_turn"},
	} {
		status, _, body := post(t, url, c.body)
		a := as[messageAnswer](t, body)
		var types []string
		text := ""
		for _, b := range a.Content {
			if types = append(types, b.Type); b.Text != nil {
				text += *b.Text
			}
			if b.Type == "tool_use" && !strings.HasPrefix(b.ID, "toolu_") {
				t.Errorf("id %s", b.ID)
			}
		}
		if status != 200 || strings.Join(types, " ") != c.types || text != c.text || *a.Reason != c.reason ||
			a.Usage.Output == 0 || a.Usage.Read != 2 {
			t.Errorf("%.70s: %d %s", c.body, status, body)
		}
		// The stream has the same parts.
		_, _, stream := post(t, url, strings.TrimSuffix(c.body, "}")+`, "stream": true}`)
		names, data := frames(t, stream)
		order := strings.Join(names, " ")
		if !strings.HasPrefix(order, "message_start ping content_block_start") ||
			!strings.HasSuffix(order, "content_block_stop message_delta message_stop") {
			t.Errorf("events %s", order)
		}
		streamed := ""
		var open []string
		for i, d := range data {
			e := as[struct {
				Type  string
				Index int
				Block struct{ Type string } `json:"content_block"`
				Delta struct {
					Text   string
					Reason string `json:"stop_reason"`
				}
				Usage struct {
					Output int `json:"output_tokens"`
				}
			}](t, d)
			if e.Type != names[i] {
				t.Errorf("event %s holds %s", names[i], e.Type)
			}
			streamed += e.Delta.Text
			if e.Type == "content_block_start" {
				open = append(open, e.Block.Type)
			}
			if e.Type == "message_delta" && (e.Delta.Reason != c.reason || e.Usage.Output != a.Usage.Output) {
				t.Errorf("%s", d)
			}
		}
		if streamed != c.text || strings.Join(open, " ") != c.types {
			t.Errorf("%.70s: streamed %q in %v", c.body, streamed, open)
		}
	}
	_, _, body := post(t, url+"/count_tokens", `{"model": "fake", "messages": [{"role": "user", "content": "hi"}]}`)
	if body != `{"input_tokens":20}` {
		t.Errorf("%s", body)
	}
}

func TestMessagesErrors(t *testing.T) {
	_, h := testServer(t, newFake(), func(o *Options) { o.Keys, _ = NewKeys([]*Key{PlainKey("a", "k")}) })
	for _, c := range []struct {
		body, kind, want string
		status           int
	}{
		{`{}`, "invalid_request_error", "model", 400},
		{`{"model": "fake", "max_tokens": 5}`, "invalid_request_error", "messages", 400},
		{`{"model": "fake", "messages": [{"role": "user", "content": "x"}]}`, "invalid_request_error", "max_tokens", 400},
		{`{"model": "none"}`, "not_found_error", "none", 404},
		{claude("x", `"temperature": 1.5`), "invalid_request_error", "temperature", 400},
		{claude("x", `"tools": [{"type": "web_search_20250305", "name": "web_search"}]`), "invalid_request_error",
			"web_search", 400},
		{claude("x", `"tools": [{"name": "f"}]`), "invalid_request_error", "input_schema", 400},
		{claude("x", `"thinking": {"type": "enabled", "budget_tokens": 5}`), "invalid_request_error", "1024", 400},
		{claude("x", `"tool_choice": {"type": "tool", "name": "f"}`), "invalid_request_error", "not among", 400},
		{`{"model": "fake", "max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]}`,
			"invalid_request_error", "text alone", 400},
		{`{"model": "fake", "max_tokens": 5, "messages": [{"role": "tool", "content": "x"}]}`, "invalid_request_error",
			"system", 400},
		{claude("x", `"thread": {"type": "create"}`), "invalid_request_error", "thread", 400},
		{claude("x", `"compaction": {}`), "invalid_request_error", "compaction", 400},
		{claude("x", `"thinking": {"type": "often"}`), "invalid_request_error", "between_tools", 400},
	} {
		status, header, body := post(t, h.URL+"/v1/messages", c.body, "x-api-key", "k", "anthropic-version", "2023-06-01")
		e := as[anthropicError](t, body)
		if status != c.status || e.Type != "error" || e.Error.Type != c.kind || !strings.Contains(e.Error.Message, c.want) ||
			e.RequestID != header.Get("Request-Id") {
			t.Errorf("%s: %d %s", c.body, status, body)
		}
	}
	// By this cause clients send the whole conversation instead, such as those that run tools in a loop.
	_, _, body := post(t, h.URL+"/v1/messages", claude("x", `"thread": {"type": "create"}`), "x-api-key", "k")
	if e := as[anthropicError](t, body); e.Error.Details == nil || e.Error.Details.Code != "thread_unsupported_request" {
		t.Errorf("%s", body)
	}
	status, _, body := post(t, h.URL+"/v1/messages", claude("x", ""))
	if e := as[anthropicError](t, body); status != 401 || e.Error.Type != "authentication_error" {
		t.Errorf("%d %s", status, body)
	}
}

// TestMessageOfNothing: a message whose blocks hold no text is one of no text, as a message without blocks is.
func TestMessageOfNothing(t *testing.T) {
	_, h := testServer(t, newFake())
	read := func(content, behind string) int {
		status, _, body := post(t, h.URL+"/v1/messages/count_tokens",
			`{"model": "fake", "messages": [{"role": "user", "content": `+content+`}`+behind+`]}`)
		if status != 200 {
			t.Errorf("%s: %d %s", content, status, body)
			return -1
		}
		return as[struct {
			N int `json:"input_tokens"`
		}](t, body).N
	}
	for _, behind := range []string{"", `, {"role": "user", "content": "hello"}`} {
		want := read(`""`, behind)
		for _, content := range []string{`[]`, `[{"type": "text", "text": ""}]`, `[{"type": "thinking", "thinking": ""}]`,
			`[{"type": "redacted_thinking", "data": "x"}]`} {
			if n := read(content, behind); n != want {
				t.Errorf("%s%s has %d tokens, an empty text %d", content, behind, n, want)
			}
		}
	}
}

// dull is a chat whose model does not reason.
type dull struct{ fakeChat }

func (dull) Reasoning() bool { return false }

// TestThinkingIsLeftToTheModel: thinking that is adaptive, or between tools, and the effort of an answer ask nothing of
// a model that does not reason, as clients send them to any; thinking that is enabled does.
func TestThinkingIsLeftToTheModel(t *testing.T) {
	for _, c := range []struct{ more, effort, ignored string }{
		{`"thinking": {"type": "adaptive"}`, "some", "thinking"},
		{`"thinking": {"type": "between_tools"}`, "some", "thinking"},
		{`"output_config": {"effort": "high"}`, "high", "output_config.effort"},
		{`"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}`, "low", "output_config.effort, thinking"},
	} {
		for _, reasons := range []bool{true, false} {
			fake := newFake()
			effort, ignored := "effort "+c.effort+"\n", ""
			if !reasons {
				fake.chat, effort, ignored = dull{}, "", c.ignored
			}
			_, h := testServer(t, fake)
			status, header, body := post(t, h.URL+"/v1/messages", claude("say a", c.more))
			prompt := fakeText{}.Decode(fake.lastRequest().Prompt)
			if status != 200 || header.Get(ignoredHeader) != ignored ||
				!strings.HasSuffix(prompt, "say a\n"+effort+"assistant: ") {
				t.Errorf("%s, reasons %v: %d %q %q %s", c.more, reasons, status, header.Get(ignoredHeader), prompt, body)
			}
		}
	}
	fake := newFake()
	fake.chat = dull{}
	_, h := testServer(t, fake)
	status, _, body := post(t, h.URL+"/v1/messages", `{"model": "fake", "max_tokens": 2000, "thinking":
		{"type": "enabled", "budget_tokens": 1024}, "messages": [{"role": "user", "content": "x"}]}`)
	if status != 400 || !strings.Contains(body, "does not reason") {
		t.Errorf("%d %s", status, body)
	}
}

// TestSystemMessages: a message of the system's stands where it is, also between a call and its result.
func TestSystemMessages(t *testing.T) {
	fake := newFake()
	fake.chat = templateOf(t, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
	_, h := testServer(t, fake)
	status, _, body := post(t, h.URL+"/v1/messages", asked(`{"role": "user", "content": "a"},
		{"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "tool_use", "id": "t", "name": "f",
		"input": {}}]}, {"role": "system", "content": [{"type": "text", "text": "be short"}]},
		{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "c"}]},
		{"role": "system", "content": "and kind"}`))
	prompt := fakeText{}.Decode(fake.lastRequest().Prompt)
	if want := "user: a\nassistant: b\nsystem: be short\ntool: c\nsystem: and kind\n"; status != 200 ||
		strings.TrimPrefix(prompt, "<s>") != want {
		t.Errorf("%d %s: %q, want %q", status, body, prompt, want)
	}
	status, _, body = post(t, h.URL+"/v1/messages", asked(`{"role": "assistant", "content": [{"type": "tool_use",
		"id": "t", "name": "f", "input": {}}]}, {"role": "user", "content": "a"}, {"role": "system", "content": "x"}`))
	if status != 400 || !strings.Contains(body, "immediately after: t.") {
		t.Errorf("%d %s", status, body)
	}
}

// TestThinkingWithoutEffort: thoughts that are asked for without an effort are those of the template, which may know
// others than the protocol.
func TestThinkingWithoutEffort(t *testing.T) {
	fake := newFake()
	fake.chat = templateOf(t, "{% if reasoning_effort is defined %}{{ raise_exception('no ' ~ reasoning_effort) }}"+
		"{% endif %}{{ messages[0].content }} {{ enable_thinking }}<think></think>")
	_, h := testServer(t, fake)
	for _, more := range []string{`"thinking": {"type": "adaptive"}`,
		`"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}`} {
		status, _, body := post(t, h.URL+"/v1/messages", claude("x", more))
		if prompt := (fakeText{}).Decode(fake.lastRequest().Prompt); status != 200 ||
			!strings.Contains(prompt, "x True<think>") {
			t.Errorf("%s: %d %s, the prompt is %q", more, status, body, prompt)
		}
	}
}
