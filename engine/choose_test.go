package engine

import (
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestHostTokens: where the host chooses the tokens of several sequences from many logits it does so side by side, and
// each gets what it gets alone, whose masks, log-probabilities and filters are its own.
func TestHostTokens(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, Options{Model: file, Device: newCPU(t, 2), Context: 64, DType: tensor.F16, Seed: 3,
		Set: map[string]string{"L": "1", "D": "32", "H": "2", "F": "32", "V": "33000"}})
	s := newScheduler(t, e, SchedulerOptions{Tokens: 1024, Page: 8})
	var kinds []Request
	for i, o := range []Sampling{{}, {Temperature: 1}, {Temperature: 0.7, TopP: 0.9}, {Temperature: 1, MinP: 0.1},
		{Temperature: 1, TopK: 5, RepeatPenalty: 1.2}, {RepeatPenalty: 1.5}} {
		o.Seed = uint64(i)
		kinds = append(kinds, Request{Prompt: []int32{1, int32(5 + i)}, Max: 6, Sampling: o},
			Request{Prompt: []int32{2, int32(5 + i)}, Max: 6, Sampling: o, Logprobs: 2})
	}
	want := make([][][]int32, len(kinds))
	for i, r := range kinds {
		h, err := s.Add(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if want[i], err = read(h); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.early); n != 0 {
		t.Fatalf("%d tokens of single sequences were chosen beside others", n)
	}
	var asked atomic.Int32
	var handles []*Handle
	for _, r := range kinds {
		h, err := s.Add(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	masked, err := s.Add(t.Context(), Request{Prompt: []int32{9}, Max: 8, Sampling: Sampling{Temperature: 1},
		Mask: &counted{only{tokens: []int32{5, 40, 33, 2, 7, 8, 9, 11}}, &asked}})
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range handles {
		if got, err := read(h); err != nil || !slices.Equal(got[0], want[i][0]) {
			t.Errorf("%+v: %v, alone %v, error %v", kinds[i].Sampling, got, want[i], err)
		}
	}
	got, err := read(masked)
	if err != nil || len(got[0]) != 8 || asked.Load() != 8 {
		t.Errorf("%v, %v; the mask was asked %d times", got, err, asked.Load())
	}
	if len(s.early) == 0 {
		t.Error("no tokens were chosen beside each other")
	}
	freed(t, s)
}

// counted counts how often a mask is asked.
type counted struct {
	only
	n *atomic.Int32
}

func (c *counted) Allowed(bits []uint32) error {
	c.n.Add(1)
	return c.only.Allowed(bits)
}

// TestStepsAllocateNothing: where the host chooses the tokens of several sequences, however it does, a step more
// allocates nothing.
func TestStepsAllocateNothing(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, Options{Model: file, Device: newCPU(t, 1), Context: 256, DType: tensor.F16, Seed: 3,
		Set: map[string]string{"L": "1", "D": "32", "H": "2", "F": "32", "V": "33000"}})
	s := newScheduler(t, e, SchedulerOptions{Tokens: 4096, NoPrefix: true})
	kinds := []Sampling{{Temperature: 0.7, TopP: 0.95}, {Temperature: 1, TypicalP: 0.9}, {Temperature: 1, MinP: 0.05},
		{Temperature: 1, RepeatPenalty: 1.1, LogitBias: map[int32]float32{5: 1}},
		{Temperature: 1, TopK: 40, PresencePenalty: 1}}
	var asked []Request
	for _, o := range kinds {
		asked = append(asked, Request{Prompt: []int32{7}, Sampling: o})
	}
	if n := moreAllocations(t, s, asked); n > 50 {
		t.Errorf("%d allocations more for 100 steps more", n)
	}
}

// TestDeviceStepsAllocateTops: where a device chooses tokens and gives log-probabilities, what is handed out is all
// that a step allocates.
func TestDeviceStepsAllocateTops(t *testing.T) {
	e := newEngine(t, Options{Model: tied(t), Device: picking{newCPU(t, 1)}, Context: 256, DType: tensor.F16})
	s := newScheduler(t, e, SchedulerOptions{Tokens: 4096, NoPrefix: true})
	for _, asked := range [][]Request{{{}, {Sampling: Sampling{Temperature: 1, TopK: 3}}},
		{{}, {Sampling: Sampling{Temperature: 0.8}}, {Sampling: Sampling{RepeatPenalty: 1.2}}}} {
		for i := range asked {
			asked[i].Prompt, asked[i].Logprobs = []int32{7}, 3
		}
		if n := moreAllocations(t, s, asked); n < 90*len(asked) || n > 100*len(asked)+50 {
			t.Errorf("%d allocations more for 100 tokens more of %d requests", n, len(asked))
		}
	}
}

// moreAllocations says how many allocations 130 tokens of each request take more than 30.
func moreAllocations(t *testing.T, s *Scheduler, asked []Request) int {
	t.Helper()
	allocations := func(most int) int {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var handles []*Handle
		for _, r := range asked {
			r.Max = most
			h, err := s.Add(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, h)
		}
		for _, h := range handles {
			if f := h.Result(); f.Err != nil || f.Choices[0].Tokens != most {
				t.Fatalf("%+v", f)
			}
		}
		runtime.ReadMemStats(&after)
		return int(after.Mallocs - before.Mallocs)
	}
	allocations(130) // what is made once; some numbers of rows may come later
	short, long := math.MaxInt, math.MaxInt
	for range 3 {
		short, long = min(short, allocations(30)), min(long, allocations(130))
	}
	return long - short
}
