package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func outputText(r responseObject) string {
	text := ""
	for _, it := range r.Output {
		for _, c := range it.Content {
			if c.Type == "output_text" {
				text += c.Text
			}
		}
	}
	return text
}

// A response goes on from another, also behind a restart, and only for the key that made it.
func TestResponsesState(t *testing.T) {
	dir := t.TempDir()
	keys := func(o *Options) {
		o.Store = dir
		o.Keys, _ = NewKeys([]*Key{PlainKey("a", "ka"), PlainKey("b", "kb")})
	}
	fake := newFake()
	_, h := testServer(t, fake, keys)
	ask := func(url, key, more string) (int, responseObject, string) {
		status, _, body := post(t, url+"/v1/responses", `{"model": "fake", `+more+`}`, "Authorization", "Bearer "+key)
		return status, as[responseObject](t, body), body
	}
	_, first, _ := ask(h.URL, "ka", `"input": "say one", "instructions": "count"`)
	if outputText(first) != "one" || first.Status != "completed" {
		t.Fatalf("%+v", first)
	}
	_, second, _ := ask(h.URL, "ka", `"input": "say two", "previous_response_id": "`+first.ID+`"`)
	prompt := fakeText{}.Decode(fake.lastRequest().Prompt)
	if want := "user: say one\nassistant: one\nuser: say two\nassistant: "; prompt != want ||
		*second.Previous != first.ID {
		t.Errorf("the prompt is %q, want %q", prompt, want)
	}
	// A tool's call is answered in the next response.
	tools := `"tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]`
	_, call, _ := ask(h.URL, "ka", `"input": "call weather {}", `+tools)
	it := call.Output[len(call.Output)-1]
	if it.Type != "function_call" || it.Name != "weather" || *it.Arguments != "{}" {
		t.Fatalf("%+v", it)
	}
	_, result, _ := ask(h.URL, "ka",
		fmt.Sprintf(
			`"input": [{"type": "function_call_output", "call_id": %q, "output": "wet"}], "previous_response_id": %q, %s`,
			it.CallID, call.ID, tools))
	if outputText(result) != "The tool said wet" {
		t.Errorf("%+v", result)
	}

	_, again := testServer(t, newFake(), keys) // as if restarted
	status, third, body := ask(again.URL, "ka", `"input": "say three", "previous_response_id": "`+second.ID+`"`)
	if status != 200 || outputText(third) != "three" {
		t.Fatalf("%d %s", status, body)
	}
	if status, _, _ := ask(again.URL, "kb", `"input": "x", "previous_response_id": "`+second.ID+`"`); status != 404 {
		t.Errorf("another key goes on from a response: %d", status)
	}
	for _, id := range []string{second.ID, "resp_../../../etc/passwd", "resp_aaaaaaaaaaaaaaaaaaaaaaaa", "%2e%2e"} {
		if status, _, _ := get(t, again.URL+"/v1/responses/"+id, "Authorization", "Bearer kb"); status != 404 {
			t.Errorf("%s: %d", id, status)
		}
	}
	if status, _, body := get(t, again.URL+"/v1/responses/"+second.ID, "Authorization", "Bearer ka"); status != 200 ||
		!strings.Contains(body, "two") {
		t.Errorf("%d %s", status, body)
	}
	// What is not stored is not there.
	_, loose, _ := ask(again.URL, "ka", `"input": "x", "store": false`)
	if status, _, _ := get(t, again.URL+"/v1/responses/"+loose.ID, "Authorization", "Bearer ka"); status != 404 {
		t.Errorf("store: false is stored: %d", status)
	}
}

// TestItemReferences: clients refer to items of earlier responses by their ids, also behind a restart, and to those of
// their own key alone.
func TestItemReferences(t *testing.T) {
	dir := t.TempDir()
	keys := func(o *Options) {
		o.Store = dir
		o.Keys, _ = NewKeys([]*Key{PlainKey("a", "ka"), PlainKey("b", "kb")})
	}
	fake := newFake()
	_, h := testServer(t, fake, keys)
	send := func(url, key, input string) (int, string) {
		status, _, body := post(t, url+"/v1/responses", `{"model": "fake", "input": `+input+`, "tools": [
			{"type": "function", "name": "weather", "parameters": {"type": "object"}}]}`, "Authorization", "Bearer "+key)
		return status, body
	}
	_, body := send(h.URL, "ka", `"call weather {}"`)
	made := as[responseObject](t, body)
	call := made.Output[len(made.Output)-1]
	var refs string
	for _, it := range made.Output {
		refs += `{"type": "item_reference", "id": "` + it.ID + `"}, `
	}
	result := `{"type": "function_call_output", "call_id": "` + call.CallID + `", "output": "wet"}]`
	for _, url := range []string{h.URL, func() string { _, h := testServer(t, fake, keys); return h.URL }()} {
		for _, refs := range []string{refs, strings.ReplaceAll(refs, `"type": "item_reference", `, "")} {
			status, body := send(url, "ka", `[{"role": "user", "content": "x"}, `+refs+result)
			prompt := fakeText{}.Decode(fake.lastRequest().Prompt)
			if want := "[" + call.CallID + " weather {}]\ntool: wet\n"; status != 200 || !strings.Contains(prompt, want) {
				t.Errorf("%s: %d %s, the prompt is %q", refs, status, body, prompt)
			}
		}
		for _, c := range [][2]string{{"kb", `[` + refs + result}, {"ka", `[{"type": "item_reference", "id": "msg_none"}]`},
			{"ka", `[{"type": "item_reference", "id": "../x"}]`}, {"ka", `[{"type": "item_reference"}]`}} {
			status, body := send(url, c[0], c[1])
			if e := as[struct{ Error openAIError }](t, body).Error; status != 404 || e.Param == nil || *e.Param != "input[0]" {
				t.Errorf("%v: %d %s", c, status, body)
			}
		}
	}
}

// A response whose storing fails is an error: a client would go on from what is not there.
func TestStoreFails(t *testing.T) {
	dir := t.TempDir()
	_, h := testServer(t, newFake(), func(o *Options) { o.Store = dir })
	owner := filepath.Dir(place(nil, "x"))
	if err := os.WriteFile(filepath.Join(dir, owner), nil, 0o600); err != nil { // no folder can be made here
		t.Fatal(err)
	}
	status, _, body := post(t, h.URL+"/v1/responses", `{"model": "fake", "input": "x"}`)
	if status != 500 || !strings.Contains(body, "not_stored") {
		t.Errorf("%d %s", status, body)
	}
	_, _, body = post(t, h.URL+"/v1/responses", `{"model": "fake", "input": "x", "stream": true}`)
	names, _ := frames(t, body)
	if names[len(names)-1] != "response.failed" {
		t.Errorf("%v", names)
	}
	if status, _, _ := post(t, h.URL+"/v1/responses", `{"model": "fake", "input": "x", "store": false}`); status != 200 {
		t.Errorf("store: false: %d", status)
	}
}

// The oldest makes room; half a file is not taken for a response.
func TestStoreBound(t *testing.T) {
	dir := t.TempDir()
	s, err := openStore(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 5 {
		id := newID("resp_")
		ids = append(ids, id)
		if err := s.put(nil, &stored{ID: id, Response: &responseObject{ID: id}}); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*.json"))
	if len(files) != 3 {
		t.Errorf("%d files, 3 are the most", len(files))
	}
	if _, err := s.get(nil, ids[1]); err == nil {
		t.Error("an old one is there")
	}
	os.WriteFile(filepath.Join(filepath.Dir(files[0]), "."+ids[0]+".json.1.part"), []byte("{"), 0o600) // a kill left it
	if err := os.Truncate(files[0], 5); err != nil {
		t.Fatal(err)
	}
	again, err := openStore(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, id := range ids {
		if v, err := again.get(nil, id); err == nil && v.ID == id {
			whole++
		}
	}
	if whole != 2 {
		t.Errorf("%d responses, two are whole", whole)
	}
}

func TestResponsesErrors(t *testing.T) {
	_, h := testServer(t, newFake())
	for _, c := range []struct{ more, param string }{
		{`"x": 1`, "input"},
		{`"input": 5`, "input"},
		{`"input": []`, "input"},
		{`"input": [{"role": "king", "content": "x"}]`, "input[0].role"},
		{`"input": [{"type": "computer_call"}]`, "input[0].type"},
		{`"input": [{"type": "function_call_output", "output": "x"}]`, "input[0].call_id"},
		{`"input": "x", "previous_response_id": "resp_1"`, "previous_response_id"},
		{`"input": "x", "background": true`, "background"},
		{`"input": "x", "truncation": "auto"`, "truncation"},
		{`"input": "x", "conversation": "c"`, "conversation"},
		{`"input": "x", "tools": [{"type": "web_search"}]`, "tools[0].type"},
		{`"input": "x", "text": {"format": {"type": "json_schema"}}`, "text.format"},
		{`"input": "x", "max_output_tokens": 0`, "max_output_tokens"},
	} {
		status, _, body := post(t, h.URL+"/v1/responses", `{"model": "fake", `+c.more+`}`)
		e := as[struct{ Error openAIError }](t, body)
		if status < 400 || status >= 500 || e.Error.Param == nil || *e.Error.Param != c.param {
			t.Errorf("%s: %d %s", c.more, status, body)
		}
	}
	_, _, body := post(t, h.URL+"/v1/responses", `{"input": "x"}`)
	id := as[responseObject](t, body).ID
	var g sync.WaitGroup
	deleted := make([]int, 4)
	for i := range deleted {
		g.Go(func() {
			req := newRequest(t, "DELETE", h.URL+"/v1/responses/"+id)
			deleted[i], _, _ = do(t, req)
		})
	}
	g.Wait()
	if n := strings.Count(fmt.Sprint(deleted), "200"); n != 1 {
		t.Errorf("deleted: %v", deleted)
	}
}
