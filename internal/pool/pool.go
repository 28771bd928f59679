// Package pool runs the parallel regions of the CPU backend: a fork-join pool
// whose workers spin between regions, so that a region costs well under a
// microsecond while a model runs, and park when the model rests.
//
// A region is over when its chunks are done, not when every worker has shown
// up: a worker that the operating system keeps from running holds nothing up
// unless it has a chunk in its hands, and chunks are short.
package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Task is one parallel region's work. Do computes one chunk; worker is in
// [0, Size) and no two calls run at once with the same worker, so it may index
// scratch memory. Do must not panic and should last under 100 µs: assembly
// cannot be preempted, and a busy machine waits for the last chunk.
type Task interface{ Do(worker, chunk int) }

const (
	spinFor    = 2 * time.Millisecond // a worker polls so long, then parks
	pollPauses = 8                    // pause instructions between two polls
	yieldEvery = 64                   // polls between two visits to the scheduler
	joinPolls  = 400                  // polls for the last chunk before yielding
	joinYields = 100                  // yields for the last chunk before parking
)

type line [64]byte // keeps words that different cores write apart

// Pool is a fixed set of workers. The goroutine that calls Run is worker 0.
type Pool struct {
	size int
	spin time.Duration

	run    sync.Mutex // one region at a time
	task   Task       // of the current region: written before state opens it,
	chunks uint32     // read only by holders of a chunk

	_     line
	state atomic.Uint64 // region number << 32 | chunks not yet claimed
	_     line
	done  atomic.Uint32 // chunks finished
	_     line
	// waiting is set when Run has parked until the last chunk is done.
	waiting  atomic.Bool
	finished chan struct{}
	_        line
	sleepers atomic.Int32
	quit     atomic.Bool
	exited   sync.WaitGroup
	workers  []worker
}

type worker struct {
	asleep atomic.Bool
	wake   chan struct{}
	_      line
}

// New starts a pool of size workers, of which the caller of Run is one. A size
// below one means one.
func New(size int) *Pool {
	if runtime.GOMAXPROCS(0) < size {
		return newPool(size, 0) // a spinning worker would only keep another from working
	}
	return newPool(size, spinFor)
}

func newPool(size int, spin time.Duration) *Pool {
	size = max(size, 1)
	p := &Pool{size: size, spin: spin, finished: make(chan struct{}, 1), workers: make([]worker, size)}
	for id := 1; id < size; id++ {
		p.workers[id].wake = make(chan struct{}, 1)
		p.exited.Add(1)
		go p.work(id)
	}
	return p
}

// Size gives the number of workers, the caller of Run included.
func (p *Pool) Size() int { return p.size }

// Run computes chunks 0 … chunks-1 of t on all workers and returns when they
// are done. Chunks are handed out in order, one at a time. Nothing is
// allocated. Calls from several goroutines take turns; a task must not call
// Run on its own pool. After Close the caller computes all chunks itself.
func (p *Pool) Run(t Task, chunks int) {
	if chunks <= 0 {
		return
	}
	p.run.Lock()
	defer p.run.Unlock()
	if p.size == 1 || chunks == 1 || p.quit.Load() {
		for c := range chunks {
			t.Do(0, c)
		}
		return
	}
	p.task, p.chunks = t, uint32(chunks)
	p.done.Store(0)
	p.state.Store((p.state.Load()>>32+1)<<32 | uint64(chunks))
	if p.sleepers.Load() > 0 {
		p.wakeUp(chunks - 1)
	}
	p.drain(0)
	p.join()
	p.task = nil
}

// wakeUp unparks up to n workers.
func (p *Pool) wakeUp(n int) {
	for id := 1; id < p.size && n > 0; id++ {
		w := &p.workers[id]
		if w.asleep.Load() && w.asleep.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
			n--
		}
	}
}

// drain claims and computes chunks until none is left.
//
// A claim is a compare-and-swap of region number and remaining count together,
// so a worker that was stopped between load and swap cannot claim from a later
// region. Holding a chunk keeps the region open, which makes the plain reads of
// task and chunks safe.
func (p *Pool) drain(id int) {
	for {
		s := p.state.Load()
		remaining := uint32(s)
		if remaining == 0 {
			return
		}
		if !p.state.CompareAndSwap(s, s-1) {
			continue
		}
		total := p.chunks
		p.task.Do(id, int(total-remaining))
		if p.done.Add(1) == total && p.waiting.Load() && p.waiting.CompareAndSwap(true, false) {
			p.finished <- struct{}{}
		}
	}
}

// join waits for the chunks that other workers still hold.
func (p *Pool) join() {
	total := p.chunks
	for i := 0; p.done.Load() != total; i++ {
		switch {
		case i < joinPolls:
			pause(pollPauses)
		case i < joinPolls+joinYields:
			runtime.Gosched()
		default: // someone lost its core: leave ours to it
			p.waiting.Store(true)
			if p.done.Load() == total && p.waiting.CompareAndSwap(true, false) {
				return
			}
			// Whoever finished the region before may see this flag late and
			// answer it, hence the loop.
			<-p.finished
		}
	}
}

func (p *Pool) work(id int) {
	defer p.exited.Done()
	w := &p.workers[id]
	for p.await(w) {
		p.drain(id)
	}
}

// await returns true when chunks are to be had, false when the pool closes.
func (p *Pool) await(w *worker) bool {
	for {
		var start time.Time
		for i := 0; ; i++ {
			if p.quit.Load() {
				return false
			}
			if uint32(p.state.Load()) != 0 {
				return true
			}
			if i%yieldEvery == yieldEvery-1 {
				if start.IsZero() {
					start = time.Now()
				} else if time.Since(start) >= p.spin {
					break
				}
				runtime.Gosched()
			}
			if p.spin == 0 {
				break
			}
			pause(pollPauses)
		}
		// Announce, look again, sleep: Run stores state before it looks for
		// sleepers, so one of the two sees the other.
		w.asleep.Store(true)
		p.sleepers.Add(1)
		if uint32(p.state.Load()) == 0 && !p.quit.Load() || !w.asleep.CompareAndSwap(true, false) {
			<-w.wake
		}
		p.sleepers.Add(-1)
	}
}

// Close stops the workers and waits until they are gone.
func (p *Pool) Close() {
	p.run.Lock()
	defer p.run.Unlock()
	p.quit.Store(true)
	p.wakeUp(p.size)
	p.exited.Wait()
}
