package engine

import (
	"github.com/greta-project/greta/engine/draft"
	"github.com/greta-project/greta/engine/schedule"
)

// Speculation: guesses of the tokens that follow are computed in the same step as the token they follow, and those
// are kept that the choice would have been anyway, so that a text is the one without. Right guesses cost a row each
// instead of a step each.

// Drafter guesses the tokens of one sequence. It is used by the scheduler's goroutine.
type Drafter interface {
	// Propose appends to dst tokens that may follow, most at most. It must not keep the slices.
	Propose(tokens, dst []int32, most int) []int32
	// Verified says how many of the last guesses were computed, and how many of these were right.
	Verified(tried, accepted int)
}

// NGrams makes drafters that guess from what repeats in the prompt and the text, see draft.NGram. It is for
// SchedulerOptions.Draft.
func NGrams(_ Sampling, cost func(guesses int) float64) Drafter { return draft.New(cost) }

// draftInto tells the plan how to ask for guesses.
func (s *Scheduler) draftInto(po *schedule.Options, make func(o Sampling,
	cost func(guesses int) float64) Drafter) {
	if make == nil {
		return
	}
	po.Draft = func(q *schedule.Seq, dst []int32, most int) []int32 {
		c := choiceOf(q)
		if c.drafter == nil && c.stop == "" {
			c.drafter = make(c.sampler.opt, s.times.Cost)
		}
		if c.drafter == nil {
			return dst
		}
		return c.drafter.Propose(q.Tokens(), dst, most)
	}
	po.Verified = func(q *schedule.Seq, tried, accepted int) {
		if d := choiceOf(q).drafter; d != nil {
			d.Verified(tried, accepted)
		}
	}
}
