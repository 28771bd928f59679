package engine

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/engine/schedule"
)

// Choosing the tokens of a step, sequence by sequence, as each request wants it.

// picks is how many of the most likely tokens the choices of a step need, 0 where one of them must see all logits.
func (s *Scheduler) picks(b *schedule.Batch) int {
	most := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		if !b.Rows[r.First+r.Rows-1].Want {
			continue
		}
		c := choiceOf(r.Seq)
		k := s.engine.picks(c.sampler.opt)
		if k == 0 || c.mask != nil || c.handle.request.Logprobs > 0 {
			return 0
		}
		most = max(most, k)
	}
	if most > 1 { // few kinds of steps
		most = min(bucket([]int{8, 64, 256}, most), s.engine.running.Picks, s.engine.first.Outputs[0].Shape.Last())
	}
	return most
}

// choose chooses the tokens of a step: of a run whose last rows are guesses, tokens as long as they are those that were
// guessed, and one more.
func (s *Scheduler) choose(b *schedule.Batch, picks int) {
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
			if t, err = s.token(c, at, picks, recent); err != nil {
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
func (s *Scheduler) token(c *choice, at, picks int, recent []int32) (Token, error) {
	t := Token{Choice: c.number}
	width := s.engine.first.Outputs[0].Shape.Last()
	if picks > 0 {
		width = picks
	}
	logits := s.batch.logits[at*width : (at+1)*width]
	if picks == 0 && c.mask == nil && c.handle.request.Logprobs == 0 && c.sampler.opt.Temperature == 0 &&
		!c.sampler.opt.changes() {
		if best, ok := greatest(logits); ok {
			t.ID = best
			return t, nil
		}
	}
	if i, ok := Finite(logits); !ok {
		return t, fmt.Errorf("logit %d is %v", i, logits[i])
	}
	if picks > 0 {
		s.picked = s.picked[:0]
		for i, v := range logits {
			id := s.batch.picked[at*width+i]
			if id < 0 || int(id) >= s.engine.first.Outputs[0].Shape.Last() {
				return t, fmt.Errorf("the device chose token %d", id)
			}
			s.picked = append(s.picked, candidate{id, v})
		}
		t.ID = c.sampler.among(s.picked, len(recent))
		return t, nil
	}
	var allowed []uint32
	if c.mask != nil {
		s.bits = grown(s.bits, (len(logits)+31)/32)
		allowed = s.bits
		if err := c.mask.Allowed(allowed); err != nil {
			return t, err
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
	if err == nil && c.mask != nil && (c.handle.request.End == nil || !c.handle.request.End(t.ID)) {
		err = c.mask.Accept(t.ID)
	}
	return t, err
}
