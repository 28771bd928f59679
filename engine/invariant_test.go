package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestInvariant: on a device that was opened so, logits of a sequence are bit for bit those that it has alone, whatever
// runs beside it, whatever parts its prompt is cut into and wherever its pages lie.
func TestInvariant(t *testing.T) {
	for _, c := range []struct {
		model   string
		set     map[string]string
		dtype   tensor.Type
		kv      tensor.Type
		threads int
	}{
		{"llama2_7b", map[string]string{"L": "2", "D": "96", "H": "4", "G": "2", "F": "160", "V": "111"}, tensor.F32,
			tensor.F16, 2},
		{"llama2_7b", map[string]string{"L": "2", "D": "64", "H": "4", "G": "1", "F": "96", "V": "100"}, tensor.BF16,
			tensor.BF16, 3},
		{"llama2_7b", map[string]string{"L": "2", "D": "128", "H": "2", "F": "256", "V": "97"}, tensor.Q4_0, tensor.Q8_0,
			1},
		{"gemma2_2b", map[string]string{"L": "2", "D": "64", "H": "4", "G": "2", "Dh": "16", "F": "96", "V": "90"},
			tensor.F16,
			tensor.F32, 2},
		{"mixtral_8x7b", map[string]string{"L": "2", "D": "64", "H": "4", "G": "2", "F": "96", "V": "90", "E": "4"},
			tensor.Q8_0, tensor.F16, 2},
		{"", nil, tensor.F32, tensor.F32, 2},
	} {
		t.Run(fmt.Sprint(c.model, c.dtype, c.kv), func(t *testing.T) {
			dev, err := cpu.New(c.threads, cpu.Invariant)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { dev.Close() })
			opt := Options{Device: dev, Context: 200, DType: c.dtype, KV: c.kv, Set: c.set}
			if c.model == "" {
				opt.Model = modelFile(t, "hybrid.yaml", hybridModel)
			} else if opt.Model, err = models.Builtin(c.model); err != nil {
				t.Fatal(err)
			}
			sameInCompany(t, newEngine(t, opt))
		})
	}
}

// sameInCompany compares sequences in random company with themselves alone, to the bit.
func sameInCompany(t *testing.T, e *Engine) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	vocabulary := e.Vocabulary()
	requests := make([]Request, 24)
	for i := range requests {
		requests[i] = Request{Prompt: randomPrompt(rng, 90, vocabulary), Max: 1 + rng.IntN(25), Logprobs: 5,
			Sampling: Sampling{Temperature: float64(i % 2), Seed: uint64(i)}}
		if i%4 == 3 { // a beginning that another has
			requests[i].Prompt = append(slices.Clone(requests[i-1].Prompt), requests[i].Prompt[:1]...)
		}
	}
	run := func(s *Scheduler, r Request) (all []Token) {
		h, err := s.Add(t.Context(), r)
		if err != nil {
			t.Error(err)
			return nil
		}
		for tok, err := range h.Tokens() {
			if err != nil {
				t.Error(err)
				return nil
			}
			all = append(all, tok)
		}
		return all
	}
	alone := newScheduler(t, e, SchedulerOptions{Tokens: 256, Page: 8, Rows: 256, Sequences: 1, NoPrefix: true})
	want := make([][]Token, len(requests))
	for i, r := range requests {
		want[i] = run(alone, r)
	}
	for _, opt := range []SchedulerOptions{
		{Tokens: 2048, Page: 8, Rows: 64}, {Tokens: 360, Page: 8, Rows: 9, Sequences: 7}, {Tokens: 1024, Page: 8, Rows: 200},
	} {
		s := newScheduler(t, e, opt)
		var wait sync.WaitGroup
		for i, r := range requests {
			wait.Go(func() {
				got := run(s, r)
				if len(got) != len(want[i]) {
					t.Errorf("request %d: %d tokens, alone %d", i, len(got), len(want[i]))
					return
				}
				for k := range got {
					a, b := &got[k], &want[i][k]
					if a.ID != b.ID || a.Logprob != b.Logprob || !slices.Equal(a.Top, b.Top) {
						t.Errorf("%d rows a step, request %d, token %d: %d %v %v, alone %d %v %v", opt.Rows, i, k, a.ID, a.Logprob,
							a.Top[0], b.ID, b.Logprob, b.Top[0])
						return
					}
				}
			})
		}
		wait.Wait()
		freed(t, s)
	}
}
