// POST /v1/chat/completions.

package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
)

// chatRequest is OpenAI's, with vLLM's fields.
type chatRequest struct {
	Model     string        `json:"model"`
	Messages  []chatMessage `json:"messages"`
	MaxTokens *int          `json:"max_tokens"`
	MaxNew    *int          `json:"max_completion_tokens"`
	Logprobs  bool          `json:"logprobs"`
	Top       *int          `json:"top_logprobs"`
	samplingFields
	Format       *responseFormat            `json:"response_format"`
	Tools        []chatTool                 `json:"tools"`
	ToolChoice   json.RawMessage            `json:"tool_choice"`
	Parallel     *bool                      `json:"parallel_tool_calls"`
	Effort       string                     `json:"reasoning_effort"`
	Modalities   []string                   `json:"modalities"`
	Audio        json.RawMessage            `json:"audio"`
	WebSearch    json.RawMessage            `json:"web_search_options"`
	Functions    json.RawMessage            `json:"functions"`
	FunctionCall json.RawMessage            `json:"function_call"`
	ServiceTier  string                     `json:"service_tier"`
	CacheKey     string                     `json:"prompt_cache_key"` // prefixes are found by what they are
	Metadata     json.RawMessage            `json:"metadata"`
	Store        bool                       `json:"store"`
	Variables    map[string]json.RawMessage `json:"chat_template_kwargs"`
	GoOn         bool                       `json:"continue_final_message"`
	AddPrompt    *bool                      `json:"add_generation_prompt"`
	AddBOS       bool                       `json:"add_special_tokens"`
}

// refuse names what no model here can do.
func (q *chatRequest) refuse(h http.Header) error {
	for _, m := range q.Modalities {
		if m != "text" {
			return unsupported("modalities", fmt.Sprintf("this model answers in text, not in %s", clip(m, 50)))
		}
	}
	switch {
	case given(q.Audio):
		return unsupported("audio", "this model has no audio")
	case given(q.WebSearch):
		return unsupported("web_search_options", "this server does not search the web")
	case given(q.Functions), given(q.FunctionCall):
		return unsupported("functions", "functions and function_call were replaced by tools and tool_choice; send those")
	case q.Store:
		return unsupported("store", "chat completions are not stored; /v1/responses are")
	}
	if given(q.Metadata) {
		addIgnored(h, "metadata")
	}
	return checkTier(h, q.ServiceTier, openAITiers...)
}

// topLogprobs makes Request.Logprobs of OpenAI's two fields.
func topLogprobs(on bool, top *int) (int, error) {
	n := 0
	if top != nil {
		n = *top
	}
	switch {
	case n < 0 || n > 20:
		return 0, badRequest("top_logprobs", fmt.Sprintf("top_logprobs must be between 0 and 20, it is %d", n))
	case n > 0 && !on:
		return 0, badRequest("top_logprobs", "top_logprobs needs logprobs: true")
	case on && n == 0:
		return -1, nil
	}
	return n, nil
}

// job makes a job of the request.
func (q *chatRequest) job(s *Server, model Model, h http.Header) (*job, error) {
	j := &job{model: model, name: q.Model}
	if err := q.refuse(h); err != nil {
		return nil, err
	}
	messages, err := s.conversation(q.Messages)
	if err != nil {
		return nil, err
	}
	if err := q.fill(s, j); err != nil {
		return nil, err
	}
	asked, name := q.MaxNew, "max_completion_tokens"
	if asked == nil {
		asked, name = q.MaxTokens, "max_tokens"
	}
	if j.request.Max, err = s.bound(name, asked, 0); err != nil {
		return nil, err
	}
	if err := j.checkMin(); err != nil {
		return nil, err
	}
	if j.request.Logprobs, err = topLogprobs(q.Logprobs, q.Top); err != nil {
		return nil, err
	}
	t := turn{messages: messages, parallel: q.Parallel == nil || *q.Parallel, effort: q.Effort, vars: q.Variables,
		addBOS: q.AddBOS}
	if t.goOn = q.GoOn; t.goOn && messages[len(messages)-1].Role != "assistant" {
		return nil, badRequest("continue_final_message", "the last message is not the assistant's")
	}
	if q.AddPrompt != nil && !*q.AddPrompt && !q.GoOn {
		return nil, unsupported("add_generation_prompt", "add_generation_prompt false needs continue_final_message")
	}
	if t.tools, err = chatTools(q.Tools); err != nil {
		return nil, err
	}
	if t.choice, err = parseChoice(q.ToolChoice, t.tools); err != nil {
		return nil, err
	}
	c, param, err := q.constraint(q.Format)
	if err != nil {
		return nil, err
	}
	j.constrain(c, param)
	return j, j.prompt(t)
}

// usageObject is OpenAI's.
type usageObject struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	PromptMore struct {
		Cached int `json:"cached_tokens"`
		Audio  int `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionMore struct {
		Reasoning int `json:"reasoning_tokens"`
		Audio     int `json:"audio_tokens"`
		Accepted  int `json:"accepted_prediction_tokens"`
		Rejected  int `json:"rejected_prediction_tokens"`
	} `json:"completion_tokens_details"`
}

// count adds an event's token, where u is not nil.
func (u *usage) count(ev event) {
	if u == nil || ev.tokens == 0 {
		return
	}
	u.completion += ev.tokens
	if len(ev.parts) > 0 && ev.parts[0].Reasoning != "" {
		u.reasoning += ev.tokens
	}
}

func (u usage) openAI() *usageObject {
	o := &usageObject{Prompt: u.prompt, Completion: u.completion, Total: u.prompt + u.completion}
	o.PromptMore.Cached, o.CompletionMore.Reasoning = u.cached, u.reasoning
	return o
}

// tokenLogprob is OpenAI's for chats.
type tokenLogprob struct {
	Token   string         `json:"token"`
	Logprob float32        `json:"logprob"`
	Bytes   []int          `json:"bytes"`
	Top     []tokenLogprob `json:"top_logprobs,omitzero"`
}

// chatLogprobs are those of an answer or a piece of it.
type chatLogprobs struct {
	Content []tokenLogprob `json:"content"`
	Refusal []tokenLogprob `json:"refusal"` // null: a model has no channel for it
}

func bytesOf(s string) []int {
	out := make([]int, len(s))
	for i := range len(s) {
		out[i] = int(s[i])
	}
	return out
}

// finite keeps JSON writable: −∞ is what no float has, as OpenAI does.
func finite(v float32) float32 {
	if !(v > -9999) {
		return -9999
	}
	return v
}

func (j *job) logprobsOf(t *Token) []tokenLogprob {
	if t == nil {
		return nil
	}
	text := j.model.Text()
	one := func(id int32, p float32) tokenLogprob {
		piece := text.Piece(id)
		return tokenLogprob{Token: piece, Logprob: finite(p), Bytes: bytesOf(piece)}
	}
	l := one(t.ID, t.Logprob)
	l.Top = []tokenLogprob{}
	for _, x := range t.Top {
		l.Top = append(l.Top, one(x.ID, x.Logprob))
	}
	return []tokenLogprob{l}
}

// chatAnswer is an answer, or with Delta a chunk of a stream.
type chatAnswer struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Choices     []chatChoice `json:"choices"`
	Usage       *usageObject `json:"usage,omitempty"`
	ServiceTier string       `json:"service_tier,omitempty"`
	Fingerprint string       `json:"system_fingerprint,omitempty"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMade     `json:"message,omitempty"`
	Delta    *chatDelta    `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
	Stop     any           `json:"stop_reason,omitempty"` // vLLM's: the stop string
}

// chatMade is a message that was made.
type chatMade struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Thoughts  string     `json:"reasoning,omitempty"` // vLLM's newer name
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
	Notes     []struct{} `json:"annotations"`
}

type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Thoughts  string     `json:"reasoning,omitempty"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
	Refusal   *string    `json:"refusal,omitempty"`
}

func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q chatRequest
	model, release, err := s.read(w, r, rs, &q, &q.Model)
	if err != nil {
		return err
	}
	defer release()
	if q.Model == "" {
		q.Model = rs.model
	}
	j, err := q.job(s, model, w.Header())
	if err != nil {
		return err
	}
	s.logPrompt(rs, j)
	head := chatAnswer{ID: newID("chatcmpl-"), Created: timeNow().Unix(), Model: q.Model, ServiceTier: "default",
		Fingerprint: s.fingerprint()}
	if q.Stream {
		return s.streamChat(w, r, rs, j, &q, head)
	}
	made, u, err := s.collect(r, rs, j)
	if err != nil {
		return err
	}
	head.Object, head.Usage = "chat.completion", u.openAI()
	for i, m := range made {
		c := chatChoice{Index: i, Finish: &m.finish, Message: m.message(false)}
		if m.stop != "" {
			c.Stop = m.stop
		}
		if j.request.Logprobs != 0 {
			c.Logprobs = &chatLogprobs{Content: m.logprobs}
		}
		head.Choices = append(head.Choices, c)
	}
	writeJSON(w, 200, head)
	return nil
}

// made is an answer in full.
type made struct {
	text, reasoning strings.Builder
	calls           []ToolCall
	logprobs        []tokenLogprob
	tokens          []Token
	prompt          []Token // those behind the first
	finish, stop    string
}

func (m *made) add(p Part) {
	m.text.WriteString(p.Text)
	m.reasoning.WriteString(p.Reasoning)
	if c := p.Call; c != nil {
		for len(m.calls) <= c.Index {
			m.calls = append(m.calls, ToolCall{ID: newID("call_")})
		}
		m.calls[c.Index].Name += c.Name
		m.calls[c.Index].Arguments += c.Arguments
	}
}

// message is the answer as OpenAI has it.
func (m *made) message(bool) *chatMade {
	out := &chatMade{Role: "assistant", Reasoning: m.reasoning.String(), Thoughts: m.reasoning.String(),
		Notes: []struct{}{}}
	if text := m.text.String(); text != "" || len(m.calls) == 0 {
		out.Content = &text
	}
	for _, call := range m.calls {
		c := chatCall{ID: call.ID, Type: "function"}
		c.Function.Name, c.Function.Arguments = call.Name, call.Arguments
		out.ToolCalls = append(out.ToolCalls, c)
	}
	return out
}

// collect runs a job to its end.
func (s *Server) collect(r *http.Request, rs *requestState, j *job) ([]*made, usage, error) {
	all := make([]*made, max(1, j.request.Choices))
	for i := range all {
		all[i] = &made{}
	}
	u, err := s.run(r.Context(), rs, j, func(ev event) error {
		m := all[ev.choice]
		for _, p := range ev.parts {
			m.add(p)
		}
		if ev.prompt != nil {
			m.prompt = ev.prompt
		}
		if ev.token != nil {
			m.logprobs = append(m.logprobs, j.logprobsOf(ev.token)...)
			m.tokens = append(m.tokens, *ev.token)
		}
		m.finish, m.stop = ev.finish, ev.stop
		return nil
	})
	if err == nil {
		s.logAnswer(rs, all)
	}
	return all, u, err
}

// chatStream writes an answer as chunks.
type chatStream struct {
	out   *sse
	head  chatAnswer
	job   *job
	begun []bool
	calls []map[int]string // of each choice: index → id
	usage *usage           // so far, told with every chunk; nil: it is not
}

func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, rs *requestState, j *job, q *chatRequest,
	head chatAnswer) error {
	head.Object = "chat.completion.chunk"
	n := max(1, j.request.Choices)
	c := &chatStream{out: s.newSSE(w), head: head, job: j, begun: make([]bool, n), calls: make([]map[int]string, n)}
	if q.StreamOptions != nil && q.StreamOptions.ContinuousUsage {
		c.usage = &usage{prompt: len(j.request.Prompt)}
	}
	u, err := s.stream(r.Context(), rs, j, c.write, c.out.flush)
	if err != nil {
		return s.failStream(rs, c.out, err)
	}
	if q.StreamOptions != nil && q.StreamOptions.IncludeUsage {
		c.head.Choices, c.head.Usage = []chatChoice{}, u.openAI()
		if err := c.out.event("", c.head); err != nil {
			return err
		}
	}
	return c.out.done()
}

// failStream tells of an error: by the status where nothing was sent, else as an event.
func (s *Server) failStream(rs *requestState, out *sse, err error) error {
	if !out.begun || errors.Is(err, errGone) {
		return err
	}
	rs.failed = err
	event := struct {
		Error openAIError `json:"error"`
	}{asError(err).openAI()}
	if out.event("", event) == nil {
		return out.done()
	}
	return nil
}

// write sends an event as chunks: one for each part, the first of an answer with the role alone.
func (c *chatStream) write(ev event) error {
	c.usage.count(ev)
	if !c.begun[ev.choice] {
		c.begun[ev.choice] = true
		empty := ""
		if err := c.chunk(ev.choice, &chatDelta{Role: "assistant", Content: &empty}, nil, ""); err != nil {
			return err
		}
	}
	logprobs := c.job.logprobsOf(ev.token)
	for _, p := range ev.parts {
		d := &chatDelta{Reasoning: p.Reasoning, Thoughts: p.Reasoning}
		if p.Text != "" {
			d.Content = &p.Text
		}
		if p.Call != nil {
			d.ToolCalls = []chatCall{c.call(ev.choice, p.Call)}
		}
		if err := c.chunk(ev.choice, d, logprobs, ""); err != nil {
			return err
		}
		logprobs = nil
	}
	if ev.finish == "" && logprobs == nil {
		return nil
	}
	return c.chunk(ev.choice, &chatDelta{}, logprobs, ev.finish)
}

func (c *chatStream) call(choice int, p *CallPart) chatCall {
	if c.calls[choice] == nil {
		c.calls[choice] = map[int]string{}
	}
	out := chatCall{Index: &p.Index}
	if _, known := c.calls[choice][p.Index]; !known {
		out.ID, out.Type = newID("call_"), "function"
		c.calls[choice][p.Index] = out.ID
	}
	out.Function.Name, out.Function.Arguments = p.Name, p.Arguments
	return out
}

func (c *chatStream) chunk(choice int, d *chatDelta, logprobs []tokenLogprob, finish string) error {
	ch := chatChoice{Index: choice, Delta: d, Finish: orNull(finish)}
	if logprobs != nil {
		ch.Logprobs = &chatLogprobs{Content: logprobs}
	}
	c.head.Choices = append(c.head.Choices[:0], ch)
	if c.usage != nil {
		c.head.Usage = c.usage.openAI()
	}
	return c.out.event("", &c.head)
}

// fingerprint says which program answers.
func (s *Server) fingerprint() string { return "greta-" + s.opt.Version }

func randomSeed() uint64 { return rand.Uint64() }

// logPrompt and logAnswer write texts to the log, where that was asked for.
func (s *Server) logPrompt(rs *requestState, j *job) {
	if s.opt.LogText {
		s.log.Info("prompt", "request", rs.id, "text", j.model.Text().Decode(j.request.Prompt))
	}
}

func (s *Server) logAnswer(rs *requestState, all []*made) {
	if s.opt.LogText {
		for i, m := range all {
			s.log.Info("answer", "request", rs.id, "choice", i, "text", m.text.String(), "reasoning", m.reasoning.String())
		}
	}
}
