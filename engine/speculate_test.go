package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends"
)

// guesser guesses what is sometimes right.
type guesser struct{ tried, accepted int }

func newGuesser(Sampling, func(int) float64) Drafter { return &guesser{} }

func (g *guesser) Propose(tokens, dst []int32, most int) []int32 {
	for j := range min(most, 3) {
		dst = append(dst, (tokens[len(tokens)-1]*7+int32(j))%50)
	}
	return dst
}

func (g *guesser) Verified(tried, accepted int) {
	g.tried, g.accepted = g.tried+tried, g.accepted+accepted
}

// told guesses a text that it is told, with a mistake now and then.
type told struct {
	prompt int
	text   []int32
}

func (o *told) Propose(tokens, dst []int32, most int) []int32 {
	for i := len(tokens) - o.prompt; i < len(o.text) && most > 0; i, most = i+1, most-1 {
		t := o.text[i]
		if i%7 == 6 {
			t = (t + 1) % 50
		}
		dst = append(dst, t)
	}
	return dst
}

func (o *told) Verified(int, int) {}

// odd allows only tokens that differ from the last in being odd.
type odd struct{ last int32 }

func (m *odd) Allowed(bits []uint32) error {
	for i := range bits {
		bits[i] = 0x55555555 << ((m.last + 1) % 2)
	}
	return nil
}

func (m *odd) Accept(t int32) error {
	if t%2 == m.last%2 {
		return fmt.Errorf("%d behind %d", t, m.last)
	}
	m.last = t
	return nil
}

func (m *odd) Forced() []int32 { return nil }

// TestSpeculationInBatches: with guesses, good and bad, sequences in a batch say what they say without, greedy and
// drawn, with masks, penalties and log-probabilities too, whoever chooses; and right guesses save steps.
func TestSpeculationInBatches(t *testing.T) {
	dev := newCPU(t, 2)
	t.Run("host", func(t *testing.T) { speculationInBatches(t, dev) })
	t.Run("device", func(t *testing.T) { speculationInBatches(t, picking{dev}) })
}

func speculationInBatches(t *testing.T, dev backends.Device) {
	e := newEngine(t, Options{Model: small(t), Device: dev, Context: 120})
	requests := func(i int) Request {
		r := Request{Prompt: []int32{int32(i), 3, 5, 7, 3, 5, 7, int32(i)}, Max: 40, Logprobs: i % 2}
		if i%3 > 0 {
			r.Sampling = Sampling{Temperature: 0.4, Seed: uint64(i), RepeatPenalty: []float64{0, 1.3}[i/3%2], RepeatLast: 5,
				TopK: i % 5}
		}
		if i%4 == 3 {
			r.Mask = &odd{last: int32(i)}
		}
		return r
	}
	const n = 12
	run := func(opt SchedulerOptions) (texts [n][]int32, st Stats) {
		opt.Tokens, opt.Page, opt.NoPrefix = 2048, 16, true
		s := newScheduler(t, e, opt)
		var wait sync.WaitGroup
		for i := range n {
			h, err := s.Add(t.Context(), requests(i))
			if err != nil {
				t.Fatal(err)
			}
			wait.Go(func() {
				got, err := read(h)
				if err != nil {
					t.Error(err)
				}
				texts[i] = got[0]
			})
		}
		wait.Wait()
		freed(t, s)
		return texts, s.Stats()
	}
	want, plain := run(SchedulerOptions{})
	for name, d := range map[string]func(Sampling, func(int) float64) Drafter{
		"n-grams": NGrams, "guesser": newGuesser,
		"told": func(Sampling, func(int) float64) Drafter { return &toldFirst{want[:]} },
	} {
		got, st := run(SchedulerOptions{Draft: d})
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s: request %d says %v, without guesses %v", name, i, got[i], want[i])
			}
		}
		t.Logf("%s: %d of %d guesses right, %d steps instead of %d", name, st.Accepted, st.Drafted, st.Steps, plain.Steps)
		sum, last := 0, st.Drafts
		for i, n := range st.AcceptedAt {
			if n > last {
				t.Errorf("%s: %v guesses of %d were accepted by their place: place %d more often than the one before", name,
					st.AcceptedAt, st.Drafts, i)
			}
			sum, last = sum+n, n
		}
		if sum != st.Accepted || len(st.AcceptedAt) == 0 {
			t.Errorf("%s: %d tokens were accepted, by their place %v", name, st.Accepted, st.AcceptedAt)
		}
		if name == "told" && st.Steps > plain.Steps/2 {
			t.Errorf("%d of %d guesses were right, %d steps instead of %d", st.Accepted, st.Drafted, st.Steps, plain.Steps)
		}
	}
}

// toldFirst is told of each prompt's first token the text behind the prompt.
type toldFirst struct{ texts [][]int32 }

func (o *toldFirst) Propose(tokens, dst []int32, most int) []int32 {
	return (&told{8, o.texts[tokens[0]]}).Propose(tokens, dst, most)
}

func (o *toldFirst) Verified(int, int) {}

// TestGenerateByScheduler: a scheduler continues a prompt as a session does, alone and with a model that guesses.
func TestGenerateByScheduler(t *testing.T) {
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 2), Context: 64})
	prompt := []int32{1, 2, 3, 4}
	for _, o := range []Sampling{{}, {Temperature: 0.5, Seed: 2}} {
		for _, most := range []int{10, 0} {
			var want, emitted []int32
			g := Generation{Max: most, Sampling: o, Logprobs: 2}
			a, err := newSession(t, e).Generate(t.Context(), prompt, g)
			if err != nil {
				t.Fatal(err)
			}
			want = a.Tokens
			own := newSession(t, e)
			var d *ModelDrafter
			s := newScheduler(t, e, SchedulerOptions{Sequences: 1, Tokens: 64, Page: 16,
				Draft: func(_ Sampling, cost func(int) float64) Drafter { d = NewModelDrafter(own, o, cost); return d }})
			g.Emit = func(id int32) bool { emitted = append(emitted, id); return true }
			b, err := s.Generate(t.Context(), prompt, g)
			if err != nil || d.Err() != nil {
				t.Fatal(err, d.Err())
			}
			if !slices.Equal(b.Tokens, want) || !slices.Equal(emitted, want) || b.Stop != a.Stop || len(b.Steps) != len(want)-1 {
				t.Errorf("%v, ended by %s; a session says %v, %s", b.Tokens, b.Stop, want, a.Stop)
			}
			for i, c := range b.Logprobs {
				if c.ID != want[i] || len(c.Top) != 2 {
					t.Errorf("log-probabilities of token %d: %+v", i, c)
				}
			}
			if st := s.Stats(); st.Accepted == 0 || st.Steps >= len(want) {
				t.Errorf("%d of %d guesses right, %d steps for %d tokens", st.Accepted, st.Drafted, st.Steps, len(want))
			}
			g.Emit = func(int32) bool { return false }
			if b, err := s.Generate(t.Context(), prompt, g); err != nil || b.Stop != StopEmit || len(b.Tokens) != 1 {
				t.Errorf("stopped at once: %v, %+v", err, b)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			g.Emit = nil
			if b, err := s.Generate(ctx, prompt, g); err != nil || b.Stop != StopInterrupted {
				t.Errorf("cancelled: %v, %+v", err, b)
			}
			if _, err := s.Generate(t.Context(), prompt, Generation{Past: prompt}); err == nil {
				t.Error("a past was taken")
			}
		}
	}
}
