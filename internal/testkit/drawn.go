package testkit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// Drawn holds the choices that a device makes by chance, under masks and with filters against those that the engine
// makes from the logits of a processor, host: requests of every kind of sampling at once, those that a topk serves
// alone, then beside others, such whose log-probabilities are asked for, and such that the host chooses for. All tokens
// must be the same on a device that rounds as the processor does (exact), else half of them: a text goes another way
// where two tokens are as likely. As far as they are the same, so are their log-probabilities.
func Drawn(t *testing.T, host, dev backends.Device, float tensor.Type, exact bool) {
	t.Helper()
	limit := 0.05
	if exact {
		limit = 1e-4
	}
	for _, kinds := range [][]kindOfDraw{kindsOfDraws, kindsOfThoughts[:2], slices.Concat(kindsOfFilters, kindsOfDraws),
		slices.Concat(kindsOfThoughts, kindsOfFilters[:3]),
		slices.Concat(kindsOfTheHost, kindsOfThoughts, kindsOfFilters[:2], kindsOfDraws[:2])} {
		want, got := drawnBy(t, host, float, kinds), drawnBy(t, dev, float, kinds)
		same, all := 0, 0
		for i := range want {
			n := 0
			for n < len(want[i]) && n < len(got[i]) && want[i][n].ID == got[i][n].ID {
				if err := sameThought(got[i][n], want[i][n], limit); err != nil {
					t.Errorf("%s: token %d: %v", kinds[i%len(kinds)].name, n, err)
				}
				n++
			}
			same, all = same+n, all+len(want[i])
			if len(got[i]) != len(want[i]) || exact && n != len(want[i]) {
				t.Errorf("%s: %v, the host chooses %v", kinds[i%len(kinds)].name, got[i], want[i])
			}
		}
		if all == 0 || 2*same < all {
			t.Errorf("%d of %d tokens are those that the host chooses", same, all)
		}
	}
}

// sameThought compares the log-probability of a token and those of the most likely. Which these are tells a device that
// rounds as the processor does alone.
func sameThought(got, want engine.Token, limit float64) error {
	far := func(a, b engine.TokenLogprob) bool { return math.Abs(float64(a.Logprob)-float64(b.Logprob)) > limit }
	if len(got.Top) != len(want.Top) || math.Abs(float64(got.Logprob)-float64(want.Logprob)) > limit {
		return fmt.Errorf("%+v, the host computes %+v", got, want)
	}
	for i, w := range want.Top {
		if far(got.Top[i], w) || limit < 1e-3 && got.Top[i].ID != w.ID {
			return fmt.Errorf("%+v, the host computes %+v", got, want)
		}
	}
	return nil
}

type kindOfDraw struct {
	name     string
	sampling engine.Sampling
	mask     int // −1: none
	logprobs int
}

var kindsOfDraws = []kindOfDraw{
	{"greedy", engine.Sampling{}, -1, 0},
	{"greedy under a mask", engine.Sampling{}, 1, 0},
	{"temperature", engine.Sampling{Temperature: 0.8}, -1, 0},
	{"temperature under a mask", engine.Sampling{Temperature: 1.3}, 2, 0},
	{"the likeliest", engine.Sampling{Temperature: 1, TopK: 7}, -1, 0},
	{"the likeliest under a mask", engine.Sampling{Temperature: 0.6, TopK: 20, TopP: 0.9}, 0, 0},
}

// kindsOfFilters are those that a topk of few is no answer to.
var kindsOfFilters = []kindOfDraw{
	{"top-p", engine.Sampling{Temperature: 1, TopP: 0.3}, -1, 0},
	{"min-p", engine.Sampling{Temperature: 1.5, MinP: 0.4}, -1, 0},
	{"typical", engine.Sampling{Temperature: 0.9, TypicalP: 0.2}, -1, 0},
	{"penalties", engine.Sampling{Temperature: 1, RepeatPenalty: 1.3, FrequencyPenalty: 0.2, PresencePenalty: 0.1}, -1, 0},
	{"greedy with penalties", engine.Sampling{RepeatPenalty: 1.1, RepeatLast: 3, PresencePenalty: 2, CountFrom: 3}, -1, 0},
	{"biases", engine.Sampling{LogitBias: map[int32]float32{7: 5, 1: float32(math.Inf(-1)), 33: 2}, TopP: 0.5,
		Temperature: 1}, -1, 0},
	{"biases and penalties under a mask", engine.Sampling{LogitBias: map[int32]float32{2: 9, 3: 8, 7: 8.5},
		FrequencyPenalty: 2, Temperature: 0.2, TopK: 9}, 2, 0},
	{"many of the likeliest", engine.Sampling{Temperature: 2, TopK: 1000}, -1, 0},
	{"all filters", engine.Sampling{Temperature: 1, TopK: 3000, TypicalP: 0.5, TopP: 0.5, MinP: 0.1}, -1, 0},
	{"all filters under a mask", engine.Sampling{Temperature: 0.7, TopK: 3000, TypicalP: 0.9, TopP: 0.8, MinP: 0.01}, 1,
		0},
}

// kindsOfThoughts are those whose log-probabilities the device computes.
var kindsOfThoughts = []kindOfDraw{
	{"greedy with log-probabilities", engine.Sampling{}, -1, 3},
	{"the likeliest with log-probabilities", engine.Sampling{Temperature: 1, TopK: 7}, -1, 9},
	{"temperature with log-probabilities", engine.Sampling{Temperature: 1.5}, -1, 20},
	{"top-p with log-probabilities", engine.Sampling{Temperature: 1, TopP: 0.3}, -1, 1},
	{"a repeat penalty under a mask", engine.Sampling{Temperature: 0.8, RepeatPenalty: 1.3}, 1, 2},
}

// kindsOfTheHost are those for which the host must see all logits of their rows.
var kindsOfTheHost = []kindOfDraw{
	{"greedy with many log-probabilities", engine.Sampling{}, -1, 100},
	{"temperature with many log-probabilities", engine.Sampling{Temperature: 1}, -1, 70},
}

func drawnBy(t *testing.T, dev backends.Device, float tensor.Type, kinds []kindOfDraw) [][]engine.Token {
	t.Helper()
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(t.Context(), engine.Options{Model: file, Device: dev, DType: float, Seed: 5, Context: 64,
		Set: map[string]string{"L": "1", "D": "64", "H": "4", "F": "96", "V": "4999"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := engine.NewScheduler(e, engine.SchedulerOptions{Tokens: 2048, Page: 8, Sequences: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var handles []*engine.Handle
	for i := range 2 * len(kinds) {
		k := kinds[i%len(kinds)]
		k.sampling.Seed = uint64(i)
		r := engine.Request{Prompt: []int32{1, int32(2 + i), 7}, Max: 8, Sampling: k.sampling, Logprobs: k.logprobs}
		if k.mask >= 0 {
			r.Mask = restMask(k.mask)
		}
		h, err := s.Add(context.Background(), r)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", k.name, err))
		}
		handles = append(handles, h)
	}
	all := make([][]engine.Token, len(handles))
	for i, h := range handles {
		for tok, err := range h.Tokens() {
			if err != nil {
				t.Errorf("%s: %v", kinds[i%len(kinds)].name, err)
				break
			}
			all[i] = append(all[i], tok)
		}
		if m := kinds[i%len(kinds)].mask; slices.ContainsFunc(all[i], func(tok engine.Token) bool {
			return m >= 0 && int(tok.ID)%3 == m
		}) {
			t.Errorf("%s: %v has tokens that are not allowed", kinds[i%len(kinds)].name, all[i])
		}
	}
	return all
}
