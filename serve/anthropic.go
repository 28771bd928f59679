// Anthropic's /v1/messages and count_tokens.

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// messagesRequest is Anthropic's.
type messagesRequest struct {
	Model       string             `json:"model"`
	Messages    []anthropicMessage `json:"messages"`
	System      json.RawMessage    `json:"system"` // a text or blocks of text
	Max         *int               `json:"max_tokens"`
	Stops       []string           `json:"stop_sequences"`
	Temperature *float64           `json:"temperature"`
	TopP        *float64           `json:"top_p"`
	TopK        *int               `json:"top_k"`
	Stream      bool               `json:"stream"`
	Tools       []anthropicTool    `json:"tools"`
	ToolChoice  *struct {
		Type     string `json:"type"` // auto, any, tool, none
		Name     string `json:"name"`
		NoParall *bool  `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	Thinking *struct {
		Type   string `json:"type"` // enabled, disabled, adaptive, between_tools
		Budget int    `json:"budget_tokens"`
	} `json:"thinking"`
	Metadata     json.RawMessage `json:"metadata"`
	Tier         string          `json:"service_tier"`
	CacheControl json.RawMessage `json:"cache_control"` // prefixes are always kept
	Seed         *int64          `json:"seed"`
	Format       *struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	} `json:"output_format"`
	Output *struct {
		Effort string `json:"effort"`
		Format *struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`
	Servers    json.RawMessage `json:"mcp_servers"`
	Container  json.RawMessage `json:"container"`
	Thread     json.RawMessage `json:"thread"`
	Compaction json.RawMessage `json:"compaction"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"` // a text or blocks
}

type anthropicTool struct {
	Type        string          `json:"type"` // custom, or a tool of the server's
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
	Strict      *bool           `json:"strict"`
	Cache       json.RawMessage `json:"cache_control"`
}

// messages makes the conversation.
func (q *messagesRequest) messages(s *Server) ([]Message, error) {
	if len(q.Messages) == 0 {
		return nil, badRequest("messages", "messages: at least one message is required")
	}
	if len(q.Messages) > s.opt.MaxMessages {
		return nil, badRequest("messages", fmt.Sprintf("messages: a conversation may have %d messages, it has %d",
			s.opt.MaxMessages, len(q.Messages)))
	}
	var out []Message
	system, err := contentText(q.System, "system")
	if err != nil {
		return nil, err
	}
	if system != "" {
		out = append(out, Message{Role: "system", Content: system})
	}
	var calls openCalls
	for i, m := range q.Messages {
		at := fmt.Sprintf("messages.%d", i)
		switch m.Role {
		case "user", "assistant":
			if err := calls.begin(m.Role, at); err != nil {
				return nil, err
			}
		case "system": // belongs to no turn
		default:
			return nil, badRequest(at+".role", fmt.Sprintf(`%s.role: it must be "user", "assistant" or "system", it is %q`,
				at, clip(m.Role, 50)))
		}
		raw := bytes.TrimSpace(m.Content)
		if len(raw) == 0 || string(raw) == "null" {
			return nil, badRequest(at+".content", at+".content: it is missing")
		}
		if raw[0] != '[' || m.Role == "system" {
			text, err := contentText(raw, at+".content")
			if err != nil {
				return nil, err
			}
			out = append(out, Message{Role: m.Role, Content: text})
			continue
		}
		var blocks []block
		if err := json.Unmarshal(raw, &blocks); err != nil {
			return nil, badRequest(at+".content", at+".content: a string or an array of blocks is expected")
		}
		if out, err = addBlocks(out, m.Role, at, blocks, &calls); err != nil {
			return nil, err
		}
	}
	if calls.role == "user" {
		return out, calls.answered(fmt.Sprintf("messages.%d", len(q.Messages)-1))
	}
	return out, nil
}

// turn makes the turn of the request.
func (q *messagesRequest) turn(s *Server, model Model, h http.Header) (t turn, err error) {
	switch {
	case given(q.Servers):
		return t, unsupported("mcp_servers", "mcp_servers: this server calls no others")
	case given(q.Container):
		return t, unsupported("container", "container: there are none here")
	case given(q.Thread): // with the cause by which clients go on with the whole conversation
		e := *unsupported("thread", "thread: conversations are not held here; send all messages without it")
		e.Cause = "thread_unsupported_request"
		return t, &e
	case given(q.Compaction):
		return t, unsupported("compaction", "compaction: conversations are not summarised here")
	}
	if given(q.Metadata) {
		addIgnored(h, "metadata")
	}
	if err := checkTier(h, q.Tier, "auto", "standard_only"); err != nil {
		return t, err
	}
	if t.messages, err = q.messages(s); err != nil {
		return t, err
	}
	if last := t.messages[len(t.messages)-1]; last.Role == "assistant" {
		t.goOn = true
	}
	for i, tool := range q.Tools {
		at := fmt.Sprintf("tools.%d", i)
		if tool.Type != "" && tool.Type != "custom" {
			return t, unsupported(at+".type", fmt.Sprintf("%s.type: there are no tools of type %q here", at,
				clip(tool.Type, 50)))
		}
		if len(tool.Schema) == 0 {
			return t, badRequest(at+".input_schema", at+".input_schema: it is missing")
		}
		made, err := newTool(at, tool.Name, tool.Description, tool.Schema, tool.Strict)
		if err != nil {
			return t, err
		}
		t.tools = append(t.tools, made)
	}
	t.parallel, t.choice = true, choice{mode: "auto"}
	if len(t.tools) == 0 {
		t.choice.mode = "none"
	}
	if c := q.ToolChoice; c != nil {
		t.parallel = c.NoParall == nil || !*c.NoParall
		switch c.Type {
		case "auto", "none":
			t.choice.mode = c.Type
		case "any":
			t.choice.mode = "required"
		case "tool":
			t.choice = choice{mode: "required", names: []string{c.Name}}
			if !hasTool(t.tools, c.Name) {
				return t, badRequest("tool_choice", fmt.Sprintf("tool_choice.name: %q is not among the tools", clip(c.Name, 140)))
			}
		default:
			return t, badRequest("tool_choice", fmt.Sprintf("tool_choice.type: there are auto, any, tool and none, not %q",
				clip(c.Type, 50)))
		}
		if t.choice.mode == "required" && len(t.tools) == 0 {
			return t, badRequest("tool_choice", "tool_choice: there are no tools")
		}
	}
	return t, q.think(&t, model.Chat(), h)
}

// think makes an effort of thinking. Only thinking of type enabled asks for thoughts: the others and the effort, which
// is one of all that an answer takes, leave it to the model, and say nothing to one that has no thoughts.
func (q *messagesRequest) think(t *turn, chat Chat, h http.Header) error {
	never := chat != nil && !chat.Reasoning()
	if q.Output != nil && q.Output.Effort != "" {
		if t.effort = q.Output.Effort; never {
			addIgnored(h, "output_config.effort")
			t.effort = ""
		}
	}
	if q.Thinking == nil {
		return nil
	}
	switch q.Thinking.Type {
	case "enabled", "adaptive", "between_tools":
		if q.Thinking.Type != "enabled" && never {
			addIgnored(h, "thinking")
			return nil
		}
		t.thinks = true
		if q.Thinking.Type == "enabled" {
			if q.Thinking.Budget < 1024 {
				return badRequest("thinking.budget_tokens", "thinking.budget_tokens: it must be 1024 or more")
			}
			if q.Max != nil && q.Thinking.Budget >= *q.Max {
				return badRequest("thinking.budget_tokens", "thinking.budget_tokens: it must be less than max_tokens")
			}
			addIgnored(h, "thinking.budget_tokens") // no thoughts are cut short
		}
	case "disabled":
		t.effort = "none"
	default:
		return badRequest("thinking.type", fmt.Sprintf(
			"thinking.type: there are enabled, adaptive, between_tools and disabled, not %q", clip(q.Thinking.Type, 50)))
	}
	return nil
}

// job makes a job of the request.
func (q *messagesRequest) job(s *Server, model Model, t turn) (*job, error) {
	j := &job{model: model, name: q.Model}
	if q.Temperature != nil && !(*q.Temperature >= 0 && *q.Temperature <= 1) {
		return nil, badRequest("temperature", fmt.Sprintf("temperature: it must be between 0 and 1, it is %v",
			*q.Temperature))
	}
	f := samplingFields{Temperature: q.Temperature, TopP: q.TopP, TopK: q.TopK, Seed: q.Seed, Stop: q.Stops,
		Stream: q.Stream}
	if err := f.fill(s, j); err != nil {
		return nil, err
	}
	if q.Max == nil {
		return nil, badRequest("max_tokens", "max_tokens: Field required")
	}
	var err error
	if j.request.Max, err = s.bound("max_tokens", q.Max, 0); err != nil {
		return nil, err
	}
	format := q.Format
	if format == nil && q.Output != nil {
		format = q.Output.Format
	}
	if format != nil {
		if format.Type != "json_schema" || len(format.Schema) == 0 {
			return nil, badRequest("output_format", "output_format: type json_schema and a schema are expected")
		}
		j.constrain(&Constraint{Schema: format.Schema}, "output_format")
	}
	return j, j.prompt(t)
}

// anthropicUsage is Anthropic's: input tokens are those that were not cached.
type anthropicUsage struct {
	Input  int    `json:"input_tokens"`
	Create int    `json:"cache_creation_input_tokens"`
	Read   int    `json:"cache_read_input_tokens"`
	Output int    `json:"output_tokens"`
	Tier   string `json:"service_tier"`
}

func (u usage) anthropic() anthropicUsage {
	return anthropicUsage{Input: u.prompt - u.cached, Read: u.cached, Output: u.completion, Tier: "standard"}
}

// messageAnswer is Anthropic's.
type messageAnswer struct {
	ID      string         `json:"id"`
	Type    string         `json:"type"`
	Role    string         `json:"role"`
	Model   string         `json:"model"`
	Content []block        `json:"content"`
	Reason  *string        `json:"stop_reason"`
	Stop    *string        `json:"stop_sequence"`
	Usage   anthropicUsage `json:"usage"`
}

// stopReason is Anthropic's word for why an answer ended.
func stopReason(finish, stop string) string {
	switch {
	case stop != "":
		return "stop_sequence"
	case finish == "length":
		return "max_tokens"
	case finish == "tool_calls":
		return "tool_use"
	}
	return "end_turn"
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q messagesRequest
	model, release, err := s.read(w, r, rs, &q, &q.Model)
	if err != nil {
		return err
	}
	defer release()
	if q.Model == "" {
		return badRequest("model", "model: Field required")
	}
	t, err := q.turn(s, model, w.Header())
	if err != nil {
		return err
	}
	j, err := q.job(s, model, t)
	if err != nil {
		return err
	}
	s.logPrompt(rs, j)
	head := &messageAnswer{ID: newID("msg_"), Type: "message", Role: "assistant", Model: q.Model, Content: []block{}}
	if q.Stream {
		return s.streamMessages(w, r, rs, j, head)
	}
	all, u, err := s.collect(r, rs, j)
	if err != nil {
		return err
	}
	m := all[0]
	empty := ""
	if text := m.reasoning.String(); text != "" {
		head.Content = append(head.Content, block{Type: "thinking", Thinking: &text, Signature: &empty})
	}
	if text := m.text.String(); text != "" {
		head.Content = append(head.Content, block{Type: "text", Text: &text})
	}
	for _, c := range m.calls {
		head.Content = append(head.Content, block{Type: "tool_use", ID: "toolu_" + strings.TrimPrefix(c.ID, "call_"),
			Name: c.Name, Input: callInput(c.Arguments)})
	}
	reason := stopReason(m.finish, m.stop)
	head.Reason, head.Stop, head.Usage = &reason, orNull(m.stop), u.anthropic()
	writeJSON(w, 200, head)
	return nil
}

// callInput is a call's arguments as an object; what is none is given as text, so that the client sees it.
func callInput(arguments string) json.RawMessage {
	raw := json.RawMessage(arguments)
	if strings.TrimSpace(arguments) == "" {
		return json.RawMessage("{}")
	}
	if !json.Valid(raw) {
		raw, _ = json.Marshal(map[string]string{"_arguments": arguments})
	}
	return raw
}

// messageStream writes an answer as Anthropic's events.
type messageStream struct {
	out    *sse
	head   *messageAnswer
	job    *job
	index  int
	open   string // the block's type: thinking, text, tool_use; empty: none is open
	call   int
	begun  bool
	finish string
	stop   string
}

func (s *Server) streamMessages(w http.ResponseWriter, r *http.Request, rs *requestState, j *job,
	head *messageAnswer) error {
	m := &messageStream{out: s.newSSE(w), head: head, job: j, index: -1}
	u, err := s.stream(r.Context(), rs, j, m.write, m.out.flush)
	if err == nil {
		err = m.begin() // an answer without a token
	}
	if err != nil {
		if !m.out.begun || errors.Is(err, errGone) {
			return err
		}
		rs.failed = err
		if m.out.event("error", asError(err).anthropic(rs.id)) == nil {
			_ = m.out.flush()
		}
		return nil
	}
	delta := map[string]any{"stop_reason": stopReason(m.finish, m.stop), "stop_sequence": orNull(m.stop)}
	if err := m.event("message_delta", map[string]any{"delta": delta, "usage": u.anthropic()}); err != nil {
		return err
	}
	if err := m.event("message_stop", map[string]any{}); err != nil {
		return err
	}
	return m.out.flush()
}

func (m *messageStream) event(kind string, fields map[string]any) error {
	fields["type"] = kind
	return m.out.event(kind, fields)
}

func (m *messageStream) begin() error {
	if m.begun {
		return nil
	}
	m.begun = true
	m.head.Usage = usage{prompt: len(m.job.request.Prompt)}.anthropic()
	if err := m.event("message_start", map[string]any{"message": m.head}); err != nil {
		return err
	}
	return m.event("ping", map[string]any{})
}

// ensure opens a block, closing another.
func (m *messageStream) ensure(kind string, start map[string]any) error {
	if m.open == kind && kind != "tool_use" {
		return nil
	}
	if err := m.close(); err != nil {
		return err
	}
	m.open = kind
	m.index++
	start["type"] = kind
	return m.event("content_block_start", map[string]any{"index": m.index, "content_block": start})
}

func (m *messageStream) close() error {
	if m.open == "" {
		return nil
	}
	if m.open == "thinking" {
		if err := m.delta(map[string]any{"type": "signature_delta", "signature": ""}); err != nil {
			return err
		}
	}
	m.open = ""
	return m.event("content_block_stop", map[string]any{"index": m.index})
}

func (m *messageStream) delta(d map[string]any) error {
	return m.event("content_block_delta", map[string]any{"index": m.index, "delta": d})
}

func (m *messageStream) write(ev event) error {
	if err := m.begin(); err != nil {
		return err
	}
	for _, p := range ev.parts {
		if err := m.part(p); err != nil {
			return err
		}
	}
	if ev.finish != "" {
		m.finish, m.stop = ev.finish, ev.stop
		return m.close()
	}
	return nil
}

func (m *messageStream) part(p Part) error {
	switch {
	case p.Reasoning != "":
		if err := m.ensure("thinking", map[string]any{"thinking": "", "signature": ""}); err != nil {
			return err
		}
		return m.delta(map[string]any{"type": "thinking_delta", "thinking": p.Reasoning})
	case p.Text != "":
		if err := m.ensure("text", map[string]any{"text": ""}); err != nil {
			return err
		}
		return m.delta(map[string]any{"type": "text_delta", "text": p.Text})
	case p.Call != nil:
		if m.open != "tool_use" || m.call != p.Call.Index {
			m.call = p.Call.Index
			start := map[string]any{"id": newID("toolu_"), "name": p.Call.Name, "input": map[string]any{}}
			if err := m.ensure("tool_use", start); err != nil {
				return err
			}
		}
		if p.Call.Arguments != "" {
			return m.delta(map[string]any{"type": "input_json_delta", "partial_json": p.Call.Arguments})
		}
	}
	return nil
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q messagesRequest
	model, release, err := s.read(w, r, rs, &q, &q.Model)
	if err != nil {
		return err
	}
	defer release()
	if q.Model == "" {
		return badRequest("model", "model: Field required")
	}
	t, err := q.turn(s, model, w.Header())
	if err != nil {
		return err
	}
	j := &job{model: model, name: rs.model}
	t.choice.mode = map[bool]string{true: "auto", false: "none"}[len(t.tools) > 0] // a count needs no mask
	if err := j.prompt(t); err != nil {
		return err
	}
	writeJSON(w, 200, map[string]int{"input_tokens": len(j.request.Prompt)})
	return nil
}
