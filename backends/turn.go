package backends

import "sync"

// Turn lets goroutines share a device: who calls the device, or what it gave, holds its turn
// meanwhile. Turns are given in the order in which they were asked for. Nothing is allocated. The
// zero value is free.
type Turn struct {
	mu    sync.Mutex
	given sync.Cond // next has changed
	asked uint64    // turns that were ever asked for
	next  uint64    // the one that is under way, or comes
}

// TryLock takes the turn if it is free, and says whether it did.
func (t *Turn) TryLock() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked != t.next {
		return false
	}
	t.asked++
	return true
}

// Lock waits for the turn.
func (t *Turn) Lock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.asked
	t.asked++
	if own == t.next {
		return
	}
	if t.given.L == nil {
		t.given.L = &t.mu
	}
	for own != t.next {
		t.given.Wait()
	}
}

// Unlock gives the turn to who has waited longest.
func (t *Turn) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == t.asked {
		panic("backends: a turn was given back that nobody had")
	}
	if t.next++; t.next < t.asked {
		t.given.Broadcast()
	}
}

// Wanted says, to who has the turn, whether somebody waits for it.
func (t *Turn) Wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked-t.next > 1
}
