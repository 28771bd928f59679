package testkit

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// Drawn holds the choices that a device makes by chance and under masks against those that the engine makes from the
// logits of a processor, host: requests of every kind of sampling at once. All tokens must be the same on a device that
// rounds as the processor does (exact), else half of them: a text goes another way where two tokens are as likely.
func Drawn(t *testing.T, host, dev backends.Device, float tensor.Type, exact bool) {
	t.Helper()
	want, got := drawnBy(t, host, float), drawnBy(t, dev, float)
	same, all := 0, 0
	for i := range want {
		n := 0
		for n < len(want[i]) && n < len(got[i]) && want[i][n] == got[i][n] {
			n++
		}
		same, all = same+n, all+len(want[i])
		if len(got[i]) != len(want[i]) || exact && n != len(want[i]) {
			t.Errorf("%s: %v, the host chooses %v", kindsOfDraws[i%len(kindsOfDraws)].name, got[i], want[i])
		}
	}
	if all == 0 || 2*same < all {
		t.Errorf("%d of %d tokens are those that the host chooses", same, all)
	}
}

var kindsOfDraws = []struct {
	name     string
	sampling engine.Sampling
	mask     int // −1: none
}{
	{"greedy", engine.Sampling{}, -1},
	{"greedy under a mask", engine.Sampling{}, 1},
	{"temperature", engine.Sampling{Temperature: 0.8}, -1},
	{"temperature under a mask", engine.Sampling{Temperature: 1.3}, 2},
	{"the likeliest", engine.Sampling{Temperature: 1, TopK: 7}, -1},
	{"the likeliest under a mask", engine.Sampling{Temperature: 0.6, TopK: 20, TopP: 0.9}, 0},
}

func drawnBy(t *testing.T, dev backends.Device, float tensor.Type) [][]int32 {
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
	for i := range 2 * len(kindsOfDraws) {
		k := kindsOfDraws[i%len(kindsOfDraws)]
		k.sampling.Seed = uint64(i)
		r := engine.Request{Prompt: []int32{1, int32(2 + i), 7}, Max: 8, Sampling: k.sampling}
		if k.mask >= 0 {
			r.Mask = restMask(k.mask)
		}
		h, err := s.Add(context.Background(), r)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", k.name, err))
		}
		handles = append(handles, h)
	}
	all := make([][]int32, len(handles))
	for i, h := range handles {
		for tok, err := range h.Tokens() {
			if err != nil {
				t.Errorf("%s: %v", kindsOfDraws[i%len(kindsOfDraws)].name, err)
				break
			}
			all[i] = append(all[i], tok.ID)
		}
		if m := kindsOfDraws[i%len(kindsOfDraws)].mask; slices.ContainsFunc(all[i], func(id int32) bool {
			return m >= 0 && int(id)%3 == m
		}) {
			t.Errorf("%s: %v has tokens that are not allowed", kindsOfDraws[i%len(kindsOfDraws)].name, all[i])
		}
	}
	return all
}
