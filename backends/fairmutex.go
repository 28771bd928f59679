package backends

import "sync"

// FairMutex lets goroutines share a device: who calls the device, or what it gave, holds its turn
// meanwhile. Turns are given in the order in which they were asked for. Nothing is allocated. The
// zero value is free.
type FairMutex struct {
	mu    sync.Mutex
	given sync.Cond // next has changed
	asked uint64    // turns that were ever asked for
	next  uint64    // the one that is under way, or comes
}

// TryLock takes the turn if it is free, and says whether it did.
func (m *FairMutex) TryLock() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked != m.next {
		return false
	}
	m.asked++
	return true
}

// Lock waits for the turn.
func (m *FairMutex) Lock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.asked
	m.asked++
	if own == m.next {
		return
	}
	if m.given.L == nil {
		m.given.L = &m.mu
	}
	for own != m.next {
		m.given.Wait()
	}
}

// Unlock gives the turn to who has waited longest.
func (m *FairMutex) Unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == m.asked {
		panic("backends: a turn was given back that nobody had")
	}
	if m.next++; m.next < m.asked {
		m.given.Broadcast()
	}
}

// Wanted says, to who has the turn, whether somebody waits for it.
func (m *FairMutex) Wanted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked-m.next > 1
}
