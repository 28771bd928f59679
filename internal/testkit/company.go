// Sequences alone and in company, on devices whose results do not depend on it.

package testkit

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// Hybrid is a model with recurrences beside a cache.
//
//go:embed hybrid.yaml
var Hybrid []byte

// company is a model whose sequences are compared, with prompts of up to most tokens.
type company struct {
	model         string // "": Hybrid
	set           map[string]string
	dtype, kv     tensor.Type
	context, most int
	brief         bool // it is compared where few are
}

// sized are sizes of a small model.
func sized(d, h, g, f, v string) map[string]string {
	return map[string]string{"L": "2", "D": d, "H": h, "G": g, "F": f, "V": v}
}

// companies are models whose kernels between them are chosen in every way: types of weights and of caches, queries that
// share a head, capped scores and windows, biases, experts, recurrences, and positions of many parts.
func companies() []company {
	gemma := sized("64", "4", "2", "96", "90")
	gemma["Dh"] = "16"
	experts, large := sized("64", "4", "2", "96", "90"), sized("256", "4", "2", "256", "90")
	experts["E"], large["E"] = "4", "4"
	neox := sized("64", "4", "", "96", "90")
	delete(neox, "G")
	return []company{
		{"llama2_7b", sized("96", "4", "2", "160", "111"), tensor.F32, tensor.F16, 200, 90, false},
		{"llama2_7b", sized("64", "4", "1", "96", "100"), tensor.BF16, tensor.BF16, 200, 90, false},
		{"llama2_7b", sized("128", "2", "2", "256", "97"), tensor.Q4_0, tensor.Q8_0, 200, 90, true},
		{"llama2_7b", sized("256", "4", "2", "512", "300"), tensor.Q4_K, tensor.F16, 200, 90, false},
		{"llama2_7b", sized("128", "4", "2", "256", "150"), tensor.F8E4M3, tensor.F8E4M3, 200, 90, false},
		{"llama2_7b", sized("256", "4", "1", "128", "130"), tensor.F16, tensor.F16, 800, 700, false},
		{"gemma2_2b", gemma, tensor.F16, tensor.F32, 200, 90, false},
		{"gpt_neox_20b", neox, tensor.F16, tensor.F16, 200, 90, false},
		{"mixtral_8x7b", experts, tensor.Q8_0, tensor.F16, 200, 90, true},
		{"mixtral_8x7b", large, tensor.Q4_K, tensor.F16, 200, 90, false},
		{"", nil, tensor.F32, tensor.F32, 120, 90, true},
	}
}

// InCompany opens devices on which a row's results do not depend on the rows beside it, and holds them to that: logits
// of a sequence are bit for bit those that it has alone, whatever runs beside it, whatever parts its prompt is cut into
// and wherever its pages lie. So many requests run at once; brief: of few of the models.
func InCompany(t *testing.T, requests int, brief bool, open func(t *testing.T) backends.Device) {
	for _, c := range companies() {
		if brief && !c.brief {
			continue
		}
		t.Run(fmt.Sprint(c.model, "/", c.dtype, "/", c.kv, "/", c.context), func(t *testing.T) {
			dev := open(t)
			if !backends.Invariant(dev) {
				t.Fatalf("%v is not invariant", dev.Info())
			}
			opt := engine.Options{Device: dev, Context: c.context, DType: c.dtype, KV: c.kv, Set: c.set, Seed: 3, Chunk: 64}
			var err error
			if c.model != "" {
				opt.Model, err = models.Builtin(c.model)
			} else {
				path := filepath.Join(t.TempDir(), "hybrid.yaml")
				if err = os.WriteFile(path, Hybrid, 0o644); err == nil {
					opt.Model, err = models.Load(path)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			e, s := Session(t, opt)
			n := requests
			if c.most > 500 {
				n = max(3, requests/8)
			}
			inChunks(t, s, e.Vocabulary())
			sameInCompany(t, e, n, c.most)
		})
	}
}

// inChunks compares logits of a session behind a prompt in steps of many rows with those behind it token by token.
func inChunks(t *testing.T, s *engine.Session, vocabulary int) {
	t.Helper()
	tokens := make([]int32, 77)
	for i := range tokens {
		tokens[i] = int32(i * 37 % vocabulary)
	}
	var want []float32
	for _, first := range []int{0, len(tokens), 9, 65} {
		s.Reset()
		var got []float32
		var err error
		if first > 0 {
			got, err = s.Prefill(t.Context(), tokens[:first])
		}
		for _, id := range tokens[first:] {
			if err == nil {
				got, err = s.Decode(id)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = slices.Clone(got)
		} else if !slices.Equal(got, want) {
			t.Errorf("%d of %d tokens at once: other logits than token by token", first, len(tokens))
		}
	}
}

// randomRequests are requests of random prompts, some of which begin alike.
func randomRequests(rng *rand.Rand, n, most, vocabulary int) []engine.Request {
	all := make([]engine.Request, n)
	for i := range all {
		prompt := make([]int32, 1+rng.IntN(most))
		for k := range prompt {
			prompt[k] = int32(rng.IntN(vocabulary))
		}
		if i%4 == 3 { // a beginning that another has
			prompt = append(slices.Clone(all[i-1].Prompt), prompt[0])
		}
		all[i] = engine.Request{Prompt: prompt, Max: 1 + rng.IntN(25), Logprobs: 5,
			Sampling: engine.Sampling{Temperature: float64(i % 2), Seed: uint64(i)}}
	}
	return all
}

// sameInCompany compares n sequences in random company with themselves alone, to the bit.
func sameInCompany(t *testing.T, e *engine.Engine, n, most int) {
	t.Helper()
	requests := randomRequests(rand.New(rand.NewPCG(3, 4)), n, most, e.Vocabulary())
	run := func(s *engine.Scheduler, r engine.Request) (all []engine.Token) {
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
	with := func(opt engine.SchedulerOptions, work func(s *engine.Scheduler)) {
		s, err := engine.NewScheduler(e, opt)
		if err != nil {
			t.Fatal(err)
		}
		work(s)
		if st := s.Stats(); st.PagesUsed != 0 || st.Running != 0 || st.Waiting != 0 {
			t.Errorf("at the end %d pages are used, %d sequences run and %d wait", st.PagesUsed, st.Running, st.Waiting)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	own := (most+25)/16*16 + 48 // tokens that the longest has room in
	want := make([][]engine.Token, n)
	with(engine.SchedulerOptions{Tokens: 2 * own, Page: 16, Rows: own, Sequences: 1, NoPrefix: true},
		func(s *engine.Scheduler) {
			for i, r := range requests {
				want[i] = run(s, r)
			}
		})
	for _, opt := range []engine.SchedulerOptions{{Tokens: 16 * own, Page: 16, Rows: 64},
		{Tokens: 3 * own, Page: 16, Rows: 9, Sequences: 7}, {Tokens: 8 * own, Page: 16, Rows: 200}} {
		with(opt, func(s *engine.Scheduler) {
			var wait sync.WaitGroup
			for i, r := range requests {
				wait.Go(func() {
					if at := unlike(run(s, r), want[i]); at >= 0 {
						t.Errorf("%d rows a step, request %d of %d tokens: token %d is another than alone", opt.Rows, i,
							len(r.Prompt), at)
					}
				})
			}
			wait.Wait()
		})
	}
}

// unlike is the first token that differs by its id or the log-probabilities beside it, -1: none does.
func unlike(got, want []engine.Token) int {
	for k := range max(len(got), len(want)) {
		if k >= min(len(got), len(want)) || got[k].ID != want[k].ID || got[k].Logprob != want[k].Logprob ||
			!slices.Equal(got[k].Top, want[k].Top) {
			return k
		}
	}
	return -1
}
