package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestStepFails: where a step fails, or a logit is no number, its requests end with what went wrong, their pages come
// back, and those behind them get their tokens.
func TestStepFails(t *testing.T) {
	for _, c := range []struct {
		name         string
		requests     int
		fail, broken int // of the steps; of the reads of a token: its logit and its number
		want         string
	}{
		{"the device fails", 3, 4, 0, "it broke"},
		{"the first step fails", 3, 1, 0, "it broke"},
		{"a logit is no number", 1, 0, 5, "is NaN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := &chaining{Device: newCPU(t, 1), picks: 40}
			e := newEngine(t, Options{Model: small(t), Device: dev, Context: 64})
			prompt := []int32{3, 1, 4}
			want, clear := alone(t, e, prompt, 12, limitOf)
			s := newScheduler(t, e, SchedulerOptions{Tokens: 512, Page: 8, NoPrefix: true})
			s.mu.Lock() // so that all of them are there before the first step
			if c.fail > 0 {
				dev.fail = dev.begun + c.fail
			} else {
				dev.broken = dev.reads + c.broken
			}
			s.mu.Unlock()
			failed := 0
			var handles []*Handle
			for range c.requests {
				h, err := s.Add(t.Context(), Request{Prompt: prompt, Max: 12})
				if err != nil {
					t.Fatal(err)
				}
				handles = append(handles, h)
			}
			for _, h := range handles {
				got, err := read(h)
				if err != nil {
					failed++
					if !strings.Contains(err.Error(), c.want) || !errors.Is(h.Result().Err, err) {
						t.Errorf("%v, %q is wanted; the result says %v", err, c.want, h.Result().Err)
					}
				}
				if n := min(len(got[0]), clear); !slices.Equal(got[0][:n], want[:n]) || err == nil && len(got[0]) != 12 {
					t.Errorf("%v, alone %v", got[0], want)
				}
			}
			if failed == 0 {
				t.Error("no request failed")
			}
			freed(t, s)
			h, err := s.Add(t.Context(), Request{Prompt: prompt, Max: 12})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := read(h); err != nil || !slices.Equal(got[0][:clear], want[:clear]) {
				t.Errorf("afterwards: %v, %v, alone %v", err, got[0], want)
			}
			freed(t, s)
		})
	}
}

// only allows some tokens, and no others twice.
type only struct {
	tokens []int32
	failAt int // of the calls of Allowed; 0: none fails
	calls  int
}

func (o *only) Allowed(bits []uint32) error {
	if o.calls++; o.calls == o.failAt {
		return errors.New("the grammar broke")
	}
	clear(bits)
	for _, t := range o.tokens {
		bits[t/32] |= 1 << (t % 32)
	}
	return nil
}

func (o *only) Accept(t int32) error {
	o.tokens = slices.DeleteFunc(o.tokens, func(x int32) bool { return x == t })
	return nil
}

func (o *only) Forced() []int32 { return nil }

// TestSchedulerMasks: a mask says which tokens may come; where it fails, or allows none, its request ends alone.
func TestSchedulerMasks(t *testing.T) {
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 64})
	s := newScheduler(t, e, SchedulerOptions{Tokens: 512, Page: 8})
	add := func(r Request) *Handle {
		t.Helper()
		r.Prompt = []int32{3, 1, 4}
		h, err := s.Add(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	good := add(Request{Max: 4, Mask: &only{tokens: []int32{5, 40, 33, 2}}})
	none := add(Request{Max: 9, Mask: &only{tokens: []int32{7, 8}}})
	broken := add(Request{Max: 9, Mask: &only{tokens: []int32{5, 6, 7, 8}, failAt: 3}})
	free := add(Request{Max: 9, Logprobs: 3})
	if got, err := read(good); err != nil || len(got[0]) != 4 ||
		len(slices.Compact(slices.Sorted(slices.Values(got[0])))) != 4 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := read(none); !errors.Is(err, errNothingAllowed) || len(got[0]) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := read(broken); err == nil || !strings.Contains(err.Error(), "the grammar broke") || len(got[0]) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	n := 0
	for tok, err := range free.Tokens() {
		if err != nil || len(tok.Top) != 3 || tok.ID != tok.Top[0].ID || tok.Logprob != tok.Top[0].Logprob ||
			!(tok.Logprob < 0) {
			t.Errorf("%+v, %v", tok, err)
		}
		n++
	}
	if n != 9 {
		t.Errorf("%d tokens", n)
	}
	if _, err := s.Add(t.Context(), Request{Prompt: []int32{3}, Choices: 2, Mask: &only{}}); err == nil {
		t.Error("a mask that cannot be cloned serves two choices")
	}
	freed(t, s)
}

// TestSchedulerRefusals: what cannot be answered is refused by Add, with its numbers.
func TestSchedulerRefusals(t *testing.T) {
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 64})
	for _, o := range []SchedulerOptions{{Tokens: -1}, {Memory: 1}, {Rows: -2}, {Page: -3}} {
		if s, err := NewScheduler(e, o); err == nil {
			s.Close()
			t.Errorf("%+v is taken", o)
		}
	}
	s := newScheduler(t, e, SchedulerOptions{Tokens: 40, Page: 8, Queue: 2})
	long := make([]int32, 50)
	var never *NeverFits
	if _, err := s.Add(t.Context(), Request{Prompt: long}); !errors.As(err, &never) || never.Prompt != 50 {
		t.Errorf("50 tokens in 40 places: %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Add(done, Request{Prompt: long[:1]}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	for what, r := range map[string]Request{
		"the prompt has no tokens": {}, "the vocabulary has 50": {Prompt: []int32{50}},
		"-1, choices": {Prompt: long[:1], Max: -1},
		"temperature": {Prompt: long[:1], Sampling: Sampling{Temperature: -1}}, "adapter": {Prompt: long[:1], Adapter: "x"},
		"choices, 64": {Prompt: long[:1], Choices: 100},
	} {
		if _, err := s.Add(t.Context(), r); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q is wanted: %v", what, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(t.Context(), Request{Prompt: long[:1]}); !errors.Is(err, errSchedulerClosed) {
		t.Errorf("closed: %v", err)
	}
	block := newEngine(t, Options{Model: blockOf(t, "x: \"float[S, 4]\"", "  y: x + x\n"), Device: newCPU(t, 1),
		Context: 8})
	if _, err := NewScheduler(block, SchedulerOptions{}); err == nil || !strings.Contains(err.Error(), "is a block") {
		t.Errorf("a block: %v", err)
	}
}
