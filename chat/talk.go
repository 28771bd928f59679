// Package chat holds a conversation with a model: what was said, the prompt that a template makes of it, what
// of the prompt the caches hold already, and what is left out when the context is full.
package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/greta-project/greta/chat/jinja"
	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/chat/template"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/tokenizer"
)

// Text turns text into tokens and back; *tokenizer.Tokenizer behind TokenizerText is one.
type Text interface {
	EncodeChat(text string) ([]int32, error) // of what a template wrote
	NewDecoder() Decoder
	IsEnd(id int32) bool
	IsControl(id int32) bool
	Token(id int32) string // a token's own text, also of control tokens
}

// Decoder gives the text of tokens as they come.
type Decoder interface {
	Write(id int32) string
	Flush() string
}

// Runner computes.
type Runner interface {
	Context() int // positions that the caches have
	// Run continues tokens and tells each to emit, until that or end says so, max is reached (0: no bound), the
	// caches are full or ctx ends. It keeps what it computed for a next call that begins with the same tokens.
	Run(ctx context.Context, tokens []int32, o RunOptions) (Stats, error)
}

// RunOptions say how tokens are continued.
type RunOptions struct {
	Max      int
	Sampling engine.Sampling
	End      func(id int32) bool
	Emit     func(id int32) bool
}

// Stats are what an answer took.
type Stats struct {
	Prompt  int           // tokens of the prompt
	Kept    int           // of these, in the caches already
	Tokens  int           // of the answer
	Prefill time.Duration // of the prompt's tokens that were computed
	Decode  time.Duration // behind the first token
	Stop    engine.Stop
}

// Message is one of a conversation's.
type Message struct {
	Role      string `json:"role"` // system, user, assistant
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content,omitempty"`
	Cut       bool   `json:"cut,omitempty"` // the answer did not come to its end
}

// Talk is a conversation. It is used by one goroutine.
type Talk struct {
	System   string
	Messages []Message // without the system's

	Templates *template.Set
	Format    *parse.Format
	Text      Text
	Runner    Runner
	Sampling  engine.Sampling
	Max       int         // tokens of an answer at most; 0: until the context is full
	Stops     []string    // texts that end an answer, none empty
	Vars      *jinja.Dict // of the template

	// Note is told what happens beside the answer, such as messages that are left out; nil: nobody.
	Note    func(string)
	skipped int // messages that are left out, the oldest
	turn    uint64
}

// Answer is one that was made.
type Answer struct {
	Message
	Stats
}

// TooLong says that the last message alone does not fit.
type TooLong struct{ Tokens, Context int }

func (e *TooLong) Error() string {
	return fmt.Sprintf("the message with the system prompt has %d tokens, and the context holds %d; "+
		"a larger one is given by --context", e.Tokens, e.Context)
}

// Ask says something and gives the answer, of which each piece is told to show as it comes. When ctx ends, what came
// so far is the answer, marked as cut. With an error the conversation is as it was before.
func (t *Talk) Ask(ctx context.Context, text string, show func(parse.Part)) (Answer, error) {
	t.Messages = append(t.Messages, Message{Role: "user", Content: text})
	a, err := t.answer(ctx, show)
	if err != nil {
		t.Messages = t.Messages[:len(t.Messages)-1]
	}
	return a, err
}

// Undo takes back the last question with its answer.
func (t *Talk) Undo() bool {
	for i := len(t.Messages) - 1; i >= 0; i-- {
		if t.Messages[i].Role == "user" {
			t.Messages = t.Messages[:i]
			if i <= t.skipped { // nothing is left of what was told: there is room for older turns
				t.skipped = 0
			}
			return true
		}
	}
	return false
}

// Retry makes another answer to the last question. Where it fails, the answer that there was stays.
func (t *Talk) Retry(ctx context.Context, show func(parse.Part)) (Answer, error) {
	n := len(t.Messages)
	if n < 2 || t.Messages[n-1].Role != "assistant" {
		return Answer{}, errors.New("there is no answer to make again")
	}
	last := t.Messages[n-1]
	t.Messages = t.Messages[:n-1]
	a, err := t.answer(ctx, show)
	if err != nil {
		t.Messages = append(t.Messages, last)
	}
	return a, err
}

// Clear forgets what was said.
func (t *Talk) Clear() { t.Messages, t.skipped = nil, 0 }

// reserve is how many tokens of the context are kept for an answer.
func (t *Talk) reserve() int {
	n := t.Runner.Context() / 4
	if t.Max > 0 {
		n = min(n, t.Max)
	}
	return max(1, min(n, 512))
}

// prompt renders the conversation. Where it does not fit, the oldest turns are left out from then on until half of the
// room is free, so that the next prompts begin as this one does and the caches keep that. The system's text and the
// last question stay always, the turn before it where that fits.
func (t *Talk) prompt() (string, []int32, error) {
	room := t.Runner.Context() - t.reserve()
	most := room
	for from := t.skipped; ; {
		text, err := t.render(from)
		if err != nil {
			return "", nil, err
		}
		ids, err := t.Text.EncodeChat(text)
		if err != nil {
			return "", nil, err
		}
		if len(ids) == 0 {
			return "", nil, errors.New("the chat template makes no text of this conversation")
		}
		next := t.nextTurn(from)
		if len(ids) <= most || len(ids) <= room && (next < 0 || t.nextTurn(next) < 0) {
			if from > t.skipped && t.Note != nil {
				t.Note(fmt.Sprintf("the context of %d tokens is full: the oldest %d messages are left out from now on",
					t.Runner.Context(), from))
			}
			t.skipped = from
			return text, ids, nil
		}
		if next < 0 {
			return "", nil, &TooLong{len(ids), t.Runner.Context()}
		}
		from, most = next, room/2
	}
}

// nextTurn gives where the turn behind the one at from begins, -1 where there is none.
func (t *Talk) nextTurn(from int) int {
	for i := from + 1; i < len(t.Messages); i++ {
		if t.Messages[i].Role == "user" {
			return i
		}
	}
	return -1
}

func (t *Talk) render(from int) (string, error) {
	list := &jinja.List{}
	if t.System != "" {
		list.Items = append(list.Items, template.Message("system", t.System))
	}
	for _, m := range t.Messages[from:] {
		d := template.Message(m.Role, m.Content)
		if m.Reasoning != "" {
			d.Set("reasoning_content", m.Reasoning)
		}
		list.Items = append(list.Items, d)
	}
	return t.Templates.Render(template.Input{Messages: list, AddGenerationPrompt: true, Vars: t.Vars})
}

// answer continues the conversation and adds what came to it.
func (t *Talk) answer(ctx context.Context, show func(parse.Part)) (Answer, error) {
	skipped := t.skipped
	text, ids, err := t.prompt()
	if err != nil {
		return Answer{}, err
	}
	w := &writer{talk: t, show: show, parser: t.Format.New(parse.Options{Prompt: text}), dec: t.Text.NewDecoder(),
		stop: tokenizer.NewStopper(t.Stops)}
	for _, id := range ids {
		w.dec.Write(id) // so that the answer's spaces are right
	}
	s := t.Sampling
	s.Seed += t.turn // another answer when it is asked for again
	t.turn++
	stats, err := t.Runner.Run(ctx, ids, RunOptions{Max: t.Max, Sampling: s, End: t.Text.IsEnd, Emit: w.token})
	w.end()
	if err != nil {
		t.skipped = skipped
		return Answer{}, err
	}
	a := Answer{Stats: stats, Message: Message{Role: "assistant", Content: w.content, Reasoning: w.reasoning}}
	switch stats.Stop {
	case engine.StopInterrupted, engine.StopMax:
		a.Cut = true
	case engine.StopContext:
		a.Cut = true
		if t.Note != nil {
			t.Note(fmt.Sprintf("the context of %d tokens is full: the answer ends here", t.Runner.Context()))
		}
	}
	t.Messages = append(t.Messages, a.Message)
	return a, nil
}

// writer turns tokens into parts.
type writer struct {
	talk               *Talk
	show               func(parse.Part)
	parser             *parse.Parser
	dec                Decoder
	stop               *tokenizer.Stopper
	content, reasoning string
	ended              bool
}

func (w *writer) token(id int32) bool {
	t := w.talk
	switch {
	case t.Text.IsEnd(id):
		return true
	case t.Text.IsControl(id):
		if tag := t.Text.Token(id); t.Format.Sees(tag) {
			w.text(w.dec.Flush() + tag)
		}
	default:
		w.text(w.dec.Write(id))
	}
	return !w.ended
}

func (w *writer) text(s string) {
	shown, hit := w.stop.Push(s)
	w.ended = w.ended || hit != ""
	w.give(w.parser.Write(shown))
}

func (w *writer) give(parts []parse.Part) {
	for _, p := range parts {
		w.content += p.Text
		w.reasoning += p.Reasoning
		if c := p.Call; c != nil { // nobody is there who would carry out a call: it is shown
			p.Text = c.Name + c.Arguments
			w.content += p.Text
			p.Call = nil
		}
		w.show(p)
	}
}

func (w *writer) end() {
	if !w.ended {
		shown, _ := w.stop.Push(w.dec.Flush())
		w.give(w.parser.Write(shown + w.stop.Flush()))
	}
	w.give(w.parser.End())
}
