package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/schedule"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
)

// SchedulerOptions say what many sequences at once may take.
type SchedulerOptions struct {
	// Memory is for the caches of all sequences, bytes; Tokens the positions that they hold together, which counts
	// where both are given. Where neither is, Sequences times the context, at most what a device with memory of its own
	// has left behind weights, steps and a margin, or half of what the host's has.
	Memory int64
	Tokens int
	// Beside is what others take of the device since it was opened, or will, bytes: see ModelDrafts.Bytes. Share is how
	// many engines share what is left of it; 0: 1. Both are for where neither Memory nor Tokens is given.
	Beside int64
	Share  int
	// Page is how many positions a page has; 0: 32. Prefixes are shared by whole pages.
	Page int
	// Rows is how many tokens a step computes at most, of prompts and answers together; 0: 256, on a device of its own
	// without guesses 8192 if they take little of its memory, and at least twice Sequences, so that prompts go on beside
	// all of them.
	Rows int
	// Sequences run at once at most; 0: 64. Queue is how many wait at most; 0: 1024.
	Sequences, Queue int
	// HostMemory is for the caches of sequences that must wait because memory is short, bytes; 0: they are computed
	// again, as those of models with recurrences always are.
	HostMemory int64
	// NoPrefix keeps prompts from sharing what is known of their beginnings.
	NoPrefix bool
	// PrefixDir is a folder where pages are kept for later schedulers of the same model, "": nowhere; PrefixLimit how many
	// bytes it may hold, 0: prefixcache.DefaultLimit.
	PrefixDir   string
	PrefixLimit int64
	// Capture are numbers of rows for whose steps are captured before the first request: one with logits of all rows,
	// where so many sequences may run, and one with those of one row, as while a prompt is computed. Others are captured
	// when they are first wanted.
	Capture []int
	// Draft makes the drafter of a sequence that chooses its tokens as o says: NGrams, ModelDrafts.Draft, or another, nil
	// for one without guesses. cost says what a step with so many guesses takes, as a multiple of one with none. A
	// drafter that has a method Close() error is closed when its sequence ends. nil: nothing is guessed.
	Draft func(o Sampling, cost func(guesses int) float64) Drafter
}

// Errors of Scheduler.Add.
type (
	// NeverFits says that a request would not fit even alone.
	NeverFits = schedule.NeverFits
	// QueueFull says that too many requests wait.
	QueueFull = schedule.QueueFull
)

// Scheduler runs many requests at once: each of its steps computes rows of several sequences, the next tokens of those
// that answer beside parts of prompts. One goroutine runs the steps. Its methods may be called by any.
type Scheduler struct {
	engine *Engine
	batch  *batch
	rows   int
	roots  map[[2]string]schedule.Hash // by adapter and salt
	count  uint64                      // of requests that share no prefix

	mu     sync.Mutex
	more   sync.Cond // there is something to do
	plan   *schedule.Scheduler
	closed bool
	lost   error // the device is
	done   chan struct{}
	open   map[*Handle]bool
	lines  []*choice // who has each line of the table
	stats  Stats
	times  *schedule.Times
	disk   prefixDisk

	identity string // of model and weights, for the hashes of pages

	// Of the step under way.
	lineOf  []int32
	results []schedule.Result
	given   []Token
	chosen  []int32
	history []int32
	bits    []uint32
	picked  []candidate
	drawing []drawing // by wanted row, of a step with draw
	masked  []maskOf
	changes []change // of all rows
	seen    []int32  // by penalties
	masks   []uint32
	early   []early   // by wanted row
	failed  []error   // by run
	told    []*Handle // whose tokens came and whose readers were not woken yet
	hands   hands
	now     struct {
		batch *schedule.Batch
		how   how
	}
	// The methods mask, chooseEarly and drawLate, made once.
	maskRow, chooseRow func(i int)
	later              func() []drawing
	parts              bool // a step may be two programs, up to the logits and from there on
	guess              bool // sequences may have guesses
}

// Stats are counts since the beginning, and what is there now.
type Stats struct {
	schedule.Stats
	PageSize  int
	PageBytes int           // of all caches together
	Host      time.Duration // of all steps, what was not spent in the device
	Device    time.Duration // Parts says on what
	Parts     StepParts
	Captured  int // steps that are captured now
	// Requests that run and that wait, by their adapter's name. A request one of whose choices runs, runs.
	RunningOf, WaitingOf map[string]int
}

// StepParts is what the time of all steps in the device went into.
type StepParts struct {
	Write  time.Duration // pages to be moved, the table and the inputs
	Submit time.Duration // until the driver has the commands
	Wait   time.Duration // until the device has ended; readers are woken in it
	Read   time.Duration // states to be kept, and results
}

// NewScheduler gives an engine's model to many sequences. They have memory of their own; other sessions of the engine
// may be used beside it.
func NewScheduler(e *Engine, opt SchedulerOptions) (*Scheduler, error) {
	if e.IsBlock() {
		return nil, fmt.Errorf("%s is a block: it takes activations, not tokens", e.opt.Model.Name())
	}
	if e.ownKeys != nil {
		return nil, e.ownKeys
	}
	if err := opt.fill(e); err != nil {
		return nil, err
	}
	pages := (opt.Tokens + opt.Page - 1) / opt.Page
	host := int(opt.HostMemory / int64(max(1, e.pageBytes(opt.Page))))
	s := &Scheduler{engine: e, rows: opt.Rows, roots: map[[2]string]schedule.Hash{}, open: map[*Handle]bool{}}
	s.done = make(chan struct{})
	if opt.NoPrefix {
		s.roots = nil
	}
	s.more.L = &s.mu
	slots := 0
	if e.slotBytes() > 0 {
		if opt.Draft != nil {
			return nil, fmt.Errorf("guesses: %s keeps a recurrence's state, which cannot go back behind a wrong one; "+
				"let nothing be guessed", e.opt.Model.Name())
		}
		host, slots = 0, opt.slots()
	}
	po := schedule.Options{Pages: pages, PageSize: opt.Page, Context: min(e.opt.Context, pages*opt.Page), HostPages: host,
		Slots:   slots,
		Running: opt.Sequences, Queue: opt.Queue, Clock: time.Now}
	s.times = schedule.NewTimes(upTo(e.rowBuckets(), opt.Rows), e.queued)
	po.Times = s.times
	if host > 0 {
		po.Swap = func(int, int) bool { return true }
	}
	s.draftInto(&po, opt.Draft)
	s.guess = opt.Draft != nil
	err := s.keepOnDisk(&opt, &po)
	if err != nil {
		return nil, err
	}
	if s.plan, err = schedule.New(po); err != nil {
		return nil, err
	}
	size := poolSize{pages: pages, page: opt.Page, lines: opt.Sequences, slots: slots}
	if s.batch, err = e.newBatch(size, host, opt.Rows, opt.wanted()); err != nil {
		return nil, err
	}
	e.precompile(func(ctx context.Context, o Options) error { return dryRunBatches(ctx, o, e.adapters, opt, size) })
	if err := s.batch.capture(opt.Capture, opt.Sequences, opt.Rows); err != nil {
		return nil, errlist.Join(err, s.batch.close())
	}
	s.stats.Captured = len(s.batch.mem.steps)
	s.lines = make([]*choice, opt.Sequences)
	s.lineOf, s.failed = make([]int32, 0, opt.Rows), make([]error, 0, opt.Rows)
	s.results = make([]schedule.Result, 0, opt.Rows)
	s.stats.PageSize, s.stats.PageBytes = opt.Page, s.batch.bytes
	if e.queued { // to wake many readers takes time in which a device of its own can compute
		s.batch.submitted = s.wake
	}
	out := e.first.Outputs[0]
	s.parts = e.queued && place(e.first)[out.ID] == own(out)
	s.maskRow, s.chooseRow, s.later = s.mask, s.chooseEarly, s.drawLate
	go s.loop()
	return s, nil
}

// fill sets the defaults and refuses what is not possible.
func (o *SchedulerOptions) fill(e *Engine) error {
	for _, p := range []struct {
		name string
		v    int64
	}{{"Memory", o.Memory}, {"Tokens", int64(o.Tokens)}, {"Page", int64(o.Page)}, {"Rows", int64(o.Rows)},
		{"Sequences", int64(o.Sequences)}, {"Queue", int64(o.Queue)}, {"HostMemory", o.HostMemory},
		{"Beside", o.Beside}, {"Share", int64(o.Share)}} {
		if p.v < 0 {
			return fmt.Errorf("%s is %d, it must be 0 or more", p.name, p.v)
		}
	}
	o.Page, o.Sequences = cmp.Or(o.Page, 32), cmp.Or(o.Sequences, 64)
	if o.Rows == 0 {
		var err error
		if o.Rows, err = e.usualRows(o); err != nil {
			return err
		}
	}
	o.Sequences = min(o.Sequences, o.Rows) // a step has a row for each
	if o.Tokens > 0 {
		return nil
	}
	perToken, states := int64(e.pageBytes(1)), int64(o.slots())*int64(e.slotBytes())
	if o.Memory > 0 && o.Memory < states {
		return fmt.Errorf("%d bytes for caches do not hold the %d bytes of the recurrences of %d sequences and of the %d "+
			"that are kept: give more memory, or let fewer run at once", o.Memory, states, o.Sequences, o.slots()-o.Sequences)
	}
	if perToken == 0 { // pages take nothing: they count positions
		o.Tokens = (o.Sequences + 1) * max(e.opt.Context, o.Page)
		return nil
	}
	if o.Memory == 0 {
		most, err := e.room(o)
		if err != nil {
			return err
		}
		o.Memory = min(int64(o.Sequences)*int64(e.opt.Context)*perToken+states, most)
	}
	o.Tokens = int((o.Memory - states) / perToken)
	if o.Tokens < o.Page {
		return fmt.Errorf("%d bytes for caches hold %d positions of %d bytes, a page has %d: give more memory",
			o.Memory, o.Tokens, perToken, o.Page)
	}
	return nil
}

// slots is how many states of recurrences there is room for: one a sequence, and some that are kept for prompts that
// begin alike.
func (o *SchedulerOptions) slots() int {
	if o.NoPrefix {
		return o.Sequences
	}
	return o.Sequences + min(o.Sequences, 16)
}

// ErrDevice marks errors of a device that is lost: the engine and its device must be closed and opened anew.
var ErrDevice = backends.ErrLost

var errSchedulerClosed = errors.New("the scheduler is closed")

// Add takes a request in. When ctx ends before it, it is cancelled. Where it cannot be taken the error is *NeverFits,
// *QueueFull, or says what is wrong with it.
func (s *Scheduler) Add(ctx context.Context, r Request) (*Handle, error) {
	h, err := s.newHandle(&r)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !r.OfPrompt {
		s.stage(h)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errSchedulerClosed
	case s.lost != nil:
		return nil, s.lost
	}
	seqs, err := s.plan.Add(schedule.Request{Prompt: r.Prompt, Max: r.Max, Choices: r.Choices, Key: r.Key,
		Priority: r.Priority, Root: s.root(h.adapter, r.Salt), All: r.OfPrompt, User: h})
	if err != nil {
		return nil, err
	}
	for i, q := range seqs {
		h.choices[i].seq = q
	}
	s.open[h] = true
	h.ctx = ctx
	if ctx.Done() != nil {
		h.release = context.AfterFunc(ctx, func() { s.cancel(h, ctx.Err()) })
	}
	s.more.Signal()
	return h, nil
}

// root is where the hashes of a request's pages begin.
func (s *Scheduler) root(adapter int32, salt string) schedule.Hash {
	o, name := s.engine.opt, ""
	if adapter > 0 {
		name = s.engine.adapters.hashes[adapter]
	}
	if s.roots == nil {
		s.count++
		return schedule.Root(s.identity, o.KV.String(), name, fmt.Sprint("alone ", s.count))
	}
	key := [2]string{name, salt}
	h, ok := s.roots[key]
	if !ok {
		h = schedule.Root(s.identity, o.KV.String(), name, salt)
		if len(s.roots) < 1<<12 {
			s.roots[key] = h
		}
	}
	return h
}

// Stats says what was done and where it stands.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Stats = s.plan.Stats()
	if s.engine.adapters == nil {
		return st
	}
	st.RunningOf, st.WaitingOf = map[string]int{}, map[string]int{}
	for h := range s.open {
		of := st.WaitingOf
		for i := range h.choices {
			if c := &h.choices[i]; c.stop == "" && c.seq.Running() {
				of = st.RunningOf
			}
		}
		if h.adapter > 0 {
			of[h.request.Adapter]++
		}
	}
	return st
}

// StepTimes is what the device takes for steps of at most so many rows, as they were lately: a moving mean.
func (s *Scheduler) StepTimes() map[int]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times.Known()
}

// Close ends all requests, waits for the step under way and frees the memory.
func (s *Scheduler) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	s.more.Signal()
	s.mu.Unlock()
	<-s.done
	s.hands.leave()
	s.closeDisk()
	return s.batch.close()
}

// cancel ends a request, with an error where it was not its user who wanted that.
func (s *Scheduler) cancel(h *Handle, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range h.choices {
		s.end(&h.choices[i], StopInterrupted, err)
	}
}

// end ends one choice.
func (s *Scheduler) end(c *choice, why Stop, err error) {
	if c.stop != "" {
		return
	}
	s.plan.Cancel(c.seq)
	s.ended(c, why, err)
}

// ended notes that a choice has ended, and tells its reader.
func (s *Scheduler) ended(c *choice, why Stop, err error) {
	if c.stop != "" {
		return
	}
	c.stop = why
	if d, ok := c.drafter.(io.Closer); ok {
		err = errlist.Join(err, d.Close())
	}
	c.drafter = nil
	if c.line >= 0 {
		s.lines[c.line], c.line = nil, -1
	}
	if c.handle.finish(err) {
		delete(s.open, c.handle)
	}
}

// endAll ends all requests with an error.
func (s *Scheduler) endAll(err error) {
	for h := range s.open {
		for i := range h.choices {
			s.end(&h.choices[i], StopInterrupted, err)
		}
	}
}

// loop runs the steps.
func (s *Scheduler) loop() {
	defer close(s.done)
	mapped.Watch() // weights are mapped
	defer mapped.Recover()
	s.mu.Lock()
	defer s.mu.Unlock()
	for idle := 0; ; {
		if s.batch.submitted == nil || s.closed || s.plan.Idle() {
			s.wake()
		}
		for !s.closed && s.plan.Idle() {
			s.more.Wait()
		}
		if s.closed {
			s.wake()
			s.endAll(errSchedulerClosed)
			return
		}
		start := time.Now()
		b := s.plan.Plan(s.rows)
		if idle++; !b.Empty() {
			idle = 0
		}
		if len(b.Rows) == 0 {
			s.wake()
		}
		err := s.prepare(b)
		if idle > 1000 {
			err = fmt.Errorf("requests wait, and nothing can be computed: %+v", s.plan.Stats())
			s.endAll(err)
			idle = 0
		}
		var device time.Duration
		if err == nil && !b.Empty() {
			s.mu.Unlock()
			device, err = s.compute(b)
			s.mu.Lock()
		}
		if err != nil {
			s.plan.Abort(b)
			s.disk.loads = s.disk.loads[:0]
			for i := range b.Runs {
				s.end(choiceOf(b.Runs[i].Seq), StopInterrupted, err)
			}
			s.loss(err)
			s.wake()
			continue
		}
		if len(b.Rows) > 0 && !s.batch.fresh {
			s.times.Note(len(b.Rows), len(b.Runs), device)
		}
		s.settle(b)
		if err := s.save(); err != nil {
			s.endAll(err)
			s.loss(err)
		}
		s.stats.Device += device
		s.stats.Parts = s.batch.parts
		s.stats.Host += time.Since(start) - device
		s.stats.Captured = len(s.batch.mem.steps)
	}
}

// wake tells readers of tokens that came.
func (s *Scheduler) wake() {
	for i, h := range s.told {
		h.signal()
		s.told[i] = nil
	}
	s.told = s.told[:0]
}

// loss ends all requests, and refuses those that come, where the device is lost.
func (s *Scheduler) loss(err error) {
	if errors.Is(err, ErrDevice) && s.lost == nil {
		s.lost = err
		s.endAll(err)
	}
}

// prepare gives each run of a step a line of the table, and says where its pages are.
func (s *Scheduler) prepare(b *schedule.Batch) error {
	s.lineOf, s.batch.adapterOf = s.lineOf[:0], s.batch.adapterOf[:0]
	free := 0
	for i := range b.Runs {
		c := choiceOf(b.Runs[i].Seq)
		if c.started.IsZero() {
			c.started = time.Now()
		}
		for ; c.line < 0; free++ {
			if free == len(s.lines) {
				return errors.New("more sequences run than the table has lines")
			}
			if o := s.lines[free]; o != nil {
				if o.seq.Running() {
					continue
				}
				o.line = -1
			}
			c.line = int32(free)
			s.lines[free] = c
		}
		s.lineOf = append(s.lineOf, c.line)
		s.batch.adapterOf = append(s.batch.adapterOf, c.handle.adapter)
		if err := s.batch.line(int(c.line), b.Runs[i].Seq.Pages()); err != nil {
			return err
		}
	}
	return nil
}

// compute runs a step and chooses the tokens.
func (s *Scheduler) compute(b *schedule.Batch) (device time.Duration, err error) {
	h := s.how(b)
	var later func() []drawing
	if s.drawing = s.drawing[:0]; s.late(b, h) {
		s.now.batch, s.now.how, later = b, h, s.later
	} else if h.drawn || h.logits {
		s.draw(b, h)
	}
	s.batch.loads = s.disk.loads
	s.batch.mem.enter()
	start := time.Now()
	err = s.batch.step(b, h, s.drawing, later, s.lineOf)
	device = time.Since(start)
	s.batch.mem.leave()
	if err != nil {
		return device, err
	}
	s.choose(b, h)
	return device, nil
}

// settle gives the results of a step to the plan and to who waits for them.
func (s *Scheduler) settle(b *schedule.Batch) {
	s.plan.Done(b, s.results)
	now := time.Now()
	at := 0
	for i := range b.Runs {
		q, r := b.Runs[i].Seq, &s.results[i]
		c := choiceOf(q)
		tokens := s.given[at : at+len(r.Tokens)]
		at += len(r.Tokens)
		if c.stop != "" { // cancelled meanwhile
			continue
		}
		// Done takes no more than the request wants.
		tokens = tokens[:min(len(tokens), len(q.Tokens())-q.Prompt()-c.given)]
		if len(tokens) > 0 {
			if c.given == 0 {
				c.first, c.handle.staged = now, nil
			}
			for k := range tokens {
				tokens[k].At = now
			}
			c.given += len(tokens)
			c.last = now
			c.handle.push(tokens)
		}
		if err := s.failed[i]; err != nil {
			s.end(c, StopInterrupted, err)
			continue
		}
		switch q.Ended() {
		case schedule.StopEnd:
			s.ended(c, StopEnd, nil)
		case schedule.StopMax:
			s.ended(c, StopMax, nil)
		case schedule.StopContext:
			s.ended(c, StopContext, nil)
		case schedule.StopCanceled:
			s.ended(c, StopInterrupted, nil)
		}
	}
}

// choiceOf finds whose sequence it is.
func choiceOf(q *schedule.Seq) *choice {
	h := q.User.(*Handle)
	for i := range h.choices {
		if h.choices[i].seq == q {
			return &h.choices[i]
		}
	}
	return nil // never: Add makes both
}
