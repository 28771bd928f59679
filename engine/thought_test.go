package engine

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// tied is a model whose logits are whole numbers, so that many are equal.
func tied(t testing.TB) *models.File {
	t.Helper()
	return modelFile(t, "tied.yaml", strings.Replace(strings.Replace(smallModel, "logits: linear(rows(y, last), emb)",
		"logits: floor(2*linear(rmsnorm(rows(y, last), n1, eps=eps), emb))", 1), "V: 50", "V: 5000", 1))
}

// steady is a device that chooses tokens and is known for results that do not depend on company.
type steady struct{ picking }

func (steady) Invariant() bool { return true }

// newSteady gives a processor whose results do not depend on company: else the whole numbers that logits are made would
// differ here and there.
func newSteady(t *testing.T, threads int) backends.Device {
	t.Helper()
	dev, err := cpu.New(threads, cpu.Invariant)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// thoughtful are requests that want to know what the model thinks of tokens, chosen in every way.
func thoughtful(masks, many bool) (all []Request) {
	biases := map[int32]float32{7: 9, 9: 8, 11: float32(math.Inf(-1)), 4000: 9.5}
	tops := []int{1, 3, 8, 9, 32}
	if many {
		tops = append(tops, 33)
	}
	for i, o := range []Sampling{{}, {Temperature: 1}, {Temperature: 3}, {Temperature: 1, TopK: 5}, {Temperature: 0.7,
		TopP: 0.9}, {Temperature: 1.5, MinP: 0.2}, {Temperature: 1, TypicalP: 0.4}, {Temperature: 1, TopK: 300},
		{RepeatPenalty: 1.5}, {Temperature: 1, PresencePenalty: 1, FrequencyPenalty: 0.5, LogitBias: biases},
		{LogitBias: biases, TopP: 0.5, Temperature: 2}} {
		o.Seed = uint64(i)
		for k := range 2 {
			r := Request{Prompt: []int32{1, int32(5 + i), int32(k)}, Max: 6, Sampling: o, Logprobs: tops[(2*i+k)%len(tops)]}
			if masks && k == 1 {
				r.Mask = &only{tokens: []int32{5, 40, 33, 2, 7, 8, 9, 3000, 4999}}
			}
			all = append(all, r)
		}
	}
	all = append(all, Request{Prompt: []int32{9, 9}, Max: 6}, // nothing is asked for
		Request{Prompt: []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, Max: 4, Logprobs: 4, OfPrompt: many, Choices: 2})
	return all
}

// TestDeviceLogprobs: the log-probabilities that a device gives, of the tokens that are chosen on it and of the most
// likely, are those of the host's sampler, in the same order, and all logits of no row come to the host.
func TestDeviceLogprobs(t *testing.T) {
	usual := SchedulerOptions{Tokens: 2048, Page: 8, Sequences: 32}
	draft, short := usual, usual
	draft.Draft, short.Tokens, short.NoPrefix = NGrams, 96, true
	greedy, long := thoughtful(false, false)[:2], thoughtful(false, false)
	for i := range long {
		long[i].Max = 30
	}
	chooses := func(d backends.Device) backends.Device { return picking{d} }
	for i, c := range []struct {
		name     string
		opt      SchedulerOptions
		asked    func() []Request
		device   func(d backends.Device) backends.Device
		whole    bool // the host chooses for some rows
		outcomes func(st Stats) bool
	}{
		{"greedy", usual, func() []Request { return greedy }, chooses, false, nil},
		{"all", usual, func() []Request { return thoughtful(true, false) }, chooses, false, nil},
		{"some by the host", usual, func() []Request { return thoughtful(true, true) }, chooses, true, nil},
		{"two programs", usual, func() []Request { return thoughtful(true, false) },
			func(d backends.Device) backends.Device { return ordered{d, &journal{}} }, false, nil},
		{"invariant", usual, func() []Request { return thoughtful(true, false) },
			func(d backends.Device) backends.Device { return steady{picking{d}} }, false, nil},
		{"guesses", draft, func() []Request { return thoughtful(false, false) }, chooses, false,
			func(st Stats) bool { return st.Drafted > 0 }},
		{"preempted", short, func() []Request { return long }, chooses, false,
			func(st Stats) bool { return st.Preemptions > 0 }},
	} {
		if i < 2 && !testfiles.Exhaustive() { // the others ask for as much
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			dev := newSteady(t, 2)
			var got [2][][]Token
			for i, d := range []backends.Device{dev, c.device(dev)} {
				s := newScheduler(t, newEngine(t, Options{Model: tied(t), Device: d, Context: 64, DType: tensor.F16, Seed: 3}),
					c.opt)
				got[i] = answersOf(t, s, c.asked())
				if n := cap(s.batch.whole); i == 1 && (n > 0) != c.whole {
					t.Errorf("there is room for %d logits that the host chooses from", n)
				}
				if n := cap(s.batch.logits); i == 1 && n >= 5000 {
					t.Errorf("there is room for %d logits of all rows", n)
				}
				if i == 1 && c.outcomes != nil && !c.outcomes(s.Stats()) {
					t.Errorf("not as it should come: %+v", s.Stats())
				}
				freed(t, s)
			}
			for i, want := range got[0] {
				sameTokens(t, fmt.Sprintf("answer %d", i), got[1][i], want)
			}
		})
	}
}

// TestInvariantLogprobs: where results do not depend on company, neither does who computes log-probabilities: of a
// request of which the host has to compute some it computes all.
func TestInvariantLogprobs(t *testing.T) {
	dev := newSteady(t, 1)
	for _, c := range []struct {
		name   string
		dev    backends.Device
		r      Request
		draft  bool
		device bool // it computes some
	}{
		{"prompt, any company", picking{dev}, Request{OfPrompt: true}, false, true},
		{"prompt", steady{picking{dev}}, Request{OfPrompt: true}, false, false},
		{"mask", steady{picking{dev}}, Request{Mask: &odd{}}, false, true},
		{"mask and guesses", steady{picking{dev}}, Request{Mask: &odd{}}, true, false},
		{"guesses", steady{picking{dev}}, Request{}, true, true},
	} {
		o := SchedulerOptions{Tokens: 512, Page: 8}
		if c.draft {
			o.Draft = newGuesser
		}
		s := newScheduler(t, newEngine(t, Options{Model: tied(t), Device: c.dev, Context: 64, DType: tensor.F16}), o)
		c.r.Prompt, c.r.Max, c.r.Logprobs = []int32{1, 2, 3}, 8, 2
		if got := answersOf(t, s, []Request{c.r}); len(got[0]) != 8 {
			t.Errorf("%s: %d tokens", c.name, len(got[0]))
		}
		if n := cap(s.batch.logprobs); (n > 0) != c.device {
			t.Errorf("%s: the device computed %d log-probabilities", c.name, n)
		}
		freed(t, s)
	}
}

// answersOf are the tokens of requests at once, those of the prompt and of several choices behind each other.
func answersOf(t *testing.T, s *Scheduler, asked []Request) (all [][]Token) {
	t.Helper()
	var handles []*Handle
	for _, r := range asked {
		h, err := s.Add(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	for _, h := range handles {
		choices := make([][]Token, len(h.choices))
		for _, tok := range tokensOf(t, h) {
			choices[tok.Choice] = append(choices[tok.Choice], tok)
		}
		all = append(all, append(choices, h.Prompt())...)
	}
	return all
}

// sameTokens compares tokens, their log-probabilities and the most likely with theirs.
func sameTokens(t *testing.T, what string, got, want []Token) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d tokens, the host gives %d", what, len(got), len(want))
		return
	}
	near := func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-4 }
	for i, w := range want {
		g := got[i]
		same := g.ID == w.ID && near(g.Logprob, w.Logprob) && len(g.Top) == len(w.Top)
		for j := 0; same && j < len(w.Top); j++ {
			same = g.Top[j].ID == w.Top[j].ID && near(g.Top[j].Logprob, w.Top[j].Logprob)
		}
		if !same {
			t.Errorf("%s: token %d is %+v, the host chooses %+v", what, i, g, w)
			return
		}
	}
}

// TestDeviceLogprobsAlone: so it is for a single sequence, whose logits stay on the device where nothing changes them.
func TestDeviceLogprobsAlone(t *testing.T) {
	dev := newCPU(t, 2)
	open := func(d backends.Device) *Session {
		return newSession(t, newEngine(t, Options{Model: tied(t), Device: d, Context: 64, DType: tensor.F16, Seed: 3}))
	}
	for i, c := range []struct {
		sampling Sampling
		top      int
		whole    bool // all logits are read
	}{{Sampling{}, 1, false}, {Sampling{}, 32, false}, {Sampling{Temperature: 2, TopK: 12}, 5, false},
		{Sampling{Temperature: 1, TopK: 4, TopP: 0.9}, 9, false}, {Sampling{}, 33, true}, {Sampling{Temperature: 1}, 3, true},
		{Sampling{RepeatPenalty: 1.3}, 2, true}} {
		c.sampling.Seed = uint64(i)
		g := Generation{Max: 12, Sampling: c.sampling, Logprobs: c.top}
		var got [2][]Token
		for k, d := range []backends.Device{dev, ordered{dev, &journal{}}} {
			s := open(d)
			a, err := s.Generate(t.Context(), []int32{1, int32(2 + i)}, g)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range a.Logprobs {
				got[k] = append(got[k], Token{ID: l.ID, Logprob: l.Logprob, Top: l.Top})
			}
			if len(a.Logprobs) != 12 || a.Logprobs[11].ID != a.Tokens[11] {
				t.Errorf("%+v: %d tokens, log-probabilities of %d", c, len(a.Tokens), len(a.Logprobs))
			}
			if k == 1 && (cap(s.logits) > 0) != c.whole {
				t.Errorf("%+v: there is room for %d logits", c, cap(s.logits))
			}
		}
		sameTokens(t, fmt.Sprintf("%+v", c), got[1], got[0])
	}
}
