package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// alone gives the tokens that a request gets without others, and behind how many of them the choice was clear: the two
// best logits differ by more than limit wherever it goes on.
func alone(t *testing.T, e *Engine, prompt []int32, n int, limit float32) (tokens []int32, clear int) {
	t.Helper()
	s := newSession(t, e)
	logits, err := s.Prefill(t.Context(), prompt)
	clear = -1
	for err == nil {
		best := largest(logits)
		tokens = append(tokens, best)
		second := float32(-1e30)
		for i, v := range logits {
			if int32(i) != best {
				second = max(second, v)
			}
		}
		if logits[best]-second <= limit && clear < 0 {
			clear = len(tokens) - 1
		}
		if len(tokens) == n {
			break
		}
		logits, err = s.Decode(best)
	}
	if err != nil {
		t.Fatal(err)
	}
	if clear < 0 {
		clear = n
	}
	return tokens, clear
}

func newScheduler(t *testing.T, e *Engine, opt SchedulerOptions) *Scheduler {
	t.Helper()
	s, err := NewScheduler(e, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// read collects the tokens of each choice.
func read(h *Handle) (tokens [][]int32, err error) {
	tokens = make([][]int32, len(h.choices))
	for t, failed := range h.Tokens() {
		if failed != nil {
			return tokens, failed
		}
		tokens[t.Choice] = append(tokens[t.Choice], t.ID)
	}
	return tokens, nil
}

func randomPrompt(rng *rand.Rand, most, vocabulary int) []int32 {
	p := make([]int32, 1+rng.IntN(most))
	for i := range p {
		p[i] = int32(rng.IntN(vocabulary))
	}
	return p
}

// freed fails where pages are not all free.
func freed(t *testing.T, s *Scheduler) {
	t.Helper()
	if st := s.Stats(); st.PagesUsed != 0 || st.Running != 0 || st.Waiting != 0 {
		t.Errorf("at the end %d pages are used, %d sequences run and %d wait", st.PagesUsed, st.Running, st.Waiting)
	}
}

// limitOf is by how much logits of a batch may differ from those of a sequence alone.
const limitOf = 1e-3

// TestManyAtOnce: whatever else runs, a sequence's tokens are those that it has alone.
func TestManyAtOnce(t *testing.T) {
	for _, kv := range []tensor.Type{tensor.F32, tensor.F16} {
		for _, pages := range []SchedulerOptions{
			{Tokens: 4096, Page: 16}, {Tokens: 160, Page: 8, Rows: 24, Sequences: 12}, {Tokens: 200, Page: 5, Rows: 7},
		} {
			t.Run(fmt.Sprint(kv, pages.Tokens), func(t *testing.T) {
				e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 2), Context: 120, KV: kv})
				s := newScheduler(t, e, pages)
				rng := rand.New(rand.NewPCG(7, uint64(pages.Tokens)))
				var wait sync.WaitGroup
				for range 40 {
					prompt, n := randomPrompt(rng, 70, 50), 1+rng.IntN(30)
					want, clear := alone(t, e, prompt, n, limitOf)
					wait.Go(func() {
						h, err := s.Add(t.Context(), Request{Prompt: prompt, Max: n, Key: fmt.Sprint(n % 3)})
						if err != nil {
							t.Error(err)
							return
						}
						got, err := read(h)
						if err != nil || len(got[0]) != n || !slices.Equal(got[0][:clear], want[:clear]) {
							t.Errorf("%v; a prompt of %d: %v, alone %v, clear %d", err, len(prompt), got[0], want, clear)
						}
						if f := h.Result(); f.Choices[0] != (FinishedChoice{StopMax, n}) || f.Prompt != len(prompt) {
							t.Errorf("%+v", f)
						}
					})
				}
				wait.Wait()
				freed(t, s)
			})
		}
	}
}
