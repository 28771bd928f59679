package engine_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// TestRandomSchedules: whatever comes, ends and fails beside it, a sequence's tokens are those that it has alone, with
// masks, and with adapters or without.
func TestRandomSchedules(t *testing.T) {
	n := 8
	if testfiles.Exhaustive() {
		n = 500
	}
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	testkit.Schedules(t, dev, n, 1e-3)
	testkit.AdaptedSchedules(t, dev, n/4, 1e-3)
}

// TestFamilySchedules: the same of families whose states are not a cache of keys and values for each layer: latents,
// windows, caches that layers share, recurrences, and layers of several kinds; with caches of every type.
func TestFamilySchedules(t *testing.T) {
	n, seeds := 1, 1
	if testfiles.Exhaustive() {
		n, seeds = 25, 3
	}
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	kinds := []tensor.Type{tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3}
	for i, family := range []string{"deepseek_v2", "kimi_linear", "falcon_h1", "recurrent_gemma", "mamba", "rwkv7",
		"cohere2", "gemma3n_text", "gemma4_experts", "minimax", "zamba2", "lfm3", "llama4_floor", "olmo_hybrid"} {
		for k := range seeds {
			kv := kinds[(i+k)%len(kinds)]
			t.Run(family+"/"+kv.String(), func(t *testing.T) {
				folder := testfiles.Repo(t, "testdata", "families", family)
				testkit.FamilySchedules(t, dev, folder, kv, uint64(20*i+k), n, 1e-2)
			})
		}
	}
}

// TestManySequencesLeaveNothing: behind thousands of sequences all pages are free, and memory has not grown; a step
// allocates nothing.
func TestManySequencesLeaveNothing(t *testing.T) {
	n := 10000
	if testing.Short() {
		n = 1000
	}
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(t.Context(), engine.Options{Model: file, Device: dev, Context: 64, DType: tensor.F16,
		Set: map[string]string{"L": "1", "D": "32", "H": "2", "F": "32", "V": "64"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := engine.NewScheduler(e, engine.SchedulerOptions{Tokens: 1024, Page: 8, Sequences: 16, Queue: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	some := func(n int) (bytes uint64) {
		var wait sync.WaitGroup
		room := make(chan struct{}, 32)
		for i := range n {
			room <- struct{}{}
			ctx, cancel := context.WithCancel(t.Context())
			h, err := s.Add(ctx, engine.Request{Prompt: []int32{int32(i % 64), 5, int32(i / 64 % 64)}, Max: 1 + i%4})
			if err != nil {
				t.Fatal(err)
			}
			wait.Go(func() {
				defer func() { <-room }()
				defer cancel()
				for range h.Tokens() {
					if i%7 == 3 {
						cancel()
					}
				}
			})
		}
		wait.Wait()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := some(n / 10)
	after := some(n)
	if st := s.Stats(); st.PagesUsed != 0 || st.Running+st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
	if after > before+before/4+(1<<20) {
		t.Errorf("%d bytes are in use behind %d sequences, %d behind %d", after, n+n/10, before, n/10)
	}
	// One long answer more: nothing for a token.
	count := func(most int) uint64 {
		h, err := s.Add(t.Context(), engine.Request{Prompt: []int32{3}, Max: most})
		if err != nil {
			t.Fatal(err)
		}
		h.Result()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Mallocs
	}
	count(60)
	start := count(60)
	long := count(60) - start
	short := count(2)
	short = count(2) - short
	if perToken := (float64(long) - float64(short)) / 58; perToken > 1 {
		t.Errorf("%.1f allocations a token", perToken)
	}
}
