package engine

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/greta-project/greta/internal/errlist"
)

// DecodeAll computes tokens that are all known, each in a step of its own, and hands the
// logits behind each to row, in order: to the bit what as many calls of Decode give, but
// the host does not wait between them. The logits are overwritten when row returns. It
// ends with the first error of a step or of row, and soon when ctx does; the session is
// then behind the last token that row was told of. Row may use other sessions, not this one.
func (s *Session) DecodeAll(ctx context.Context, tokens []int32, row func(i int, logits []float32) error) error {
	if err := s.check(tokens); err != nil {
		return err
	}
	return s.sequence(ctx, len(tokens), row, func(st *Step, from, to int) error {
		return s.submit(st, tokens[from:to])
	})
}

// BlockAll runs a block on rows x, each in a step of its own, and hands the output of
// each to row, in order: to the bit what as many calls of Block with one row give, but
// the host does not wait between them. In all else it is as DecodeAll. Block with all of the rows
// computes the same positions at once, as those of a prompt.
func (s *Session) BlockAll(ctx context.Context, x []float32, row func(i int, out []float32) error) error {
	width, n, err := s.blockRows(x)
	if err != nil {
		return err
	}
	return s.sequence(ctx, n, row, func(st *Step, from, to int) error {
		if err := s.writeActivations(st, x[from*width:to*width]); err != nil {
			return err
		}
		return s.submit(st, nil)
	})
}

// chain is how many steps of one token the device would rather have in one program; 0
// where it takes them singly.
func (s *Session) chain() (int, error) {
	most := s.engine.running.Chain
	if most == 0 || !s.engine.queued {
		return 0, nil
	}
	st, err := s.stepOf(stepKind{Tokens: 1, Rows: 1}, nil)
	if err != nil {
		return 0, err
	}
	n := most / max(1, len(st.Program.Launches))
	if n < 2 {
		return 0, nil
	}
	return 1 << (bits.Len(uint(n)) - 1), nil // a power of two: lengths that people take are multiples
}

// link is a step of a sequence, or a chain of them: those in [from, to).
type link struct {
	st       *Step
	from, to int
}

// sequence computes n steps of one token; submit fills in and submits those in [from, to).
// While the device computes them what came before is read.
func (s *Session) sequence(ctx context.Context, n int, row func(i int, out []float32) error,
	submit func(st *Step, from, to int) error) (err error) {
	s.enter()
	defer s.leave()
	chain, err := s.chain()
	if err != nil {
		return err
	}
	begin, told, whole := s.pos, 0, false
	defer func() { // also where row panics
		if !whole && s.stream != nil {
			err = errlist.Join(err, s.settle())
			s.move(begin + told)
		}
	}()
	named := func(l link, err error) error {
		if err == nil {
			return nil
		}
		if l.to == l.from+1 {
			return fmt.Errorf("step %d of %d: %w", l.to, n, err)
		}
		return fmt.Errorf("steps %d to %d of %d: %w", l.from+1, l.to, n, err)
	}
	var before link // submitted, and not read
	read := func() error {
		l := before
		before = link{}
		if l.st == nil {
			return nil
		}
		if s.flying == l.st {
			s.flying = nil
		}
		if err := s.wait(l.st); err != nil {
			return named(l, err)
		}
		for i := l.from; i < l.to; i++ {
			if err := s.readLink(l.st, i-l.from); err != nil {
				return named(link{l.st, i, i + 1}, err)
			}
			told++
			at, flying := s.pos, s.flying
			switch err := s.outside(func() error { return row(i, s.logits) }); {
			case err != nil:
				return err
			case s.stream == nil:
				return errClosed
			case s.pos != at || s.flying != flying:
				return errors.New("the session was used while row was told of its steps")
			}
		}
		return nil
	}
	for from := 0; from < n && err == nil; {
		if err = ctx.Err(); err != nil {
			break
		}
		kind, to := stepKind{Tokens: 1, Rows: 1}, from+1
		if chain > 0 && from+chain <= n {
			kind.chain, to = chain, from+chain
		}
		next := link{from: from, to: to}
		if next.st, err = s.stepOf(kind, s.flying); err == nil {
			err = named(next, submit(next.st, from, to))
		}
		if err == nil {
			err = read()
			before, from = next, to
		}
		if err == nil && !s.engine.queued {
			err = read()
		}
	}
	if err == nil {
		err = read()
	}
	whole = err == nil
	return err
}
