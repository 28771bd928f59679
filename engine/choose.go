package engine

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/engine/schedule"
)

// Choosing the tokens of a step, sequence by sequence, as each request wants it.

// choose chooses the tokens of a step: of a run whose last rows are guesses, tokens as long as they are those that were
// guessed, and one more.
func (s *Scheduler) choose(b *schedule.Batch, h how) {
	s.results, s.failed, s.given, s.chosen = s.results[:0], s.failed[:0], s.given[:0], s.chosen[:0]
	if cap(s.chosen) < b.Wanted {
		s.chosen = make([]int32, 0, 2*b.Wanted)
	}
	wanted := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		end := r.First + r.Rows
		row := end
		for row > r.First && b.Rows[row-1].Want {
			row--
		}
		c, from := choiceOf(r.Seq), len(s.chosen)
		var err error
		stop := false
		recent := r.Seq.Tokens()
		for at := wanted; row < end && err == nil; row, at = row+1, at+1 {
			var t Token
			if t, err = s.token(c, at, h, recent); err != nil {
				err = fmt.Errorf("behind position %d: %w", b.Rows[row].Pos, err)
				break
			}
			s.given, s.chosen = append(s.given, t), append(s.chosen, t.ID)
			stop = c.handle.request.End != nil && c.handle.request.End(t.ID)
			if stop || row+1 == end || b.Rows[row+1].Token != t.ID {
				break
			}
			if len(s.chosen) == from+1 {
				s.history = append(s.history[:0], recent...)
			}
			s.history = append(s.history, t.ID)
			recent = s.history
		}
		for j := r.First; j < end; j++ {
			if b.Rows[j].Want {
				wanted++
			}
		}
		s.results = append(s.results, schedule.Result{Tokens: s.chosen[from:len(s.chosen):len(s.chosen)], Stop: stop})
		s.failed = append(s.failed, err)
	}
}

// token chooses one from the wanted row at of a step's results.
func (s *Scheduler) token(c *choice, at int, h how, recent []int32) (t Token, err error) {
	t.Choice = c.number
	switch {
	case h.drawn:
		t.ID, err = s.drawnToken(c, at, h.picks, len(recent))
	case h.picks > 0:
		if i, ok := Finite(s.batch.logits[at*h.picks : (at+1)*h.picks]); !ok {
			return t, fmt.Errorf("logit %d is %v", i, s.batch.logits[at*h.picks+i])
		}
		if err = s.candidates(at, h.picks); err == nil {
			t.ID = c.sampler.among(s.picked, len(recent))
		}
	default:
		err = s.hostToken(c, at, recent, &t)
	}
	if err == nil && c.mask != nil && (c.handle.request.End == nil || !c.handle.request.End(t.ID)) {
		err = c.mask.Accept(t.ID)
	}
	return t, err
}

// hostToken chooses from all logits of a wanted row.
func (s *Scheduler) hostToken(c *choice, at int, recent []int32, t *Token) error {
	width := s.engine.first.Outputs[0].Shape.Last()
	logits := s.batch.logits[at*width : (at+1)*width]
	if c.mask == nil && c.handle.request.Logprobs == 0 && c.sampler.opt.Temperature == 0 && !c.sampler.opt.changes() {
		if best, ok := greatest(logits); ok {
			t.ID = best
			return nil
		}
	}
	if i, ok := Finite(logits); !ok {
		return fmt.Errorf("logit %d is %v", i, logits[i])
	}
	var allowed []uint32
	if c.mask != nil {
		s.bits = grown(s.bits, (len(logits)+31)/32)
		allowed = s.bits
		if err := c.mask.Allowed(allowed); err != nil {
			return err
		}
	}
	var err error
	if n := c.handle.request.Logprobs; n > 0 {
		var chosen Chosen
		chosen, err = c.sampler.Choose(logits, recent, allowed, n)
		t.ID, t.Logprob, t.Top = chosen.ID, chosen.Logprob, slices.Clone(chosen.Top)
	} else {
		t.ID, err = c.sampler.Masked(logits, recent, allowed)
	}
	return err
}
