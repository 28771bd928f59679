package engine

import (
	"fmt"
	"math"
	"slices"

	"greta/engine/schedule"
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
		most = min(bucket([]int{8, 64, 256}, most), s.engine.dev.Info().Picks, s.engine.first.Outputs[0].Shape.Last())
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
	if i, ok := Finite(logits); !ok {
		return t, fmt.Errorf("logit %d is %v", i, logits[i])
	}
	if picks > 0 {
		c.sampler.cand = c.sampler.cand[:0]
		for i, v := range logits {
			id := s.batch.picked[at*width+i]
			if id < 0 || int(id) >= s.engine.first.Outputs[0].Shape.Last() {
				return t, fmt.Errorf("the device chose token %d", id)
			}
			c.sampler.cand = append(c.sampler.cand, candidate{id, v})
		}
		t.ID = c.sampler.among(c.sampler.cand)
		return t, nil
	}
	n := c.handle.request.Logprobs
	sum := 0.0
	if n > 0 {
		sum = logSum(logits)
		t.Top = s.top(logits, n, sum)
	}
	own := logits
	if n > 0 { // the choice may change them
		s.own = append(s.own[:0], logits...)
		own = s.own
	}
	if err := s.mask(c, own); err != nil {
		return t, err
	}
	var err error
	if t.ID, err = c.sampler.Sample(own, recent); err != nil {
		return t, err
	}
	if n > 0 {
		t.Logprob = float32(float64(logits[t.ID]) - sum)
	}
	if c.mask != nil && (c.handle.request.End == nil || !c.handle.request.End(t.ID)) {
		err = c.mask.Accept(t.ID)
	}
	return t, err
}

// mask takes tokens that may not come next out of the choice.
func (s *Scheduler) mask(c *choice, logits []float32) error {
	if c.mask == nil {
		return nil
	}
	s.bits = grown(s.bits, (len(logits)+31)/32)
	if err := c.mask.Allowed(s.bits); err != nil {
		return err
	}
	any := false
	for i := range logits {
		if s.bits[i/32]>>(i%32)&1 == 0 {
			logits[i] = float32(math.Inf(-1))
		} else {
			any = true
		}
	}
	if !any {
		return fmt.Errorf("the mask allows none of the %d tokens", len(logits))
	}
	return nil
}

// logSum is the logarithm of the sum of the powers of e.
func logSum(x []float32) float64 {
	top := float64(slices.Max(x))
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum)
}

// top gives the n most likely tokens, the best first.
func (s *Scheduler) top(logits []float32, n int, sum float64) []TokenLogprob {
	n = min(n, len(logits))
	best := make([]TokenLogprob, 0, n+1)
	for i, v := range logits {
		if len(best) == n && v <= best[n-1].Logprob {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, v, func(t TokenLogprob, v float32) int {
			if t.Logprob >= v {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, TokenLogprob{int32(i), v})
		best = best[:min(n, len(best))]
	}
	for i := range best {
		best[i].Logprob = float32(float64(best[i].Logprob) - sum)
	}
	return best
}
