package serve

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// send asks by any method.
func send(t *testing.T, method, url, body, key string) (int, string) {
	t.Helper()
	if method == http.MethodPost {
		status, _, answer := post(t, url, body, "Authorization", "Bearer "+key)
		return status, answer
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	var v json.RawMessage
	if err := json.NewDecoder(a.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(v)
}

// Items of a conversation are what a response goes on from, and what it asks and answers is added to them: in
// a stream too, behind a restart too, and for the key alone that made it. All is as the protocol describes it.
func TestConversations(t *testing.T) {
	valid := description(t)
	dir := t.TempDir()
	keys := func(o *Options) {
		o.Store = dir
		o.Keys, _ = NewKeys([]*Key{PlainKey("a", "ka"), PlainKey("b", "kb")})
	}
	fake := newFake()
	_, h := testServer(t, fake, keys)
	base := h.URL + "/v1/conversations"
	status, made := send(t, "POST", base, `{"metadata": {"a": "b"}, "items": [{"role": "user", "content": "first"},
		{"role": "assistant", "content": [{"type": "output_text", "text": "second"}]},
		{"type": "function_call", "call_id": "c1", "name": "f", "arguments": ""},
		{"type": "function_call_output", "call_id": "c1", "output": "wet"}, {"type": "reasoning"}]}`, "ka")
	valid("ConversationResource", made)
	id := as[conversationObject](t, made).ID
	if status != 200 || !strings.HasPrefix(id, "conv_") || !strings.Contains(made, `"metadata":{"a":"b"}`) {
		t.Fatal(status, made)
	}
	base += "/" + id
	_, list := send(t, "GET", base+"/items?order=asc", "", "ka")
	valid("ConversationItemList", list)
	items := as[struct{ Data []inputItem }](t, list).Data
	if len(items) != 5 || items[0].Role != "user" || items[4].Type != "reasoning" {
		t.Error(list)
	}
	for _, it := range items {
		status, one := send(t, "GET", base+"/items/"+it.ID, "", "ka")
		valid("ConversationItem", one)
		if status != 200 || as[inputItem](t, one).ID != it.ID {
			t.Error(status, one)
		}
	}
	respond := func(url, more string) (int, string) {
		return send(t, "POST", url+"/v1/responses", `{"model": "fake", `+more+`}`, "ka")
	}
	status, answer := respond(h.URL, `"input": "say one", "store": false, "conversation": "`+id+`"`)
	valid("Response", answer)
	prompt := fakeText{}.Decode(fake.lastRequest().Prompt)
	if status != 200 || !strings.Contains(answer, `"conversation":{"id":"`+id+`"}`) ||
		!strings.HasPrefix(prompt, "user: first\nassistant: second") || !strings.HasSuffix(prompt, "say one\nassistant: ") {
		t.Errorf("%d %s\n%q", status, answer, prompt)
	}
	respond(h.URL, `"input": "say two", "stream": true, "conversation": {"id": "`+id+`"}`)
	prompt = fakeText{}.Decode(fake.lastRequest().Prompt)
	if !strings.HasSuffix(prompt, "user: say one\nassistant: one\nuser: say two\nassistant: ") {
		t.Errorf("%q", prompt)
	}
	_, list = send(t, "GET", base+"/items?limit=1", "", "ka") // the newest first
	valid("ConversationItemList", list)
	if !strings.Contains(list, `"text":"two"`) || !strings.Contains(list, `"has_more":true`) {
		t.Error(list)
	}
	// A new server has it, another key does not.
	_, again := testServer(t, newFake(), keys)
	for _, c := range []struct{ method, path, body string }{{"GET", "", ""}, {"POST", "", `{"metadata": {}}`},
		{"GET", "/items", ""}, {"POST", "/items", `{"items": [{"role": "user", "content": "x"}]}`},
		{"GET", "/items/" + items[0].ID, ""}, {"DELETE", "/items/" + items[0].ID, ""}, {"DELETE", "", ""}} {
		url := again.URL + "/v1/conversations/" + id + c.path
		status, body := send(t, c.method, url, c.body, "kb")
		valid("ErrorResponse", body)
		if status != 404 {
			t.Errorf("another key's %s %s: %d %s", c.method, c.path, status, body)
		}
		if status, body = send(t, c.method, url, c.body, "ka"); status != 200 {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	for _, c := range []struct{ method, path string }{{"GET", ""}, {"DELETE", ""}, {"GET", "/items"}} {
		if status, body := send(t, c.method, again.URL+"/v1/conversations/"+id+c.path, "", "ka"); status != 404 {
			t.Errorf("deleted, %s %s: %d %s", c.method, c.path, status, body)
		}
	}
	if status, body := respond(again.URL, `"input": "x", "conversation": "`+id+`"`); status != 404 ||
		!strings.Contains(body, `"param":"conversation"`) {
		t.Errorf("%d %s", status, body)
	}
}

// What a conversation cannot have is told by its field.
func TestConversationsRefuse(t *testing.T) {
	_, h := testServer(t, newFake())
	base := h.URL + "/v1/conversations"
	status, made := send(t, "POST", base, "", "")
	id := as[conversationObject](t, made).ID
	if status != 200 || !strings.Contains(made, `"metadata":{}`) {
		t.Fatal(status, made)
	}
	many := strings.TrimSuffix(strings.Repeat(`{"role": "user", "content": "x"},`, 21), ",")
	for _, c := range []struct{ path, body, param string }{
		{"", `{"items": [` + many + `]}`, "items"}, {"", `{"items": 1}`, "items"}, {"", `{"metadata": 1}`, "metadata"},
		{"", `{"metadata": {"a": null}}`, "metadata.a"}, {"", `{"items": [null]}`, "items[0]"},
		{"", `{"metadata": {"a": "` + strings.Repeat("x", 513) + `"}}`, "metadata"},
		{"", `{"items": [{"type": "web_search_call"}]}`, "items[0].type"}, {"", `{"items": ["x"]}`, "items"},
		{"", `{"items": [{"role": "user"}]}`, "items[0].content"}, {"", `[]`, ""}, {"", `{`, ""},
		{"", `{"items": [{"role": "user", "content": [{"type": "input_image"}]}]}`, "items[0].content[0]"},
		{"", `{"items": [{"role": "user", "content": "x", "status": "odd"}]}`, "items[0].status"},
		{"", `{"items": [{"role": "user", "content": "x", "id": "a/b"}]}`, "items[0].id"},
		{"/../responses", `{"input": "x", "metadata": {"` + strings.Repeat("k", 65) + `": ""}}`, "metadata"},
		{"/" + id, `{}`, "metadata"}, {"/" + id + "/items", `{}`, "items"}, {"/" + id + "/items", `{"items": []}`, "items"},
		{"/" + id + "/items", `{"items": [{"role": "user", "content": "x", "id": "i"},
			{"role": "user", "content": "x", "id": "i"}]}`, "items[1].id"},
	} {
		status, body := send(t, "POST", base+c.path, c.body, "")
		e := as[struct{ Error struct{ Param string } }](t, body)
		if status != 400 || e.Error.Param != c.param {
			t.Errorf("%s %.100s: %d %s", c.path, c.body, status, body)
		}
	}
	for body, says := range map[string]string{
		`{"input": "x", "conversation": 5}`:                                                      "must be the id",
		`{"input": "x", "conversation": {"id": ""}}`:                                             "must be the id",
		`{"input": "x", "conversation": "` + id + `", "previous_response_id": "resp_x"}`:         "exclude each other",
		`{"input": [{"role": "user", "content": "x", "id": "ü"}], "conversation": "` + id + `"}`: "input[0].id",
	} {
		status, got := send(t, "POST", h.URL+"/v1/responses", body, "")
		if status != 400 || !strings.Contains(got, says) {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
}

// Items that come at once from several clients are all there.
func TestConversationsAtOnce(t *testing.T) {
	_, h := testServer(t, newFake())
	_, made := send(t, "POST", h.URL+"/v1/conversations", "{}", "")
	url := h.URL + "/v1/conversations/" + as[conversationObject](t, made).ID + "/items"
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { post(t, url, `{"items": [{"role": "user", "content": "x"}]}`) })
	}
	all.Wait()
	_, list := send(t, "GET", url, "", "")
	if n := len(as[struct{ Data []inputItem }](t, list).Data); n != 16 {
		t.Errorf("%d items", n)
	}
}
