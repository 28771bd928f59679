package serve

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Every error has its status, and OpenAI's object with the field at fault.
// A table, in one piece.
func TestErrors(t *testing.T) {
	_, h := testServer(t, newFake(), func(o *Options) { o.MaxBody, o.MaxMessages = 1<<16, 3 })
	chat, text := "/v1/chat/completions", "/v1/completions"
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for _, c := range []struct {
		path, body  string
		status      int
		param, code string
		want        string
	}{
		{chat, ``, 400, "", "", "empty"},
		{chat, `[]`, 400, "", "", "must be a JSON object"},
		{chat, `null`, 400, "", "", "null"},
		{chat, `{"a":`, 400, "", "", "line 1"},
		{chat, "\xff\xfe", 400, "", "", "not JSON"},
		{chat, `{"x": ` + deep + `}`, 400, "", "", "nested"},
		{chat, `{"x": "` + strings.Repeat("y", 1<<16) + `"}`, 413, "", "request_too_large", "larger than 65536"},
		{chat, `{"model": "fake"}`, 400, "messages", "", "at least one"},
		{chat, `{"model": "none", "messages": []}`, 404, "model", "model_not_found", "`none`"},
		{chat, `{"model": 5}`, 400, "model", "", "must be a string, it is a number"},
		{chat, `{"messages": [{"role": "king", "content": "x"}]}`, 400, "messages[0].role", "", "king"},
		{chat, `{"messages": [{"role": "user"}]}`, 400, "messages[0].content", "", "no content"},
		{chat, `{"messages": [{"role": "user", "content": 5}]}`, 400, "messages[0].content", "", "string"},
		{chat, `{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, 400, "messages[0].content[0]",
			"unsupported_parameter", "text alone"},
		{chat, `{"messages": [{"role": "tool", "content": "x"}]}`, 400, "messages[0].tool_call_id", "", "tool_call_id"},
		{chat, `{"messages": [` + strings.Repeat(`{"role": "user", "content": "x"},`,
			3) + `{"role": "user", "content": "x"}]}`, 400, "messages", "", "may have 3"},
		{chat, `{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}`, 400, "messages", "",
			"system messages come first"},
		{chat, ask("x", `"temperature": 3`), 400, "temperature", "", "between 0 and 2"},
		{chat, ask("x", `"temperature": "warm"`), 400, "temperature", "", "must be a number"},
		{chat, ask("x", `"top_p": -1`), 400, "top_p", "", "between"},
		{chat, ask("x", `"n": 0`), 400, "n", "", "between 1 and 128"},
		{chat, ask("x", `"max_tokens": 0`), 400, "max_tokens", "", "1 or more"},
		{chat, ask("x", `"max_tokens": 1000000`), 400, "messages", "context_length_exceeded", "maximum context length"},
		{chat, ask("x", `"logit_bias": {"9999": 1}`), 400, "logit_bias", "", "no token"},
		{chat, ask("x", `"logit_bias": {"9": 101}`), 400, "logit_bias", "", "between -100"},
		{chat, ask("x", `"stop": [""]`), 400, "stop", "", "between 1"},
		{chat, ask("x", `"stop": 5`), 400, "stop", "", "string"},
		{chat, ask("x", `"top_logprobs": 3`), 400, "top_logprobs", "", "logprobs: true"},
		{chat, ask("x", `"logprobs": true, "top_logprobs": 21`), 400, "top_logprobs", "", "between 0 and 20"},
		{chat, ask("x", `"stream_options": {"include_usage": true}`), 400, "stream_options", "", "stream is true"},
		{chat, ask("x", `"response_format": {"type": "xml"}`), 400, "response_format.type", "", "xml"},
		{chat, ask("x", `"response_format": {"type": "json_schema"}`), 400, "response_format.json_schema", "", "name"},
		{chat, ask("x",
			`"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"unsupportedKeyword": 1}}}`),
			400, "response_format", "unsupported_parameter", "unsupportedKeyword"},
		{chat, ask("x", `"response_format": {"type": "json_object"}, "guided_regex": "a"`), 400, "guided_regex", "",
			"several ways"},
		{chat, ask("x", `"tools": [{"type": "web"}]`), 400, "tools[0].type", "unsupported_parameter", "web"},
		{chat, ask("x", `"tools": [{"type": "function", "function": {"name": "a b"}}]`), 400, "tools[0].function.name", "",
			"letters"},
		{chat, ask("x", `"tool_choice": "required"`), 400, "tool_choice", "", "needs tools"},
		{chat, ask("x", `"tool_choice": {"type": "function", "function": {"name": "f"}}`), 400, "tool_choice", "",
			"not among"},
		{chat, ask("x", `"modalities": ["audio"]`), 400, "modalities", "unsupported_parameter", "audio"},
		{chat, ask("x", `"audio": {"voice": "x"}`), 400, "audio", "unsupported_parameter", "audio"},
		{chat, ask("x", `"reasoning_effort": "huge"`), 400, "reasoning_effort", "", "huge"},
		{chat, ask("x", `"functions": [{}]`), 400, "functions", "unsupported_parameter", "tools"},
		{chat, ask("panic", ""), 500, "", "internal_error", "req_"},
		{text, `{"prompt": []}`, 400, "prompt", "", "empty"},
		{text, `{"prompt": {}}`, 400, "prompt", "", "string"},
		{text, `{"prompt": [1, 2, 300]}`, 400, "prompt", "", "no token"},
		{text, `{"prompt": ["a", 5]}`, 400, "prompt[1]", "", "array of tokens"},
		{text, `{"prompt": "a", "suffix": "b"}`, 400, "suffix", "unsupported_parameter", "suffix"},
		{text, `{"prompt": "a", "best_of": 3}`, 400, "best_of", "unsupported_parameter", "best_of"},
		{text, `{"prompt": "a", "logprobs": 50}`, 400, "logprobs", "", "between"},
		{"/v1/embeddings", `{"input": "x"}`, 400, "model", "unsupported_model", "embeddings"},
		{"/v1/rerank", `{"query": "x", "documents": []}`, 400, "model", "unsupported_model", "reranking"},
		{"/detokenize", `{"tokens": [-1]}`, 400, "tokens", "", "no token"},
		{"/v1/nowhere", `{}`, 404, "", "unknown_url", "/v1/nowhere"},
	} {
		status, header, body := post(t, h.URL+c.path, c.body)
		e := as[struct{ Error openAIError }](t, body)
		param, code := "", ""
		if e.Error.Param != nil {
			param = *e.Error.Param
		}
		if e.Error.Code != nil {
			code = *e.Error.Code
		}
		if status != c.status || param != c.param || code != c.code || !strings.Contains(e.Error.Message, c.want) {
			t.Errorf("%s %.80s: status %d, param %q, code %q, %s", c.path, c.body, status, param, code, body)
		}
		if header.Get("Content-Type") != "application/json" || e.Error.Type == "" {
			t.Errorf("%s %.80s: %v", c.path, c.body, header)
		}
	}
	status, header, _ := get(t, h.URL+chat)
	if status != 405 || header.Get("Allow") != "POST" {
		t.Errorf("GET: %d, Allow %q", status, header.Get("Allow"))
	}
}

// What a model says of a request becomes the protocol's status.
func TestModelErrors(t *testing.T) {
	fake := newFake()
	_, h := testServer(t, fake)
	for _, c := range []struct {
		err    error
		status int
		after  string
	}{
		{&Full{Waiting: 3, Most: 3, After: 1500 * time.Millisecond}, 429, "2"},
		{&TooLong{10, 5, 12}, 400, ""},
		{fmt.Errorf("step: %w", ErrDevice), 503, "5"},
		{errors.New("boom"), 500, ""},
	} {
		fake.fail.Store(&c.err)
		status, header, body := post(t, h.URL+"/v1/chat/completions", ask("x", ""))
		if status != c.status || header.Get("Retry-After") != c.after || !strings.Contains(body, `"error"`) {
			t.Errorf("%v: %d %v %s", c.err, status, header, body)
		}
		status, _, _ = post(t, h.URL+"/v1/chat/completions", ask("x", `"stream": true`))
		if status != c.status {
			t.Errorf("%v, streamed: %d", c.err, status)
		}
	}
}

func TestModelsAndTokens(t *testing.T) {
	_, h := testServer(t, newFake())
	_, _, body := get(t, h.URL+"/v1/models")
	list := as[struct{ Data []modelObject }](t, body)
	if len(list.Data) != 2 || list.Data[0].ID != "fake" || list.Data[1].Parent != "fake" || list.Data[1].Length != 100000 {
		t.Errorf("%s", body)
	}
	if o := list.Data[0]; o.Type != "base" || o.Does == nil || !o.Does.Chat || !o.Does.Tools || o.Longest != 100000 {
		t.Errorf("Mistral's client reads another kind of model: %s", body)
	}
	_, _, body = get(t, h.URL+"/v1/models", "Anthropic-Version", "2023-06-01")
	if !strings.Contains(body, `"type":"model"`) || strings.Contains(body, "capabilities") {
		t.Errorf("%s", body)
	}
	if status, _, body := get(t, h.URL+"/v1/models/gpt-4o"); status != 200 || !strings.Contains(body, `"gpt-4o"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, _, _ := get(t, h.URL+"/v1/models/gpt-5"); status != 404 {
		t.Errorf("%d", status)
	}
	_, _, body = post(t, h.URL+"/tokenize", `{"prompt": "hi", "return_token_strs": true}`)
	if !strings.Contains(body, `"tokens":[256,104,105]`) || !strings.Contains(body, `"count":3`) {
		t.Errorf("%s", body)
	}
	_, _, body = post(t, h.URL+"/tokenize",
		`{"messages": [{"role": "user", "content": "hi"}], "add_special_tokens": false}`)
	if !strings.Contains(body, `"count":20`) {
		t.Errorf("%s", body)
	}
	for ids, want := range map[string]string{"[104, 105]": "hi", "[256, 195, 169, 257]": "<s>é</s>", "[195]": "\ufffd"} {
		_, _, body = post(t, h.URL+"/detokenize", `{"tokens": `+ids+`}`)
		if got := as[struct{ Prompt string }](t, body); got.Prompt != want {
			t.Errorf("%s: %s", ids, body)
		}
	}
	for _, path := range []string{"/health", "/ready", "/live", "/version", "/metrics"} {
		if status, _, _ := get(t, h.URL+path); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
	}
}
