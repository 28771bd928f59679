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
