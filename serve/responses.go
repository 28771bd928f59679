// /v1/responses: answers that can be gone on from.

package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// responseRequest is OpenAI's.
type responseRequest struct {
	Model        string          `json:"model"`
	Input        json.RawMessage `json:"input"`
	Instructions *string         `json:"instructions"`
	Previous     *string         `json:"previous_response_id"`
	Store        *bool           `json:"store"`
	Stream       bool            `json:"stream"`
	StreamOpts   *streamOptions  `json:"stream_options"`
	Temperature  *float64        `json:"temperature"`
	TopP         *float64        `json:"top_p"`
	TopLogprobs  *int            `json:"top_logprobs"`
	Max          *int            `json:"max_output_tokens"`
	Tools        []responseTool  `json:"tools"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Parallel     *bool           `json:"parallel_tool_calls"`
	Reasoning    *struct {
		Effort  *string `json:"effort"`
		Summary *string `json:"summary"`
	} `json:"reasoning"`
	Text *struct {
		Format *struct {
			Type   string          `json:"type"`
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
			Strict *bool           `json:"strict"`
		} `json:"format"`
		Verbosity *string `json:"verbosity"`
	} `json:"text"`
	Metadata     map[string]string `json:"metadata"`
	Truncation   *string           `json:"truncation"`
	Include      []string          `json:"include"`
	Background   *bool             `json:"background"`
	User         *string           `json:"user"`
	Conversation json.RawMessage   `json:"conversation"`
	Prompt       json.RawMessage   `json:"prompt"`
	Tier         *string           `json:"service_tier"`
	CacheKey     string            `json:"prompt_cache_key"`
	Seed         *int64            `json:"seed"` // not OpenAI's, but useful
}

// responseTool is a tool; its function's fields lie beside its type.
type responseTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

// inputItem is one of a response's input.
type inputItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id,omitempty"`
	Role      string          `json:"role,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments string          `json:"arguments,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Summary   json.RawMessage `json:"summary,omitempty"`
	Status    string          `json:"status,omitempty"`
}

// refers says whether an item is one that was stored, by its id alone.
func (it *inputItem) refers() bool {
	return it.Type == "item_reference" || it.Type == "" && it.ID != "" && it.Role == "" && len(it.Content) == 0
}

// items reads the input: a text or a list of items, some of which a store has.
func (q *responseRequest) items(store *store, key *Key) ([]inputItem, error) {
	raw := bytes.TrimSpace(q.Input)
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, badRequest("input", "input is missing")
	case raw[0] == '"' && json.Unmarshal(raw, &text) == nil:
		content, _ := json.Marshal([]map[string]string{{"type": "input_text", "text": text}})
		return []inputItem{{Type: "message", ID: newID("msg_"), Role: "user", Content: content, Status: "completed"}}, nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, badRequest("input", "input must be a string or an array of items")
	}
	if len(all) == 0 {
		return nil, badRequest("input", "input is an empty array")
	}
	items := make([]inputItem, len(all))
	for i, one := range all {
		at := fmt.Sprintf("input[%d]", i)
		var wrong *json.UnmarshalTypeError
		switch err := json.Unmarshal(one, &items[i]); {
		case errors.As(err, &wrong) && wrong.Field != "":
			at += "." + wrong.Field
			return nil, badRequest(at, fmt.Sprintf("%s must be %s, it is %s", at, typeName(wrong.Type), article(wrong.Value)))
		case err != nil || one[0] != '{':
			return nil, badRequest(at, at+" must be an object")
		}
		if items[i].refers() {
			found, err := store.item(key, items[i].ID)
			if err != nil {
				return nil, err
			}
			if found == nil {
				return nil, &Error{Status: 404, Type: "invalid_request_error", Param: at, Message: fmt.Sprintf("Item with id '%s' "+
					"not found. Those of responses that were not stored are not kept.", clip(items[i].ID, 80))}
			}
			items[i] = *found
		}
	}
	return items, complete(items, "input")
}

// complete gives items what the protocol's own have: a type, an id, a status, and lists where a client wrote less.
func complete(items []inputItem, param string) error {
	for i := range items {
		it := &items[i]
		if it.Type == "" {
			it.Type = "message"
		}
		if it.ID == "" {
			it.ID = newID(map[string]string{"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}[it.Type])
		}
		switch it.Status {
		case "":
			it.Status = "completed"
		case "in_progress", "completed", "incomplete":
		default:
			at := fmt.Sprintf("%s[%d].status", param, i)
			return badRequest(at, fmt.Sprintf("%s must be in_progress, completed or incomplete, it is %q", at,
				clip(it.Status, 50)))
		}
		switch {
		case it.Type == "message":
			it.Content = completeContent(it.Content, it.Role)
		case it.Type == "function_call" && it.Arguments == "":
			it.Arguments = "{}"
		case it.Type == "function_call_output" && !given(it.Output):
			it.Output = json.RawMessage(`""`)
		case it.Type == "reasoning" && !given(it.Summary):
			it.Summary = json.RawMessage("[]")
		}
	}
	return nil
}

// completeContent makes a list of parts of a message's content. What is neither a text nor parts stays.
func completeContent(raw json.RawMessage, role string) json.RawMessage {
	var text string
	var parts []map[string]any
	if json.Unmarshal(raw, &text) == nil && given(raw) {
		kind := "input_text"
		if role == "assistant" {
			kind = "output_text"
		}
		parts = []map[string]any{{"type": kind, "text": text}}
	} else if json.Unmarshal(raw, &parts) != nil {
		return raw
	}
	for _, p := range parts {
		for _, list := range []string{"annotations", "logprobs"} {
			if p != nil && p["type"] == "output_text" && p[list] == nil {
				p[list] = []any{}
			}
		}
	}
	again, err := json.Marshal(parts)
	if err != nil || parts == nil {
		return raw
	}
	return again
}

// itemMessages makes messages of items, and names a wrong one by the field that it stands in. Calls that follow each
// other are one message's.
func itemMessages(items []inputItem, before []Message, param string) ([]Message, error) {
	out := before
	calling, thoughts := false, ""
	for i, it := range items {
		at := fmt.Sprintf("%s[%d]", param, i)
		was, thought := calling, thoughts
		calling, thoughts = false, ""
		switch it.Type {
		case "message":
			switch it.Role {
			case "system", "developer", "user", "assistant":
			default:
				return nil, badRequest(at+".role",
					fmt.Sprintf("%s has the role %q; there are system, developer, user and assistant", at, clip(it.Role, 50)))
			}
			if len(it.Content) == 0 || string(it.Content) == "null" {
				return nil, badRequest(at+".content", at+" has no content")
			}
			text, err := contentText(it.Content, at+".content")
			if err != nil {
				return nil, err
			}
			m := Message{Role: it.Role, Content: text}
			if m.Role == "assistant" {
				m.Reasoning = thought
			}
			out = append(out, m)
		case "function_call":
			if it.Name == "" || it.CallID == "" {
				return nil, badRequest(at, at+" needs name and call_id")
			}
			if !was && (len(out) == 0 || out[len(out)-1].Role != "assistant" || thought != "") {
				out = append(out, Message{Role: "assistant", Reasoning: thought})
			}
			last := &out[len(out)-1]
			last.ToolCalls = append(last.ToolCalls, ToolCall{ID: it.CallID, Name: it.Name, Arguments: it.Arguments})
			calling = true
		case "function_call_output":
			if it.CallID == "" {
				return nil, badRequest(at+".call_id", at+" needs call_id")
			}
			text, err := contentText(it.Output, at+".output")
			if err != nil {
				return nil, err
			}
			out = append(out, Message{Role: "tool", Content: text, ToolCallID: it.CallID,
				Name: nameOfCall(out, it.CallID, it.Name)})
		case "reasoning": // of the assistant's message that follows
			text, err := contentText(it.Content, at+".content")
			if err != nil {
				return nil, err
			}
			thoughts = strings.TrimPrefix(thought+"\n"+text, "\n")
		case "item_reference":
			return nil, unsupported(at+".type", "item_reference is for the input of a response")
		default:
			return nil, unsupported(at+".type", fmt.Sprintf("%s has the type %q; there are message, function_call, "+
				"function_call_output and reasoning", at, clip(it.Type, 50)))
		}
	}
	return out, nil
}

// refuse names what is not there.
func (q *responseRequest) refuse(h http.Header) error {
	if err := checkMetadata(q.Metadata); err != nil {
		return err
	}
	switch {
	case given(q.Prompt):
		return unsupported("prompt", "prompt templates are not kept here")
	case q.Background != nil && *q.Background:
		return unsupported("background", "responses in the background are not supported")
	case q.Truncation != nil && *q.Truncation != "disabled":
		if *q.Truncation != "auto" {
			return badRequest("truncation", "truncation must be auto or disabled")
		}
		return unsupported("truncation", "truncation auto is not supported: a conversation that is too long is refused")
	}
	for _, inc := range q.Include {
		if inc != "message.output_text.logprobs" {
			addIgnored(h, "include")
		}
	}
	if q.Tier != nil {
		if err := checkTier(h, *q.Tier, openAITiers...); err != nil {
			return err
		}
	}
	if q.Text != nil && q.Text.Verbosity != nil {
		addIgnored(h, "text.verbosity")
	}
	if q.Reasoning != nil && q.Reasoning.Summary != nil {
		addIgnored(h, "reasoning.summary")
	}
	return nil
}

// form is the constraint that text.format asks for.
func (q *responseRequest) form() (*Constraint, error) {
	if q.Text == nil || q.Text.Format == nil {
		return nil, nil
	}
	f := q.Text.Format
	switch f.Type {
	case "text":
		return nil, nil
	case "json_object":
		return &Constraint{JSON: true}, nil
	case "json_schema":
		if f.Name == "" || len(f.Schema) == 0 || string(f.Schema) == "null" {
			return nil, badRequest("text.format", "text.format of type json_schema needs name and schema")
		}
		return &Constraint{Schema: f.Schema}, nil
	}
	return nil, badRequest("text.format.type", fmt.Sprintf("text.format.type must be text, json_object or json_schema, "+
		"it is %q", clip(f.Type, 50)))
}

// turn makes the turn of the request, with the messages that stay.
func (q *responseRequest) turn(s *Server, rs *requestState, items []inputItem) (t turn, kept []Message, err error) {
	before, err := q.earlier(s, rs, items)
	if err != nil {
		return t, nil, err
	}
	if kept, err = itemMessages(items, before[:len(before):len(before)], "input"); err != nil {
		return t, nil, err
	}
	if len(kept) > s.opt.MaxMessages {
		return t, nil, badRequest("input", fmt.Sprintf("a conversation may have %d messages, it has %d", s.opt.MaxMessages,
			len(kept)))
	}
	t.messages = kept
	if q.Instructions != nil && *q.Instructions != "" {
		t.messages = append([]Message{{Role: "system", Content: *q.Instructions}}, kept...)
	}
	for i, tool := range q.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		if tool.Type != "function" {
			return t, nil, unsupported(at+".type", fmt.Sprintf("%s is of type %q; there are tools of type function", at,
				clip(tool.Type, 50)))
		}
		description := ""
		if tool.Description != nil {
			description = *tool.Description
		}
		made, err := newTool(at, tool.Name, description, tool.Parameters, tool.Strict)
		if err != nil {
			return t, nil, err
		}
		t.tools = append(t.tools, made)
	}
	if t.choice, err = parseChoice(q.ToolChoice, t.tools); err != nil {
		return t, nil, err
	}
	t.parallel = q.Parallel == nil || *q.Parallel
	if q.Reasoning != nil && q.Reasoning.Effort != nil {
		t.effort = *q.Reasoning.Effort
	}
	return t, kept, nil
}

// job makes a job of the request.
func (q *responseRequest) job(s *Server, model Model, t turn) (*job, error) {
	j := &job{model: model, name: q.Model}
	f := samplingFields{Temperature: q.Temperature, TopP: q.TopP, Seed: q.Seed, Stream: q.Stream}
	if q.User != nil {
		f.User = *q.User
	}
	if err := f.fill(s, j); err != nil {
		return nil, err
	}
	var err error
	if j.request.Max, err = s.bound("max_output_tokens", q.Max, 0); err != nil {
		return nil, err
	}
	wanted := q.TopLogprobs != nil && *q.TopLogprobs > 0
	for _, inc := range q.Include {
		wanted = wanted || inc == "message.output_text.logprobs"
	}
	if j.request.Logprobs, err = topLogprobs(wanted, q.TopLogprobs); err != nil {
		return nil, err
	}
	c, err := q.form()
	if err != nil {
		return nil, err
	}
	j.constrain(c, "text.format")
	return j, j.prompt(t)
}

func (s *Server) createResponse(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q responseRequest
	if err := readBody(w, r, s.opt.MaxBody, &q); err != nil {
		return err
	}
	if err := q.refuse(w.Header()); err != nil {
		return err
	}
	items, err := q.items(s.store, rs.key)
	if err != nil {
		return err
	}
	model, release, err := s.use(r, rs, q.Model)
	if err != nil {
		return err
	}
	defer release()
	if q.Model == "" {
		q.Model = rs.model
	}
	t, kept, err := q.turn(s, rs, items)
	if err != nil {
		return err
	}
	j, err := q.job(s, model, t)
	if err != nil {
		return err
	}
	s.logPrompt(rs, j)
	b := &responseBuilder{job: j, object: q.object(t, j)}
	keep := q.Store == nil || *q.Store
	save := func(u usage) error {
		b.finish(u)
		if err := s.remember(rs, b.object, items); err != nil || !keep {
			return err
		}
		return s.store.put(rs.key, &stored{ID: b.object.ID, Input: items,
			Messages: append(kept[:len(kept):len(kept)], b.message()), Response: b.object})
	}
	if q.Stream {
		return s.streamResponse(w, r, rs, j, b, save)
	}
	u, err := s.run(r.Context(), rs, j, func(ev event) error { return b.take(ev) })
	if err != nil {
		return err
	}
	if err := save(u); err != nil {
		return err
	}
	writeJSON(w, 200, b.object)
	return nil
}

func (s *Server) streamResponse(w http.ResponseWriter, r *http.Request, rs *requestState, j *job, b *responseBuilder,
	save func(usage) error) error {
	out := s.newSSE(w)
	b.emit = func(kind string, fields map[string]any) error {
		fields["type"], fields["sequence_number"] = kind, b.sequence
		b.sequence++
		return out.event(kind, fields)
	}
	begin := func() error {
		if b.begun {
			return nil
		}
		b.begun = true
		if err := b.send("response.created", map[string]any{"response": b.object}); err != nil {
			return err
		}
		return b.send("response.in_progress", map[string]any{"response": b.object})
	}
	u, err := s.stream(r.Context(), rs, j, func(ev event) error {
		if err := begin(); err != nil {
			return err
		}
		return b.take(ev)
	}, out.flush)
	if err == nil {
		if err = begin(); err == nil {
			err = save(u)
		}
	}
	if err != nil {
		if !out.begun || asError(err).Status == 499 {
			return err
		}
		rs.failed = err
		b.fail(asError(err))
	}
	if err := b.send("response."+b.object.Status, map[string]any{"response": b.object}); err != nil {
		return err
	}
	return out.flush()
}

func (s *Server) getResponse(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	old, err := s.store.get(rs.key, r.PathValue("id"))
	if err != nil {
		return err
	}
	if r.URL.Query().Get("stream") == "true" {
		return unsupported("stream", "a response that has ended is not streamed again")
	}
	writeJSON(w, 200, old.Response)
	return nil
}

func (s *Server) deleteResponse(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	id := r.PathValue("id")
	if err := s.store.remove(rs.key, responseKind, id); err != nil {
		return err
	}
	writeJSON(w, 200, map[string]any{"id": id, "object": "response", "deleted": true})
	return nil
}

func (s *Server) cancelResponse(_ http.ResponseWriter, r *http.Request, rs *requestState) error {
	if _, err := s.store.get(rs.key, r.PathValue("id")); err != nil {
		return err
	}
	return badRequest("response_id", "only responses in the background can be cancelled; this one has ended")
}

func (s *Server) responseItems(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	old, err := s.store.get(rs.key, r.PathValue("id"))
	if err != nil {
		return err
	}
	return itemPage(w, r, old.Input)
}

// itemPage writes what of a list of items a request asks for.
func itemPage(w http.ResponseWriter, r *http.Request, all []inputItem) error {
	items := append([]inputItem{}, all...)
	switch order := r.URL.Query().Get("order"); order {
	case "asc":
	case "", "desc": // the newest first is the protocol's default
		slices.Reverse(items)
	default:
		return badRequest("order", fmt.Sprintf("order must be asc or desc, it is %q", clip(order, 50)))
	}
	return listPage(w, r, items)
}

// countResponse says how many tokens a response's input would have.
func (s *Server) countResponse(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q responseRequest
	model, release, err := s.read(w, r, rs, &q, &q.Model)
	if err != nil {
		return err
	}
	defer release()
	if err := q.refuse(w.Header()); err != nil {
		return err
	}
	items, err := q.items(s.store, rs.key)
	if err != nil {
		return err
	}
	t, _, err := q.turn(s, rs, items)
	if err != nil {
		return err
	}
	if t.choice.mode == "required" {
		t.choice.mode = "auto" // a count needs no mask
	}
	j := &job{model: model, name: rs.model}
	if err := j.prompt(t); err != nil {
		return err
	}
	writeJSON(w, 200, struct {
		Object string `json:"object"`
		Tokens int    `json:"input_tokens"`
	}{"response.input_tokens", len(j.request.Prompt)})
	return nil
}
