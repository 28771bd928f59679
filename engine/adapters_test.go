package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/lora"
	"github.com/greta-project/greta/weights/open"

	"github.com/greta-project/greta/internal/testfiles"
)

// adapterOf makes an adapter for some of a source's matrices.
func adapterOf(src weights.Source, seed uint64, rank int, size float64, modules ...string) *lora.Adapter {
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

// TestAdaptersInOneStep: requests with different adapters and with none, together in the steps,
// each say what a model says into which their adapter is merged; pages are shared only among equal
// adapters.
func TestAdaptersInOneStep(t *testing.T) {
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	adapters := []Adapter{
		{"one", adapterOf(src, 1, 4, 0.1, "q_proj", "v_proj")},
		{"two", adapterOf(src, 2, 16, 0.1, "down_proj", "gate_proj", "o_proj")},
		{"three", adapterOf(src, 3, 1, 0.2, "k_proj", "up_proj")},
	}
	names := []string{"", "one", "two", "three"}
	dev := newCPU(t, 2)
	opt := Options{Model: file, Source: src, Device: dev, Context: 128, DType: tensor.F32, KV: tensor.F32}
	prompt := []int32{5, 17, 99, 120, 44, 310, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
	const n = 24
	type known struct {
		text  []int32
		clear int
	}
	want := map[string]known{}
	texts := map[string]bool{}
	for i, name := range names {
		o := opt
		if i > 0 {
			if o.Source, err = lora.Merge(src, adapters[i-1].Adapter); err != nil {
				t.Fatal(err)
			}
		}
		e := newEngine(t, o)
		var a known
		a.text, a.clear = alone(t, e, prompt, n, 0.02) // the stacks are f16
		want[name] = a
		texts[string(tensor.Bytes(a.text))] = true
		if a.clear < 5 {
			t.Errorf("%q: only %d tokens are clear", name, a.clear)
		}
	}
	if len(texts) != len(names) {
		t.Fatalf("%d adapters say %d texts", len(names), len(texts))
	}
	opt.Adapters = adapters
	for _, rows := range []int{256, 24} {
		s := newScheduler(t, newEngine(t, opt), SchedulerOptions{Tokens: 2048, Page: 16, Rows: rows})
		for round := range 2 { // in the second the pages are known
			var wait sync.WaitGroup
			for i := range 12 {
				name := names[i%len(names)]
				h, err := s.Add(t.Context(), Request{Prompt: prompt, Max: n, Adapter: name})
				if err != nil {
					t.Fatal(err)
				}
				wait.Go(func() {
					got, err := read(h)
					w := want[name]
					if err != nil || !slices.Equal(got[0][:w.clear], w.text[:w.clear]) {
						t.Errorf("%v: adapter %q says %v, merged %v, clear %d", err, name, got[0], w.text, w.clear)
					}
					if c := h.Result().Cached; round == 1 && c != 16 {
						t.Errorf("%q: %d tokens cached in the second round", name, c)
					}
				})
			}
			wait.Wait()
		}
		freed(t, s)
		if _, err := s.Add(t.Context(), Request{Prompt: prompt, Adapter: "four"}); err == nil ||
			!strings.Contains(err.Error(), "one, three, two") {
			t.Errorf("an adapter that is not there: %v", err)
		}
	}
}

// TestWrongAdapters are refused when the engine is made, or the scheduler.
func TestWrongAdapters(t *testing.T) {
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	good := adapterOf(src, 1, 2, 0.1, "q_proj")
	wide := adapterOf(src, 1, 2, 0.1, "q_proj")
	wide.Pairs[0].In++
	outside := adapterOf(src, 1, 2, 0.1, "embed_tokens")
	for name, c := range map[string]struct {
		list []Adapter
		want string
	}{
		"no name":   {[]Adapter{{"", good}}, "name"},
		"one name":  {[]Adapter{{"a", good}, {"a", good}}, "name"},
		"width":     {[]Adapter{{"a", wide}}, "is not for"},
		"embedding": {[]Adapter{{"a", outside}}, "merged"},
	} {
		e, err := New(t.Context(), Options{Model: file, Source: src, Device: newCPU(t, 1), Context: 32, Adapters: c.list})
		if err == nil {
			_, err = NewScheduler(e, SchedulerOptions{Tokens: 64})
			if e := e.Close(); e != nil {
				t.Error(e)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(t.Context(), Options{Model: small(t), Device: newCPU(t, 1), Context: 32, Adapters: []Adapter{{"a",
		good}}}); err == nil {
		t.Error("synthetic weights took an adapter")
	}
}
