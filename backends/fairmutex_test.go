package backends

import (
	"slices"
	"sync"
	"testing"
)

// waitFor waits until so many have asked for turns in all.
func waitFor(t *FairMutex, asked uint64) {
	for {
		t.mu.Lock()
		n := t.asked
		t.mu.Unlock()
		if n == asked {
			return
		}
	}
}

// Turns are given in the order in which they are asked for.
func TestTurns(t *testing.T) {
	var turn FairMutex
	turn.Lock()
	if turn.TryLock() {
		t.Fatal("a turn was given twice")
	}
	if turn.Wanted() {
		t.Error("nobody waits, and the turn is wanted")
	}
	var order []int
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			turn.Lock()
			order = append(order, i)
			turn.Unlock()
		})
		waitFor(&turn, uint64(2+i))
	}
	if !turn.Wanted() {
		t.Error("eight wait, and the turn is not wanted")
	}
	turn.Unlock()
	turn.Lock() // behind all of them
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(order, want) {
		t.Errorf("turns were given in the order %v", order)
	}
	turn.Unlock()
	all.Wait()
	if !turn.TryLock() {
		t.Error("a free turn was not given")
	}
	turn.Unlock()
	if n := testing.AllocsPerRun(100, func() {
		turn.TryLock()
		turn.Unlock()
	}); n != 0 {
		t.Errorf("a turn allocates %v times", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("a turn that nobody had was given back")
		}
	}()
	turn.Unlock()
}

func BenchmarkTurn(b *testing.B) {
	var turn FairMutex
	for b.Loop() {
		turn.TryLock()
		turn.Unlock()
	}
}
