package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// post sends a body and gives status, headers and what was answered.
func post(t testing.TB, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return do(t, req)
}

func get(t testing.TB, url string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return do(t, req)
}

func do(t testing.TB, req *http.Request) (int, http.Header, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// as reads JSON.
func as[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// frames divides a stream into its events: names and data.
func frames(t testing.TB, stream string) (names, data []string) {
	t.Helper()
	if !strings.HasSuffix(stream, "\n\n") {
		t.Errorf("the stream does not end with an empty line: %q", stream[max(0, len(stream)-100):])
	}
	for _, f := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name := ""
		scan := bufio.NewScanner(strings.NewReader(f))
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			if v, ok := strings.CutPrefix(scan.Text(), "event: "); ok {
				name = v
			} else if v, ok := strings.CutPrefix(scan.Text(), "data: "); ok {
				names, data = append(names, name), append(data, v)
			} else {
				t.Errorf("a line of a stream is neither event nor data: %q", scan.Text())
			}
		}
	}
	return names, data
}

func ask(text, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(`{"model": "fake", "messages": [{"role": "user", "content": %q}]%s}`, text, more)
}

func TestChat(t *testing.T) {
	_, h := testServer(t, newFake())
	url := h.URL + "/v1/chat/completions"
	status, header, body := post(t, url, ask("say hello", `"n": 2, "surprise": 1, "nothing": null`))
	if status != 200 {
		t.Fatal(status, body)
	}
	a := as[chatAnswer](t, body)
	if len(a.Choices) != 2 || *a.Choices[0].Message.Content != "hello" || *a.Choices[1].Finish != "stop" {
		t.Errorf("%s", body)
	}
	if a.Usage.Completion != 12 || a.Usage.Total != a.Usage.Prompt+12 || a.Usage.PromptMore.Cached != 2 {
		t.Errorf("usage %+v", a.Usage)
	}
	if got := header.Get(ignoredHeader); got != "surprise" {
		t.Errorf("ignored: %q", got)
	}
	if !strings.HasPrefix(header.Get("X-Request-Id"), "req_") {
		t.Errorf("no request id: %v", header)
	}

	_, _, body = post(t, url, ask("think four", `"logprobs": true, "top_logprobs": 2`))
	a = as[chatAnswer](t, body)
	m := a.Choices[0].Message
	if *m.Content != "It is four" || m.Reasoning != "Let me see: four" || a.Usage.CompletionMore.Reasoning == 0 {
		t.Errorf("%s", body)
	}
	if l := a.Choices[0].Logprobs.Content; len(l) != a.Usage.Completion || len(l[0].Top) != 2 || l[0].Token != "<" {
		t.Errorf("%d logprobs of %d tokens: %+v", len(l), a.Usage.Completion, l[0])
	}

	for _, c := range []struct{ more, want, finish string }{
		{`"max_tokens": 4`, "hell", "length"},
		{`"max_completion_tokens": 3, "max_tokens": 9`, "hel", "length"},
		{`"stop": "lo"`, "hel", "stop"},
		{`"stop": ["xx", "l"], "include_stop_str_in_output": true`, "hel", "stop"},
		{`"stop_token_ids": [101]`, "h", "stop"},
		{`"ignore_eos": true, "max_tokens": 7`, "hellohe", "length"},
	} {
		_, _, body := post(t, url, ask("say hello", c.more))
		a := as[chatAnswer](t, body)
		if len(a.Choices) != 1 || *a.Choices[0].Message.Content != c.want || *a.Choices[0].Finish != c.finish {
			t.Errorf("%s: %s", c.more, body)
		}
	}
}

func TestChatStream(t *testing.T) {
	_, h := testServer(t, newFake())
	url := h.URL + "/v1/chat/completions"
	status, header,
		body := post(t, url, ask("say héllo", `"stream": true, "n": 2, "stream_options": {"include_usage": true}`))
	if status != 200 || header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatal(status, header, body)
	}
	_, data := frames(t, body)
	if data[len(data)-1] != "[DONE]" {
		t.Fatalf("the last event is %s", data[len(data)-1])
	}
	texts, finishes, roles := map[int]string{}, map[int]string{}, map[int]int{}
	for i, d := range data[:len(data)-1] {
		c := as[chatAnswer](t, d)
		if c.Object != "chat.completion.chunk" {
			t.Errorf("object %s", c.Object)
		}
		if i == len(data)-2 {
			if len(c.Choices) != 0 || c.Usage == nil || c.Usage.Completion != 14 {
				t.Errorf("the last chunk must hold usage alone: %s", d)
			}
			continue
		}
		ch := c.Choices[0]
		if ch.Delta.Role != "" {
			roles[ch.Index]++
		}
		if ch.Delta.Content != nil {
			texts[ch.Index] += *ch.Delta.Content
		}
		if ch.Finish != nil {
			finishes[ch.Index] = *ch.Finish
		}
	}
	for i := range 2 {
		if texts[i] != "héllo" || finishes[i] != "stop" || roles[i] != 1 {
			t.Errorf("answer %d: %q %q %d", i, texts[i], finishes[i], roles[i])
		}
	}
}

func TestChatTools(t *testing.T) {
	fake := newFake()
	_, h := testServer(t, fake)
	url := h.URL + "/v1/chat/completions"
	tools := `"tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]`
	_, _, body := post(t, url, ask(`call weather {"city": "Rome"}`, tools))
	a := as[chatAnswer](t, body)
	calls := a.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Function.Name != "weather" || calls[0].Function.Arguments != `{"city": "Rome"}` ||
		*a.Choices[0].Finish != "tool_calls" || *a.Choices[0].Message.Content != "Let me look. " {
		t.Fatalf("%s", body)
	}
	_, _, body = post(t, url, ask("twice", tools+`, "stream": true`))
	_, data := frames(t, body)
	args, ids, names := map[int]string{}, map[int]string{}, map[int]string{}
	finish := ""
	for _, d := range data[:len(data)-1] {
		ch := as[chatAnswer](t, d).Choices[0]
		if ch.Finish != nil {
			finish = *ch.Finish
		}
		for _, c := range ch.Delta.ToolCalls {
			i := *c.Index
			if c.ID != "" && ids[i] != "" {
				t.Errorf("call %d has two ids", i)
			}
			ids[i] += c.ID
			names[i] += c.Function.Name
			args[i] += c.Function.Arguments
		}
	}
	if finish != "tool_calls" || args[0] != `{"a": 1}` || args[1] != `{"b": 2}` || names[1] != "g" ||
		!strings.HasPrefix(ids[0], "call_") {
		t.Errorf("finish %s, args %v, names %v, ids %v", finish, args, names, ids)
	}

	for _, word := range []string{"required", "any"} {
		_, _, body = post(t, url, ask("hello", tools+`, "tool_choice": "`+word+`"`))
		if a := as[chatAnswer](t, body); len(a.Choices) == 0 || len(a.Choices[0].Message.ToolCalls) == 0 ||
			a.Choices[0].Message.ToolCalls[0].Function.Name != "weather" {
			t.Errorf("%s: %s", word, body)
		}
	}
	_, _, body = post(t, url, fmt.Sprintf(`{"model": "fake", "messages": [{"role": "user", "content": "weather?"},
		{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
		"function": {"name": "weather", "arguments": "{}"}}]},
		{"role": "tool", "tool_call_id": "c1", "content": "sunny"}], %s}`, tools))
	if a := as[chatAnswer](t, body); *a.Choices[0].Message.Content != "The tool said sunny" {
		t.Errorf("%s", body)
	}
}

func TestChatForms(t *testing.T) {
	_, h := testServer(t, newFake())
	url := h.URL + "/v1/chat/completions"
	schema := `{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}`
	for _, c := range []struct{ more, want string }{
		{`"response_format": {"type": "json_object"}`, `{"ok": true}`},
		{`"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": ` + schema + `}}`,
			`{"age": 7, "name": "text"}`},
		{`"guided_choice": ["red", "blue"]`, "red"},
		{`"structured_outputs": {"regex": "0+"}`, "0000"},
		{`"response_format": {"type": "text"}`, "You said: x (0)"},
	} {
		_, _, body := post(t, url, ask("x", c.more))
		a := as[chatAnswer](t, body)
		if len(a.Choices) != 1 || *a.Choices[0].Message.Content != c.want {
			t.Errorf("%s: %s", c.more, body)
		}
	}
}

func TestCompletions(t *testing.T) {
	_, h := testServer(t, newFake())
	url := h.URL + "/v1/completions"
	_, _, body := post(t, url, `{"model": "fake", "prompt": ["say a", "say b"], "n": 2, "echo": true}`)
	a := as[completionAnswer](t, body)
	if len(a.Choices) != 4 || a.Choices[2].Text != "say bb" || a.Choices[3].Index != 3 || a.Usage.Completion != 8 {
		t.Errorf("%s", body)
	}
	_, _, body = post(t, url, `{"model": "fake", "prompt": [115, 97, 121, 32, 104, 105], "logprobs": 1, "max_tokens": 2}`)
	a = as[completionAnswer](t, body)
	l := a.Choices[0].Logprobs
	if a.Choices[0].Text != "hi" || *a.Choices[0].Finish != "length" || len(l.Tokens) != 2 || l.Offsets[1] != 1 ||
		l.Top[0]["h"] != -0.5 {
		t.Errorf("%s", body)
	}
	_, _, body = post(t, url,
		`{"model": "fake", "prompt": ["say ab", "say cd"], "stream": true, "stream_options": {"include_usage": true}}`)
	_, data := frames(t, body)
	texts := map[int]string{}
	for _, d := range data[:len(data)-2] {
		c := as[completionAnswer](t, d).Choices[0]
		texts[c.Index] += c.Text
	}
	if texts[0] != "ab" || texts[1] != "cd" || as[completionAnswer](t, data[len(data)-2]).Usage.Completion != 6 {
		t.Errorf("%s", body)
	}
}

func newRequest(t testing.TB, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
