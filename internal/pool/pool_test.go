package pool

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counter counts how often each chunk ran and notices two calls of one worker
// at once.
type counter struct {
	seen    []int32 // plain on purpose: the race detector watches it
	busy    []atomic.Bool
	overlap atomic.Bool
	ran     []atomic.Int64
	body    func(worker, chunk int)
}

func newCounter(workers, chunks int) *counter {
	return &counter{seen: make([]int32, chunks), busy: make([]atomic.Bool, workers), ran: make([]atomic.Int64, workers)}
}

func (c *counter) Do(worker, chunk int) {
	if c.busy[worker].Swap(true) {
		c.overlap.Store(true)
	}
	c.seen[chunk]++
	c.ran[worker].Add(1)
	if c.body != nil {
		c.body(worker, chunk)
	}
	c.busy[worker].Store(false)
}

func (c *counter) check(t *testing.T, regions int) {
	t.Helper()
	if c.overlap.Load() {
		t.Error("one worker ran two chunks at once")
	}
	for i, n := range c.seen {
		if n != int32(regions) {
			t.Fatalf("chunk %d ran %d times in %d regions", i, n, regions)
		}
	}
}

func TestEveryChunkOnce(t *testing.T) {
	for _, size := range []int{0, 1, 2, 3, 8} {
		for _, chunks := range []int{0, 1, 2, 3, 7, 64, 1000} {
			t.Run(fmt.Sprintf("%d workers, %d chunks", size, chunks), func(t *testing.T) {
				p := New(size)
				defer p.Close()
				c := newCounter(p.Size(), chunks)
				const regions = 50
				for range regions {
					p.Run(c, chunks)
				}
				c.check(t, regions)
			})
		}
	}
}

// A region must also be right when its workers are parked, and when the one
// that works last makes the caller park.
func TestParking(t *testing.T) {
	p := newPool(3, 50*time.Microsecond)
	defer p.Close()
	c := newCounter(3, 12)
	c.body = func(worker, chunk int) {
		if chunk == 11 {
			time.Sleep(3 * time.Millisecond)
		}
	}
	for i := range 30 {
		if i%3 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
		p.Run(c, 12)
	}
	c.check(t, 30)
	deadline := time.Now().Add(5 * time.Second)
	for p.sleepers.Load() != 2 {
		if time.Now().After(deadline) {
			t.Fatalf("%d of 2 workers parked", p.sleepers.Load())
		}
		time.Sleep(time.Millisecond)
	}
}

func TestWorkersHelp(t *testing.T) {
	p := New(2)
	defer p.Close()
	c := newCounter(2, 64)
	c.body = func(int, int) { time.Sleep(100 * time.Microsecond) }
	for range 5 {
		p.Run(c, 64)
	}
	c.check(t, 5)
	if c.ran[0].Load() == 0 || c.ran[1].Load() == 0 {
		t.Errorf("chunks by worker: %d and %d, want both to work", c.ran[0].Load(), c.ran[1].Load())
	}
}

func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := New(4)
	defer p.Close()
	c := newCounter(4, 16)
	start := time.Now()
	for range 500 {
		p.Run(c, 16)
	}
	c.check(t, 500)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("500 regions took %v on one processor", d)
	}
}

func TestBusyNeighbours(t *testing.T) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
			}
		})
	}
	p := New(runtime.GOMAXPROCS(0))
	c := newCounter(p.Size(), 8)
	for range 100 {
		p.Run(c, 8)
	}
	c.check(t, 100)
	stop.Store(true)
	wg.Wait()
	p.Close()
}

func TestConcurrentCallers(t *testing.T) {
	p := New(3)
	c := newCounter(3, 9)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				p.Run(c, 9)
			}
		})
	}
	wg.Wait()
	c.check(t, 400)
	p.Close()
}

func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, rest := range []time.Duration{0, 5 * time.Millisecond} { // spinning, parked
		p := New(4)
		c := newCounter(4, 8)
		p.Run(c, 8)
		time.Sleep(rest)
		p.Close()
		p.Close()
		p.Run(c, 8) // the caller alone
		c.check(t, 2)
	}
	time.Sleep(time.Millisecond)
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines before, %d after Close", before, after)
	}
}

func TestAllocatesNothing(t *testing.T) {
	p := New(2)
	defer p.Close()
	c := newCounter(2, 4)
	if n := testing.AllocsPerRun(200, func() { p.Run(c, 4) }); n != 0 {
		t.Errorf("%v allocations per region", n)
	}
}

type nop struct{}

func (nop) Do(int, int) {}

func BenchmarkRegion(b *testing.B) {
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			p := New(n)
			defer p.Close()
			for b.Loop() {
				p.Run(nop{}, n)
			}
		})
	}
}

// Ranges that are divided again and again must neither lose a chunk nor do one twice,
// in regions of more chunks than a span can count too.
func TestStolenRanges(t *testing.T) {
	for _, size := range []int{2, 3, 5, 8} {
		p := New(size)
		for _, chunks := range []int{1, 2, 3, 5, 9, 100, maxUnits + 1, 3 * maxUnits} {
			c := newCounter(p.Size(), chunks)
			c.body = func(worker, chunk int) {
				if chunk == 0 || chunk == chunks/2 { // whoever has it is late, others take the rest of its range
					time.Sleep(200 * time.Microsecond)
				}
			}
			p.Run(c, chunks)
			p.Run(c, chunks)
			c.check(t, 2)
		}
		p.Close()
	}
}

// A worker goes through its range in order, whoever takes its end.
func TestInOrder(t *testing.T) {
	p := New(2)
	defer p.Close()
	last := [2][8]int{{0: -1}, {0: -1}}
	backwards := [2][8]int{} // rows are a line of the cache apart
	c := newCounter(2, 1000)
	c.body = func(worker, chunk int) {
		if chunk < last[worker][0] {
			backwards[worker][0]++
		}
		last[worker][0] = chunk
		time.Sleep(time.Microsecond)
	}
	p.Run(c, 1000)
	c.check(t, 1)
	// A range begins with each theft, and thefts halve what is left.
	for w := range backwards {
		if backwards[w][0] > 10 {
			t.Errorf("worker %d went back %d times in 1000 chunks", w, backwards[w][0])
		}
	}
}

// redone computes chunk numbers, each worker into its own memory.
type redone struct {
	got       []atomic.Int32
	mine      []int
	slow      func(worker, chunk int)
	committed atomic.Int64
}

func (r *redone) Do(worker, chunk int) {
	r.got[chunk].Add(1)
	r.committed.Add(1)
}

func (r *redone) Compute(worker, chunk int) {
	r.slow(worker, chunk)
	r.mine[worker] = chunk
}

func (r *redone) Commit(worker, chunk int) {
	r.got[r.mine[worker]].Add(1)
	r.committed.Add(1)
}

// A worker that loses its core in the midst of a chunk holds nothing up, and what it brings
// later is dropped.
func TestRedo(t *testing.T) {
	for _, size := range []int{2, 3, 8} {
		p := New(size)
		const chunks, regions = 40, 30
		var late atomic.Int32
		release := make(chan struct{})
		r := &redone{got: make([]atomic.Int32, chunks), mine: make([]int, size)}
		r.slow = func(worker, chunk int) {
			if worker == 1 && late.Add(1) == 5 {
				<-release // holds on until all regions are over
			}
			time.Sleep(20 * time.Microsecond)
		}
		var task Redo = r
		for range regions {
			p.RunRedo(&task, chunks, nil)
		}
		if n := r.committed.Load(); n != chunks*regions {
			t.Errorf("%d workers: %d chunks of %d", size, n, chunks*regions)
		}
		close(release)
		p.Settle()
		p.Run(newCounter(size, 16), 16)
		for i := range r.got {
			if n := r.got[i].Load(); n != regions {
				t.Errorf("%d workers: chunk %d came %d times in %d regions", size, i, n, regions)
			}
		}
		p.Close()
	}
}

type steps struct{ done [8]atomic.Int32 }

func (s *steps) Step(worker, step int) bool {
	s.done[worker].Add(1)
	return step < 9
}

// Workers that wait do all steps ahead, once, and none after Settle.
func TestAhead(t *testing.T) {
	p := New(2)
	defer p.Close()
	s := &steps{}
	var a Ahead = s
	c := newCounter(2, 4)
	p.RunAhead(c, 4, &a)
	for start := time.Now(); s.done[1].Load() < 10; {
		if time.Since(start) > time.Second {
			t.Fatalf("%d steps of 10", s.done[1].Load())
		}
	}
	p.Run(c, 4)
	p.Settle()
	for i := range s.done {
		if n := s.done[i].Load(); n > 10 {
			t.Errorf("worker %d did %d steps of 10", i, n)
		}
	}
}
