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
	if body != `{"input_tokens":21}` {
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
		{`{"model": "fake", "max_tokens": 5, "messages": [{"role": "system", "content": "x"}]}`, "invalid_request_error",
			"system", 400},
	} {
		status, header, body := post(t, h.URL+"/v1/messages", c.body, "x-api-key", "k", "anthropic-version", "2023-06-01")
		e := as[anthropicError](t, body)
		if status != c.status || e.Type != "error" || e.Error.Type != c.kind || !strings.Contains(e.Error.Message, c.want) ||
			e.RequestID != header.Get("Request-Id") {
			t.Errorf("%s: %d %s", c.body, status, body)
		}
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
