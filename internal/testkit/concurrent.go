// Goroutines that use sessions of one device at the same time.

package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// Concurrent has goroutines make engines and sessions of a device, compute prompts of several
// steps, continue them, give up in between and close what they made, all at once: each must find
// what it finds alone.
func Concurrent(t testing.TB, dev backends.Device, rounds int) {
	t.Helper()
	ConcurrentOf(t, dev, rounds, []tensor.Type{tensor.F16, tensor.Q8_0}, []int{3, 13, 23, 33})
}

// ConcurrentOf does so with an engine of each type, and for each a goroutine of every length of prompts.
func ConcurrentOf(t testing.TB, dev backends.Device, rounds int, types []tensor.Type, prompts []int) {
	t.Helper()
	ctx := context.Background()
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	open := func(dtype tensor.Type) (*engine.Engine, error) {
		return engine.New(ctx, engine.Options{Model: file, Device: dev, Context: 64, DType: dtype, Seed: 5, Chunk: 8,
			Set: map[string]string{"L": "2", "D": "64", "H": "4", "F": "96", "V": "5000"}})
	}
	var engines []*engine.Engine
	for _, dtype := range types {
		e, err := open(dtype)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}()
		engines = append(engines, e)
	}
	var all sync.WaitGroup
	start := make(chan struct{})
	for i, e := range engines {
		for _, prompt := range prompts {
			want, err := text(e, prompt)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				<-start
				for range rounds {
					if got, err := text(e, prompt); err != nil || !slices.Equal(got, want) {
						t.Errorf("engine %d, a prompt of %d beside others: %v, other results than alone", i, prompt, err)
						return
					}
				}
			})
		}
	}
	all.Go(func() {
		<-start
		for range rounds {
			e, err := open(tensor.F32)
			if err != nil {
				t.Error(err)
				return
			}
			if err := errlist.Join(interrupted(e), e.Close()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	close(start)
	all.Wait()
}

// text gives the logits and tokens that a session finds.
func text(e *engine.Engine, prompt int) (all []float32, err error) {
	s, err := e.NewSession()
	if err != nil {
		return nil, err
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	tokens := make([]int32, prompt)
	for i := range tokens {
		tokens[i] = int32(i*37%4000 + 3)
	}
	logits, err := s.Prefill(context.Background(), tokens)
	all = append(all, logits...)
	for i := 0; i < 6 && err == nil; i++ {
		logits, err = s.Decode(int32(i))
		all = append(all, logits...)
	}
	if err != nil {
		return nil, err
	}
	g, err := s.Generate(context.Background(), tokens[:2], engine.Generation{Max: 6})
	for _, t := range g.Tokens {
		all = append(all, float32(t))
	}
	if err != nil {
		return nil, err
	}
	row := func(_ int, row []float32) error {
		all = append(all, row...)
		return nil
	}
	if err := s.PrefillAll(context.Background(), tokens[:3], row); err != nil {
		return nil, err
	}
	err = s.DecodeAll(context.Background(), tokens[:3], row)
	return all, err
}

// interrupted ends a generation behind its second token, and does not begin a prompt.
func interrupted(e *engine.Engine) (err error) {
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	g, err := s.Generate(ctx, []int32{1, 2, 3}, engine.Generation{Emit: func(int32) bool {
		if n++; n == 2 {
			cancel()
		}
		return true
	}})
	if err != nil {
		return err
	}
	if len(g.Tokens) != 2 || g.Stop != engine.StopInterrupted {
		return fmt.Errorf("%d tokens, the end was %q", len(g.Tokens), g.Stop)
	}
	if _, err := s.Prefill(ctx, make([]int32, 20)); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("a prompt of a context that had ended: %w", err)
	}
	return nil
}
