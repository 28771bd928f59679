// From a prompt to an answer's pieces: decoding, stop strings, reasoning and calls of tools, logprobs,
// and why an answer ended. Every protocol goes through here.

package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tokenizer"
)

// job is what a protocol wants of a model.
type job struct {
	model    Model
	name     string // as the client calls the model
	request  Request
	stops    []string
	stopIDs  []int32
	showStop bool   // a stop string is part of the answer
	special  bool   // control tokens are shown
	chat     bool   // the answer is parsed for reasoning and calls
	prompted string // the rendered prompt of a chat
	options  ChatOptions
	form     *Constraint // what the answer must be; nil: anything
	param    string      // the field that asks for the form
	wish     bool        // it is had where it can be
}

// event is what a token, or the end of a choice, adds to the answer.
type event struct {
	choice int
	tokens int // 1 but at an answer's end that the model made by itself
	parts  []Part
	token  *Token  // whose logprobs are asked for
	prompt []Token // of the prompt's tokens behind the first, with the first event of a choice, where these are
	finish string  // stop, length, tool_calls; empty: it goes on
	stop   string  // the stop string that ended it
}

// usage is what an answer took, in tokens.
type usage struct {
	prompt, cached, completion, reasoning int
}

// choiceState is one answer in the making.
type choiceState struct {
	decoder Decoder
	stopper *tokenizer.Stopper
	parser  Parser
	tokens  int
	thought int // tokens of reasoning
	called  bool
	done    bool
	hit     string // the stop string that ended it
}

func (j *job) newChoice() *choiceState {
	c := &choiceState{decoder: j.model.Text().Decoder(j.request.Prompt), stopper: tokenizer.NewStopper(j.stops)}
	if j.chat {
		if chat := j.model.Chat(); chat != nil {
			o := j.options
			o.Form = j.form != nil && j.form.Calls == nil
			c.parser = chat.Parser(j.prompted, o)
		}
	}
	return c
}

// take turns a token into an event.
func (j *job) take(c *choiceState, t Token) event {
	if j.request.None {
		c.done = true
		return event{choice: t.Choice, finish: "length"}
	}
	ev := event{choice: t.Choice, tokens: 1}
	c.tokens++
	text := j.model.Text()
	end := !j.request.IgnoreEnd && text.End(t.ID) || slices.Contains(j.stopIDs, t.ID)
	show := ""
	switch {
	case end && !j.showStop:
	case text.Control(t.ID) && (j.special || c.parser != nil && !end && j.model.Chat().Sees(text.Piece(t.ID))):
		show = c.decoder.Flush() + text.Piece(t.ID)
	default:
		show = c.decoder.Write(t.ID)
	}
	before := c.thought
	ev.parts = c.push(j, show)
	if c.thought == before && c.parser != nil && len(ev.parts) > 0 && ev.parts[0].Reasoning != "" {
		c.thought++
	}
	if j.request.Logprobs != 0 {
		ev.token = &t
	}
	switch {
	case c.done: // a stop string
		ev.finish, ev.stop = "stop", c.hit
	case end:
		ev.finish = "stop"
	case c.tokens >= j.request.Max:
		ev.finish = "length"
	}
	if ev.finish != "" {
		ev.parts = append(ev.parts, c.end(j, ev.stop != "")...)
		if c.called && ev.finish == "stop" && ev.stop == "" {
			ev.finish = "tool_calls"
		}
		c.done = true
	}
	return ev
}

// push takes text through the stop strings and the parser.
func (c *choiceState) push(j *job, text string) []Part {
	if text == "" {
		return nil
	}
	if c.tokens <= j.request.MinTokens {
		return c.parse(text) // stop strings are looked for behind the least number of tokens
	}
	show, hit := c.stopper.Push(text)
	if hit != "" {
		c.done, c.hit = true, hit
		if j.showStop {
			show += hit
		}
	}
	return c.parse(show)
}

func (c *choiceState) parse(text string) []Part {
	if text == "" {
		return nil
	}
	if c.parser == nil {
		return []Part{{Text: text}}
	}
	return c.seen(c.parser.Write(text))
}

func (c *choiceState) seen(parts []Part) []Part {
	for _, p := range parts {
		if p.Call != nil {
			c.called = true
		}
	}
	return parts
}

// end gives what was held back; behind a stop string nothing is.
func (c *choiceState) end(j *job, stopped bool) (parts []Part) {
	if !stopped {
		parts = c.push(j, c.decoder.Flush())
		parts = append(parts, c.parse(c.stopper.Flush())...)
	}
	if c.parser != nil {
		parts = append(parts, c.seen(c.parser.End())...)
	}
	return parts
}

// run makes the answer and hands its pieces to emit, whose error ends it.
func (s *Server) run(ctx context.Context, rs *requestState, j *job, emit func(event) error) (u usage, err error) {
	return s.runAnswer(ctx, rs, j, func(ev event, _ bool) error { return emit(ev) })
}

// runAnswer is run, whose emit also learns whether something follows at once.
func (s *Server) runAnswer(ctx context.Context, rs *requestState, j *job,
	emit func(ev event, more bool) error) (u usage, err error) {
	u.prompt = len(j.request.Prompt)
	j.request.Key, j.request.Priority = rs.fairness(j.request.Priority)
	j.request.Salt, j.request.Adapter = rs.salt(j.request.Salt), rs.adapter
	if err := s.keys.admit(rs.key, u.prompt); err != nil {
		return u, err
	}
	answer, err := j.model.Generate(ctx, j.request)
	if err != nil {
		return u, why(ctx, err)
	}
	if j.request.Max <= 0 {
		j.request.Max = j.model.Info().Context - u.prompt
	}
	l := s.live.begin(rs, j)
	defer func() {
		answer.Cancel()
		s.live.end(l)
		s.keys.spend(rs.key, u.prompt+u.completion)
		r := answer.Result()
		rs.trace.generated(rs.model, u, l, r)
		s.metrics.finished(j, rs, l, u, r, err)
	}()
	ready, _ := answer.(interface{ Ready() bool })
	choices := make([]*choiceState, max(1, j.request.Choices))
	left := len(choices)
	for t, e := range answer.Tokens() {
		if e != nil {
			err = why(ctx, e)
			break
		}
		if t.Choice < 0 || t.Choice >= len(choices) {
			err = fmt.Errorf("the model gave a token of answer %d, of %d", t.Choice, len(choices))
			break
		}
		c, begins := choices[t.Choice], false
		if c == nil {
			c, begins = j.newChoice(), true
			choices[t.Choice] = c
		}
		if c.done {
			continue
		}
		l.token(t.Choice)
		before := c.thought
		ev := j.take(c, t)
		if p, ok := answer.(Thoughtful); ok && begins && j.request.OfPrompt {
			ev.prompt = p.Prompt()
		}
		u.completion += ev.tokens
		u.reasoning += c.thought - before
		more := ev.finish != "" && left == 1 || ready != nil && ready.Ready() // behind the last comes the answer's end
		if err = emit(ev, more); err != nil {
			break
		}
		if ev.finish != "" {
			l.finish(ev.finish)
			if left--; left == 0 {
				break
			}
			if a, ok := answer.(interface{ Stop(choice int) }); ok {
				a.Stop(t.Choice) // behind a stop string; others go on
			}
		}
	}
	u.cached = answer.Result().Cached
	if err == nil {
		if err = ctx.Err(); err != nil && left > 0 {
			return u, context.Cause(ctx)
		}
		err = j.endRest(choices, answer.Result(), l, emit)
	}
	return u, err
}

// endRest ends the answers that the model ended by itself, such as where its context is full.
func (j *job) endRest(choices []*choiceState, r Result, l *live, emit func(event, bool) error) error {
	for i, c := range choices {
		if c == nil {
			c = j.newChoice()
		}
		if c.done {
			continue
		}
		finish := "length"
		if i < len(r.Stops) && r.Stops[i] != "" {
			finish = r.Stops[i]
		}
		parts := c.end(j, false)
		if c.called && finish == "stop" {
			finish = "tool_calls"
		}
		l.finish(finish)
		if err := emit(event{choice: i, parts: parts, finish: finish}, false); err != nil {
			return err
		}
	}
	return nil
}

// errGone says that nobody reads the answer any more.
var errGone = errors.New("the client went away")

// stream runs a job and writes its events. flush is called when there is nothing more to write at once: tokens that
// became ready while one was written go out together.
func (s *Server) stream(ctx context.Context, rs *requestState, j *job, write func(event) error,
	flush func() error) (usage, error) {
	if _, ok := j.model.(*ScheduledModel); ok { // its tokens are made elsewhere, and kept until they are read
		var failed error
		u, err := s.runAnswer(ctx, rs, j, func(ev event, more bool) error {
			if failed = write(ev); failed == nil && !more {
				failed = flush()
			}
			if failed != nil {
				failed = errlist.Join(errGone, failed)
			}
			return failed
		})
		return u, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events := make(chan event, 64)
	var u usage
	var err error
	go func() {
		defer close(events)
		u, err = s.run(ctx, rs, j, func(ev event) error {
			select {
			case events <- ev:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	var failed error
	for ev := range events {
		if failed != nil {
			continue // until the model has noticed
		}
		if failed = write(ev); failed == nil && len(events) == 0 {
			failed = flush()
		}
		if failed != nil {
			cancel(errGone)
		}
	}
	if failed != nil {
		return u, errlist.Join(errGone, failed)
	}
	return u, err
}

// timeNow is the clock of answers' created fields.
var timeNow = time.Now
