// Random schedules of many sequences on a device.

package testkit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/lora"
	"github.com/greta-project/greta/weights/open"
)

// scheduled is a prompt with what it gets alone.
type scheduled struct {
	prompt, want []int32
	clear        int // tokens before the first whose two best logits are closer than rounding
	adapter      string
	mask         int // tokens whose number leaves this rest by 3 are not allowed; −1: all are
}

// request is how the prompt is asked for.
func (s *scheduled) request(n int) engine.Request {
	r := engine.Request{Prompt: s.prompt, Max: n, Adapter: s.adapter}
	if s.mask >= 0 {
		r.Mask = restMask(s.mask)
	}
	return r
}

// restMask allows all tokens but those that leave a rest by 3.
type restMask int32

func (m restMask) Allowed(bits []uint32) error {
	clear(bits)
	for i := range int32(32 * len(bits)) {
		if i%3 != int32(m) {
			bits[i/32] |= 1 << (i % 32)
		}
	}
	return nil
}

func (m restMask) Accept(token int32) error {
	if token%3 == int32(m) {
		return fmt.Errorf("token %d is not allowed", token)
	}
	return nil
}

func (restMask) Forced() []int32      { return nil }
func (m restMask) Clone() engine.Mask { return m }

// Schedules has many requests arrive, end, be cancelled, stopped and continued by guesses at random, in pools that are
// often too small for all. Each sequence's tokens must be those that it has alone wherever its two
// best logits differ by more than limit, and at the end all pages must be free.
func Schedules(t *testing.T, dev backends.Device, schedules int, limit float32) {
	t.Helper()
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	runSchedules(t, engine.Options{Model: file, Device: dev, DType: tensor.F16, Seed: 5,
		Set: map[string]string{"L": "2", "D": "64", "H": "4", "F": "96", "V": "200"}}, 11, schedules, limit)
}

// FamilySchedules is Schedules of the model in a folder, with a type of caches and a seed of one's own.
func FamilySchedules(t *testing.T, dev backends.Device, folder string, kv tensor.Type, seed uint64, schedules int,
	limit float32) {
	t.Helper()
	src, err := open.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	opt := engine.Options{Model: file, Source: src, Device: dev, DType: tensor.F32, KV: kv}
	runSchedules(t, opt, seed, schedules, limit)
}

// AdaptedSchedules is Schedules of a model with adapters, of which requests name one or none.
func AdaptedSchedules(t *testing.T, dev backends.Device, schedules int, limit float32) {
	t.Helper()
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	opt := engine.Options{Model: file, Source: src, Device: dev, DType: tensor.F32, KV: tensor.F32}
	for i, modules := range [][]string{{"q_proj", "v_proj"}, {"down_proj", "gate_proj", "o_proj"}} {
		opt.Adapters = append(opt.Adapters, engine.Adapter{Name: fmt.Sprint("adapter ", i),
			Adapter: RandomAdapter(src, uint64(i+1), 4, 0.1, modules...)})
	}
	runSchedules(t, opt, 11, schedules, limit)
}

// RandomAdapter makes an adapter of random numbers for some of a source's matrices.
func RandomAdapter(src weights.Source, seed uint64, rank int, size float64, modules ...string) *lora.Adapter {
	r := rand.New(rand.NewPCG(seed, 7))
	a := &lora.Adapter{Path: "test", Dialect: src.Dialect()}
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64() * size)
		}
		return x
	}
	for _, name := range slices.Sorted(slices.Values(src.Names())) {
		if slices.ContainsFunc(modules, func(m string) bool { return strings.HasSuffix(name, m+".weight") }) {
			_, shape, _ := src.Lookup(name)
			a.Pairs = append(a.Pairs, lora.Pair{Name: name, Rank: rank, In: shape[1], Out: shape[0],
				A: numbers(rank * shape[1]), B: numbers(shape[0] * rank), Scale: 2})
		}
	}
	return a
}

// runSchedules runs them on one engine.
func runSchedules(t *testing.T, opt engine.Options, seed uint64, schedules int, limit float32) {
	t.Helper()
	opt.Context = 96
	e, err := engine.New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 5))
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
	if schedules >= 40 && opt.Source == nil &&
		(all.Preemptions == 0 || all.Swaps == 0 || all.PrefixHits == 0 || all.Accepted == 0) {
		t.Error("something of that never happened, so that it was not tested")
	}
}

// knownPrompts makes prompts, some of which begin alike, and continues each alone.
func knownPrompts(t *testing.T, e *engine.Engine, rng *rand.Rand, limit float32) (all []scheduled) {
	t.Helper()
	s, err := engine.NewScheduler(e, engine.SchedulerOptions{Tokens: 128, Page: 16, Sequences: 1, NoPrefix: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	adapters := append([]engine.Adapter{{}}, e.Options().Adapters...)
	for i := range 24 {
		p := make([]int32, 1+rng.IntN(50))
		for k := range p {
			p[k] = int32(rng.IntN(e.Vocabulary()))
		}
		if i%3 == 2 {
			p = append(slices.Clone(all[i-1].prompt), p[:len(p)/3]...)
		}
		one := scheduled{prompt: p[:min(len(p), 60)], clear: 30, mask: max(-1, i%8-5),
			adapter: adapters[i/2%len(adapters)].Name}
		r := one.request(30)
		r.Logprobs = min(40, e.Vocabulary())
		h, err := s.Add(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for tok, err := range h.Tokens() {
			if err != nil {
				t.Fatal(err)
			}
			var best []float32 // of the tokens that are allowed
			for _, top := range tok.Top {
				if one.mask < 0 || int(top.ID)%3 != one.mask {
					best = append(best, top.Logprob)
				}
			}
			if one.clear == 30 && (len(best) < 2 || best[0]-best[1] <= limit) {
				one.clear = len(one.want)
			}
			one.want = append(one.want, tok.ID)
		}
		if len(one.want) != 30 {
			t.Fatalf("alone a prompt has %d tokens, 30 are wanted", len(one.want))
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
	if err != nil && o.Draft != nil && strings.Contains(err.Error(), "recurrence") { // of which nothing can be guessed
		o.Draft = nil
		s, err = engine.NewScheduler(e, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 12 {
		a := &arrival{number: number, scheduled: &known[rng.IntN(len(known))], n: 1 + rng.IntN(30), choices: 1 + rng.IntN(3),
			act: rng.IntN(5), at: rng.IntN(8)}
		ctx, cancel := context.WithCancel(t.Context())
		r := a.request(a.n)
		r.Choices, r.Key, r.Priority = a.choices, fmt.Sprint(a.act), rng.IntN(2)
		h, err := s.Add(ctx, r)
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
