package serve

import (
	"strings"
	"testing"
)

// asked is a conversation of messages, whose last one the fake model repeats what it is told to say of.
func asked(messages string) string {
	return `{"model": "fake", "max_tokens": 200, "messages": [` + messages + `]}`
}

// TestToolResults: each call has one result in the message that follows, and each result a call in the one before.
func TestToolResults(t *testing.T) {
	_, h := testServer(t, newFake())
	user := func(blocks ...string) string {
		return `{"role": "user", "content": [` + strings.Join(blocks, ", ") + `]}`
	}
	calls := func(ids ...string) string {
		var all []string
		for _, id := range ids {
			all = append(all, `{"type": "tool_use", "id": "`+id+`", "name": "f", "input": {}}`)
		}
		return `{"role": "assistant", "content": [` + strings.Join(all, ", ") + `]}`
	}
	result := func(id string) string {
		return `{"type": "tool_result", "tool_use_id": "` + id + `", "content": "fine"}`
	}
	const hello, text = `{"role": "user", "content": "hello"}`, `{"type": "text", "text": "say a"}`
	for _, c := range []struct{ messages, want string }{
		{hello + "," + calls("t1") + "," + user(result("t1")), ""},
		{hello + "," + calls("t1", "t2") + "," + user(result("t2")) + "," + user(result("t1"), text), ""},
		{calls("t1") + "," + user(result("t1")) + "," + calls("t2") + "," + user(result("t2")), ""},
		{user(result("t1")), "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1."},
		{hello + "," + calls("t1") + "," + user(result("t2")), "messages.2.content.0: unexpected `tool_use_id`"},
		{calls("t1") + "," + user(result("t1")) + `, {"role": "assistant", "content": "so"}, ` + user(result("t1")),
			"messages.3.content.0: unexpected `tool_use_id`"},
		{calls("t1") + "," + user(result("t1"), result("t1")), "single result"},
		{calls("t1", "t1") + "," + user(result("t1")), "unique"},
		{calls("t1") + "," + hello, "messages.1: `tool_use` ids were found without `tool_result` blocks immediately " +
			"after: t1."},
		{calls("t1", "t2") + "," + user(result("t1")) + `, {"role": "assistant", "content": "so"}`, "after: t2."},
		{user(`{"type": "tool_use", "id": "t1", "name": "f", "input": {}}`), "only be in `assistant`"},
		{hello + `, {"role": "assistant", "content": [` + result("t1") + `]}`, "only be in `user`"},
	} {
		for _, path := range []string{"", "/count_tokens"} {
			status, _, body := post(t, h.URL+"/v1/messages"+path, asked(c.messages))
			if c.want == "" {
				if status != 200 {
					t.Errorf("%s: %d %s", c.messages, status, body)
				}
				continue
			}
			e := as[anthropicError](t, body)
			if status != 400 || e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, c.want) {
				t.Errorf("%s: %d %s, want %s", c.messages, status, body, c.want)
			}
		}
	}
}

// TestDocuments: documents of plain text and results of searches are text, others are refused by what they are.
func TestDocuments(t *testing.T) {
	read := func(content string) (string, error) {
		return blocksText([]byte(content), "content")
	}
	for _, c := range []struct{ content, text, refused string }{
		{`[{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "One."}, "title": "T",
			"context": "C", "citations": {"enabled": false}}, {"type": "text", "text": "Two."}]`,
			"<document>\n<title>T</title>\n<context>C</context>\nOne.\n</document>\nTwo.", ""},
		{`[{"type": "document", "source": {"type": "content", "content": "One."}}]`, "<document>\nOne.\n</document>", ""},
		{`[{"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "One."},
			{"type": "text", "text": "Two."}]}}]`, "<document>\nOne.\nTwo.\n</document>", ""},
		{`[{"type": "search_result", "source": "S", "title": "T", "content": [{"type": "text", "text": "One."}]}]`,
			"<search_result>\n<source>S</source>\n<title>T</title>\nOne.\n</search_result>", ""},
		{`[{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}]`, "",
			"base64"},
		{`[{"type": "document", "source": {"type": "url", "url": "http://x"}}]`, "", "of type url"},
		{`[{"type": "document", "source": {"type": "file", "file_id": "f"}}]`, "", "of type file"},
		{`[{"type": "document", "source": {"type": "text", "media_type": "text/html", "data": "x"}}]`, "", "text/plain"},
		{`[{"type": "document", "source": {"type": "tape"}}]`, "", `"tape"`},
		{`[{"type": "document"}]`, "", "content.0.source"},
		{`[{"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}}]`, "",
			"content.0.source.content.0: it is of type image"},
		{`[{"type": "document", "source": {"type": "content", "content": "x"}, "citations": {"enabled": true}}]`, "",
			"content.0.citations"},
		{`[{"type": "search_result", "source": {"type": "text"}, "title": "T", "content": []}]`, "", "source and title"},
		{`[{"type": "search_result", "source": "S", "title": "T", "content": "x"}]`, "", "array of blocks"},
	} {
		text, err := read(c.content)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %s", c.content, err, c.refused)
			}
		} else if err != nil || text != c.text {
			t.Errorf("%s: %q %v", c.content, text, err)
		}
	}
	_, h := testServer(t, newFake())
	status, _, body := post(t, h.URL+"/v1/messages", asked(`{"role": "user", "content": [{"type": "document", "source":
		{"type": "text", "media_type": "text/plain", "data": "One."}}, {"type": "text", "text": "say hello"}]}`))
	if a := as[messageAnswer](t, body); status != 200 || len(a.Content) != 1 {
		t.Errorf("%d %s", status, body)
	}
}

// TestFailedResults: a model is told of a result that it is an error, as no chat template tells it.
func TestFailedResults(t *testing.T) {
	for _, c := range []struct{ content, want string }{
		{`"content": "no such file", "is_error": true`, "tool: <error>\nno such file\n</error>\n"},
		{`"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "is_error": true`,
			"tool: <error>\na\nb\n</error>\n"},
		{`"is_error": true`, "tool: <error>\n\n</error>\n"},
		{`"content": "fine", "is_error": false`, "tool: fine\n"},
	} {
		fake := newFake()
		_, h := testServer(t, fake)
		status, _, body := post(t, h.URL+"/v1/messages", asked(`{"role": "user", "content": "x"},
			{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
			{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", `+c.content+`}]}`))
		if prompt := (fakeText{}).Decode(fake.lastRequest().Prompt); status != 200 || !strings.Contains(prompt, c.want) {
			t.Errorf("%s: %d %s, the prompt is %q", c.content, status, body, prompt)
		}
	}
}
