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
	s.hostTokens(b, h)
	if cap(s.chosen) < b.Wanted {
		s.chosen = make([]int32, 0, 2*b.Wanted)
	}
	wanted := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		end := r.First + r.Rows
		row := end
		for row > r.First && b.Rows[row-1].Want && !b.Rows[row-1].Known {
			row--
		}
		c, from := choiceOf(r.Seq), len(s.chosen)
		first, err := s.known(c, b, r, wanted)
		stop := false
		recent := r.Seq.Tokens()
		for at := first; row < end && err == nil; row, at = row+1, at+1 {
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

// known notes the log-probabilities of those tokens of the prompt that follow rows of a run; its wanted rows begin at
// place at of a step's results. It gives the place of the first one behind which a token is chosen.
func (s *Scheduler) known(c *choice, b *schedule.Batch, r *schedule.Run, at int) (int, error) {
	h, tokens := c.handle, r.Seq.Tokens()
	for _, row := range b.Rows[r.First : r.First+r.Rows] {
		if !row.Known {
			break
		}
		if int(row.Pos) == len(h.prompt) { // not computed again behind a preemption
			p, err := Logprob(s.logitsOf(at), tokens[row.Pos+1], h.request.Logprobs)
			if err != nil {
				return at, fmt.Errorf("behind position %d: %w", row.Pos, err)
			}
			h.mu.Lock()
			h.prompt = append(h.prompt, Token{ID: p.ID, Logprob: p.Logprob, Top: p.Top})
			h.mu.Unlock()
		}
		at++
	}
	return at, nil
}

// token chooses one from the wanted row at of a step's results.
func (s *Scheduler) token(c *choice, at int, h how, recent []int32) (t Token, err error) {
	t.Choice = c.number
	host := s.byHost(at, h)
	switch {
	case host:
		if at < len(s.early) && s.early[at].run != nil {
			t, err = s.early[at].Token, s.early[at].err
		} else {
			err = s.hostToken(c, at, recent, &s.bits, &t)
		}
	case h.drawn:
		t.ID, err = s.drawnToken(c, at, h.picks, len(recent))
	default:
		if i, ok := Finite(s.batch.logits[at*h.picks : (at+1)*h.picks]); !ok {
			return t, fmt.Errorf("logit %d is %v", i, s.batch.logits[at*h.picks+i])
		}
		if err = s.candidates(at, h.picks); err == nil {
			t.ID = c.sampler.among(s.picked, len(recent))
		}
	}
	if err == nil && !host {
		err = s.thought(c, at, h, &t)
	}
	if err == nil && c.mask != nil && (c.handle.request.End == nil || !c.handle.request.End(t.ID)) {
		err = c.mask.Accept(t.ID)
	}
	return t, err
}

// early is a token that was chosen beside those of other sequences.
type early struct {
	Token
	err  error
	run  *schedule.Run // whose first it is; nil: it was not chosen so
	bits []uint32      // of a mask
}

// manyLogits is from how many logits of a step on the host chooses from those of several rows at once.
const manyLogits = 1 << 16

// hostTokens chooses the first token of each run that the host chooses for from all its logits, side by side, where
// those are many.
func (s *Scheduler) hostTokens(b *schedule.Batch, h how) {
	for i := range s.early {
		s.early[i].run = nil
	}
	rows := b.Wanted
	if h.picks > 0 {
		rows = 0
		for i := range s.drawing {
			rows = max(rows, s.drawing[i].whole)
		}
	}
	if rows < 2 || rows*s.engine.first.Outputs[0].Shape.Last() < manyLogits {
		return
	}
	for len(s.early) < b.Wanted {
		s.early = append(s.early, early{})
	}
	wanted := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		first := true
		for j := r.First; j < r.First+r.Rows; j++ {
			if !b.Rows[j].Want {
				continue
			}
			if !b.Rows[j].Known {
				if first && (h.picks == 0 || s.drawing[wanted].whole > 0) {
					s.early[wanted].run = r
				}
				first = false
			}
			wanted++
		}
	}
	s.hands.each(b.Wanted, s.chooseRow)
}

// chooseEarly chooses the token of a wanted row that is the first of its run.
func (s *Scheduler) chooseEarly(at int) {
	e := &s.early[at]
	if e.run == nil {
		return
	}
	c := choiceOf(e.run.Seq)
	e.Token = Token{Choice: c.number}
	e.err = s.hostToken(c, at, e.run.Seq.Tokens(), &e.bits, &e.Token)
}

// logitsOf are all logits of a wanted row that the host looks at.
func (s *Scheduler) logitsOf(at int) []float32 {
	width := s.engine.first.Outputs[0].Shape.Last()
	from := s.batch.logits
	if at < len(s.drawing) { // the device chooses for others
		from, at = s.batch.whole, s.drawing[at].whole-1
	}
	return from[at*width : (at+1)*width]
}

// hostToken chooses from all logits of a wanted row. bits is room for a mask.
func (s *Scheduler) hostToken(c *choice, at int, recent []int32, bits *[]uint32, t *Token) error {
	logits := s.logitsOf(at)
	best, ok := greatest(logits)
	if !ok {
		i, _ := Finite(logits)
		return fmt.Errorf("logit %d is %v", i, logits[i])
	}
	var allowed []uint32
	if c.mask != nil {
		*bits = grown(*bits, maskWords(len(logits)))
		allowed = *bits
		if err := c.mask.Allowed(allowed); err != nil {
			return err
		}
	}
	var err error
	if n := c.handle.request.Logprobs; n > 0 {
		var chosen Chosen
		chosen, err = c.sampler.choose(logits, best, recent, allowed, n)
		t.ID, t.Logprob, t.Top = chosen.ID, chosen.Logprob, slices.Clone(chosen.Top)
	} else {
		t.ID, err = c.sampler.sample(logits, best, recent, allowed)
	}
	return err
}
