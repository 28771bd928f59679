package engine

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/greta-project/greta/internal/mapped"
)

// hands are goroutines that help the scheduler's own where the same is to be done for many rows of a step. They are
// there from the first time on, so that a step allocates nothing for them.
type hands struct {
	n     int
	do    func(i int)
	next  atomic.Int64
	there int           // goroutines
	work  chan struct{} // a number of rows for one of them
	done  sync.WaitGroup
}

// each calls do for each of n numbers, on several processors where there are several.
func (h *hands) each(n int, do func(i int)) {
	others := min(n, runtime.GOMAXPROCS(0)) - 1
	h.n, h.do = n, do
	h.next.Store(0)
	if others <= 0 {
		h.take()
		return
	}
	if h.work == nil {
		h.work = make(chan struct{}, others)
	}
	for ; h.there < others; h.there++ {
		go h.help(h.work)
	}
	h.done.Add(others)
	for range others {
		h.work <- struct{}{}
	}
	h.take()
	h.done.Wait()
}

func (h *hands) help(work <-chan struct{}) {
	mapped.Watch() // a mask may read what is mapped
	defer mapped.Recover()
	for range work {
		h.take()
		h.done.Done()
	}
}

func (h *hands) take() {
	for i := int(h.next.Add(1)) - 1; i < h.n; i = int(h.next.Add(1)) - 1 {
		h.do(i)
	}
}

// leave sends them away. Nothing is being done.
func (h *hands) leave() {
	if h.work != nil {
		close(h.work)
	}
}
