package engine

import (
	"fmt"

	"github.com/greta-project/greta/backends"
)

// Rewind forgets what lies behind the first pos tokens of the sequence, which
// stay in the caches: the next step computes position pos again. A recurrence's state has
// forgotten where it was: where the model has one, the sequence goes back to its beginning, to the position before
// its last step, to that of Keep, and an error says so for others.
func (s *Session) Rewind(pos int) error {
	if pos < 0 || pos > s.pos {
		return fmt.Errorf("a sequence of %d tokens cannot go back to %d", s.pos, pos)
	}
	k := &s.kept
	if pos < s.pos && pos > 0 && !s.engine.Rewinds() && pos != k.before {
		if k.states == nil || pos != k.pos {
			return fmt.Errorf("a sequence of %d tokens cannot go back to %d: %s keeps a recurrence's state, which has "+
				"forgotten it; begin the sequence again", s.pos, pos, s.engine.opt.Model.Name())
		}
		if err := s.inTurn(func() error { return s.copyKept(false) }); err != nil {
			return err
		}
	}
	if pos < k.pos {
		k.pos = 0
	}
	if pos < s.pos {
		k.before = 0
	}
	s.move(pos)
	return nil
}

// Rewinds says whether a sequence can go back to any of its positions and be continued as if it had
// ended there: all that the model keeps are rows for each position. A recurrence's state has
// forgotten where it was.
func (e *Engine) Rewinds() bool { return e.slotBytes() == 0 }

// keptState is what a session knows of the places that a recurrence's state can go back to.
type keptState struct {
	pos    int // behind which Keep was called; 0: none is kept
	before int // where the last step began; 0: none
	states map[string]backends.Buffer
	host   []byte // a state on its way, where the device does not copy
}

// Keep keeps the recurrences' states as they are, so that Rewind can come back here; what was kept before is forgotten.
// Models without recurrences keep all positions anyway.
func (s *Session) Keep() error {
	if s.engine.Rewinds() {
		return nil
	}
	return s.inTurn(func() error {
		if s.stream == nil {
			return errClosed
		}
		k := &s.kept
		k.pos = 0
		if k.states == nil {
			k.states = map[string]backends.Buffer{}
		}
		for _, v := range s.engine.first.States {
			if s.engine.isPaged(v) || k.states[v.Name] != nil {
				continue
			}
			b, err := s.engine.dev.Alloc(v.Bytes(), backends.States)
			if err != nil {
				return fmt.Errorf("to keep the state %s: %w", v, err)
			}
			k.states[v.Name] = b
		}
		err := s.copyKept(true)
		if err == nil {
			k.pos = s.pos
		}
		return err
	})
}

// copyKept copies the recurrences' states to what is kept, or back.
func (s *Session) copyKept(keep bool) error {
	if err := s.settle(); err != nil {
		return err
	}
	for name, kept := range s.kept.states {
		from, to := kept, s.states[name]
		if keep {
			from, to = to, from
		}
		if device, ok := s.stream.(copier); ok {
			if err := device.Copy(to, 0, from, 0, from.Size()); err != nil {
				return err
			}
			continue
		}
		s.kept.host = grown(s.kept.host, from.Size())
		if err := s.stream.Read(from, 0, s.kept.host); err != nil {
			return err
		}
		if err := s.stream.Write(to, 0, s.kept.host); err != nil {
			return err
		}
	}
	return nil
}

// back goes back to pos, or where a recurrence cannot, to a place before it, and says to which.
func (s *Session) back(pos int) (int, error) {
	if !s.engine.Rewinds() && pos != s.pos && pos != s.kept.before {
		if pos < s.kept.pos {
			pos = 0
		}
		pos = min(pos, s.kept.pos)
	}
	return pos, s.Rewind(pos)
}
