package schedule

import (
	"errors"
	"slices"
)

var errEmpty = errors.New("schedule: the prompt is empty: a sequence begins with at least one token")

// Done takes a step's results, one a run of b, in order. Sequences that ended
// have given their pages back when it returns.
func (c *Scheduler) Done(b *Batch, results []Result) {
	for i := range b.Runs {
		c.done(&b.Runs[i], &results[i])
	}
}

func (c *Scheduler) done(run *Run, r *Result) {
	s := run.Seq
	if s.where == ended || run.epoch != s.epoch && len(r.Tokens) == 0 {
		c.keepNot(run)
		return
	}
	if len(r.Tokens) > 0 {
		s.pending--
	}
	here := run.epoch == s.epoch && s.where == running
	if run.epoch == s.epoch {
		s.computed = run.Start + run.Rows - run.Draft
	}
	for _, t := range r.Tokens {
		s.tokens = append(s.tokens, t)
		if len(s.tokens) == s.max {
			break
		}
	}
	if run.Draft > 0 && run.epoch == s.epoch {
		accepted := max(0, len(r.Tokens)-1)
		c.stats.Accepted += accepted
		for i := range accepted {
			c.stats.AcceptedAt[i]++
		}
		if c.opt.Verified != nil {
			c.opt.Verified(s, run.Draft, accepted)
		}
		s.computed += min(accepted, len(s.tokens)-1-s.computed)
		s.planned, s.drafting = s.computed, false
		if here {
			c.pool.Truncate(s, s.computed)
		}
	}
	if here {
		was := s.chained
		c.pool.Learn(s, int32(run.Keep))
		for i := was; i < s.chained && c.opt.Learned != nil; i++ {
			if g := s.pages[i]; c.pool.known[g] {
				c.opt.Learned(s, g, c.pool.index.hash[g])
			}
		}
	} else {
		c.keepNot(run)
	}
	if len(s.forks) > 0 && s.computed >= s.prompt-1 {
		c.release(s)
	}
	switch {
	case r.Stop:
		c.end(s, StopEnd)
	case len(s.tokens) == s.max && len(r.Tokens) > 0:
		stop := StopMax
		if s.toEnd {
			stop = StopContext
		}
		c.end(s, stop)
	}
}

func (c *Scheduler) keepNot(run *Run) {
	if run.Keep >= 0 {
		c.pool.slots = append(c.pool.slots, int32(run.Keep))
	}
}

// release lets those wait in the queue that waited for the prompt of s.
func (c *Scheduler) release(s *Seq) {
	for _, f := range s.forks {
		if f.where == forking {
			c.nfork--
			c.wait(f)
		}
	}
	s.forks = nil
}

// Abort takes b back: its rows were not computed, its moves were. Its sequences
// stay and are planned again. Of two batches that run the later is taken back first.
func (c *Scheduler) Abort(b *Batch) {
	for _, m := range b.Moves {
		if m.Kind == PageLoad { // it may be that what failed was the loading
			c.pool.forget(m.To)
		}
	}
	for i := range b.Runs {
		run := &b.Runs[i]
		s := run.Seq
		c.keepNot(run)
		if s.where == ended {
			continue
		}
		if run.wants {
			s.pending--
		}
		if run.epoch != s.epoch {
			continue
		}
		s.planned, s.drafting = run.Start, false
		if s.where == running && len(s.tokens)-s.planned > 1 && !s.fills {
			s.key.filling, s.fills = append(s.key.filling, s), true
		}
	}
}

// Cancel ends a sequence at any moment; its pages are free at once. A step that
// runs may still write to them: steps run in order, so that it does so before
// anyone else.
func (c *Scheduler) Cancel(s *Seq) {
	if s.where != ended {
		c.end(s, StopCanceled)
	}
}

func (c *Scheduler) end(s *Seq, why Stop) {
	switch s.where {
	case running:
		c.unlist(s)
	case waiting:
		s.key.waiting = slices.DeleteFunc(s.key.waiting, func(o *Seq) bool { return o == s })
		c.nwait--
	case forking:
		c.nfork--
	}
	s.where, s.stop = ended, why
	c.pool.Release(s)
	if s.lead == nil {
		c.promote(s)
	}
	s.lead = nil
	s.key.seqs--
	c.leave(s.key)
}

// promote lets the first of those that waited for the prompt of s compute it,
// where s did not.
func (c *Scheduler) promote(s *Seq) {
	forks := slices.DeleteFunc(s.forks, func(f *Seq) bool { return f.where != forking })
	s.forks = nil
	if len(forks) == 0 {
		return
	}
	first := forks[0]
	first.lead, first.forks = nil, forks[1:]
	for _, f := range first.forks {
		f.lead = first
	}
	c.nfork--
	c.wait(first)
}

// Stats says what the scheduler did and where it stands.
func (c *Scheduler) Stats() Stats {
	st := c.stats
	st.AcceptedAt = slices.Clone(st.AcceptedAt)
	st.Running, st.Waiting, st.WaitingFork = len(c.running), c.nwait+c.nfork, c.nfork
	for _, k := range c.ring {
		for _, s := range k.waiting {
			if s.ran {
				st.WaitingPreempted++
			}
		}
	}
	st.Pages, st.PagesKnown = c.opt.Pages, c.pool.unused
	st.PagesUsed = c.opt.Pages - c.pool.Free()
	return st
}

// Idle says that no sequence waits or runs.
func (c *Scheduler) Idle() bool { return len(c.running)+c.nwait+c.nfork == 0 }
