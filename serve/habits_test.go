package serve

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What clients of other servers send is done, or refused by what it is.
func TestHabits(t *testing.T) {
	_, h := testServer(t, newFake(), func(o *Options) { o.MaxBody = 10000 })
	packed := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(s))
		z.Close()
		return b.String()
	}
	text := `{"prompt": "x", "max_tokens": 1}`
	talk := "/v1/chat/completions"
	gz := []string{"Content-Encoding", "gzip"}
	schema := `{"type": "object", "properties": {"age": {"type": "integer"}}}`
	claude := []string{"Anthropic-Version", "2023-06-01"}
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		says               string
	}{
		{"POST", "/v1/completions/", text, nil, 200, `"text"`},
		{"POST", "/v1/completions", packed(text), gz, 200, `"text"`},
		{"POST", "/v1/completions", text, gz, 400, "gzip"},
		{"POST", "/v1/completions", packed(text)[:20], gz, 400, "could not be read"},
		{"POST", "/v1/completions", packed(`{"prompt": "` + strings.Repeat("x", 20000) + `"}`), gz, 413, "10000"},
		{"POST", "/v1/completions", text, []string{"Content-Encoding", "br"}, 415, "br"},
		{"POST", "/v1/completions", "{\"prompt\": \"\xff\"}", nil, 400, "not UTF-8"},
		{"POST", "/v1/completions", `{"prompt": "x", "max_tokens": 1000000000000000000000}`, nil, 400, "out of range"},
		{"POST", "/v1/completions", `{"prompt": "x", "max_tokens": 1.5}`, nil, 400, "must be an integer, it is 1.5"},
		{"POST", "/v1/completions", `{"prompt": "x", "temperature": 1e999}`, nil, 400, "out of range"},
		{"POST", talk, ask("x", `"response_format": {"type": "json_object", "schema": `+schema+`}`), nil, 200,
			`{\"age\": 7}`},
		{"POST", talk, ask("x", `"response_format": {"type": "json_schema", "schema": `+schema+`}`), nil, 200,
			`{\"age\": 7}`},
		{"POST", talk, ask("x", `"json_schema": `+schema), nil, 200, `{\"age\": 7}`},
		{"POST", talk, ask("x", `"json_schema": {}, "grammar": "root ::= \"a\""`), nil, 400, "several ways"},
		{"POST", talk, ask("x", `"response_format": {"schema": {}}`), nil, 400, "must be json_schema"},
		{"POST", talk, ask("x", `"functions": []`), nil, 200, "choices"},
		{"POST", "/v1/messages/count_tokens", `{"messages": [{"role": "user", "content": "x"}]}`, claude, 400, "model"},
		{"POST", "/tokenize", `{"content": "x"}`, nil, 400, "is missing"},
		{"PUT", "/v1/models", "", nil, 405, "use GET"},
		{"POST", "/health", "", nil, 405, "use GET"},
		{"PUT", "/v1/responses/resp_x", "", nil, 405, "use GET or DELETE"},
		{"GET", "/v1/messages", "", nil, 405, `"type":"error"`},
		{"OPTIONS", talk, "", nil, 204, ""},
		{"OPTIONS", "/v1/nowhere", "", nil, 404, "unknown_url"},
		{"GET", "/v1/models/", "", nil, 200, `"list"`},
		{"GET", "/v1/models/fake/", "", nil, 200, `"fake"`},
		{"GET", "/v1/responses/resp_x", "", nil, 404, `"param":null,"code":null`},
	} {
		req, err := http.NewRequest(c.method, h.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(c.header); i += 2 {
			req.Header.Set(c.header[i], c.header[i+1])
		}
		status, header, body := do(t, req)
		if status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %.60q: %d %s, want %d %s", c.method, c.path, c.body, status, body, c.status, c.says)
		}
		if allow := header.Get("Allow"); (status == 405 || status == 204) && allow == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
		if ignored := header.Get(ignoredHeader); status == 200 && ignored != "" {
			t.Errorf("%.60q ignores %s", c.body, ignored)
		}
	}
}

// Pages of a list in both directions; what cannot be is refused.
func TestPages(t *testing.T) {
	_, h := testServer(t, newFake())
	_, _, body := post(t, h.URL+"/v1/responses", `{"input": [{"id": "a", "role": "user", "content": "1"},
		{"id": "b", "role": "user", "content": "2"}, {"id": "c", "role": "user", "content": "say 3"}]}`)
	list := h.URL + "/v1/responses/" + as[responseObject](t, body).ID + "/input_items"
	for _, c := range []struct{ query, want string }{
		{"", "c b a false"}, {"order=asc", "a b c false"}, {"order=desc&limit=2", "c b true"},
		{"order=asc&after=a", "b c false"}, {"order=asc&after=a&limit=1", "b true"}, {"order=asc&before=c&limit=1", "b true"},
		{"order=asc&before_id=c", "a b false"}, {"order=asc&before=a", "false"}, {"after=a", "false"},
		{"after=a&before=c", "before"}, {"after_id=a&before_id=c", "before_id"}, {"after=a&after_id=b", "after_id"},
		{"order=up", "order"}, {"limit=0", "limit"}, {"after=z", "after"},
	} {
		_, _, body := get(t, list+"?"+c.query)
		page := as[struct {
			Data  []inputItem
			More  bool `json:"has_more"`
			Error openAIError
		}](t, body)
		got := ""
		for _, it := range page.Data {
			got += it.ID + " "
		}
		if got += fmt.Sprint(page.More); page.Error.Param != nil {
			got = *page.Error.Param
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q: %s", c.query, got, c.want, body)
		}
	}
}
