package engine

import (
	"context"
	"fmt"

	"github.com/greta-project/greta/backends"
)

// Observe runs tokens eagerly from the session's position on, in chunks of the prompt's length at most, and shows every
// launch when it has ended: what it read and wrote can be read, in float64. Nobody else
// may use the device meanwhile.
func (s *Session) Observe(ctx context.Context, tokens []int32, each func(l *backends.Launch,
	read func(o *backends.Operand) ([]float64, error)) error) error {
	read := func(o *backends.Operand) ([]float64, error) { return readOperand(s.stream, o) }
	for len(tokens) > 0 {
		n := min(len(tokens), s.engine.opt.Chunk)
		st, err := s.oneByOne(ctx, tokens[:n], func(_ *Step, l *backends.Launch, done bool) error {
			if !done {
				return nil
			}
			return each(l, read)
		})
		if err != nil {
			return err
		}
		s.move(s.pos + st.Tokens)
		tokens = tokens[n:]
	}
	return nil
}

// oneByOne runs a step's launches one by one; visit is called before and after each.
func (s *Session) oneByOne(ctx context.Context, tokens []int32,
	visit func(st *Step, l *backends.Launch, done bool) error) (*Step, error) {
	st, err := s.prepare(feed{tokens: tokens})
	if err != nil {
		return nil, err
	}
	for i := range st.Program.Launches {
		l := &st.Program.Launches[i]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := visit(st, l, false); err != nil {
			return nil, err
		}
		if err := s.stream.Launch(l); err != nil {
			return nil, fmt.Errorf("%v: %w", l.Node, err)
		}
		if err := visit(st, l, true); err != nil {
			return nil, err
		}
	}
	return st, nil
}
