package engine

import (
	"context"
	"errors"
	"time"
)

// Generation says how far a text is continued.
type Generation struct {
	Max      int // tokens at most; 0: until an end token or the context is full
	Sampling Sampling
	Logprobs int                    // of how many of the best tokens Generated.Logprobs tells; 0: it tells nothing
	End      func(token int32) bool // end of generation; nil: never
	// Emit is told each token as it comes, end tokens included; false stops.
	Emit func(token int32) bool
	// Past are tokens already in the caches, for the repeat penalty.
	Past []int32
}

// Stop is why a generation ended.
type Stop string

// The reasons.
const (
	StopMax         Stop = "max"         // as many tokens as asked for
	StopEnd         Stop = "end"         // an end token
	StopContext     Stop = "context"     // the caches are full
	StopEmit        Stop = "stop"        // Emit said so: a stop string
	StopInterrupted Stop = "interrupted" // the context ended
)

// Generated is what came out, with the times that it took. It is valid, as
// far as it goes, also beside an error.
type Generated struct {
	Tokens []int32
	Stop   Stop
	// Logprobs are each token's log-probability and those of the best, where they are asked for. With
	// penalties or more than 32 of the best all logits then come to the host.
	Logprobs []Chosen
	Prompt   int           // tokens of the prompt
	Cached   int           // of them, those that a scheduler knew
	Prefill  time.Duration // the prompt's steps
	First    time.Duration // from the call to the first token
	// Steps are the times of each decode step with its sampling. Of steps that the device computes
	// in one program, it is each one's share of the time from the program's beginning until its
	// tokens were read; what it computed behind the last token given is in no time.
	Steps []time.Duration
	// Where the device does not compute on the host, of each decode step: Submit is the
	// time from its beginning, inputs included, until its submission returned; Host is all
	// of it, with reading and choosing, that was not waiting for the device.
	Submit, Host []time.Duration
}

// Generate computes the prompt and continues it. When ctx ends it stops after
// the step at hand, which for a chunk of a long prompt is that chunk.
//
// Where the device chooses the tokens and takes programs of several steps, it computes up to eight tokens
// at once, as many as take 32 ms, which come together; where the program fails none of them comes.
// Tokens, caches and position are those of single steps.
func (s *Session) Generate(ctx context.Context, prompt []int32, opt Generation) (*Generated, error) {
	if err := opt.Sampling.Validate(); err != nil {
		return &Generated{}, err
	}
	sampler := NewSampler(opt.Sampling)
	sampler.logs = opt.Logprobs
	limit := opt.Max
	if limit <= 0 {
		limit = s.Left()
	}
	most := min(limit, s.Left()) + 1
	g := &Generated{Prompt: len(prompt), Tokens: make([]int32, 0, most), Steps: make([]time.Duration, 0, most)}
	if s.engine.queued {
		g.Submit, g.Host = make([]time.Duration, 0, most), make([]time.Duration, 0, most)
	}
	history := make([]int32, 0, len(opt.Past)+len(prompt)+cap(g.Tokens))
	history = append(append(history, opt.Past...), prompt...)
	defer func() { g.Logprobs = sampler.log[:min(len(sampler.log), len(g.Tokens))] }()
	defer s.pending.drop() // what is left was chosen behind this text
	start := time.Now()
	t, h, err := s.opening(ctx, prompt, g, sampler, history)
	if err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			g.Stop, err = StopInterrupted, nil
		}
		return g, err
	}
	for {
		g.Tokens = append(g.Tokens, t)
		history = append(history, t)
		if len(g.Tokens) == 1 {
			g.First = time.Since(start)
		}
		goOn := opt.Emit == nil || opt.Emit(t)
		switch {
		case opt.End != nil && opt.End(t):
			g.Stop = StopEnd
		case !goOn:
			g.Stop = StopEmit
		case len(g.Tokens) >= limit:
			g.Stop = StopMax
		case s.Left() == 0:
			g.Stop = StopContext
		case ctx.Err() != nil:
			g.Stop = StopInterrupted
		}
		if g.Stop != "" {
			return g, nil
		}
		var times stepTimes
		if t, times, err = s.following(t, limit-len(g.Tokens), h, sampler, history); err != nil {
			return g, err
		}
		if g.Steps = append(g.Steps, times.took); s.engine.queued {
			g.Submit, g.Host = append(g.Submit, times.submit), append(g.Host, times.host)
		}
	}
}

// opening computes the prompt and chooses the first token; the others are chosen so too.
func (s *Session) opening(ctx context.Context, prompt []int32, g *Generated, sampler *Sampler,
	history []int32) (t int32, h how, err error) {
	s.enter()
	defer s.leave()
	h = s.engine.alone(sampler.opt, sampler.logs)
	start := time.Now()
	st, err := s.prefill(ctx, prompt, h)
	g.Prefill = time.Since(start)
	if err != nil {
		return 0, how{}, err
	}
	t, err = s.chosen(st, sampler, history)
	return t, h, err
}
