// A model on the engine's scheduler: many answers in one step.

package serve

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
)

// ScheduledModel answers by a scheduler.
type ScheduledModel struct {
	opt       SessionOptions
	scheduler *engine.Scheduler
	told      sync.Once // that the device is lost
}

// NewScheduledModel makes the scheduler of an engine. opt.Parallel sequences run at once.
func NewScheduledModel(e *engine.Engine, so engine.SchedulerOptions, opt SessionOptions) (*ScheduledModel, error) {
	s, err := engine.NewScheduler(e, so)
	if err != nil {
		return nil, err
	}
	return &ScheduledModel{opt: opt, scheduler: s}, nil
}

// Info says what the model is.
func (m *ScheduledModel) Info() Info { return m.opt.Info }

// Text is its vocabulary.
func (m *ScheduledModel) Text() Tokens { return m.opt.Text }

// Chat is its way to write conversations.
func (m *ScheduledModel) Chat() Chat { return m.opt.Chat }

// Constrain makes masks, where there is something that does.
func (m *ScheduledModel) Constrain(c Constraint) (func() (Mask, error), error) {
	if m.opt.Grammar == nil {
		return nil, &Unsupported{"response_format", "this server cannot constrain an answer's form"}
	}
	return m.opt.Grammar.Constrain(c)
}

// Close ends all answers.
func (m *ScheduledModel) Close() error {
	err := m.scheduler.Close()
	if m.opt.Close != nil {
		err = errlist.Join(err, m.opt.Close())
	}
	return err
}

// Stats is the scheduler's state.
func (m *ScheduledModel) Stats() Stats {
	s := m.scheduler.Stats()
	st := Stats{Running: s.Running, Waiting: s.Waiting, PagesUsed: s.PagesUsed, Pages: s.Pages, Swapped: s.Swaps,
		PrefixQueries: uint64(s.PrefixQueries), PrefixHits: uint64(s.PrefixHits), Preemptions: uint64(s.Preemptions),
		Steps: uint64(s.Steps), StepRows: uint64(s.Rows), Drafted: uint64(s.Drafted), Accepted: uint64(s.Accepted),
		Drafts: uint64(s.Drafts), Recomputed: uint64(s.Recomputed), StepSizes: map[float64]uint64{},
		StepTimes: m.scheduler.StepTimes(),
		PageSize:  s.PageSize, CacheType: m.opt.Info.Cache, LastRows: s.Running, AcceptedAt: s.AcceptedAt,
		Adapters: m.opt.Adapters, AdaptersRunning: slices.Sorted(maps.Keys(s.RunningOf)),
		AdaptersWaiting: slices.Sorted(maps.Keys(s.WaitingOf))}
	steps := uint64(0)
	for i, n := range s.Sizes[:len(s.Sizes)-1] { // the last is those of any size, which the histogram's count has
		steps += uint64(n)
		st.StepSizes[float64(int(1)<<i)] = steps
	}
	st.WaitingBy = map[string]int{"capacity": s.Waiting - s.WaitingPreempted - s.WaitingFork,
		"preempted": s.WaitingPreempted,
		"fork":      s.WaitingFork}
	return st
}

// Generate begins an answer.
func (m *ScheduledModel) Generate(ctx context.Context, r Request) (Answer, error) {
	if err := fits(&r, m.opt.Info.Context); err != nil {
		return nil, err
	}
	er := engine.Request{Prompt: r.Prompt, Max: r.Max, Choices: r.Choices, Key: r.Key, Priority: r.Priority,
		Adapter: r.Adapter, Salt: r.Salt, Logprobs: r.Logprobs, OfPrompt: r.OfPrompt, Sampling: r.sampling()}
	if r.Logprobs < 0 {
		er.Logprobs = 1
	}
	if !r.IgnoreEnd {
		er.End = m.opt.Text.End
	}
	mask, err := r.mask(m.opt.Text.Ends())
	if err != nil {
		return nil, err
	}
	if mask != nil {
		er.Mask = mask
	}
	h, err := m.scheduler.Add(ctx, er)
	var never *engine.NeverFits
	var full *engine.QueueFull
	switch {
	case errors.As(err, &never):
		return nil, &TooLong{len(r.Prompt), r.Max, m.opt.Info.Context}
	case errors.As(err, &full):
		return nil, &Full{Waiting: m.Stats().Waiting, Most: m.Stats().Waiting, After: time.Second}
	case errors.Is(err, ErrDevice):
		m.lost(err)
		return nil, err
	case err != nil && ctx.Err() == nil && len(r.Prompt) > 0:
		return nil, badRequest("", err.Error())
	case err != nil:
		return nil, err
	}
	return &scheduledAnswer{h: h, bare: r.Logprobs < 0, model: m}, nil
}

// lost tells that the device is, once.
func (m *ScheduledModel) lost(err error) {
	if m.opt.Lost != nil {
		m.told.Do(func() { m.opt.Lost(err) })
	}
}

// scheduledAnswer is a handle as the server sees it.
type scheduledAnswer struct {
	h     *engine.Handle
	model *ScheduledModel
	bare  bool // of logprobs, the chosen token's alone
}

func (a *scheduledAnswer) Cancel() { a.h.Cancel() }

// Ready says whether a token is there.
func (a *scheduledAnswer) Ready() bool { return a.h.Ready() }

// Stop ends one choice.
func (a *scheduledAnswer) Stop(choice int) { a.h.Stop(choice) }

func (a *scheduledAnswer) token(t *engine.Token) Token {
	out := Token{Choice: t.Choice, ID: t.ID, Logprob: t.Logprob}
	if !a.bare {
		out.Top = topOf(t.Top)
	}
	return out
}

// Prompt gives the log-probabilities of the prompt's tokens behind the first.
func (a *scheduledAnswer) Prompt() (all []Token) {
	for _, t := range a.h.Prompt() {
		all = append(all, a.token(&t))
	}
	return all
}

func (a *scheduledAnswer) Tokens() iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		for t, err := range a.h.Tokens() {
			out := a.token(&t)
			if errors.Is(err, ErrDevice) {
				a.model.lost(err)
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

func (a *scheduledAnswer) Result() Result {
	f := a.h.Result()
	r := Result{Prompt: f.Prompt, Cached: f.Cached, Queue: f.Queue, Prefill: f.Prefill, Decode: f.Decode}
	for _, c := range f.Choices {
		stop := "length"
		if c.Stop == engine.StopEnd || c.Stop == engine.StopEmit {
			stop = "stop"
		}
		r.Stops = append(r.Stops, stop)
	}
	return r
}

// freshMask is a mask that can be made again for another choice, and that keeps an answer from ending before it has
// a least number of tokens.
type freshMask struct {
	make  func() (Mask, error) // nil: every token is allowed
	inner Mask
	least int
	ends  []int32
	given int
}

func (m *freshMask) begin() (err error) {
	if m.make != nil {
		m.inner, err = m.make()
	}
	return err
}

// Clone begins another answer; masks are cloned before their first token.
func (m *freshMask) Clone() engine.Mask {
	c := &freshMask{make: m.make, least: m.least, ends: m.ends}
	if err := c.begin(); err != nil {
		return brokenMask{err}
	}
	return c
}

// Allowed asks the mask that is inside.
func (m *freshMask) Allowed(bits []uint32) error {
	if m.inner != nil {
		if err := m.inner.Allowed(bits); err != nil {
			return err
		}
	} else {
		for i := range bits {
			bits[i] = ^uint32(0)
		}
	}
	if m.given >= m.least {
		return nil
	}
	var taken []int32
	for _, id := range m.ends {
		if bits[id/32]>>(id%32)&1 != 0 {
			bits[id/32] &^= 1 << (id % 32)
			taken = append(taken, id)
		}
	}
	if !slices.ContainsFunc(bits, func(w uint32) bool { return w != 0 }) { // nothing else may come: the mask is right
		for _, id := range taken {
			bits[id/32] |= 1 << (id % 32)
		}
	}
	return nil
}

// Accept counts.
func (m *freshMask) Accept(token int32) error {
	m.given++
	if m.inner == nil {
		return nil
	}
	return m.inner.Accept(token)
}

// Forced asks the mask that is inside.
func (m *freshMask) Forced() []int32 {
	if m.inner == nil {
		return nil
	}
	return m.inner.Forced()
}

// brokenMask ends an answer with why its mask could not be made.
type brokenMask struct{ err error }

func (b brokenMask) Allowed([]uint32) error { return b.err }
func (b brokenMask) Accept(int32) error     { return b.err }
func (brokenMask) Forced() []int32          { return nil }
