package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"greta/tensor"
)

// TestSessionsAtOnce: sessions that goroutines use at the same time give what one alone gives.
func TestSessionsAtOnce(t *testing.T) {
	ctx := context.Background()
	dev := newCPU(t, 2)
	var engines []*Engine
	for range 2 {
		e, err := New(ctx, Options{Model: small(t), Device: dev, Context: 64, DType: tensor.Q8_0, Set: map[string]string{"F": "64"}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		engines = append(engines, e)
	}
	text := func(e *Engine, prompt int) ([]float32, error) {
		s, err := e.NewSession()
		if err != nil {
			return nil, err
		}
		defer s.Close()
		logits, err := s.Prefill(ctx, make([]int32, prompt))
		for i := 0; i < 40 && err == nil; i++ {
			logits, err = s.Decode(int32(i))
		}
		return slices.Clone(logits), err
	}
	var wg sync.WaitGroup
	for prompt := range 6 {
		want, err := text(engines[0], 1+prompt)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range engines {
			wg.Go(func() {
				for range 20 {
					got, err := text(e, 1+prompt)
					if err != nil || !slices.Equal(got, want) {
						t.Errorf("a prompt of %d beside others: %v, other logits than alone", 1+prompt, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// TestClosed: what is used after it was closed says so.
func TestClosed(t *testing.T) {
	e, err := New(context.Background(), Options{Model: small(t), Device: newCPU(t, 1), Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	var all []*Session
	for range 2 {
		s, err := e.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	expect := func(s *Session, want string) {
		t.Helper()
		if _, err := s.Decode(1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("decode: %v, want that %s", err, want)
		}
		if _, err := s.Prefill(context.Background(), []int32{1, 2}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("prefill: %v, want that %s", err, want)
		}
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	expect(all[0], "the session is closed")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	expect(all[1], "the engine is closed")
	if _, err := e.NewSession(); err == nil {
		t.Error("a session of a closed engine")
	}
	if err := all[1].Close(); err != nil {
		t.Error(err)
	}
}
