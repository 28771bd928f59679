package engine

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/open"
)

// TestCacheTypes: what rounding the caches costs of a trained model's logits over 4,096 positions,
// against caches of f32, one sequence's and those in pages; docs/caches.md has the table.
func TestCacheTypes(t *testing.T) {
	n := 256
	if testfiles.Exhaustive() {
		n = 4096
	}
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.New(2, cpu.Exact)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(3 + i*i*7%1999)
	}
	logits := func(kv tensor.Type) (all []float32) {
		e := newEngine(t, Options{Model: file, Source: src, Device: dev, Context: n, KV: kv})
		s := newSession(t, e)
		err := s.PrefillAll(t.Context(), tokens, func(i int, row []float32) error {
			if i%8 == 7 {
				all = append(all, row...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		sched := newScheduler(t, e, SchedulerOptions{Tokens: 512, Page: 16, Sequences: 4})
		prompt := slices.Clone(tokens[:100])
		want, clear := alone(t, e, prompt, 8, limitOf)
		h, err := sched.Add(t.Context(), Request{Prompt: prompt, Max: 8})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(h); err != nil || !slices.Equal(got[0][:clear], want[:clear]) {
			t.Errorf("%v: %v; in pages %v, alone %v", kv, err, got, want)
		}
		return all
	}
	want := logits(tensor.F32)
	for kv, limit := range map[tensor.Type]float64{tensor.F16: 2e-3, tensor.BF16: 6e-3, tensor.Q8_0: 2e-2,
		tensor.F8E4M3: 1e-1} {
		got, diff, sum := logits(kv), 0.0, 0.0
		for i, v := range want {
			diff += math.Pow(float64(got[i]-v), 2)
			sum += math.Pow(float64(v), 2)
		}
		if rel := math.Sqrt(diff / sum); !(rel <= limit) {
			t.Errorf("%v: relative L2 %.1e over %d positions, at most %.1e is allowed", kv, rel, n, limit)
		} else {
			t.Logf("%v: relative L2 %.1e over %d positions", kv, rel, n)
		}
	}
}

// A head that is no whole block of q8_0 is refused.
func TestCacheOfNarrowHeads(t *testing.T) {
	_, err := New(t.Context(), Options{Model: small(t), Device: newCPU(t, 1), Context: 16, KV: tensor.Q8_0})
	if err == nil || !strings.Contains(err.Error(), "no whole blocks") {
		t.Errorf("%v", err)
	}
}
