// Conversations as OpenAI's clients send them, and the checks that all protocols share.

package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// chatMessage is a message of a request.
type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"` // a string, a list of parts, or null
	Name       string          `json:"name"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []chatCall      `json:"tool_calls"`
	Refusal    *string         `json:"refusal"`
	Reasoning  string          `json:"reasoning"`
	Thoughts   string          `json:"reasoning_content"` // vLLM's older name
	Audio      json.RawMessage `json:"audio"`
	Function   json.RawMessage `json:"function_call"`
}

// chatCall is a call of a tool, in requests and answers.
type chatCall struct {
	Index    *int   `json:"index,omitempty"` // in streams
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"` // function
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// contentPart is a part of a message.
type contentPart struct {
	Type    string  `json:"type"`
	Text    *string `json:"text"`
	Refusal *string `json:"refusal"`
}

// contentText gives a content's text, and refuses what is none.
func contentText(raw json.RawMessage, param string) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var text string
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", badRequest(param, param+": "+err.Error())
		}
		return text, nil
	}
	var parts []contentPart
	if raw[0] != '[' || json.Unmarshal(raw, &parts) != nil {
		return "", badRequest(param, param+" must be a string or an array of parts")
	}
	var b strings.Builder
	for i, p := range parts {
		at := fmt.Sprintf("%s[%d]", param, i)
		switch p.Type {
		case "text", "input_text", "output_text", "reasoning_text":
			if p.Text == nil {
				return "", badRequest(at+".text", at+" has no text")
			}
			if i > 0 && b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(*p.Text)
		case "refusal":
			if p.Refusal != nil {
				b.WriteString(*p.Refusal)
			}
		case "image_url", "input_image", "image", "input_audio", "file", "input_file", "video_url", "document":
			return "", unsupported(at, fmt.Sprintf("%s is of type %s; this model reads text alone", at, p.Type))
		default:
			return "", badRequest(at+".type", fmt.Sprintf("%s has the type %q; text is expected", at, clip(p.Type, 50)))
		}
	}
	return b.String(), nil
}

// conversation checks messages and makes the model's of them.
func (s *Server) conversation(in []chatMessage) ([]Message, error) {
	if len(in) == 0 {
		return nil, badRequest("messages", "messages must have at least one message")
	}
	if len(in) > s.opt.MaxMessages {
		return nil, badRequest("messages", fmt.Sprintf("a conversation may have %d messages, it has %d", s.opt.MaxMessages,
			len(in)))
	}
	out := make([]Message, len(in))
	for i, m := range in {
		at := fmt.Sprintf("messages[%d]", i)
		text, err := contentText(m.Content, at+".content")
		if err != nil {
			return nil, err
		}
		if len(m.Audio) > 0 && string(m.Audio) != "null" {
			return nil, unsupported(at+".audio", "this model has no audio")
		}
		if len(m.Function) > 0 && string(m.Function) != "null" {
			return nil, unsupported(at+".function_call", "function_call was replaced by tool_calls; send those")
		}
		o := Message{Role: m.Role, Content: text, Name: m.Name, ToolCallID: m.ToolCallID, Reasoning: m.Reasoning}
		if o.Reasoning == "" {
			o.Reasoning = m.Thoughts
		}
		switch m.Role {
		case "system", "developer", "user":
			if len(m.Content) == 0 || string(m.Content) == "null" {
				return nil, badRequest(at+".content", at+" has no content")
			}
		case "assistant":
			for k, c := range m.ToolCalls {
				if c.Function.Name == "" {
					return nil, badRequest(fmt.Sprintf("%s.tool_calls[%d].function.name", at, k), "a call needs a function's name")
				}
				args := c.Function.Arguments
				if args == "" {
					args = "{}"
				}
				o.ToolCalls = append(o.ToolCalls, ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: args})
			}
		case "tool":
			if m.ToolCallID == "" {
				return nil, badRequest(at+".tool_call_id", at+" has the role tool and needs tool_call_id")
			}
			o.Name = nameOfCall(out[:i], m.ToolCallID, m.Name)
		case "function":
			return nil, unsupported(at+".role", "the role function was replaced by tool")
		default:
			return nil, badRequest(at+".role", fmt.Sprintf(
				"%s has the role %q; there are system, developer, user, assistant and tool", at, clip(m.Role, 50)))
		}
		out[i] = o
	}
	return out, nil
}

// nameOfCall finds the function of a call that is answered: some templates want it.
func nameOfCall(before []Message, id, given string) string {
	for i := len(before) - 1; i >= 0; i-- {
		for _, c := range before[i].ToolCalls {
			if c.ID == id {
				return c.Name
			}
		}
	}
	return given
}

// chatTool is a tool of a request.
type chatTool struct {
	Type     string `json:"type"`
	Function *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

// mostTools bounds the tools of a request.
const mostTools = 512

func newTool(at, name, description string, parameters json.RawMessage, strict *bool) (Tool, error) {
	if !toolName.MatchString(name) {
		return Tool{}, badRequest(at+".name", fmt.Sprintf(
			"%s.name must be 1 to 128 letters, digits, underscores, dots and dashes, it is %q", at, clip(name, 140)))
	}
	if len(parameters) > 0 && string(parameters) != "null" {
		if parameters[0] != '{' {
			return Tool{}, badRequest(at+".parameters", at+".parameters must be a JSON schema, an object")
		}
	} else {
		parameters = nil
	}
	if kind := schemaType(parameters); kind != "" && kind != "object" {
		return Tool{}, badRequest(at+".parameters", fmt.Sprintf("%s: the arguments of a tool are an object, the schema's "+
			"type is %q", at, clip(kind, 50)))
	}
	return Tool{Name: name, Description: description, Parameters: parameters, Strict: strict != nil && *strict}, nil
}

// schemaType is a schema's type where that is one text.
func schemaType(schema json.RawMessage) string {
	var s struct {
		Type any `json:"type"`
	}
	_ = json.Unmarshal(schema, &s) // what is no schema is told where it is compiled
	kind, _ := s.Type.(string)
	return kind
}

// namedOnce refuses tools of one name.
func namedOnce(tools []Tool) error {
	known := map[string]bool{}
	for _, t := range tools {
		if known[t.Name] {
			return badRequest("tools", fmt.Sprintf("tools: two are called %q", t.Name))
		}
		known[t.Name] = true
	}
	return nil
}

func chatTools(in []chatTool) ([]Tool, error) {
	if len(in) > mostTools {
		return nil, badRequest("tools", fmt.Sprintf("at most %d tools may be given, there are %d", mostTools, len(in)))
	}
	var out []Tool
	for i, t := range in {
		at := fmt.Sprintf("tools[%d]", i)
		switch {
		case t.Type != "function":
			return nil, unsupported(at+".type", fmt.Sprintf("%s is of type %q; there are tools of type function", at,
				clip(t.Type, 50)))
		case t.Function == nil:
			return nil, badRequest(at+".function", at+" has no function")
		}
		tool, err := newTool(at+".function", t.Function.Name, t.Function.Description, t.Function.Parameters,
			t.Function.Strict)
		if err != nil {
			return nil, err
		}
		out = append(out, tool)
	}
	return out, nil
}

// choice is what tool_choice says: none, auto, required, or one name.
type choice struct {
	mode  string
	names []string // of required: these alone; nil: any
}

// parseChoice reads tool_choice.
func parseChoice(raw json.RawMessage, tools []Tool) (choice, error) {
	if len(raw) == 0 || string(raw) == "null" {
		if len(tools) == 0 {
			return choice{mode: "none"}, nil
		}
		return choice{mode: "auto"}, nil
	}
	bad := badRequest("tool_choice", "tool_choice must be none, auto, required, or name a function")
	var mode string
	if json.Unmarshal(raw, &mode) == nil {
		if mode == "any" { // Mistral's and Anthropic's word for it
			mode = "required"
		}
		switch mode {
		case "none", "auto", "required":
			if mode == "required" && len(tools) == 0 {
				return choice{}, badRequest("tool_choice", "tool_choice required needs tools")
			}
			return choice{mode: mode}, nil
		}
		return choice{}, bad
	}
	var named struct {
		Type     string `json:"type"`
		Name     string `json:"name"` // responses have it here
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
		Allowed      *allowedTools `json:"allowed_tools"`
		allowedTools               // responses have its fields here
	}
	if json.Unmarshal(raw, &named) != nil {
		return choice{}, bad
	}
	c := choice{mode: "required"}
	switch {
	case named.Type == "function":
		c.names = []string{named.Function.Name + named.Name}
	case named.Type == "allowed_tools":
		if named.Allowed == nil {
			named.Allowed = &named.allowedTools
		}
		if c.mode = named.Allowed.Mode; c.mode != "auto" && c.mode != "required" {
			return choice{}, bad
		}
		for _, t := range named.Allowed.Tools {
			c.names = append(c.names, t.Function.Name+t.Name)
		}
	default:
		return choice{}, bad
	}
	for _, n := range c.names {
		if !hasTool(tools, n) {
			return choice{}, badRequest("tool_choice", fmt.Sprintf("tool_choice names %q, which is not among the tools",
				clip(n, 140)))
		}
	}
	return c, nil
}

// allowedTools is the choice of OpenAI's that names several tools.
type allowedTools struct {
	Mode  string `json:"mode"`
	Tools []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

func hasTool(tools []Tool, name string) bool {
	for _, t := range tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// among gives the tools of these names, all where there are none.
func among(tools []Tool, names []string) []Tool {
	if names == nil {
		return tools
	}
	var out []Tool
	for _, t := range tools {
		for _, n := range names {
			if t.Name == n {
				out = append(out, t)
			}
		}
	}
	return out
}

// someEffort is that of thoughts that are asked for without one: as much as the template has by itself.
const someEffort = "some"

// turn is a conversation with what is wanted of its next message.
type turn struct {
	messages []Message
	tools    []Tool
	choice   choice
	parallel bool
	effort   string
	thinks   bool // thoughts are asked for, with no effort in particular
	goOn     bool
	noPrompt bool // the conversation alone, not where an answer begins
	addBOS   bool // a begin token comes before what the template wrote
	vars     map[string]json.RawMessage
}

// prompt renders a turn into a job, and constrains the answer to a call where one is required.
func (j *job) prompt(t turn) error {
	if m, ok := j.model.(*TextModel); ok {
		return cannot(j.name, "conversations", "model", m.does())
	}
	chat := j.model.Chat()
	if chat == nil {
		return &Error{Status: 400, Type: "invalid_request_error", Code: "no_chat_template", Param: "messages",
			Message: fmt.Sprintf("%s has no chat template: use /v1/completions, or start the server with --chat-template",
				j.name)}
	}
	if err := namedOnce(t.tools); err != nil {
		return err
	}
	if t.choice.mode == "none" {
		t.tools = nil
	} else {
		t.tools = among(t.tools, t.choice.names)
	}
	if len(t.tools) > 0 && !chat.Tools() {
		return unsupported("tools", fmt.Sprintf("%s cannot call tools: its chat template knows none", j.name))
	}
	for _, name := range []string{"messages", "tools", "add_generation_prompt", "continue_final_message"} {
		if _, ok := t.vars[name]; ok {
			return badRequest("chat_template_kwargs."+name, "chat_template_kwargs: "+name+" is a field of the request")
		}
	}
	switch t.effort {
	case "", "none", "minimal", "low", "medium", "high", "xhigh", "max":
	default:
		return badRequest("reasoning_effort", fmt.Sprintf(
			"reasoning_effort must be none, minimal, low, medium, high or xhigh, it is %q", clip(t.effort, 50)))
	}
	if t.thinks && (t.effort == "" || t.effort == "none") {
		t.effort = someEffort
	}
	if t.effort != "" && t.effort != "none" && !chat.Reasoning() {
		return unsupported("reasoning_effort", fmt.Sprintf("%s does not reason: its chat template has no place for it",
			j.name))
	}
	j.chat = true
	j.options = ChatOptions{Tools: t.tools, Effort: t.effort, Continue: t.goOn, NoPrompt: t.noPrompt, Variables: t.vars}
	text, err := chat.Prompt(t.messages, j.options)
	if err != nil {
		return refusedPrompt(t.messages, err)
	}
	j.prompted = text
	if t.addBOS {
		j.request.Prompt, err = j.model.Text().Encode(text, true, true)
	} else {
		j.request.Prompt, err = j.model.Text().EncodeChat(text)
	}
	if err != nil {
		return badRequest("messages", err.Error())
	}
	if len(t.tools) > 0 {
		if err := j.formOfCalls(chat, t); err != nil {
			return err
		}
	}
	if j.form != nil {
		j.form.Thoughts = chat.Thoughts(text, j.options)
	}
	return j.compile()
}

// refusedPrompt says why a template made no prompt. Most want a call's arguments as an object, which a client may have
// of an answer that was cut short.
func refusedPrompt(messages []Message, err error) error {
	why := "the model's chat template refuses this conversation: " + err.Error()
	for _, m := range messages {
		for _, c := range m.ToolCalls {
			var o map[string]json.RawMessage
			if json.Unmarshal([]byte(c.Arguments), &o) != nil {
				return badRequest("messages", fmt.Sprintf("the arguments of the call %s of %s are no JSON object: %s; %s",
					clip(c.ID, 50), c.Name, clip(c.Arguments, 80), why))
			}
		}
	}
	return badRequest("messages", why)
}

// formOfCalls holds calls to their tools' schemas. Beside a form of the answer a call is what the model may choose
// instead, where it can be told from an answer by how it begins.
func (j *job) formOfCalls(chat Chat, t turn) error {
	must := t.choice.mode == "required"
	if must && j.form != nil {
		return badRequest("tool_choice", "a required call and a form of the answer exclude each other")
	}
	c, err := chat.ToolMask(t.tools, must, t.parallel)
	switch {
	case err != nil && must:
		return unsupported("tool_choice", err.Error())
	case err != nil && j.form != nil:
		return unsupported("tools", "this model cannot be asked for tools and a form of the answer at once: "+err.Error())
	case err != nil:
		return nil
	case j.form != nil:
		c.Calls.Else = j.form
		j.form = &c
		return nil
	}
	j.form, j.param, j.wish = &c, "tool_choice", !must && !strictTool(t.tools)
	return nil
}

func strictTool(tools []Tool) bool {
	for _, t := range tools {
		if t.Strict {
			return true
		}
	}
	return false
}
