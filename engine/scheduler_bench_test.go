package engine

import (
	"sync"
	"testing"
)

// BenchmarkSchedulerHost measures what the host adds to a step of 64 rows of a small model.
func BenchmarkSchedulerHost(b *testing.B) {
	e := newEngine(b, Options{Model: small(b), Device: newCPU(b, 1), Context: 512})
	s, err := NewScheduler(e, SchedulerOptions{Tokens: 64 * 512})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		before := s.Stats()
		var wait sync.WaitGroup
		for i := range 64 {
			h, err := s.Add(b.Context(), Request{Prompt: []int32{int32(i % 50), 3}, Max: 400})
			if err != nil {
				b.Fatal(err)
			}
			wait.Go(func() { h.Result() })
		}
		wait.Wait()
		after := s.Stats()
		steps := float64(after.Steps - before.Steps)
		b.ReportMetric(float64((after.Host-before.Host).Microseconds())/steps, "host-µs/step")
		b.ReportMetric(float64(after.Rows-before.Rows)/steps, "rows/step")
	}
}
