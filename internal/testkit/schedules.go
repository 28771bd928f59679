// Random schedules of many sequences on a device.

package testkit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// vocabulary of the model of schedules.
const vocabulary = 200

// scheduled is a prompt with what it gets alone.
type scheduled struct {
	prompt, want []int32
	clear        int // tokens before the first whose two best logits are closer than rounding
}

// Schedules has many requests arrive, end, be cancelled, stopped and continued by guesses at random, in pools that are
// often too small for all. Each sequence's tokens must be those that it has alone wherever its two
// best logits differ by more than limit, and at the end all pages must be free.
func Schedules(t *testing.T, dev backends.Device, schedules int, limit float32) {
	t.Helper()
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(t.Context(), engine.Options{Model: file, Device: dev, Context: 96, DType: tensor.F16, Seed: 5,
		Set: map[string]string{"L": "2", "D": "64", "H": "4", "F": "96", "V": fmt.Sprint(vocabulary)}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	rng := rand.New(rand.NewPCG(11, 5))
	known := knownPrompts(t, e, rng, limit)
	var all engine.Stats
	for i := range schedules {
		st := schedule(t, e, rng, known, i)
		all.Preemptions += st.Preemptions
		all.Swaps += st.Swaps
		all.PrefixHits += st.PrefixHits
		all.Accepted += st.Accepted
		all.Steps += st.Steps
		all.Rows += st.Rows
	}
	t.Logf("%d schedules: %d steps of %.1f rows, %d preemptions (%d swaps), %d tokens known, %d guesses right", schedules,
		all.Steps, float64(all.Rows)/float64(all.Steps), all.Preemptions, all.Swaps, all.PrefixHits, all.Accepted)
	if schedules >= 40 && (all.Preemptions == 0 || all.Swaps == 0 || all.PrefixHits == 0 || all.Accepted == 0) {
		t.Error("something of that never happened, so that it was not tested")
	}
}

// knownPrompts makes prompts, some of which begin alike, and continues each alone.
func knownPrompts(t *testing.T, e *engine.Engine, rng *rand.Rand, limit float32) (all []scheduled) {
	t.Helper()
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 24 {
		p := make([]int32, 1+rng.IntN(50))
		for k := range p {
			p[k] = int32(rng.IntN(vocabulary))
		}
		if i%3 == 2 {
			p = append(slices.Clone(all[i-1].prompt), p[:len(p)/3]...)
		}
		one := scheduled{prompt: p[:min(len(p), 60)], clear: 30}
		s.Reset()
		logits, err := s.Prefill(t.Context(), one.prompt)
		for n := range 30 {
			if err != nil {
				t.Fatal(err)
			}
			best, second := 0, -1
			for k, v := range logits {
				switch {
				case v > logits[best]:
					best, second = k, best
				case k != best && (second < 0 || v > logits[second]):
					second = k
				}
			}
			if one.clear == 30 && logits[best]-logits[second] <= limit {
				one.clear = n
			}
			one.want = append(one.want, int32(best))
			if n < 29 {
				logits, err = s.Decode(int32(best))
			}
		}
		all = append(all, one)
	}
	return all
}

// guesser guesses what is sometimes right: the next tokens that it was told of any sequence.
type guesser struct{ after []int32 }

func (g *guesser) Propose(tokens, dst []int32, most int) []int32 {
	at := slices.Index(g.after, tokens[len(tokens)-1])
	if at < 0 {
		return dst
	}
	return append(dst, g.after[at+1:min(at+1+min(most, 3), len(g.after))]...)
}

func (*guesser) Verified(int, int) {}

// schedule is one of them.
func schedule(t *testing.T, e *engine.Engine, rng *rand.Rand, known []scheduled, number int) engine.Stats {
	t.Helper()
	o := engine.SchedulerOptions{Tokens: 100 + rng.IntN(400), Page: 1 + rng.IntN(20), Rows: 8 + rng.IntN(60), Sequences: 8}
	o.NoPrefix = rng.IntN(4) == 0
	if rng.IntN(3) == 0 {
		o.HostMemory = 1 << 20
	}
	if rng.IntN(3) == 0 {
		g := &guesser{known[rng.IntN(len(known))].want}
		o.Draft = func(engine.Sampling, func(int) float64) engine.Drafter { return g }
	}
	s, err := engine.NewScheduler(e, o)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 12 {
		a := &arrival{number: number, scheduled: &known[rng.IntN(len(known))], n: 1 + rng.IntN(30), choices: 1 + rng.IntN(3),
			act: rng.IntN(5), at: rng.IntN(8)}
		ctx, cancel := context.WithCancel(t.Context())
		h, err := s.Add(ctx, engine.Request{Prompt: a.prompt, Max: a.n, Choices: a.choices, Key: fmt.Sprint(a.act),
			Priority: rng.IntN(2)})
		var never *engine.NeverFits
		if errors.As(err, &never) {
			cancel()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			defer cancel()
			a.read(t, h, cancel)
		})
		if rng.IntN(3) == 0 {
			time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
		}
	}
	wait.Wait()
	st := s.Stats()
	if st.PagesUsed != 0 || st.Running != 0 || st.Waiting != 0 {
		t.Errorf("schedule %d: at the end %d pages are used, %d sequences run and %d wait", number, st.PagesUsed,
			st.Running, st.Waiting)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return st
}

// arrival is one request of a schedule, and what its reader does behind so many tokens.
type arrival struct {
	*scheduled
	number, n, choices int
	act, at            int
}

func (a *arrival) read(t *testing.T, h *engine.Handle, cancel func()) {
	given := make([][]int32, a.choices)
	total, stopped := 0, false
	for tok, err := range h.Tokens() {
		if err != nil {
			if a.act != 0 || !errors.Is(err, context.Canceled) {
				t.Errorf("schedule %d: %v", a.number, err)
			}
			stopped = true
			break
		}
		given[tok.Choice] = append(given[tok.Choice], tok.ID)
		if total++; total == a.at {
			switch a.act {
			case 0:
				cancel()
			case 1:
				h.Cancel()
				stopped = true
			case 2:
				h.Stop(a.choices - 1)
			}
		}
	}
	f := h.Result()
	for c, got := range given {
		m := min(len(got), a.clear)
		if !slices.Equal(got[:m], a.want[:m]) {
			t.Errorf("schedule %d, a prompt of %d: %v, alone %v, clear %d", a.number, len(a.prompt), got, a.want, a.clear)
		}
		if whole := len(got) == a.n; !whole && !stopped && a.act > 2 || f.Choices[c].Tokens < len(got) {
			t.Errorf("schedule %d: %d tokens of %d came, %+v", a.number, len(got), a.n, f)
		}
	}
}
