// A model on sessions of the engine: each answer has a session, and they take turns step by step.

package serve

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tokenizer"
)

// Vocabulary is a tokenizer as the server sees it.
type Vocabulary struct {
	*tokenizer.Tokenizer
	inside tokenizer.Decoder // of a text that has begun, so that no space is dropped
}

// NewVocabulary makes one.
func NewVocabulary(t *tokenizer.Tokenizer) *Vocabulary {
	d := t.NewDecoder()
	for id := int32(0); int(id) < t.VocabSize(); id++ {
		if t.Kind(id) == tokenizer.Normal && strings.TrimSpace(d.Write(id)) != "" {
			break
		}
	}
	d.Flush()
	return &Vocabulary{t, *d}
}

// Encode gives a text's ids.
func (v *Vocabulary) Encode(text string, bos, special bool) ([]int32, error) {
	return v.Tokenizer.Encode(text, tokenizer.Options{AddBOS: bos && v.AddBOS(), ParseSpecial: special})
}

// Decoder begins behind a prompt.
func (v *Vocabulary) Decoder(prompt []int32) Decoder {
	d := v.NewDecoder()
	for _, id := range prompt {
		d.Write(id)
	}
	return d
}

// Piece is a token's text, a control token's its spelling.
func (v *Vocabulary) Piece(id int32) string {
	if v.IsControl(id) {
		return v.Token(id)
	}
	d := v.inside
	return d.Write(id) + d.Flush()
}

// Control says whether decoding leaves a token out.
func (v *Vocabulary) Control(id int32) bool { return v.IsControl(id) }

// End says whether an answer ends at a token.
func (v *Vocabulary) End(id int32) bool { return v.IsEnd(id) }

// Vocabulary is the number of tokens.
func (v *Vocabulary) Vocabulary() int { return v.VocabSize() }

// Constrainer makes masks for a vocabulary.
type Constrainer interface {
	Constrain(Constraint) (func() (Mask, error), error)
}

// SessionOptions are those of SessionModel.
type SessionOptions struct {
	Info     Info
	Text     Tokens
	Chat     Chat        // nil: none
	Grammar  Constrainer // nil: no constraint can be honoured
	Adapters []string    // that requests may name
	Parallel int         // sessions
	Close    func() error
	Lost     func(err error) // told once that the device is lost; may be nil
}

// SessionModel answers on a fixed number of sessions; more requests wait for one.
type SessionModel struct {
	opt     SessionOptions
	free    chan *engine.Session
	all     []*engine.Session
	running atomic.Int64
	waiting atomic.Int64
	steps   atomic.Uint64

	mu     sync.RWMutex // Close waits for answers
	closed bool
}

// NewSessionModel makes the sessions.
func NewSessionModel(e *engine.Engine, opt SessionOptions) (*SessionModel, error) {
	m := &SessionModel{opt: opt, free: make(chan *engine.Session, opt.Parallel)}
	for range opt.Parallel {
		s, err := e.NewSession()
		if err != nil {
			return nil, errlist.Join(err, m.closeSessions())
		}
		m.all = append(m.all, s)
		m.free <- s
	}
	return m, nil
}

// Info says what the model is.
func (m *SessionModel) Info() Info { return m.opt.Info }

// Text is its vocabulary.
func (m *SessionModel) Text() Tokens { return m.opt.Text }

// Chat is its way to write conversations.
func (m *SessionModel) Chat() Chat { return m.opt.Chat }

// Constrain makes masks, where there is something that does.
func (m *SessionModel) Constrain(c Constraint) (func() (Mask, error), error) {
	if m.opt.Grammar == nil {
		return nil, &Unsupported{"response_format", "this server cannot constrain an answer's form"}
	}
	return m.opt.Grammar.Constrain(c)
}

// Stats is the model's state.
func (m *SessionModel) Stats() Stats {
	n := m.steps.Load()
	return Stats{Running: int(m.running.Load()), Waiting: int(m.waiting.Load()), Steps: n, StepRows: n, LastRows: 1}
}

// Close waits for the answers under way and closes the sessions.
func (m *SessionModel) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	err := m.closeSessions()
	if m.opt.Close != nil {
		err = errlist.Join(err, m.opt.Close())
	}
	return err
}

func (m *SessionModel) closeSessions() error {
	var errs []error
	for _, s := range m.all {
		errs = append(errs, s.Close())
	}
	return errlist.Join(errs...)
}

// Generate begins an answer.
func (m *SessionModel) Generate(ctx context.Context, r Request) (Answer, error) {
	if err := fits(&r, m.opt.Info.Context); err != nil {
		return nil, err
	}
	switch {
	case r.Adapter != "":
		return nil, &Unsupported{"model", "this model has no adapters"}
	case r.Sampling.TypicalP != 0 && r.Sampling.TypicalP != 1:
		return nil, &Unsupported{"typical_p", "typical_p is not supported by this model"}
	}
	ctx, cancel := context.WithCancel(ctx)
	return &sessionAnswer{m: m, ctx: ctx, cancel: cancel, r: r, asked: time.Now()}, nil
}

// fits bounds an answer by the context, and refuses what cannot be.
func fits(r *Request, context int) error {
	n := len(r.Prompt)
	if n == 0 {
		return badRequest("prompt", "the prompt has no tokens; at least one is needed")
	}
	if r.None {
		r.Max = 1 // what the prompt is read for
	}
	if n > context || !r.None && (n == context || r.Max > 0 && n+r.Max > context) {
		return &TooLong{n, r.Max, context}
	}
	if r.Max <= 0 {
		r.Max = context - n
	}
	return nil
}

// sessionAnswer makes the choices one behind the other.
type sessionAnswer struct {
	m      *SessionModel
	ctx    context.Context
	cancel context.CancelFunc
	r      Request
	asked  time.Time
	result Result
	prompt []Token // with their log-probabilities
}

func (a *sessionAnswer) Cancel()        { a.cancel() }
func (a *sessionAnswer) Result() Result { return a.result }

// Prompt gives the log-probabilities of the prompt's tokens behind the first.
func (a *sessionAnswer) Prompt() []Token { return a.prompt }

// read computes the prompt and gives the logits behind it.
func (a *sessionAnswer) read(s *engine.Session) ([]float32, error) {
	if !a.r.OfPrompt || a.prompt != nil {
		return s.Prefill(a.ctx, a.r.Prompt)
	}
	logits, err := s.Prefill(a.ctx, a.r.Prompt[:1])
	a.prompt = make([]Token, 0, len(a.r.Prompt))
	for _, id := range a.r.Prompt[1:] {
		var p engine.Chosen
		if err == nil {
			err = a.ctx.Err()
		}
		if err == nil {
			p, err = engine.Logprob(logits, id, max(0, a.r.Logprobs))
		}
		if err != nil {
			return nil, err
		}
		a.prompt = append(a.prompt, Token{ID: id, Logprob: p.Logprob, Top: topOf(p.Top)})
		logits, err = s.Decode(id)
	}
	return logits, err
}

// Tokens gives the tokens as they are made, by the goroutine that asks.
func (a *sessionAnswer) Tokens() iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		defer a.cancel()
		m := a.m
		m.mu.RLock()
		defer m.mu.RUnlock()
		if m.closed {
			yield(Token{}, &Error{Status: 503, Type: "server_error", Message: "the model is being unloaded", After: time.Second})
			return
		}
		m.waiting.Add(1)
		var s *engine.Session
		select {
		case s = <-m.free:
			m.waiting.Add(-1)
		case <-a.ctx.Done():
			m.waiting.Add(-1)
			yield(Token{}, context.Cause(a.ctx))
			return
		}
		m.running.Add(1)
		defer func() {
			m.running.Add(-1)
			m.free <- s
		}()
		a.result.Queue = time.Since(a.asked)
		a.result.Prompt = len(a.r.Prompt)
		for choice := range max(1, a.r.Choices) {
			stop, goOn, err := a.choice(s, choice, yield)
			if err != nil {
				yield(Token{}, err)
				return
			}
			a.result.Stops = append(a.result.Stops, stop)
			if !goOn {
				return
			}
		}
	}
}

// choice makes one answer; false where the reader went away.
func (a *sessionAnswer) choice(s *engine.Session, choice int, yield func(Token, error) bool) (string, bool, error) {
	text := a.m.opt.Text
	p, err := newPicker(a.r, choice, text.Ends(), text.Vocabulary())
	if err != nil {
		return "", false, err
	}
	start := time.Now()
	s.Reset()
	logits, err := a.read(s)
	if err != nil {
		return "", false, err
	}
	a.m.steps.Add(1)
	a.result.Prefill += time.Since(start)
	start = time.Now()
	defer func() { a.result.Decode += time.Since(start) }()
	for n := 1; ; n++ {
		if i, ok := engine.Finite(logits); !ok {
			return "", false, fmt.Errorf("logit %d behind position %d is %v", i, s.Pos()-1, logits[i])
		}
		t, err := p.pick(logits)
		if err != nil {
			return "", false, err
		}
		t.Choice = choice
		if !yield(t, nil) {
			return "", false, nil
		}
		switch {
		case !a.r.IgnoreEnd && text.End(t.ID):
			return "stop", true, nil
		case n >= a.r.Max || s.Left() == 0:
			return "length", true, nil
		case a.ctx.Err() != nil:
			return "", false, context.Cause(a.ctx)
		}
		if logits, err = s.Decode(t.ID); err != nil {
			return "", false, err
		}
		a.m.steps.Add(1)
	}
}
