package serve

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// wrongValues are of each type, and at the edges of each.
var wrongValues = []string{`null`, `true`, `0`, `-1`, `1.5`, `1e308`, `1e999`, `100000000000000000000000000000`, `10.0`,
	`-9223372036854775808`, `""`, `"x"`, `"\u0000"`, `"\ud800"`, `"🙂"`, `[]`, `[null]`, `[[]]`, `[1]`, `["x"]`, `[{}]`,
	`[{"type": "x"}]`, `{}`, `{"a": 1}`, `{"type": "x"}`, `{"type": null}`, `{"type": {}}`, `[[[1]]]`, `{"id": []}`,
	`{"format": {"type": "json_schema", "name": "n", "schema": []}}`, `{"json": {"type": "nope"}}`, `"((("`}

// TestWrongTypes: each field of each request with values of each type is answered, or refused in the protocol's words:
// nothing makes an internal error.
func TestWrongTypes(t *testing.T) {
	_, h := testServer(t, newFake())
	for path, c := range map[string]struct {
		base   string
		fields reflect.Type
	}{
		"/v1/chat/completions": {ask("x", `"max_tokens": 2`), reflect.TypeFor[chatRequest]()},
		"/v1/completions":      {`{"prompt": "x", "max_tokens": 2}`, reflect.TypeFor[completionRequest]()},
		"/v1/responses":        {`{"input": "x", "max_output_tokens": 2}`, reflect.TypeFor[responseRequest]()},
		"/v1/conversations":    {`{"metadata": {}}`, reflect.TypeFor[conversationRequest]()},
		"/v1/messages": {`{"model": "fake", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}`,
			reflect.TypeFor[messagesRequest]()},
	} {
		names := slices.Sorted(maps.Keys(fieldsOf(c.fields)))
		if len(names) < 2 {
			t.Fatalf("%s has the fields %v", path, names)
		}
		for _, name := range names {
			for _, value := range wrongValues {
				var o map[string]json.RawMessage
				if err := json.Unmarshal([]byte(c.base), &o); err != nil {
					t.Fatal(err)
				}
				delete(o, name)
				rest, err := json.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				body := `{"` + name + `": ` + value + strings.TrimSuffix(","+string(rest[1:]), ",}")
				if !strings.HasSuffix(body, "}") {
					body += "}"
				}
				status, _, answer := post(t, h.URL+path, body)
				checkWrong(t, path, body, status, answer)
			}
		}
	}
}

// checkWrong looks at an answer's status and at what it says.
func checkWrong(t *testing.T, path, body string, status int, answer string) {
	t.Helper()
	var e struct {
		Type  string
		Error struct {
			Message, Type string
			Param, Code   *string
		}
	}
	switch {
	case status == 200:
	case status < 400 || status >= 500:
		t.Errorf("%s %s: %d %s", path, body, status, answer)
	case json.Unmarshal([]byte(answer), &e) != nil || e.Error.Message == "" || e.Error.Type == "" ||
		strings.HasPrefix(path, "/v1/messages") && e.Type != "error":
		t.Errorf("%s %s: %d %s", path, body, status, answer)
	case strings.Contains(e.Error.Message, "json:") || strings.Contains(e.Error.Message, "serve."):
		t.Errorf("%s %s speaks of the server's inside: %s", path, body, e.Error.Message)
	}
}
