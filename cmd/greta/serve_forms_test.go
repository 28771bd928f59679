package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// hermes is a chat template whose family writes calls as JSON objects between tags.
const hermes = `{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% for t in tools or [] %}{{ t | tojson }} <tool_call>{% endfor %}assistant: `

// formed is an answer in a form, or a call.
type formed struct {
	Choices []struct {
		Finish  string `json:"finish_reason"`
		Message struct {
			Content   string
			Reasoning string `json:"reasoning_content"`
			Calls     []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	Error struct{ Message, Param string }
}

// callOrForm: with tools and a form of the answer the model chooses, here by a bias of what the form begins with.
func callOrForm(t *testing.T, ask func(string) (int, formed), both string, begin int32) {
	t.Helper()
	for _, bias := range []int{-100, 100} {
		_, a := ask(fmt.Sprintf(`%s, "logit_bias": {"%d": %d}`, both, begin, bias))
		if len(a.Choices) != 1 {
			t.Fatalf("%+v", a)
		}
		c := a.Choices[0]
		called := len(c.Message.Calls) == 1 && c.Finish == "tool_calls" && c.Message.Content == ""
		if called != (bias < 0) || !called && !json.Valid([]byte(c.Message.Content)) {
			t.Errorf("%s, bias %d: %+v", both, bias, c)
		}
	}
}

// A model that knows nothing of JSON writes it, and calls tools, where it must: at any temperature.
func TestServeForms(t *testing.T) {
	url := served(t, testfiles.Repo(t, "testdata", "tolstoy-2.7m"), "--chat-template", write(t, "hermes.jinja", hermes))
	ask := func(more string) (int, formed) {
		var a formed
		code := postJSON(t, url+"/v1/chat/completions",
			`{"messages": [{"role": "user", "content": "War"}], "max_tokens": 200, `+more+`}`, &a)
		return code, a
	}
	var brace struct{ Tokens []int32 } // what an answer in the form begins with
	postJSON(t, url+"/tokenize", `{"prompt": "{", "add_special_tokens": false}`, &brace)
	brace.Tokens = brace.Tokens[len(brace.Tokens)-1:]
	schema := `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
		"age": {"type": "integer", "minimum": 1, "maximum": 99}},
		"required": ["name", "age"], "additionalProperties": false}`
	for seed := range 4 {
		_, a := ask(
			fmt.Sprintf(
				`"seed": %d, "n": 2, "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": %s}}`, seed,
				schema))
		for _, c := range a.Choices {
			var v struct {
				Name *string
				Age  int
			}
			d := json.NewDecoder(strings.NewReader(c.Message.Content))
			d.DisallowUnknownFields()
			if err := d.Decode(&v); err != nil || v.Name == nil || v.Age < 1 || v.Age > 99 || c.Finish != "stop" {
				t.Errorf("seed %d: %v %+v", seed, err, c)
			}
		}
		_, a = ask(fmt.Sprintf(`"seed": %d, "guided_regex": "[0-9]{3}-[a-f]+x"`, seed))
		if len(a.Choices) != 1 || !regexp.MustCompile(`^[0-9]{3}-[a-f]+x$`).MatchString(a.Choices[0].Message.Content) &&
			a.Choices[0].Finish == "stop" {
			t.Errorf("seed %d: %+v", seed, a)
		}
		_, a = ask(fmt.Sprintf(`"seed": %d, "guided_choice": ["peace", "war"]`, seed))
		if c := a.Choices[0].Message.Content; c != "peace" && c != "war" {
			t.Errorf("seed %d: %q", seed, c)
		}
		tools := `"tools": [{"type": "function", "function": {"name": "march", "parameters": {"type": "object",
			"properties": {"to": {"enum": ["Moscow", "Paris"]}},
			"required": ["to"], "additionalProperties": false}}}], "parallel_tool_calls": false`
		_, a = ask(fmt.Sprintf(
			`"seed": %d, "temperature": 0.3, "tool_choice": {"type": "function", "function": {"name": "march"}},
				"max_tokens": 300, %s`, seed, tools))
		if len(a.Choices) != 1 {
			t.Fatalf("%+v", a)
		}
		if c := a.Choices[0]; c.Finish != "tool_calls" || c.Message.Content != "" || len(c.Message.Calls) != 1 ||
			c.Message.Calls[0].Function.Name != "march" ||
			!regexp.MustCompile(`^\{\s*"to"\s*:\s*"(Moscow|Paris)"\s*\}$`).MatchString(c.Message.Calls[0].Function.Arguments) {
			t.Errorf("seed %d: %+v", seed, c)
		}
		callOrForm(t, ask, fmt.Sprintf(`%s, "seed": %d, "response_format": {"type": "json_schema", "json_schema":
			{"name": "p", "schema": %s}}`, tools, seed, schema), brace.Tokens[0])
	}
	if code, a := ask(
		`"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": "string",
			"format": "nonsense", "contentEncoding": 5,
			"pattern": "a(?<=b)"}}}`); code != 400 || a.Error.Param != "response_format" {
		t.Errorf("%d %+v", code, a)
	}
}

// TestServeThoughtfulForms: where thoughts are asked for that the prompt does not begin, an answer is the form, or it
// begins with the tag of thoughts: never a free text that lasts until the tokens are used up.
func TestServeThoughtfulForms(t *testing.T) {
	url := served(t, testfiles.Repo(t, "testdata", "tolstoy-2.7m"), "--chat-template",
		write(t, "think.jinja", "{# <think> #}"+hermes))
	answered := 0
	for seed := range 25 {
		var a formed
		code := postJSON(t, url+"/v1/chat/completions", fmt.Sprintf(`{"messages": [{"role": "user", "content": "War"}],
			"reasoning_effort": "high", "max_tokens": 80, "n": 8, "seed": %d, "temperature": 1.5, "guided_json":
			{"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 1, "maxItems": 3}}`,
			seed), &a)
		if code != 200 || len(a.Choices) != 8 {
			t.Fatalf("seed %d: %d %+v", seed, code, a)
		}
		for _, c := range a.Choices {
			m := c.Message
			formed := regexp.MustCompile(`^\[-?\d{1,2}(,-?\d{1,2}){0,2}\]$`).MatchString(m.Content)
			thinks := c.Finish == "length" && m.Content == "" && m.Reasoning != ""
			if formed {
				answered++
			}
			if (!formed || c.Finish != "stop") && !thinks {
				t.Errorf("seed %d: %+v", seed, c)
			}
		}
	}
	t.Logf("%d of 200 answered, the others were still thinking", answered)
	if answered < 20 {
		t.Errorf("%d of 200 answers came", answered)
	}
}

// TestServeTokens: a template may write the begin and end token of a model whose folder has no configuration of its
// tokenizer. A begin token comes where the template writes it, and where the request asks for one.
func TestServeTokens(t *testing.T) {
	const template = `{{ %s }}{%% for m in messages %%}{{ m.content }}{{ eos_token }}{%% endfor %%}`
	for i, begin := range []string{"bos_token", "''"} {
		name := write(t, fmt.Sprintf("tokens%d.jinja", i), fmt.Sprintf(template, begin))
		url := served(t, testfiles.Repo(t, "testdata", "tolstoy-2.7m"), "--chat-template", name)
		var said struct { // by greta chat
			Prompt int `json:"prompt_tokens"`
		}
		r := gretaIn(t, "War\n", "chat", testfiles.Repo(t, "testdata", "tolstoy-2.7m"), "--chat-template", name, "--json",
			"--gen", "1")
		if err := json.Unmarshal([]byte(r.out), &said); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, more := range []string{"", `, "add_special_tokens": false`, `, "add_special_tokens": true`} {
			var a struct{ Tokens []int32 }
			messages := `{"messages": [{"role": "user", "content": "War"}]` + more
			code := postJSON(t, url+"/tokenize", messages+"}", &a)
			want := 0
			if begin == "bos_token" {
				want++
			}
			if strings.Contains(more, "true") {
				want++
			}
			begins := 0
			for begins < len(a.Tokens) && a.Tokens[begins] == 1 {
				begins++
			}
			if n := len(a.Tokens); code != 200 || n < 2 || begins != want || a.Tokens[n-1] != 2 {
				t.Errorf("%s%s: %d, tokens %v", begin, more, code, a.Tokens)
			}
			var u struct {
				Usage struct {
					Prompt int `json:"prompt_tokens"`
				}
			}
			if !strings.Contains(more, "true") && said.Prompt != len(a.Tokens) {
				t.Errorf("%s: chat has %d tokens, serve %v", begin, said.Prompt, a.Tokens)
			}
			if postJSON(t, url+"/v1/chat/completions", messages+`, "max_tokens": 1}`, &u); u.Usage.Prompt != len(a.Tokens) {
				t.Errorf("%s%s: a chat has %d tokens, %v were told", begin, more, u.Usage.Prompt, a.Tokens)
			}
		}
	}
}
