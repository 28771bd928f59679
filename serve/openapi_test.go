package serve

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/internal/testfiles"
)

// description compiles schemas of the protocol's own description.
func description(t *testing.T) func(schema, text string) {
	t.Helper()
	path := testfiles.Shared(t, "data", "openai", "openapi.yaml.xz")
	data, err := exec.Command("xz", "-dc", path).Output()
	if err != nil {
		t.Skipf("xz: %v", err)
	}
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	nullable(doc)
	raw, err := json.Marshal(doc) // so that numbers are JSON's
	if err != nil {
		t.Fatal(err)
	}
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled := map[string]*jsonschema.Schema{}
	return func(schema, text string) {
		t.Helper()
		s := compiled[schema]
		if s == nil {
			if s, err = c.Compile("openapi.json#/components/schemas/" + schema); err != nil {
				t.Fatal(err)
			}
			compiled[schema] = s
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("not a %s: %v\n%s", schema, err, text)
		}
	}
}

// nullable says as JSON schema does what the description says in OpenAPI 3.0's way beside 3.1's.
func nullable(v any) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			nullable(x)
		}
	case map[string]any:
		for _, x := range v {
			nullable(x)
		}
		delete(v, "$recursiveAnchor") // of an older draft, in filters that nothing here has
		delete(v, "$recursiveRef")
		if v["nullable"] != true {
			return
		}
		delete(v, "nullable")
		own := map[string]any{}
		for k, x := range v {
			own[k] = x
			delete(v, k)
		}
		v["anyOf"] = []any{own, map[string]any{"type": "null"}}
	}
}

// Every answer is what the protocol's own description says.
func TestDescription(t *testing.T) {
	valid := description(t)
	_, h := testServer(t, newFake())
	tools := `"tools": [{"type": "function", "function": {"name": "f", "description": "d",
		"parameters": {"type": "object"}}}]`
	chat := h.URL + "/v1/chat/completions"
	for _, body := range []string{ask("say hello", ""), ask("think x", `"logprobs": true, "top_logprobs": 2, "n": 2`),
		ask("twice", tools),
		ask("x", `"max_tokens": 1`), ask("x", `"response_format": {"type": "json_object"}`)} {
		_, _, answer := post(t, chat, body)
		valid("CreateChatCompletionResponse", answer)
		_, _, stream := post(t, chat, strings.TrimSuffix(body, "}")+
			`, "stream": true, "stream_options": {"include_usage": true}}`)
		_, data := frames(t, stream)
		for _, d := range data[:len(data)-1] {
			valid("CreateChatCompletionStreamResponse", d)
		}
	}
	for _, body := range []string{`{"model": "fake", "prompt": "say hi"}`,
		`{"model": "fake", "prompt": ["a", "b"], "logprobs": 2}`} {
		_, _, answer := post(t, h.URL+"/v1/completions", body)
		valid("CreateCompletionResponse", answer)
		_, _, stream := post(t, h.URL+"/v1/completions", strings.TrimSuffix(body, "}")+`, "stream": true}`)
		_, data := frames(t, stream)
		for _, d := range data[:len(data)-1] {
			// There is no schema of a chunk; in one that is not the last the reason is null, as the clients want it.
			valid("CreateCompletionResponse", strings.Replace(d, `"finish_reason":null`, `"finish_reason":"stop"`, 1))
		}
	}
	_, _, body := get(t, h.URL+"/v1/models")
	valid("ListModelsResponse", body)
	_, _, body = get(t, h.URL+"/v1/models/fake")
	valid("Model", body)
	_, _, body = post(t, chat, "{}")
	valid("ErrorResponse", body)

	responses := h.URL + "/v1/responses"
	for _, more := range []string{`"input": "say hello"`, `"input": "think x", "reasoning": {"effort": "low"}`,
		`"input": "twice", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
			"tool_choice": "auto"`,
		`"input": "x", "max_output_tokens": 2, "instructions": "be short", "metadata": {"a": "b"}`,
		`"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object",
			"properties": {"a": {"type": "integer"}}}}}`,
		`"input": [{"role": "user", "content": [{"type": "input_text", "text": "say a"}]}],
			"include": ["message.output_text.logprobs"], "top_logprobs": 1`} {
		status, _, answer := post(t, responses, `{"model": "fake", `+more+`}`)
		if status != 200 {
			t.Fatal(more, answer)
		}
		valid("Response", answer)
		id := as[responseObject](t, answer).ID
		_, _, again := get(t, responses+"/"+id)
		valid("Response", again)
		_, _, items := get(t, responses+"/"+id+"/input_items")
		valid("ResponseItemList", items)
		_, _, stream := post(t, responses, `{"model": "fake", "stream": true, `+more+`}`)
		names, data := frames(t, stream)
		for i, d := range data {
			if kind := as[struct{ Type string }](t, d).Type; kind != names[i] {
				t.Errorf("event %s holds %s", names[i], kind)
			}
			valid("ResponseStreamEvent", d)
		}
		if first, last := names[0], names[len(names)-1]; first != "response.created" ||
			last != "response.completed" && last != "response.incomplete" {
			t.Errorf("the stream goes from %s to %s", first, last)
		}
	}
}
