// Package pool runs the parallel regions of the CPU backend: a fork-join pool
// whose workers spin between regions, so that a region costs well under a
// microsecond while a model runs, and park when the model rests.
//
// A region is over when its chunks are done, not when every worker has shown
// up: a worker that the operating system keeps from running holds nothing up
// unless it has a chunk in its hands; and where chunks can be computed twice, not
// even then.
package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greta-project/greta/internal/mapped"
)

// Task is one parallel region's work. Do computes one chunk; worker is in
// [0, Size) and no two calls run at once with the same worker, so it may index
// scratch memory. Do must not panic and should last under 100 µs: assembly
// cannot be preempted, and a busy machine waits for the last chunk.
type Task interface{ Do(worker, chunk int) }

// Redo is a task whose chunks can be computed twice: Do is Compute, then Commit. When a worker
// has lost its core in the midst of Compute, the caller computes that chunk again, and the
// worker's result is dropped whenever it comes, maybe regions later. So Compute reads what
// lives until Settle, and writes memory of its worker only; Commit is short.
type Redo interface {
	Task
	Compute(worker, chunk int)
	Commit(worker, chunk int)
}

// Ahead is what idle workers may do for a task to come, or leave undone: reading what
// each will want first, while memory would rest.
type Ahead interface {
	// Step does some hundred nanoseconds of it and reports whether a worker has more to do.
	Step(worker, step int) bool
}

const (
	// A worker polls so long, then parks. A caller that lost its core gets the worker's then.
	spinFor    = 300 * time.Microsecond
	pollPauses = 8   // pause instructions between two polls
	yieldEvery = 64  // polls between two visits to the scheduler
	joinPolls  = 400 // polls for the last chunk before yielding
	joinLooks  = 50  // polls between two looks for chunks that nobody has begun
	joinTakes  = 200 // polls for a chunk before it is computed again
	joinYields = 100 // yields for the last chunk before parking

	// A worker visits the scheduler once in so many regions, however soon they follow each other: a goroutine that wants
	// its core would else wait until the worker is stopped, which is while it holds a chunk.
	restRegions = 16

	// Where a program keeps a CPU busy, a system that counts who waits where may leave a worker on the
	// caller's CPU for good, and the two only take turns. A worker that has polled for so many visits
	// to the scheduler where the caller was last seen, which is looked at in every so many
	// regions, leaves that CPU, but not more often than that.
	crowdedVisits = 4
	homeRegions   = 8
	crowdedEvery  = time.Millisecond
)

type line [64]byte // keeps words that different cores write apart

// Pool is a fixed set of workers. The goroutine that calls Run is worker 0.
//
// Each worker has a range of the region's chunks and takes them in order, so that
// what it reads is one stream in memory. A worker whose range is empty takes the
// second half of another's.
type Pool struct {
	size int
	spin time.Duration

	run    sync.Mutex // one region at a time
	weigh  balance
	now    func() time.Time
	task   Task // of the current region: written before state opens it,
	chunks int  // read only by holders of a unit
	per    int  // chunks in a unit
	units  int  // in all

	_     line
	state atomic.Uint64 // region number << 32 | units in it
	_     line
	done  atomic.Uint64 // units finished
	_     line
	home  atomic.Int64 // CPU that the caller was last seen on, -1 where it is unknown
	ahead atomic.Pointer[Ahead]
	redo  atomic.Pointer[Redo] // the task, if its chunks can be computed twice
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

// maxUnits is how many units a region has at most: what a span can count.
const maxUnits = 1<<12 - 1

type worker struct {
	// left is a span: the units of this worker's range that nobody has claimed. That of
	// an earlier region stands for the whole range of the current one.
	left atomic.Uint64
	// busy is set while it may be computing a chunk.
	busy   atomic.Bool
	_      line
	asleep atomic.Bool
	wake   chan struct{}
	seen   uint64 // state when it last looked for units
	// looking is set while it works on ahead, of which step comes next, or none if negative.
	looking atomic.Bool
	ahead   *Ahead
	step    int
	moved   time.Time // when it last left the caller's CPU
	awaited uint      // regions
	_       line
}

// span is units from … to-1 of a region:
//
//	27 bits  number of the region
//	 1 bit   held: the unit before from is being computed
//	12 bits  done: units that the worker had done in the region before that one
//	12 bits  from
//	12 bits  to
type span uint64

const (
	regions      = 1 << 27
	held    span = 1 << 36
)

func makeSpan(region uint64, done, from, to int) span {
	return span(region<<37 | uint64(done)<<24 | uint64(from)<<12 | uint64(to))
}
func (s span) region() uint64 { return uint64(s) >> 37 }
func (s span) done() int      { return int(s >> 24 & maxUnits) }
func (s span) from() int      { return int(s >> 12 & maxUnits) }
func (s span) to() int        { return int(s & maxUnits) }
func (s span) empty() bool    { return s.from() == s.to() }

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
	p := &Pool{size: size, spin: spin, now: time.Now, finished: make(chan struct{}, 1), workers: make([]worker, size)}
	p.weigh.since = p.now()
	p.home.Store(-1)
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
// are done. Each worker begins with as many chunks that follow each other as the
// others, and goes through them in order, one at a time. Nothing is allocated.
// Calls from several goroutines take turns; a task must not call Run on its own
// pool. After Close the caller computes all chunks itself.
//
// Where other programs keep the workers from running, so that waiting for them costs more than
// they save, the caller computes all chunks itself too, for a while; not those of RunRedo.
func (p *Pool) Run(t Task, chunks int) { p.RunAhead(t, chunks, nil) }

// RunAll is Run that divides the chunks whatever it costs: for measuring what all workers can do.
func (p *Pool) RunAll(t Task, chunks int) { p.begin(t, nil, chunks, 1, nil, true) }

// RunAhead is Run. From then on workers that wait work on next, unless it is nil, until
// another is named or Settle is called. It is not done by the caller when no other worker
// takes part.
func (p *Pool) RunAhead(t Task, chunks int, next *Ahead) { p.begin(t, nil, chunks, 1, next, false) }

// smallShare is in how many parts a worker's share of a region of small chunks falls.
const smallShare = 8

// RunSmall is Run for chunks of well under a microsecond: several that follow each other are claimed at once, so that
// claiming them does not take longer than what they do.
func (p *Pool) RunSmall(t Task, chunks int) {
	p.begin(t, nil, chunks, max(1, chunks/(smallShare*p.size)), nil, false)
}

// RunRedo is RunAhead of a task whose chunks can be computed twice.
func (p *Pool) RunRedo(t *Redo, chunks int, next *Ahead) { p.begin(*t, t, chunks, 1, next, false) }

// begin runs a region whose chunks are claimed per at once. With all it is divided though sharing has lost lately.
func (p *Pool) begin(t Task, redo *Redo, chunks, per int, next *Ahead, all bool) {
	if chunks <= 0 {
		return
	}
	p.run.Lock()
	defer p.run.Unlock()
	shared := all || redo != nil // a chunk that can be computed twice holds nobody up
	if p.size == 1 || chunks == 1 || p.quit.Load() || !shared && p.weigh.alone(p.now) {
		for c := range chunks {
			t.Do(0, c)
		}
		return
	}
	p.task, p.chunks, p.per = t, chunks, max(per, (chunks+maxUnits-1)/maxUnits)
	p.units = (chunks + p.per - 1) / p.per
	if p.per > 1 {
		redo = nil
	}
	p.redo.Store(redo)
	p.done.Store(0)
	region := (p.state.Load()>>32 + 1) % regions
	if region == 0 { // numbers come again: no word may be as old as that
		for i := range p.workers {
			p.workers[i].left.Store(uint64(makeSpan(regions-1, 0, 0, 0)))
		}
	}
	if region%homeRegions == 0 && p.spin > 0 {
		p.home.Store(int64(currentCPU()))
	}
	p.state.Store(region<<32 | uint64(p.units))
	if next != nil {
		p.ahead.Store(next)
	}
	if p.sleepers.Load() > 0 {
		p.wakeUp(p.units - 1)
	}
	mine := p.drain(0)
	waited, more := p.join()
	if redo == nil {
		p.weigh.units, p.weigh.mine = p.weigh.units+p.units, p.weigh.mine+mine+more
		if !waited.IsZero() {
			p.weigh.wait(waited, p.now())
		}
	}
	p.task = nil
}

// Settle ends what workers do ahead, and waits for those that compute a chunk that is no longer
// wanted. Afterwards no worker reads any memory that it was about.
func (p *Pool) Settle() {
	p.run.Lock()
	defer p.run.Unlock()
	p.ahead.Store(nil)
	for i := range p.workers {
		for w := &p.workers[i]; w.looking.Load() || w.busy.Load(); {
			runtime.Gosched()
		}
	}
}

// lookAhead works on ahead as long as a word, which ends a worker's waiting, is as it was.
func (p *Pool) lookAhead(id int, word *atomic.Uint64, was uint64) {
	w := &p.workers[id]
	if a := p.ahead.Load(); a == nil || a == w.ahead && w.step < 0 {
		return
	}
	w.looking.Store(true)
	a := p.ahead.Load() // again: Settle waits for this one
	if a != w.ahead {
		w.ahead, w.step = a, 0
	}
	for a != nil && w.step >= 0 && word.Load() == was && p.ahead.Load() == a {
		if w.step++; !(*a).Step(id, w.step-1) {
			w.step = -1
		}
	}
	w.looking.Store(false)
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

// drain claims and computes units: its own range, then halves of what is left of
// those whose numbers differ from its own in one bit. That is a look at few of many
// workers, and still spreads what is left over all of them. It gives how many it did.
func (p *Pool) drain(id int) (n int) {
	w := &p.workers[id]
	w.busy.Store(true)
	for ; ; n++ {
		s, ok := p.next(id, n)
		for !ok && p.share(id) {
			s, ok = p.next(id, n)
		}
		if !ok {
			p.finish(n)
			break
		}
		// As long as the unit is held the region is open. If it is still held behind this load, what
		// was loaded is the region's.
		redo := p.redo.Load()
		if now := span(w.left.Load()); now.region() != s.region() || now&held == 0 {
			break
		}
		unit := s.from()
		if redo == nil {
			for c := unit * p.per; c < min((unit+1)*p.per, p.chunks); c++ {
				p.task.Do(id, c)
			}
			continue
		}
		(*redo).Compute(id, unit)
		if !p.keep(id, s.region()) {
			break
		}
		(*redo).Commit(id, unit)
	}
	w.busy.Store(false)
	return n
}

// finish counts the units that a worker has done. It counts them when it finds no more:
// every atomic operation waits for all loads before it, with memory idle meanwhile.
func (p *Pool) finish(n int) {
	if n == 0 {
		return
	}
	total := uint64(p.units) // read while the region is open
	if p.done.Add(uint64(n)) == total && p.waiting.Load() && p.waiting.CompareAndSwap(true, false) {
		p.finished <- struct{}{}
	}
}

// keep reports whether a worker still holds the unit that it has computed, of a region; then it
// is nobody else's. Otherwise the caller has taken it, and counted what the worker did before.
func (p *Pool) keep(id int, region uint64) bool {
	left := &p.workers[id].left
	for {
		raw := left.Load()
		if span(raw).region() != region || span(raw)&held == 0 {
			return false
		}
		if left.CompareAndSwap(raw, raw&^uint64(held)) {
			return true
		}
	}
}

// replace computes the units that other workers hold, if their ranges are empty: they have had
// the time for it. Only the caller does that.
func (p *Pool) replace() {
	redo := p.redo.Load()
	for i := 1; i < p.size && redo != nil; i++ {
		left := &p.workers[i].left
		raw := left.Load()
		s := span(raw)
		if s.region() != p.state.Load()>>32 || s&held == 0 || !s.empty() {
			continue
		}
		if left.CompareAndSwap(raw, uint64(makeSpan(s.region(), 0, s.to(), s.to()))) {
			(*redo).Do(0, s.from()-1)
			p.done.Add(uint64(s.done() + 1))
		}
	}
}

// share takes from those whose numbers differ in one bit.
func (p *Pool) share(id int) bool {
	for bit := 1; bit < p.size; bit <<= 1 {
		if from := id ^ bit; from < p.size && p.take(id, from) {
			return true
		}
	}
	return false
}

// next claims the first unit that is left of a worker's own range, after n that it has done.
func (p *Pool) next(id, n int) (s span, ok bool) {
	for {
		s, raw := p.left(id)
		if s.empty() {
			return 0, false
		}
		claimed := makeSpan(s.region(), n, s.from()+1, s.to()) | held
		if p.workers[id].left.CompareAndSwap(raw, uint64(claimed)) {
			return s, true
		}
	}
}

// take moves the second half of what is left of one range to that of worker id,
// which is empty, and reports whether there was any.
func (p *Pool) take(id, from int) bool {
	for {
		s, raw := p.left(from)
		if s.empty() {
			return false
		}
		half := s.to() - (s.to()-s.from()+1)/2
		mine, _ := p.left(id)
		if mine.region() != s.region() || !mine.empty() {
			return false // a region has begun meanwhile: the worker's own range comes first
		}
		if p.workers[from].left.CompareAndSwap(raw, uint64(s&^maxUnits)|uint64(half)) {
			// The region is open as long as these units are not done, so nobody has
			// given the worker another range.
			p.workers[id].left.Store(uint64(makeSpan(s.region(), 0, half, s.to())))
			return true
		}
	}
}

// left gives what is left of a worker's range in the current region, and the word
// that says so. A claim is a compare-and-swap of that word: it holds the region's number,
// so a worker that was stopped between load and swap cannot claim from a later
// region. A unit that is held keeps the region open, which makes the plain reads of the
// region's other fields safe; but one that can be computed twice may be taken from its holder.
func (p *Pool) left(id int) (s span, raw uint64) {
	for {
		state := p.state.Load()
		raw = p.workers[id].left.Load()
		if s = span(raw); s.region() == state>>32 {
			return s, raw
		}
		// An earlier region's, if the region is still the same: then the range is untouched.
		// Should the region end before the swap, the range has been claimed and the word is another.
		if p.state.Load() == state {
			units, up := int(uint32(state)), p.size-1 // rounded up: worker 0, which is here, has one at least
			return makeSpan(state>>32, 0, (id*units+up)/p.size, ((id+1)*units+up)/p.size), raw
		}
	}
}

// join waits for the units that other workers still hold, and looks for those whose
// worker has not come. It gives since when it has waited for long, if it has, and how many units it did.
func (p *Pool) join() (since time.Time, mine int) {
	units := uint64(p.units)
	for i := 0; ; i++ {
		done := p.done.Load()
		if done == units {
			return since, mine
		}
		if i == joinPolls {
			since = p.now()
		}
		if i%joinLooks == 0 {
			for from := 1; from < p.size; from++ {
				for p.take(0, from) {
					mine += p.drain(0)
				}
			}
		}
		if i%joinLooks == 0 && i >= joinTakes {
			p.replace()
			if p.done.Load() == units {
				return since, mine
			}
		}
		switch {
		case i < joinPolls:
			p.lookAhead(0, &p.done, done)
			pause(pollPauses)
		case i < joinPolls+joinYields:
			runtime.Gosched()
		default: // someone lost its core: leave ours to it
			p.waiting.Store(true)
			if p.done.Load() == units && p.waiting.CompareAndSwap(true, false) {
				return since, mine
			}
			// Whoever finished the region before may see this flag late and
			// answer it, hence the loop.
			<-p.finished
		}
	}
}

func (p *Pool) work(id int) {
	defer p.exited.Done()
	mapped.Watch() // weights are mapped
	defer mapped.Recover()
	for p.await(id) {
		p.drain(id)
	}
}

// await returns true when a region has begun, false when the pool closes.
func (p *Pool) await(id int) bool {
	w := &p.workers[id]
	if w.awaited++; w.awaited%restRegions == 0 {
		runtime.Gosched() // where region follows region nobody else had this core, and now no chunk is held
	}
	for {
		var start time.Time
		for i := 0; ; i++ {
			p.lookAhead(id, &p.state, w.seen)
			if p.quit.Load() {
				return false
			}
			if s := p.state.Load(); s != w.seen {
				w.seen = s
				return true
			}
			if i%yieldEvery == yieldEvery-1 {
				now := time.Now()
				if start.IsZero() {
					start = now
				} else if now.Sub(start) >= p.spin {
					break
				}
				if i == crowdedVisits*yieldEvery-1 {
					p.keepApart(w, now)
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
		if p.state.Load() == w.seen && !p.quit.Load() || !w.asleep.CompareAndSwap(true, false) {
			<-w.wake
		}
		p.sleepers.Add(-1)
	}
}

// keepApart takes a worker off the caller's CPU: it finds nothing to do there, and as long as it
// looks for something the caller has nothing to give.
func (p *Pool) keepApart(w *worker, now time.Time) {
	home := int(p.home.Load())
	if home < 0 || now.Sub(w.moved) < crowdedEvery || currentCPU() != home {
		return
	}
	w.moved = now
	leave(home)
}

// Close stops the workers and waits until they are gone.
func (p *Pool) Close() {
	p.run.Lock()
	defer p.run.Unlock()
	p.quit.Store(true)
	p.wakeUp(p.size)
	p.exited.Wait()
}
