package engine

import (
	"fmt"
	"math/bits"
	"time"
)

// Where the device chooses the next token and takes programs of several steps, such a program computes several tokens,
// each from that which the step before chose, and the host reads them when all are there: what a token takes on the
// way to the device and back is paid once for all of them. The session is then as if only the steps had been run whose
// tokens were given: caches are overwritten behind its position before they are read there.

const (
	// mostLinks is how many tokens a program computes at most. With more, capturing it takes longer and little is won.
	mostLinks = 8
	// paceSteps is how many single steps are timed before programs of several are captured.
	paceSteps = 2
)

// pending are tokens that were chosen on the device and not given yet; the first one's place is the session's position.
// Whoever moves that, or submits a step, drops them.
type pending struct {
	tokens []int32
	at     int       // of the next one in tokens
	err    error     // of the step behind the last one; nil: it has none
	times  stepTimes // of each token

	links int           // how many tokens a program computes; 0: not known yet, 1: no more than one
	pace  time.Duration // the shortest time of a single step
	paced int           // how many were timed
}

// valid says whether there is something to take.
func (s *Session) valid() bool {
	p := &s.pending
	return p.at < len(p.tokens) || p.err != nil
}

// Ready is how many tokens behind the last one that Generate gave are computed already, in one program with it.
func (s *Session) Ready() int {
	if !s.valid() {
		return 0
	}
	return len(s.pending.tokens) - s.pending.at
}

// drop forgets the tokens that were not given.
func (p *pending) drop() { p.tokens, p.at, p.err = p.tokens[:0], 0, nil }

// time notes what a single step with a choice took, where a program of several may take limit.
func (p *pending) time(took, limit time.Duration) {
	if p.paced++; p.paced == 1 || took < p.pace {
		p.pace = took
	}
	if p.paced == paceSteps {
		n := min(mostLinks, uint64(limit/max(p.pace, 1)))
		p.links = 1 << (bits.Len64(max(n, 1)) - 1)
	}
}

// chains says whether a token that is chosen so can be computed in a program with those that follow.
func (s *Session) chains(h how) bool { return h.picks == 1 && h.tops == 0 && s.engine.chain }

// take gives the next of the tokens.
func (s *Session) take() (int32, error) {
	p := &s.pending
	s.pos++ // those behind it stay
	if p.at == len(p.tokens) {
		err := p.err
		p.drop()
		return 0, err
	}
	p.at++
	return p.tokens[p.at-1], nil
}

// several gives the program of several steps; nil where the device has no room for it: then tokens are computed singly.
func (s *Session) several() (*Step, error) {
	n := s.pending.links
	st, err := s.stepOf(stepKind{Tokens: 1, Rows: 1, picks: 1, chain: n}, nil)
	if err == nil || s.stream == nil || !s.engine.open {
		return st, err
	}
	s.pending.links = 1
	s.engine.notify(fmt.Sprintf("tokens are computed one by one, which is slower, as a program of %d cannot be "+
		"captured: %v", n, err))
	return nil, nil
}

// compute runs a program of several steps behind token t, if there is one, and reads the tokens that they chose.
func (s *Session) compute(t int32) error {
	s.enter()
	defer s.leave()
	step, p := s.start(), &s.pending
	p.drop()
	st, err := s.several()
	if st == nil {
		return err
	}
	links := st.chain
	s.one[0] = t
	if err := s.begin(st, s.one[:]); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	s.move(s.pos - links)
	for i := range links {
		if p.err = s.readPicks(st, i, s.pos+i); p.err != nil {
			break // what comes behind it is worth nothing
		}
		p.tokens = append(p.tokens, s.picked[0].id)
	}
	all, n := s.since(step), time.Duration(links)
	p.times = stepTimes{all.took / n, all.submit / n, all.host / n}
	return nil
}

// following gives the token behind t, and what its step took. So many tokens are still wanted, it included.
func (s *Session) following(t int32, wanted int, h how, sampler *Sampler, history []int32) (int32, stepTimes, error) {
	p := &s.pending
	if n := p.links; !s.valid() && n > 1 && n <= wanted && n <= s.Left() && s.chains(h) {
		if err := s.compute(t); err != nil {
			return 0, stepTimes{}, err
		}
	}
	if s.valid() {
		next, err := s.take()
		return next, p.times, err
	}
	step := s.start()
	s.one[0] = t
	next, err := s.choice(s.one[:], h, sampler, history)
	return next, s.since(step), err
}

// preparePending times single steps, which no later one sees, and captures a program of several.
func (s *Session) preparePending() error {
	st, err := s.stepOf(stepKind{Tokens: 1, Rows: 1, picks: 1}, nil)
	for s.pending.links == 0 && s.Left() > 0 && err == nil {
		s.one[0] = 0
		if err = s.single(st, s.one[:]); err == nil {
			s.move(s.pos - 1)
		}
	}
	if n := s.pending.links; n > 1 && s.Left() >= n && err == nil {
		_, err = s.several()
	}
	return err
}

// single runs one step to its end.
func (s *Session) single(st *Step, tokens []int32) error {
	start := time.Now()
	if err := s.begin(st, tokens); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	if st.Tokens == 1 && s.chains(how{picks: st.picks, tops: st.tops}) {
		s.pending.time(time.Since(start), s.engine.opt.MultistepTime)
	}
	return nil
}
