package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// thought are the log-probabilities of a prompt's tokens behind the first, computed one by one.
func thought(t *testing.T, e *Engine, prompt []int32, top int) (all []Chosen) {
	t.Helper()
	s := newSession(t, e)
	logits, err := s.Prefill(t.Context(), prompt[:1])
	for i := 1; i < len(prompt) && err == nil; i++ {
		var c Chosen
		if c, err = Logprob(logits, prompt[i], top); err == nil {
			all = append(all, c)
			logits, err = s.Decode(prompt[i])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestOfPrompt: log-probabilities of a prompt's tokens are those of the same tokens one by one, whatever else runs,
// where its beginning is known and where memory is short.
func TestOfPrompt(t *testing.T) {
	engines := map[string]*Engine{"attention": newEngine(t, Options{Model: small(t), Device: newCPU(t, 2), Context: 120,
		KV: tensor.F32}), "recurrence": newEngine(t, hybrid(t)),
		"chosen there": newEngine(t, Options{Model: small(t), Device: picking{newCPU(t, 2)}, Context: 120,
			KV: tensor.F32})}
	for name, e := range engines {
		for _, opt := range []SchedulerOptions{
			{Tokens: 4096, Page: 16}, {Tokens: 160, Page: 8, Rows: 24, Sequences: 12}, {Tokens: 200, Page: 5, Rows: 7},
		} {
			t.Run(fmt.Sprint(name, opt.Tokens), func(t *testing.T) {
				s := newScheduler(t, e, opt)
				rng := rand.New(rand.NewPCG(3, uint64(opt.Tokens)))
				begin := randomPrompt(rng, 40, 50)
				var wait sync.WaitGroup
				for i := range 30 {
					prompt, n := slices.Concat(begin[:rng.IntN(len(begin)+1)], randomPrompt(rng, 30, 50)), 1+rng.IntN(10)
					r := Request{Prompt: prompt, Max: n, Key: fmt.Sprint(n % 3), Choices: 1 + i%2}
					if i%3 > 0 {
						r.OfPrompt, r.Logprobs = true, 1+i%4
					}
					want := thought(t, e, prompt, r.Logprobs)
					wait.Go(func() {
						h, err := s.Add(t.Context(), r)
						if err == nil {
							_, err = read(h)
						}
						if err != nil {
							t.Error(err)
							return
						}
						if f := h.Result(); r.OfPrompt && f.Cached > 0 {
							t.Errorf("%d tokens of the prompt were not computed", f.Cached)
						}
						if r.OfPrompt {
							sameThoughts(t, h.Prompt(), want)
						} else if len(h.Prompt()) > 0 {
							t.Errorf("%d were not asked for", len(h.Prompt()))
						}
					})
				}
				wait.Wait()
				freed(t, s)
			})
		}
	}
}

func sameThoughts(t *testing.T, got []Token, want []Chosen) {
	if len(got) != len(want) {
		t.Errorf("%d log-probabilities, want %d", len(got), len(want))
		return
	}
	for i, w := range want {
		g := got[i]
		if g.ID != w.ID || math.Abs(float64(g.Logprob-w.Logprob)) > limitOf || len(g.Top) != len(w.Top) ||
			math.Abs(float64(g.Top[0].Logprob-w.Top[0].Logprob)) > limitOf {
			t.Errorf("token %d: %+v, alone %+v", i, g, w)
		}
	}
}

// TestLogprob: it is the logit less the logarithm of the sum of all exponentials.
func TestLogprob(t *testing.T) {
	logits := []float32{1, 3, -2, 2.5}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	for i, l := range logits {
		c, err := Logprob(logits, int32(i), 2)
		if err != nil || math.Abs(float64(c.Logprob)-float64(l)+math.Log(sum)) > 1e-6 || len(c.Top) != 2 ||
			c.Top[0].ID != 1 || c.Top[1].ID != 3 {
			t.Errorf("%d: %+v %v", i, c, err)
		}
	}
	if _, err := Logprob(logits, 4, 1); err == nil {
		t.Error("there is no such token")
	}
	if _, err := Logprob([]float32{1, float32(math.NaN())}, 0, 1); err == nil {
		t.Error("a logit is no number")
	}
}
