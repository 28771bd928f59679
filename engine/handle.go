package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/greta-project/greta/engine/schedule"
)

// Request is what a Scheduler answers.
type Request struct {
	Prompt   []int32
	Max      int // tokens at most; 0: until the context is full
	Choices  int // answers that share the prompt; 0: 1
	Sampling Sampling
	End      func(token int32) bool // end of an answer; nil: never. Called by the scheduler's goroutine
	Logprobs int                    // 0: none; n: log-probabilities of the chosen token and of the n most likely
	// OfPrompt gives those of the prompt's tokens too, see Handle.Prompt. None of it is taken as known then.
	OfPrompt bool
	Mask     Mask   // nil: every token is allowed
	Key      string // whom the scheduler is fair to
	Priority int    // lower first
	Adapter  string // one of Options.Adapters by name; "": none
	Salt     string // what is known of a prompt is shared only among equal ones
}

// Mask says which tokens may come next. It is used by one goroutine at a time, that of the scheduler.
// A request of several choices needs one that has a method Clone() Mask too.
type Mask interface {
	// Allowed sets bit t%32 of word t/32 where token t may come next, end tokens included where the text may end, and
	// clears all others.
	Allowed(bits []uint32) error
	// Accept tells of a token that was chosen.
	Accept(token int32) error
	// Forced are tokens that must come next, whatever is chosen; may be nil.
	Forced() []int32
}

// Token is one token of an answer.
type Token struct {
	Choice  int
	ID      int32
	Logprob float32        // natural, of the model's own distribution; 0 where none were asked for
	Top     []TokenLogprob // the most likely tokens, the best first
	At      time.Time      // the end of its step
}

// Finished is what became of a request.
type Finished struct {
	Choices []FinishedChoice
	Prompt  int // tokens of the prompt
	Cached  int // of them, those that were known
	// Queue is the time until its first step, Prefill from there to the first token, Decode from there to the last.
	Queue, Prefill, Decode time.Duration
	Err                    error // why it could not go on; nil where it came to an end or its user ended it
}

// FinishedChoice is the end of one answer.
type FinishedChoice struct {
	Stop   Stop
	Tokens int
}

// Handle is a request under way.
type Handle struct {
	s       *Scheduler
	request Request
	choices []choice
	added   time.Time
	ctx     context.Context
	release func() bool              // forgets the context
	adapter int32                    // number
	staged  map[schedule.Hash][]byte // pages of the prompt, from the disk

	mu     sync.Mutex
	prompt []Token // with their log-probabilities, of the prompt's tokens behind the first
	queue  []Token // not read yet
	read   int     // of the queue
	left   int     // choices under way
	err    error
	wake   chan struct{} // room for one
	end    chan struct{} // closed when all choices have ended
}

// choice is one answer of a request. The scheduler's mutex guards it.
type choice struct {
	handle  *Handle
	number  int
	seq     *schedule.Seq
	sampler *Sampler
	mask    Mask
	drafter Drafter
	line    int32 // of the table, −1 none
	stop    Stop
	given   int // tokens

	started, first, last time.Time
}

// newHandle checks a request.
func (s *Scheduler) newHandle(r *Request) (*Handle, error) {
	if err := r.Sampling.Validate(); err != nil {
		return nil, err
	}
	n := max(1, r.Choices)
	switch {
	case len(r.Prompt) == 0:
		return nil, errors.New("the prompt has no tokens: an answer begins behind at least one")
	case r.Max < 0 || r.Choices < 0 || r.Logprobs < 0:
		return nil, fmt.Errorf("max is %d, choices %d, logprobs %d: they must be 0 or more", r.Max, r.Choices, r.Logprobs)
	case r.OfPrompt && r.Logprobs == 0:
		return nil, errors.New("log-probabilities of the prompt are asked for, and of none of the most likely tokens: " +
			"ask for 1")
	case n > len(s.lines):
		return nil, fmt.Errorf("%d choices, %d sequences may run at once: ask for fewer", n, len(s.lines))
	}
	adapter, err := s.engine.adapters.find(r.Adapter)
	if err != nil {
		return nil, err
	}
	v := s.engine.Vocabulary()
	for i, t := range r.Prompt {
		if t < 0 || int(t) >= v {
			return nil, fmt.Errorf("token %d of the prompt is %d, the vocabulary has %d", i, t, v)
		}
	}
	h := &Handle{s: s, request: *r, adapter: adapter, choices: make([]choice, n), left: n, added: time.Now(),
		wake: make(chan struct{}, 1), end: make(chan struct{})}
	h.queue = make([]Token, 0, n*max(1, min(r.Max, 4096)))
	for i := range h.choices {
		h.choices[i] = choice{handle: h, number: i, sampler: NewSampler(r.Sampling.Choice(i)), mask: r.Mask, line: -1}
		if i > 0 && r.Mask != nil {
			m, ok := r.Mask.(interface{ Clone() Mask })
			if !ok {
				return nil, errors.New("a mask without a method Clone cannot serve several choices: ask for one")
			}
			h.choices[i].mask = m.Clone()
		}
	}
	return h, nil
}

// Prompt gives the prompt's tokens behind the first with their log-probabilities, where the request asks for them. They
// are all there when the first token of the answer is.
func (h *Handle) Prompt() []Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.prompt)
}

// push gives tokens to the reader.
func (h *Handle) push(tokens []Token) {
	h.mu.Lock()
	if h.read == len(h.queue) {
		h.queue, h.read = h.queue[:0], 0
	}
	h.queue = append(h.queue, tokens...)
	h.mu.Unlock()
	h.s.told = append(h.s.told, h)
}

func (h *Handle) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// finish notes that one choice has ended, and says whether all have.
func (h *Handle) finish(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && h.err == nil {
		h.err = err
	}
	h.left--
	if h.left > 0 {
		return false
	}
	if h.release != nil {
		h.release()
	}
	close(h.end)
	h.signal()
	return true
}

// next takes a token from the queue; over says that there will be none.
func (h *Handle) next() (t Token, ok, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.read < len(h.queue) {
		t, ok = h.queue[h.read], true
		h.read++
		return t, ok, false
	}
	return t, false, h.left == 0
}

// Ready says whether Tokens has a token to give at once.
func (h *Handle) Ready() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.read < len(h.queue)
}

// Tokens gives the tokens as they come, those of several choices as each comes, and at the end an error where there
// was one: that of the context too, where it ended first. To leave the loop early cancels the request. It is for one
// reader.
func (h *Handle) Tokens() iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		for {
			t, ok, over := h.next()
			switch {
			case ok:
				if !yield(t, nil) {
					h.Cancel()
					return
				}
			case over:
				if h.err != nil {
					yield(Token{}, h.err)
				}
				return
			default:
				<-h.wake
			}
		}
	}
}

// Cancel ends the request at once. Tokens that have come can still be read.
func (h *Handle) Cancel() { h.s.cancel(h, nil) }

// Stop ends one choice, because its text is complete: a stop string.
func (h *Handle) Stop(choice int) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if choice >= 0 && choice < len(h.choices) {
		h.s.end(&h.choices[choice], StopEmit, nil)
	}
}

// Done is closed when all choices have ended.
func (h *Handle) Done() <-chan struct{} { return h.end }

// Result waits for the end and says how it was.
func (h *Handle) Result() Finished {
	<-h.end
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	f := Finished{Prompt: len(h.request.Prompt), Err: h.err}
	var started, first, last time.Time
	for i := range h.choices {
		c := &h.choices[i]
		f.Choices = append(f.Choices, FinishedChoice{c.stop, c.given})
		started, first = earlier(started, c.started), earlier(first, c.first)
		if c.last.After(last) {
			last = c.last
		}
	}
	f.Cached = h.choices[0].seq.Cached()
	if !started.IsZero() {
		f.Queue = started.Sub(h.added)
	}
	if !first.IsZero() {
		f.Prefill, f.Decode = first.Sub(started), last.Sub(first)
	}
	return f
}

// earlier gives the earlier of two times that are known.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
