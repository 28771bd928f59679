package engine

import "fmt"

// Rewind forgets what lies behind the first pos tokens of the sequence, which
// stay in the caches: the next step computes position pos again.
func (s *Session) Rewind(pos int) error {
	if pos < 0 || pos > s.pos {
		return fmt.Errorf("a sequence of %d tokens cannot go back to %d", s.pos, pos)
	}
	s.pos = pos
	return nil
}

// Rewinds says whether a sequence can go back to any of its positions and be continued as if it had
// ended there: all that the model keeps are rows for each position. A recurrence's state has
// forgotten where it was.
func (e *Engine) Rewinds() bool {
	for _, v := range e.first.States {
		if len(v.Shape) != 3 || v.Shape[0] != e.opt.Context {
			return false
		}
	}
	return true
}
