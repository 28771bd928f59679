package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

func hybrid(t testing.TB) Options {
	t.Helper()
	file, err := models.Load(testfiles.Repo(t, "internal", "testkit", "hybrid.yaml")) // recurrences beside a cache
	if err != nil {
		t.Fatal(err)
	}
	return Options{Model: file, Device: newCPU(t, 2), Context: 120, KV: tensor.F32,
		DType: tensor.F32}
}

// TestRecurrencesAtOnce: sequences of a model with recurrences have beside others the tokens that they have alone, also
// where a prompt's beginning is known, where memory is short, and for several choices.
func TestRecurrencesAtOnce(t *testing.T) {
	e := newEngine(t, hybrid(t))
	for _, opt := range []SchedulerOptions{
		{Tokens: 4096, Page: 16}, {Tokens: 160, Page: 8, Rows: 24, Sequences: 12}, {Tokens: 200, Page: 5, Rows: 7},
		{Tokens: 400, Page: 4, Sequences: 5, NoPrefix: true},
	} {
		t.Run(fmt.Sprint(opt.Tokens), func(t *testing.T) {
			s := newScheduler(t, e, opt)
			rng := rand.New(rand.NewPCG(9, uint64(opt.Tokens)))
			begin := randomPrompt(rng, 40, 50)
			var wait sync.WaitGroup
			for i := range 40 {
				prompt, n := slices.Concat(begin[:rng.IntN(len(begin)+1)], randomPrompt(rng, 30, 50)), 1+rng.IntN(30)
				want, clear := alone(t, e, prompt, n, limitOf)
				wait.Go(func() {
					h, err := s.Add(t.Context(), Request{Prompt: prompt, Max: n, Key: fmt.Sprint(n % 3), Choices: 1 + i%2})
					if err != nil {
						t.Error(err)
						return
					}
					got, err := read(h)
					for _, tokens := range got {
						if err != nil || len(tokens) != n || !slices.Equal(tokens[:clear], want[:clear]) {
							t.Errorf("%v; a prompt of %d: %v, alone %v, clear %d", err, len(prompt), tokens, want, clear)
						}
					}
				})
			}
			wait.Wait()
			freed(t, s)
		})
	}
}

// TestRecurrencesKnowPrefixes: a prompt whose beginning was computed is computed from the last state that is kept on.
func TestRecurrencesKnowPrefixes(t *testing.T) {
	e := newEngine(t, hybrid(t))
	s := newScheduler(t, e, SchedulerOptions{Tokens: 1024, Page: 8, Sequences: 4})
	prompt := make([]int32, 61)
	for i := range prompt {
		prompt[i] = int32(i * 7 % 50)
	}
	want, clear := alone(t, e, prompt, 10, limitOf)
	for i := range 2 {
		h, err := s.Add(t.Context(), Request{Prompt: prompt, Max: 10})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(h); err != nil || !slices.Equal(got[0][:clear], want[:clear]) {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
		if f := h.Result(); f.Cached != 56*i {
			t.Errorf("request %d: %d tokens of the prompt are known", i, f.Cached)
		}
	}
}

// TestRecurrencesRefuse: what a recurrence cannot do is said.
func TestRecurrencesRefuse(t *testing.T) {
	e := newEngine(t, hybrid(t))
	for want, opt := range map[string]SchedulerOptions{
		"cannot go back": {Draft: NGrams}, "in memory only": {PrefixDir: t.TempDir()}, "recurrences": {Memory: 1000},
	} {
		if s, err := NewScheduler(e, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is wanted: %v", want, err)
			if err == nil {
				s.Close()
			}
		}
	}
}

// TestRecurrenceGoesBack: to the beginning, to where its last step began, and to what was kept.
func TestRecurrenceGoesBack(t *testing.T) {
	e := newEngine(t, hybrid(t))
	s := newSession(t, e)
	if e.Rewinds() {
		t.Error("a model with recurrences rewinds")
	}
	logits := map[int][]float32{}
	run := func(at int) {
		t.Helper()
		out, err := s.Decode(int32(at * 3 % 50))
		if err != nil {
			t.Fatal(err)
		}
		if want, ok := logits[at]; ok && !slices.Equal(out, want) {
			t.Errorf("position %d differs after going back", at)
		}
		logits[at] = slices.Clone(out)
	}
	for at := range 5 {
		run(at)
	}
	if err := s.Keep(); err != nil {
		t.Fatal(err)
	}
	for at := range 4 {
		run(5 + at)
	}
	for _, pos := range []int{8, 5, 5, 0} {
		if err := s.Rewind(pos); err != nil || s.Pos() != pos {
			t.Fatalf("to %d: position %d, %v", pos, s.Pos(), err)
		}
		for at := pos; at < 9; at++ {
			run(at)
		}
	}
	for _, pos := range []int{5, 7} { // what was kept is of a sequence that was left
		if err := s.Rewind(pos); err == nil || !strings.Contains(err.Error(), "forgotten") {
			t.Errorf("back to %d of 9: %v", pos, err)
		}
	}
}

// TestRecurrenceDrafts: what a model with recurrences guesses is what it gives alone, however many of its guesses
// were wrong before.
func TestRecurrenceDrafts(t *testing.T) {
	small := newEngine(t, hybrid(t))
	session := newSession(t, small)
	rng := rand.New(rand.NewPCG(1, 2))
	past, guessed := []int32{3, 1, 4, 1, 5, 9, 2, 6}, 0
	d := NewModelDrafter(session, Sampling{}, func(int) float64 { return 0.1 })
	for len(past) < 100 {
		got := d.Propose(past, nil, 6)
		guessed += len(got)
		if len(got) > 0 {
			want, clear := alone(t, small, past, len(got), limitOf)
			if d.Err() != nil || !slices.Equal(got[:clear], want[:clear]) {
				t.Fatalf("%v: behind %d tokens it guesses %v, alone %v", d.Err(), len(past), got, want)
			}
		}
		right := rng.IntN(len(got) + 1)
		d.Verified(len(got), right)
		past = append(append(past, got[:right]...), int32(rng.IntN(50)))
	}
	if d.Err() != nil || guessed < 10 {
		t.Errorf("%v: %d guesses", d.Err(), guessed)
	}
}

func TestRewindOfBlocks(t *testing.T) {
	file, err := models.Builtin("mamba_block")
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, Options{Model: file, Device: newCPU(t, 1), Context: 16, Set: map[string]string{"D": "32"}})
	s := newSession(t, e)
	if _, err := s.Block(Activations(3*32, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Rewind(2); err == nil || s.Pos() != 3 {
		t.Errorf("to a position within a step: %v", err)
	}
}
