package serve

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/greta-project/greta/chat/parse"
)

// formatChat has conversations as the fake writes them, and answers as a family does.
type formatChat struct {
	*TemplateChat
	fake fakeChat
}

func (c formatChat) Prompt(messages []Message, o ChatOptions) (string, error) {
	return c.fake.Prompt(messages, o)
}

// ToolMask leaves the fake free to say what a test wants; TestForced has the masks.
func (c formatChat) ToolMask([]Tool, bool, bool) (Constraint, error) {
	return Constraint{}, errors.New("calls are free")
}

// twoTools are those of the answers below.
const twoTools = `"tools": [
	{"type": "function", "function": {"name": "place", "parameters": {"type": "object",
		"properties": {"city": {"type": "string"}}, "required": ["city"]}}},
	{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
		"properties": {"a": {"type": "integer"}, "b": {"type": "number"}}, "required": ["a", "b"]}}}]`

var twoCalls = [2][2]string{{"place", `{"city":"Rome"}`}, {"add", `{"a":1,"b":2.5}`}}

// written are two calls as families write them whose arguments are no JSON.
var written = map[string]string{
	"deepseek-3.2": "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"place\">\n<｜DSML｜parameter name=\"city\" " +
		"string=\"true\">" +
		"Rome</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"a\" " +
		"string=\"false\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">2.5</｜DSML｜parameter>\n" +
		"</｜DSML｜invoke>\n</｜DSML｜function_calls>",
	"glm-4.7": "<tool_call>place<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call><tool_call>add" +
		"<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>2.5</arg_value></tool_call>",
	"deepseek-4": "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"place\">\n<｜DSML｜parameter name=\"city\" " +
		"string=\"true\">Rome</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"add\">\n" +
		"<｜DSML｜parameter name=\"a\" string=\"false\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" " +
		"string=\"false\">2.5</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
	"glm": "<tool_call>place\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>\n<tool_call>add\n" +
		"<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2.5</arg_value>\n</tool_call>",
	"hy3": "<tool_calls:opensource>\n<tool_call:opensource>place<tool_sep:opensource>\n<arg_key:opensource>city" +
		"</arg_key:opensource>\n<arg_value:opensource>Rome</arg_value:opensource>\n</tool_call:opensource>\n" +
		"<tool_call:opensource>add<tool_sep:opensource>\n<arg_key:opensource>a</arg_key:opensource>\n" +
		"<arg_value:opensource>1</arg_value:opensource>\n<arg_key:opensource>b</arg_key:opensource>\n" +
		"<arg_value:opensource>2.5</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
	"lfm":      `<|tool_call_start|>[place(city="Rome"), add(a=1, b=2.5)]<|tool_call_end|>`,
	"pythonic": `[place(city="Rome"), add(a=1, b=2.5)]`,
}

// params are the texts around a call and a parameter, in the families that differ in nothing else.
var params = map[string][4]string{
	"seed": {"<seed:tool_call>\n<function=%s>\n", "<parameter=%s>", "</parameter>\n",
		"</function>\n</seed:tool_call>"},
	"qwen3-coder": {"<tool_call>\n<function=%s>\n", "<parameter=%s>\n", "\n</parameter>\n", "</function>\n</tool_call>\n"},
	"minicpm":     {"<function name=\"%s\">", "<param name=\"%s\">", "</param>", "</function>"},
	"muse": {"<atem:function_calls><atem:invoke name=\"%s\">", "<atem:parameter name=\"%s\">", "</atem:parameter>",
		"</atem:invoke></atem:function_calls>"},
	"invoke": {"<minimax:tool_call>\n<invoke name=\"%s\">\n", "<parameter name=\"%s\">", "</parameter>\n",
		"</invoke>\n</minimax:tool_call>"},
}

// writeCalls writes the calls as a format has them, and says how many it wrote; 0 where it has none.
func writeCalls(f *parse.Format, name string) (string, int) {
	if text := written[name]; text != "" {
		return text, 2
	}
	if p, ok := params[name]; ok {
		one := func(name string, pairs ...string) string {
			text := fmt.Sprintf(p[0], name)
			for i := 0; i < len(pairs); i += 2 {
				text += fmt.Sprintf(p[1], pairs[i]) + pairs[i+1] + p[2]
			}
			return text + p[3]
		}
		return one("place", "city", "Rome") + one("add", "a", "1", "b", "2.5"), 2
	}
	shapes, err := f.Shapes([]parse.Tool{{Name: "place"}, {Name: "add"}}, true)
	switch {
	case err != nil:
		return "", 0
	case len(shapes) == 2:
		group := f.Group()
		return group[0] + shapes[0].Begin + twoCalls[0][1] + shapes[0].End + shapes[1].Begin + twoCalls[1][1] +
			shapes[1].End + group[1], 2
	}
	var keys struct {
		Items, AnyOf json.RawMessage
		Properties   map[string]json.RawMessage
	}
	schema := shapes[0].Schema
	if json.Unmarshal(schema, &keys); keys.Items != nil {
		json.Unmarshal(keys.Items, &keys)
	}
	var either []struct{ Required []string }
	json.Unmarshal(keys.AnyOf, &either)
	var objects []string
	for _, c := range twoCalls {
		objects = append(objects, fmt.Sprintf(`{%q:%q,%q:%s}`, either[0].Required[0], c[0], either[0].Required[1], c[1]))
	}
	switch s := shapes[0]; {
	case f.Lists():
		return s.Begin + "[" + strings.Join(objects, ", ") + "]" + s.End, 2
	case s.Begin == "": // the answer is one call
		return objects[0], 1
	default:
		return s.Begin + objects[0] + s.End + s.Begin + objects[1] + s.End, 2
	}
}

// called is a message's calls, or those of a stream put together as clients do it.
type called struct {
	reasoning, content, finish string
	names, args, ids           []string
}

// chatOf reads an answer or the events of one.
func chatOf(t *testing.T, body string) (c called) {
	type call struct {
		Index    int
		ID, Type string
		Function struct{ Name, Arguments string }
	}
	type message struct {
		Content   string
		Reasoning string `json:"reasoning_content"`
		ToolCalls []call `json:"tool_calls"`
	}
	take := func(m message, finish string, whole bool) {
		c.content, c.reasoning = c.content+m.Content, c.reasoning+m.Reasoning
		if finish != "" {
			c.finish = finish
		}
		for i, x := range m.ToolCalls {
			if whole {
				x.Index = i
			}
			switch {
			case x.Index == len(c.names):
				if x.ID == "" || x.Function.Name == "" || x.Type != "function" {
					t.Errorf("a call begins with %+v", x)
				}
				c.names, c.ids, c.args = append(c.names, ""), append(c.ids, x.ID), append(c.args, "")
			case x.Index != len(c.names)-1 || x.Function.Name != "":
				t.Errorf("behind %d calls comes %+v", len(c.names), x)
				continue
			}
			c.names[x.Index] += x.Function.Name
			c.args[x.Index] += x.Function.Arguments
		}
	}
	lines := bufio.NewScanner(strings.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, event := strings.CutPrefix(lines.Text(), "data: ")
		if data == "" || data == "[DONE]" {
			continue
		}
		var a struct {
			Choices []struct {
				Message, Delta message
				Finish         string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		for _, x := range a.Choices {
			if event {
				take(x.Delta, x.Finish, false)
			} else {
				take(x.Message, x.Finish, true)
			}
		}
	}
	return c
}

// TestFormatsServed: what each family writes, thoughts and two calls, comes to a client as OpenAI's calls, whole and
// streamed byte by byte.
func TestFormatsServed(t *testing.T) {
	fake := newFake()
	_, h := testServer(t, fake)
	n := 0
	for _, name := range parse.Names() {
		for _, thoughts := range []bool{false, true} {
			full := name
			if thoughts {
				full += "+think"
			}
			f, err := parse.Named(full)
			if err != nil || !f.Tools() {
				continue
			}
			text, count := writeCalls(f, name)
			if count == 0 {
				t.Errorf("%s: no call of it is known here", name)
				continue
			}
			n++
			want := called{finish: "tool_calls"}
			for _, c := range twoCalls[:count] {
				want.names, want.args = append(want.names, c[0]), append(want.args, c[1])
			}
			if thoughts {
				text, want.reasoning = "<think>Hm.</think>"+text, "Hm."
			}
			fake.chat = formatChat{TemplateChat: &TemplateChat{format: f}}
			said, _ := json.Marshal("say " + strings.ReplaceAll(text, "\n", "\x01"))
			for _, stream := range []bool{false, true} {
				status, _, body := post(t, h.URL+"/v1/chat/completions", fmt.Sprintf(
					`{"model": "fake", "messages": [{"role": "user", "content": %s}], "stream": %v, %s}`, said, stream, twoTools))
				if status != 200 {
					t.Errorf("%s: %d %s", full, status, body)
					continue
				}
				got := chatOf(t, body)
				for i, a := range got.args {
					var v any
					if json.Unmarshal([]byte(a), &v) == nil {
						plain, _ := json.Marshal(v)
						got.args[i] = string(plain)
					}
				}
				if len(got.ids) == 2 && got.ids[0] == got.ids[1] {
					t.Errorf("%s: two calls have the id %s", full, got.ids[0])
				}
				got.ids = nil
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s, stream %v: %q\n got %+v\nwant %+v", full, stream, text, got, want)
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d formats were served", n)
	}
	t.Logf("%d formats", n)
}
