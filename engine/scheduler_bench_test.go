package engine

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// BenchmarkSchedulerHost measures what the host adds to a step of many rows of a small model: greedy, and where it
// chooses among many logits.
func BenchmarkSchedulerHost(b *testing.B) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		b.Fatal(err)
	}
	wide := func() *Engine {
		return newEngine(b, Options{Model: file, Device: newCPU(b, 1), Context: 512, DType: tensor.F16, Seed: 3,
			Set: map[string]string{"L": "1", "D": "32", "H": "2", "F": "32", "V": "32000"}})
	}
	narrow := func() *Engine { return newEngine(b, Options{Model: small(b), Device: newCPU(b, 1), Context: 512}) }
	for _, c := range []struct {
		name   string
		engine func() *Engine
		opt    Sampling
		logs   int
	}{{"greedy", narrow, Sampling{}, 0}, {"top_p", wide, Sampling{Temperature: 0.7, TopP: 0.95}, 0},
		{"logprobs", wide, Sampling{Temperature: 0.7}, 5}} {
		for _, rows := range []int{64, 256} {
			b.Run(fmt.Sprintf("%s/%d", c.name, rows), func(b *testing.B) {
				hostTime(b, c.engine(), rows, Request{Sampling: c.opt, Logprobs: c.logs})
			})
		}
	}
}

// hostTime runs as many requests as rows, again and again.
func hostTime(b *testing.B, e *Engine, rows int, r Request) {
	s, err := NewScheduler(e, SchedulerOptions{Tokens: rows * 512, Sequences: rows})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var steps, computed, host, allocated float64
	for b.Loop() {
		var from, to runtime.MemStats
		before := s.Stats()
		runtime.ReadMemStats(&from)
		var wait sync.WaitGroup
		for i := range rows {
			r.Prompt, r.Max, r.Sampling.Seed = []int32{int32(i % 50), 3}, 400, uint64(i)
			h, err := s.Add(b.Context(), r)
			if err != nil {
				b.Fatal(err)
			}
			wait.Go(func() { h.Result() })
		}
		wait.Wait()
		after := s.Stats()
		runtime.ReadMemStats(&to)
		steps += float64(after.Steps - before.Steps)
		computed += float64(after.Rows - before.Rows)
		host += float64((after.Host - before.Host).Microseconds())
		allocated += float64(to.Mallocs - from.Mallocs)
	}
	b.ReportMetric(host/steps, "host-µs/step")
	b.ReportMetric(computed/steps, "rows/step")
	b.ReportMetric(allocated/steps, "allocs/step") // those of requests among them
}
