package parse

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// whole is an answer put together from its parts.
type whole struct {
	Text, Reasoning string
	Calls           []string // NAME{arguments}
}

func gather(t *testing.T, parts []Part) whole {
	t.Helper()
	var w whole
	for _, q := range parts {
		w.Text += q.Text
		w.Reasoning += q.Reasoning
		if c := q.Call; c != nil {
			if c.Name != "" {
				if c.Index != len(w.Calls) {
					t.Errorf("call %s has index %d, want %d", c.Name, c.Index, len(w.Calls))
				}
				w.Calls = append(w.Calls, c.Name)
			}
			w.Calls[c.Index] += c.Arguments
		}
	}
	return w
}

// read parses an answer in pieces of so many bytes.
func readAll(t *testing.T, f *Format, opt Options, answer string, piece int) whole {
	t.Helper()
	p := f.New(opt)
	var parts []Part
	for len(answer) > 0 {
		n := min(piece, len(answer))
		parts = append(parts, p.Write(answer[:n])...)
		answer = answer[n:]
	}
	return gather(t, append(parts, p.End()...))
}

var tools = []Tool{
	{Name: "get_weather",
		Schema: json.RawMessage(`{"properties": {"place": {"type": "string"}, "n": {"type": "integer"}}}`)},
	{Name: "add"},
}

var (
	rome = `get_weather{"place": "Rome"}`
	both = []string{rome, `add{"a": 1, "b": 2.5}`}
)

// answers are those that TestFormats reads.
var answers = []struct {
	format, prompt, answer string
	want                   whole
}{
	{"plain", "", "<think>x</think> <tool_call>", whole{Text: "<think>x</think> <tool_call>"}},
	{"think", "", "<think>\nOne and one.\n</think>\n\n2", whole{"2", "One and one.", nil}},
	{"think", "…<think>\n", "One.\n</think>\n\n2 < 3 ", whole{"2 < 3 ", "One.", nil}},
	{"think", "…<think>\n\n</think>\n\n", "2", whole{"2", "", nil}},
	{"think", "", "  plain \n", whole{"  plain \n", "", nil}},
	{"hermes+think", "", "<think>a</think>Look: <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"" +
		"place\": \"Rome\"}}\n" +
		"</tool_call>\n<tool_call>{\"arguments\": {\"a\": 1, \"b\": 2.5}, \"name\": \"add\"}</tool_call>",
		whole{"Look:", "a", both}},
	{"hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call> done", whole{
		"done", "", []string{`f{"x": 1}`}}},
	{"hermes", "", "<tool_call>{\"name\": \"f\"}</tool_call>", whole{"", "", []string{"f{}"}}},
	{"hermes", "", "<tool_call>no JSON</tool_call>", whole{"<tool_call>no JSON</tool_call>", "", nil}},
	{"hermes", "", "a <tool b <tool_cal", whole{"a <tool b <tool_cal", "", nil}},
	{"hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"}</tool_call>\\\"\"}}</tool_call>",
		whole{"", "", []string{`f{"s": "}</tool_call>\""}`}}},
	{"mistral-list", "", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Rome\"}, \"" +
		"id\": \"c1\"}, {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2.5}}]", whole{"", "", both}},
	{"mistral", "", "[TOOL_CALLS]get_weather[CALL_ID]c1[ARGS]{\"place\": \"Rome\"}[TOOL_CALLS]add[ARGS" +
		"]{\"a\": 1, \"b\": 2.5}", whole{"", "", both}},
	{"llama3-json", "", `{"name": "get_weather", "parameters": {"place": "Rome"}}`, whole{"", "", []string{rome}}},
	{"llama3-json", "", `<|python_tag|>{"name": "get_weather", "parameters": {"place": "Rome"}}`, whole{"", "",
		[]string{rome}}},
	{"llama3-json", "", `{"name": "Rome", "size": 3}`, whole{`{"name": "Rome", "size": 3}`, "", nil}},
	{"llama3-json", "", `{"size": 3}`, whole{`{"size": 3}`, "", nil}},
	{"llama3-json", "", `See {"name": "get_weather"}`, whole{`See {"name": "get_weather"}`, "", nil}},
	{"pythonic", "", `[get_weather(place="Rome"), add(a=1, b=2.5)]`, whole{"", "", both}},
	{"pythonic", "", `[1, 2]`, whole{`[1, 2]`, "", nil}},
	// Cut by the bound on tokens: what came of the call is given, and breaks off.
	{"pythonic", "", `[get_weather(place="Ro`, whole{"", "", []string{`get_weather{"place": "Ro`}}},
	{"pythonic", "", `[get_weather(place="a\"b\`, whole{"", "", []string{`get_weather{"place": "a\"b`}}},
	{"pythonic", "", `[get_weather(place="Rome", n=1`, whole{"", "", []string{`get_weather{"place": "Rome", `}}},
	{"pythonic", "", `[get_weather(place=["a", "b`, whole{"", "", []string{`get_weather{`}}},
	{"pythonic", "", `[get_weather(`, whole{"", "", []string{`get_weather{`}}},
	{"pythonic", "", `[get_weather(place="Rome"), add(a=1, b`, whole{"", "", []string{rome, `add{"a": 1, `}}},
	{"pythonic", "", `[get_weather(place="Rome"), ad`, whole{"", "", []string{rome}}},
	{"pythonic", "", `[get_weather(place="Rome")`, whole{"", "", []string{rome}}},
	{"pythonic", "", `[get_wea`, whole{`[get_wea`, "", nil}},
	{"pythonic", "", `[other(place="Ro`, whole{`[other(place="Ro`, "", nil}},
	{"lfm", "", `<|tool_call_start|>[get_weather(place='Ro`, whole{"", "", []string{`get_weather{"place": "Ro`}}},
	// Without its name it is no call yet: the text is as it was written.
	{"mistral", "", `[TOOL_CALLS]get_wea`, whole{`[TOOL_CALLS]get_wea`, "", nil}},
	{"qwen3-coder", "", "<function=get_wea", whole{"<function=get_wea", "", nil}},
	{"kimi", "", "<|tool_call_begin|>functions.get_wea", whole{"<|tool_call_begin|>functions.get_wea", "", nil}},
	{"lfm", "", `<|tool_call_start|>[get_w`, whole{`<|tool_call_start|>[get_w`, "", nil}},
	{"hermes", "", `<tool_call>{"name": "get_weather", "arguments": {"place": "Ro`, whole{"", "",
		[]string{`get_weather{"place": "Ro`}}},
	{"lfm", "", "Hi <|tool_call_start|>[get_weather(place='Rome'), add(a=1, b=2.5)]<|tool_call_end|> x", whole{
		"Hix", "", both}},
	{"lfm", "", "<|tool_call_start|>[f(a=[1, 'x', (2,)], b={'k': None}, c=True, d='it\\'s')]<|tool" +
		"_call_end|>", whole{"", "", []string{`f{"a": [1, "x", [2]], "b": {"k": null}, "c": true, "d": "it's"}`}}},
	{"qwen3-coder", "", "<tool_call>\n<function=get_weather>\n<parameter=place>\nRome\n</parameter>\n<para" +
		"meter=n>\n3\n</parameter>\n</function>\n</tool_call>", whole{"", "", []string{
		`get_weather{"place": "Rome", "n": 3}`}}},
	{"qwen3-coder", "", "<function=get_weather>\n<parameter=place>\n12\n</parameter>\n</function>", whole{"", "",
		[]string{`get_weather{"place": "12"}`}}},
	{"lfm", "", `<|tool_call_start|>[f(a="\u00e9\x41\ud83d\ude42\d\
b", c='\'')]<|tool_call_end|>`, whole{"", "", []string{`f{"a": "éA🙂\\db", "c": "'"}`}}},
	{"kimi", "", "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|><|tool_call_end|>", whole{"", "",
		[]string{"now{}"}}},
	{"qwen3-coder", "", "<function=now>\n</function>", whole{"", "", []string{"now{}"}}},
	{"glm+think", "<think>", "a\n</think>\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg" +
		"_key>b</arg_key>\n<arg_value>2.5</arg_value>\n</tool_call>", whole{"", "a", both[1:]}},
	{"deepseek", "", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" +
		"{\"place\": \"Rome\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁se" +
		"p｜>add\n```json\n{\"a\": 1, \"b\": 2.5}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", whole{"", "", both}},
	{"deepseek-3.2", "", "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"" +
		"a\" string=\"false\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"tr" +
		"ue\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", whole{"", "", []string{
		`add{"a": 1, "b": "2"}`}}},
	{"kimi", "", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call" +
		"_argument_begin|>{\"place\": \"Rome\"}<|tool_call_end|><|tool_calls_section_end|>", whole{"", "",
		[]string{rome}}},
	{"harmony", "<|start|>assistant",
		"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary t" +
			"o=functions.get_weather <|constrain|>json<|message|>{\"place\": \"Rome\"}<|call|>", whole{"", "Hm.",
			[]string{rome}}},
	{"harmony", "<|start|>assistant",
		"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|messa" +
			"ge|>Hello.<|return|>", whole{"Hello.", "Hm.", nil}},
	{"harmony", "<|start|>assistant",
		" to=functions.get_weather<|channel|>commentary json<|message|>{\"place\": \"Rome\"" +
			"}<|call|>", whole{"", "", []string{rome}}},
	{"functionary-3.2", "…\n\n>>>", "all\nHello.\n>>>get_weather\n{\"place\": \"Rome\"}", whole{"Hello.", "",
		[]string{rome}}},
	{"functionary-3.2", "…\n\n>>>", "get_weather\n{\"place\": \"Rome\"}", whole{"", "", []string{rome}}},
	{"cohere", "<|START_THINKING|>",
		"Hm.<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"" +
			"get_weather\", \"parameters\": {\"place\": \"Rome\"}}\n]<|END_ACTION|>", whole{"", "Hm.", []string{rome}}},
	{"cohere", "", "<|START_RESPONSE|>Hello.<|END_RESPONSE|>", whole{"Hello.", "", nil}},
	{"solar", "<|begin|>assistant", "<|think|>Hm.<|end|><|begin|>assistant<|content|>Hello.", whole{"Hello.", "Hm.",
		nil}},
}

// TestFormats reads answers of each format, whole and in pieces of every size.
func TestFormats(t *testing.T) {
	for _, c := range answers {
		f, err := Named(c.format)
		if err != nil {
			t.Fatal(err)
		}
		if c.want.Calls == nil {
			c.want.Calls = []string{}
		}
		for _, piece := range []int{1, 2, 3, 5, 7, 16, 1 << 20} {
			got := readAll(t, f, Options{Prompt: c.prompt, Tools: tools}, c.answer, piece)
			if got.Calls == nil {
				got.Calls = []string{}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, pieces of %d: %q\n got %+v\nwant %+v", c.format, piece, c.answer, got, c.want)
				break
			}
		}
	}
}

// TestForms: an answer of a form is text behind its thoughts, whatever tags it has in it or a prompt ends with.
func TestForms(t *testing.T) {
	for _, c := range []struct{ format, prompt, answer, reasoning, content string }{
		{"functionary-3.2", "…\n\n>>>", `{"a": ">>>get_weather\n{}"}`, "", `{"a": ">>>get_weather\n{}"}`},
		{"hermes", "", `{"a": "<tool_call>\n{\"name\": \"x\", \"arguments\": {}}</tool_call>"}`, "",
			`{"a": "<tool_call>\n{\"name\": \"x\", \"arguments\": {}}</tool_call>"}`},
		{"think", "<think>", `Hm.</think>{"a": "<think>b</think>"}`, "Hm.", `{"a": "<think>b</think>"}`},
		{"think", "", `<think>Hm.</think>["</think>"]`, "Hm.", `["</think>"]`},
		{"hermes+think", "", `<think>Hm, <tool_call>.</think>[1]`, "Hm, <tool_call>.", `[1]`},
	} {
		f, err := Named(c.format)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []int{1, 2, 5, 1 << 20} {
			got := readAll(t, f, Options{Prompt: c.prompt, Form: true}, c.answer, piece)
			if got.Text != c.content || got.Reasoning != c.reasoning || len(got.Calls) > 0 {
				t.Errorf("%s, pieces of %d: %q becomes %+v", c.format, piece, c.answer, got)
				break
			}
		}
	}
}

// TestTemplatesOwnCalls takes the calls that public templates write of a conversation, and reads them back by the
// format that was found in the template.
func TestTemplatesOwnCalls(t *testing.T) {
	dir := testfiles.Shared(t, "data/chat")
	data, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Expected map[string]map[string]struct{ Text, Error *string }
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	read := 0
	for name, cases := range all.Expected {
		source, err := os.ReadFile(filepath.Join(dir, "templates", name))
		if err != nil {
			t.Fatal(err)
		}
		text := cases["tool_call_2"].Text
		if text == nil || !strings.Contains(*text, "Rome") || !strings.Contains(*text, "2.5") {
			continue // one that refuses two calls, or does not write them
		}
		f := Find(string(source))
		if !f.Tools() {
			t.Logf("%s: no format was found", name)
			continue
		}
		asked := strings.LastIndex(*text, "Both.")
		end := asked + 40
		for _, mark := range []string{"21", "Return of"} {
			if i := strings.Index((*text)[asked:], mark); i > 0 {
				end = max(end, asked+i)
				break
			}
		}
		p := f.New(Options{Tools: tools})
		got := gather(t, append(p.Write((*text)[asked+5:end]), p.End()...))
		var calls []string
		for _, c := range got.Calls {
			i := strings.IndexByte(c, '{')
			var args map[string]any
			if i < 0 || json.Unmarshal([]byte(c[i:]), &args) != nil {
				calls = append(calls, c)
				continue
			}
			calls = append(calls, fmt.Sprint(c[:i], args))
		}
		if want := "[get_weathermap[place:Rome] addmap[a:1 b:2.5]]"; fmt.Sprint(calls) != want {
			t.Errorf("%s as %s: %v, want %s", name, f.Name(), calls, want)
			continue
		}
		read++
	}
	if read < 30 {
		t.Errorf("only the calls of %d templates were read", read)
	}
	t.Logf("the calls of %d templates were read", read)
}

func TestNamed(t *testing.T) {
	if _, err := Named("nope"); err == nil || !strings.Contains(err.Error(), "hermes") {
		t.Errorf("got %v", err)
	}
	for _, n := range Names() {
		if f, err := Named(n); err != nil || n != "plain" && !f.Tools() && !f.Reasoning() {
			t.Errorf("%s: %v", n, err)
		}
	}
}

// FuzzParser reads whatever comes: nothing is lost of a plain text, and the pieces do not matter.
func FuzzParser(f *testing.F) {
	f.Add("<think>a</think> b <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", 3, 0)
	f.Add("[TOOL_CALLS]f[ARGS]{\"a\": [1, {\"b\": \"}\"}]}", 1, 2)
	f.Add("[f(a=1), g(b='x')]", 2, 4)
	names := Names()
	f.Fuzz(func(t *testing.T, answer string, piece, which int) {
		format, err := Named(names[uint(which)%uint(len(names))] + "+think")
		if err != nil || len(answer) > 4096 {
			return
		}
		n := 1 + int(uint(piece)%64)
		a := readAll(t, format, Options{Tools: tools}, answer, n)
		b := readAll(t, format, Options{Tools: tools}, answer, len(answer)+1)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s, pieces of %d: %q\n got %+v\nwhole %+v", format.Name(), n, answer, a, b)
		}
	})
}

// TestShapes: a call that is written as a shape has it is read back as that call.
func TestShapes(t *testing.T) {
	n := 0
	for _, name := range Names() {
		f, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		shapes, err := f.Shapes(tools, true)
		if f.calls == nil || f.calls.Write == nil {
			if err == nil {
				t.Errorf("%s: shapes of calls that nobody knows to write", name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		for i, s := range shapes {
			args := `{"place": "Rome"}`
			text := s.Begin + args + s.End
			switch {
			case s.Params != nil || s.Python != nil:
				text, _ = f.Write([]Call{{tools[i].Name, args}})
			case len(shapes) == 1:
				key := f.calls.argumentsKey()
				if key == "" {
					key = "arguments"
				}
				text = fmt.Sprintf(`{"%s": "get_weather", "%s": %s}`, f.calls.NameKeys[0], key, args)
				if f.Lists() {
					text = "[" + text + "]"
				}
				text = s.Begin + text + s.End
			}
			got := readAll(t, f, Options{Tools: tools}, text, 3)
			if want := tools[i].Name + args; len(got.Calls) != 1 || got.Calls[0] != want || got.Text != "" {
				t.Errorf("%s: %q is read as %+v, want %s", name, text, got, want)
			}
			if s.Python == nil && !json.Valid(s.Schema) {
				t.Errorf("%s: the schema %s is no JSON", name, s.Schema)
			}
		}
	}
	if n < 12 {
		t.Errorf("only %d formats have shapes", n)
	}
	f, _ := Named("hermes")
	shapes, err := f.Shapes([]Tool{{Name: "a"}, {Name: "b", Schema: json.RawMessage(
		`{"properties": {"x": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"type": "string"}}}`)}}, true)
	if err != nil || !strings.Contains(string(shapes[0].Schema), `"#/anyOf/1/properties/arguments/$defs/y"`) {
		t.Errorf("%+v, %v", shapes, err)
	}
	if _, err := f.Shapes(nil, true); err == nil {
		t.Error("shapes of no tools")
	}
}

// Calls that are no JSON between tags of the same name are not taken for such ones: better no tools than wrong calls.
func TestFindLeavesOut(t *testing.T) {
	const template = `{%- set begin = ns ~ '<tool_call>' -%}{%- set think = '<mm:think>' -%}{{ ns + '<invoke name="' }}`
	if f := Find(template); f.Tools() || !f.Reasoning() || !slices.Contains(f.Special(), "</mm:think>") {
		t.Errorf("%s: tools %v, reasoning %v, %q", f.Name(), f.Tools(), f.Reasoning(), f.Special())
	}
	if f := Find(`<tool_call>{{ call | tojson }}</tool_call>`); f.Name() != "hermes" {
		t.Errorf("%s", f.Name())
	}
}
