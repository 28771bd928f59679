package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPendingErrors: where a program of several steps fails, or one of its steps gives no number,
// the tokens before come, and the session stands behind them and works.
func TestPendingErrors(t *testing.T) {
	dev := &chaining{Device: newCPU(t, 1), launches: 256, picks: 40}
	e := newEngine(t, Options{Model: small(t), Device: dev, Context: 64})
	s := newSession(t, e)
	prompt := []int32{3, 1, 4}
	if err := s.Prepare(len(prompt), &Sampling{}, true); err != nil {
		t.Fatal(err)
	}
	if s.pending.links < 2 {
		t.Skipf("a step takes %v here", s.pending.pace)
	}
	s.pending.links = 8
	whole, err := s.Generate(t.Context(), prompt, Generation{Max: 40})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		fail  int // of the submissions: the prompt, then programs of eight steps
		nan   int // of the reads of four bytes: logit and token of each step
		given int
		pos   int
		err   string
	}{
		{"the second program fails", 3, 0, 9, 3 + 8, "it broke"},
		{"the eleventh token has no logit", 0, 1 + 2*10, 10, 3 + 10, fmt.Sprintf("behind position %d is [NaN]", 3+9)},
		{"the first of a program has none", 0, 1 + 2*9, 9, 3 + 9, fmt.Sprintf("behind position %d is [NaN]", 3+8)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.Reset()
			dev.fail, dev.broken = 0, 0
			if c.fail > 0 {
				dev.fail = dev.begun + c.fail
			} else {
				dev.broken = dev.reads + c.nan
			}
			emitted := 0
			g, err := s.Generate(t.Context(), prompt, Generation{Max: 40, Emit: func(int32) bool { emitted++; return true }})
			if err == nil || !strings.Contains(err.Error(), c.err) || !slices.Equal(g.Tokens, whole.Tokens[:c.given]) ||
				emitted != c.given || s.Pos() != c.pos {
				t.Fatalf("%v, %d tokens, %d told of, position %d; %q, %d and position %d are wanted", err, len(g.Tokens), emitted,
					s.Pos(), c.err, c.given, c.pos)
			}
			if err := s.Rewind(3 + c.given - 1); err != nil {
				t.Fatal(err)
			}
			more, err := s.Generate(t.Context(), g.Tokens[c.given-1:], Generation{Max: 40 - c.given})
			if err != nil || !slices.Equal(more.Tokens, whole.Tokens[c.given:]) {
				t.Errorf("afterwards: %v, other tokens than without an error", err)
			}
		})
	}
	s.Reset()
	emitted := 0
	_, err = s.Generate(t.Context(), prompt, Generation{Max: 40, Emit: func(int32) bool {
		if emitted++; emitted == 5 {
			s.Close()
		}
		return true
	}})
	if !errors.Is(err, errClosed) || emitted != 5 {
		t.Errorf("closed at the fifth token: %v, %d tokens", err, emitted)
	}
}

// TestPendingRoom: where there is no room for a program of several steps, tokens come singly, and a note says so.
func TestPendingRoom(t *testing.T) {
	var notes []string
	dev := &chaining{Device: newCPU(t, 1), launches: 256, picks: 40, full: true}
	e := newEngine(t, Options{Model: small(t), Device: dev, Context: 64, Notify: func(note string) {
		notes = append(notes, note)
	}})
	for _, prepare := range []bool{true, false} {
		notes = nil
		s := newSession(t, e)
		s.pending.links, s.pending.paced = 8, paceSteps
		if prepare {
			if err := s.Prepare(3, &Sampling{}, true); err != nil {
				t.Fatal(err)
			}
		}
		g, err := s.Generate(t.Context(), []int32{3, 1, 4}, Generation{Max: 40})
		if err != nil || len(g.Tokens) != 40 || s.Pos() != 3+39 {
			t.Errorf("%d tokens, position %d, %v", len(g.Tokens), s.Pos(), err)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], "one by one") || !strings.Contains(notes[0], "no room") {
			t.Errorf("notes: %q", notes)
		}
	}
}

// TestPace: as many tokens are computed at once as are soon there.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		steps []time.Duration
		want  int
	}{{[]time.Duration{time.Millisecond}, 0}, {[]time.Duration{90 * time.Millisecond, 3 * time.Millisecond}, 8},
		{[]time.Duration{5 * time.Millisecond, 9 * time.Millisecond}, 4},
		{[]time.Duration{40 * time.Millisecond, 41 * time.Millisecond, time.Millisecond}, 1}, {[]time.Duration{0, 0}, 8}} {
		var p pending
		for _, d := range c.steps {
			p.time(d, 32*time.Millisecond)
		}
		if p.links != c.want {
			t.Errorf("steps of %v: %d tokens at once, not %d", c.steps, p.links, c.want)
		}
	}
}

// TestPendingWithin: a text that is generated in the session itself while another one is told of leaves it no tokens.
func TestPendingWithin(t *testing.T) {
	var texts [2][]int32
	for i, launches := range []int{0, 256} {
		dev := &chaining{Device: newCPU(t, 1), launches: launches, picks: 40}
		e := newEngine(t, Options{Model: small(t), Device: dev, Context: 64})
		s := newSession(t, e)
		s.pending.links, s.pending.paced = 8, paceSteps
		n := 0
		g, err := s.Generate(t.Context(), []int32{3, 1, 4}, Generation{Max: 30, Emit: func(int32) bool {
			if n++; n == 4 {
				_, err := s.Generate(t.Context(), []int32{9}, Generation{Max: 20, End: func(int32) bool { n++; return n == 8 }})
				if err != nil {
					t.Error(err)
				}
			}
			return true
		}})
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = g.Tokens
	}
	if !slices.Equal(texts[0], texts[1]) {
		t.Errorf("step by step %v, several at once %v", texts[0], texts[1])
	}
}
