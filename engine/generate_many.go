package engine

import (
	"context"
	"errors"
	"time"
)

// Generate continues one prompt by the scheduler's steps, as Session.Generate does by a session's: with speculation and
// prefixes that are known, beside other requests. Past must be empty. Of tokens that come together
// each has its share of the time that they took.
func (s *Scheduler) Generate(ctx context.Context, prompt []int32, opt Generation) (*Generated, error) {
	g := &Generated{Prompt: len(prompt)}
	if len(opt.Past) > 0 {
		return g, errors.New("a scheduler's sequence has no past beside its prompt")
	}
	start := time.Now()
	h, err := s.Add(ctx, Request{Prompt: prompt, Max: opt.Max, Sampling: opt.Sampling, End: opt.End,
		Logprobs: opt.Logprobs})
	if err != nil {
		if ctx.Err() != nil {
			g.Stop, err = StopInterrupted, nil
		}
		return g, err
	}
	var at []time.Duration
	emitted := false
	for t, err := range h.Tokens() {
		if err != nil {
			break // Result has it
		}
		at = append(at, time.Since(start))
		g.Tokens = append(g.Tokens, t.ID)
		if opt.Logprobs > 0 {
			g.Logprobs = append(g.Logprobs, Chosen{TokenLogprob{t.ID, t.Logprob}, t.Top})
		}
		if opt.Emit != nil && !opt.Emit(t.ID) {
			emitted = true
			break
		}
	}
	f := h.Result()
	g.Stop, g.Prefill, g.Cached = f.Choices[0].Stop, f.Prefill, f.Cached
	if emitted {
		g.Stop = StopEmit
	}
	if len(at) > 0 {
		g.First = at[0]
		g.Steps = shares(at)
	}
	if f.Err != nil && (errors.Is(f.Err, context.Canceled) || errors.Is(f.Err, context.DeadlineExceeded)) {
		g.Stop, f.Err = StopInterrupted, nil
	}
	return g, f.Err
}

// shares gives the times between tokens, those that came within a twentieth of a millisecond the same.
func shares(at []time.Duration) []time.Duration {
	const together = 50 * time.Microsecond
	steps := make([]time.Duration, 0, len(at))
	last := at[0]
	for i := 1; i < len(at); {
		j := i + 1
		for j < len(at) && at[j]-at[j-1] < together {
			j++
		}
		each := (at[j-1] - last) / time.Duration(j-i)
		for ; i < j; i++ {
			steps = append(steps, each)
		}
		last = at[j-1]
	}
	return steps
}
