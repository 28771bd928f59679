package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/tensor"
)

// aheadMost is the largest weight, in bytes as it is made, beside which another one is made. A variable for tests.
var aheadMost = 128 << 20

// maker makes weights for a device whose memory the host does not reach: while one is copied there
// the next is packed or converted. It does so in memory of the host that it uses again, so that fresh pages
// are not asked for with each weight: twice the largest of up to aheadMost bytes, and once the largest beyond that.
type maker struct {
	e     *Engine
	ready chan product  // in the order of the jobs
	room  chan struct{} // holds a word for each of bufs that is free
	stop  context.CancelFunc
	bufs  [2][]byte
	large []byte
	next  int           // of bufs
	took  time.Duration // to make all; may be read when ready is closed
}

// product is the bytes of a weight, or why there are none.
type product struct {
	bytes  []byte
	stored []byte // of the file, where it was packed from there
	whole  bool   // nothing else is made beside it
	err    error
}

// makeAhead begins to make what jobs need that are not loaded yet. The caller takes the products of
// those jobs that the file does not have as they are, in their order, and ends it by close.
func (e *Engine) makeAhead(ctx context.Context, jobs []loadJob) *maker {
	var todo []loadJob
	small, large := 0, 0
	for _, j := range jobs {
		if e.weights[j.key].buffer != nil || e.hasStored(&j) {
			continue
		}
		todo = append(todo, j)
		if n := j.size(); n > aheadMost {
			large = max(large, n)
		} else {
			small = max(small, n)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	m := &maker{e: e, ready: make(chan product, 2), room: make(chan struct{}, 2), stop: stop}
	go m.run(ctx, todo, small, large)
	return m
}

func (m *maker) run(ctx context.Context, jobs []loadJob, small, large int) {
	defer close(m.ready)
	mapped.Watch()
	defer mapped.Recover()
	m.room <- struct{}{}
	m.room <- struct{}{}
	for i := range jobs {
		p := m.one(ctx, &jobs[i], small, large)
		m.ready <- p
		if p.err != nil {
			return
		}
	}
}

func (m *maker) one(ctx context.Context, j *loadJob, small, large int) product {
	size := j.size()
	p := product{whole: size > aheadMost}
	for range p.words() {
		select {
		case <-m.room:
		case <-ctx.Done():
			return product{err: fmt.Errorf("weight %s: %w", j.value.Name, ctx.Err())}
		}
	}
	start := time.Now()
	p.bytes = m.memory(size, small, large)
	p.stored, p.err = m.e.makeOne(ctx, p.bytes, j)
	m.took += time.Since(start)
	return p
}

// memory gives zeroed bytes, which are free.
func (m *maker) memory(size, small, large int) []byte {
	at, most := &m.bufs[m.next], small
	if size > aheadMost {
		at, most = &m.large, large
	} else {
		m.next = 1 - m.next
	}
	if *at == nil {
		*at = tensor.New(tensor.U8, most).Data
		return (*at)[:size]
	}
	b := (*at)[:size]
	const piece = 1 << 20
	_ = parallel(context.Background(), (size+piece-1)/piece, func(from, to int) error {
		clear(b[from*piece : min(to*piece, size)])
		return nil
	})
	return b
}

// words is how many of the maker's two places a product takes.
func (p *product) words() int {
	if p.whole {
		return 2
	}
	return 1
}

// used says that a product's bytes are not needed any more.
func (m *maker) used(p product) {
	for range p.words() {
		m.room <- struct{}{}
	}
}

// close waits until nothing is made any more and says how long making took in all.
func (m *maker) close() time.Duration {
	m.stop()
	for range m.ready {
	}
	return m.took
}

// LoadTimes says how long parts of loading took. Making runs beside the others where the device's memory
// is not the host's.
type LoadTimes struct {
	Planning   time.Duration // graphs, kernels, what is to be loaded
	Loading    time.Duration // all that follows
	Allocating time.Duration // of the device's memory
	Making     time.Duration // packing and converting, where that is done
	Waiting    time.Duration // for what is made ahead
	Copying    time.Duration // to memory from which the device copies, or its own
	Dropping   time.Duration // giving back the file's pages
}

// LoadTimes is how long loading took, so far.
func (e *Engine) LoadTimes() LoadTimes {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.times
}
