// A response in the making: its output's items, and the events of a stream.

package serve

import (
	"encoding/json"
	"strings"
)

// responseObject is OpenAI's.
type responseObject struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"` // response
	Created      int64             `json:"created_at"`
	Completed    *int64            `json:"completed_at"`
	Status       string            `json:"status"` // in_progress, completed, incomplete, failed
	Background   bool              `json:"background"`
	Error        any               `json:"error"`
	Incomplete   any               `json:"incomplete_details"`
	Instructions *string           `json:"instructions"`
	Max          *int              `json:"max_output_tokens"`
	Model        string            `json:"model"`
	Output       []*outputItem     `json:"output"`
	Parallel     bool              `json:"parallel_tool_calls"`
	Previous     *string           `json:"previous_response_id"`
	Reasoning    map[string]any    `json:"reasoning"`
	Tier         string            `json:"service_tier"`
	Store        bool              `json:"store"`
	Temperature  float64           `json:"temperature"`
	Text         map[string]any    `json:"text"`
	ToolChoice   any               `json:"tool_choice"`
	Tools        []responseTool    `json:"tools"`
	TopLogprobs  int               `json:"top_logprobs"`
	TopP         float64           `json:"top_p"`
	Truncation   string            `json:"truncation"`
	Usage        any               `json:"usage,omitempty"`
	User         *string           `json:"user,omitempty"`
	Metadata     map[string]string `json:"metadata"`
	Conversation *responseParent   `json:"conversation,omitempty"`
}

// responseParent is the conversation that a response belongs to.
type responseParent struct {
	ID string `json:"id"`
}

// outputItem is a message, a call or thoughts.
type outputItem struct {
	Type      string       `json:"type"`
	ID        string       `json:"id"`
	Status    string       `json:"status,omitempty"`
	Role      string       `json:"role,omitempty"`
	Content   []outputPart `json:"content,omitempty"`
	CallID    string       `json:"call_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Arguments *string      `json:"arguments,omitempty"`
	Summary   []any        `json:"summary,omitzero"`
	text      strings.Builder
	logprobs  []tokenLogprob
}

// outputPart is a message's text, or thoughts.
type outputPart struct {
	Type     string          `json:"type"` // output_text, reasoning_text
	Text     string          `json:"text"`
	Notes    []struct{}      `json:"annotations,omitzero"`
	Logprobs *[]tokenLogprob `json:"logprobs,omitempty"`
}

// object is the response before anything has come.
func (q *responseRequest) object(t turn, j *job) *responseObject {
	o := &responseObject{ID: newID("resp_"), Object: "response", Created: timeNow().Unix(), Status: "in_progress",
		Instructions: q.Instructions, Max: q.Max, Model: q.Model, Output: []*outputItem{}, Parallel: t.parallel,
		Previous: q.Previous,
		Tier:     "default", Store: q.Store == nil || *q.Store, Temperature: j.request.Sampling.Temperature,
		TopP:       j.request.Sampling.TopP,
		Truncation: "disabled", User: q.User, Tools: []responseTool{}, Metadata: map[string]string{}, ToolChoice: "auto"}
	if id, _ := q.belongsTo(); id != "" { // whose error was told already
		o.Conversation = &responseParent{id}
	}
	o.Tools = append(o.Tools, q.Tools...)
	for i := range o.Tools { // the protocol wants them there
		if o.Tools[i].Strict == nil {
			o.Tools[i].Strict = new(bool)
		}
		if len(o.Tools[i].Parameters) == 0 {
			o.Tools[i].Parameters = json.RawMessage("{}")
		}
	}
	if len(q.ToolChoice) > 0 && string(q.ToolChoice) != "null" {
		o.ToolChoice = q.ToolChoice
	}
	if q.Metadata != nil {
		o.Metadata = q.Metadata
	}
	if q.TopLogprobs != nil {
		o.TopLogprobs = *q.TopLogprobs
	}
	o.Reasoning = map[string]any{"effort": orNull(t.effort), "summary": nil}
	o.Text = map[string]any{"format": map[string]any{"type": "text"}}
	if q.Text != nil && q.Text.Format != nil {
		o.Text["format"] = q.Text.Format
		if q.Text.Format.Type != "json_schema" {
			o.Text["format"] = map[string]any{"type": q.Text.Format.Type}
		}
	}
	return o
}

// responseBuilder makes items of events.
type responseBuilder struct {
	job      *job
	object   *responseObject
	emit     func(kind string, fields map[string]any) error // nil: nothing is streamed
	begun    bool
	sequence int
	open     *outputItem
	call     int // index of the open call
	finished string
}

func (b *responseBuilder) send(kind string, fields map[string]any) error {
	if b.emit == nil {
		return nil
	}
	return b.emit(kind, fields)
}

// at are the fields that say where an event belongs.
func (b *responseBuilder) at(more map[string]any) map[string]any {
	more["output_index"] = len(b.object.Output) - 1
	more["item_id"] = b.open.ID
	return more
}

func (b *responseBuilder) take(ev event) error {
	logprobs := b.job.logprobsOf(ev.token)
	for _, p := range ev.parts {
		var err error
		switch {
		case p.Call != nil:
			err = b.takeCall(p.Call)
		case p.Reasoning != "":
			err = b.takeText("reasoning", p.Reasoning, nil)
		case p.Text != "":
			err = b.takeText("message", p.Text, logprobs)
			logprobs = nil
		}
		if err != nil {
			return err
		}
	}
	if ev.finish != "" {
		b.finished = ev.finish
		return b.close()
	}
	return nil
}

// takeText adds to the open message or thoughts, or begins them.
func (b *responseBuilder) takeText(kind, text string, logprobs []tokenLogprob) error {
	if b.open == nil || b.open.Type != kind {
		if err := b.close(); err != nil {
			return err
		}
		it := &outputItem{Type: kind, ID: newID("msg_"), Role: "assistant", Status: "in_progress"}
		if kind == "reasoning" {
			it.ID, it.Role, it.Summary = newID("rs_"), "", []any{}
		}
		if err := b.begin(it); err != nil {
			return err
		}
		if err := b.send("response.content_part.added", b.at(map[string]any{"content_index": 0,
			"part": it.part("")})); err != nil {
			return err
		}
	}
	b.open.text.WriteString(text)
	b.open.logprobs = append(b.open.logprobs, logprobs...)
	fields := b.at(map[string]any{"content_index": 0, "delta": text})
	if kind == "reasoning" {
		return b.send("response.reasoning_text.delta", fields)
	}
	if fields["logprobs"] = logprobs; logprobs == nil {
		fields["logprobs"] = []tokenLogprob{}
	}
	return b.send("response.output_text.delta", fields)
}

func (it *outputItem) part(text string) outputPart {
	if it.Type == "reasoning" {
		return outputPart{Type: "reasoning_text", Text: text}
	}
	l := append([]tokenLogprob{}, it.logprobs...)
	return outputPart{Type: "output_text", Text: text, Notes: []struct{}{}, Logprobs: &l}
}

func (b *responseBuilder) begin(it *outputItem) error {
	b.open = it
	b.object.Output = append(b.object.Output, it)
	shown := outputItem{Type: it.Type, ID: it.ID, Status: it.Status, Role: it.Role, CallID: it.CallID, Name: it.Name,
		Arguments: it.Arguments, Summary: it.Summary}
	fields := map[string]any{"output_index": len(b.object.Output) - 1, "item": itemJSON{&shown}}
	return b.send("response.output_item.added", fields)
}

// itemJSON writes a message that has no content yet with an empty list, which the protocol wants.
type itemJSON struct{ *outputItem }

func (i itemJSON) MarshalJSON() ([]byte, error) {
	type plain outputItem
	if i.Type != "message" || len(i.Content) > 0 {
		return json.Marshal((*plain)(i.outputItem))
	}
	return json.Marshal(struct {
		*plain
		Content []outputPart `json:"content"`
	}{(*plain)(i.outputItem), []outputPart{}})
}

// takeCall adds to the open call, or begins one.
func (b *responseBuilder) takeCall(c *CallPart) error {
	if b.open == nil || b.open.Type != "function_call" || b.call != c.Index {
		if err := b.close(); err != nil {
			return err
		}
		empty := ""
		b.call = c.Index
		if err := b.begin(&outputItem{Type: "function_call", ID: newID("fc_"), CallID: newID("call_"), Name: c.Name,
			Arguments: &empty,
			Status:    "in_progress"}); err != nil {
			return err
		}
	} else {
		b.open.Name += c.Name
	}
	if c.Arguments == "" {
		return nil
	}
	b.open.text.WriteString(c.Arguments)
	return b.send("response.function_call_arguments.delta", b.at(map[string]any{"delta": c.Arguments}))
}

// close ends the open item.
func (b *responseBuilder) close() error {
	it := b.open
	if it == nil {
		return nil
	}
	text := it.text.String()
	it.Status = "completed"
	if b.finished == "length" {
		it.Status = "incomplete"
	}
	var err error
	if it.Type == "function_call" {
		it.Arguments = &text
		err = b.send("response.function_call_arguments.done", b.at(map[string]any{"arguments": text, "name": it.Name}))
	} else {
		part := it.part(text)
		it.Content = []outputPart{part}
		fields := b.at(map[string]any{"content_index": 0, "text": text})
		kind := "response.reasoning_text.done"
		if it.Type == "message" {
			kind = "response.output_text.done"
			fields["logprobs"] = part.Logprobs
		}
		if err = b.send(kind, fields); err == nil {
			err = b.send("response.content_part.done", b.at(map[string]any{"content_index": 0, "part": part}))
		}
	}
	if err == nil {
		err = b.send("response.output_item.done", map[string]any{"output_index": len(b.object.Output) - 1, "item": it})
	}
	b.open = nil
	return err
}

// finish gives the response its end. An answer without a token has an empty message.
func (b *responseBuilder) finish(u usage) {
	now := timeNow().Unix()
	b.object.Status, b.object.Completed = "completed", &now
	if b.finished == "length" {
		b.object.Status, b.object.Completed = "incomplete", nil
		b.object.Incomplete = map[string]string{"reason": "max_output_tokens"}
	}
	b.object.Usage = map[string]any{"input_tokens": u.prompt, "output_tokens": u.completion,
		"total_tokens":          u.prompt + u.completion,
		"input_tokens_details":  map[string]int{"cached_tokens": u.cached, "cache_write_tokens": 0},
		"output_tokens_details": map[string]int{"reasoning_tokens": u.reasoning}}
}

// fail says why a stream ended.
func (b *responseBuilder) fail(e *Error) {
	code := "server_error"
	if e.Status == 429 {
		code = "rate_limit_exceeded"
	}
	b.object.Status, b.object.Completed = "failed", nil
	b.object.Error = map[string]string{"code": code, "message": e.Message}
}

// message is the answer as a later request sees it.
func (b *responseBuilder) message() Message {
	m := Message{Role: "assistant"}
	for _, it := range b.object.Output {
		text := it.text.String()
		switch it.Type {
		case "message":
			m.Content += text
		case "reasoning":
			m.Reasoning += text
		case "function_call":
			m.ToolCalls = append(m.ToolCalls, ToolCall{ID: it.CallID, Name: it.Name, Arguments: text})
		}
	}
	return m
}
