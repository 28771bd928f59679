package schedule

import (
	"math/bits"
	"slices"
	"time"
)

// Scheduler decides what each step computes. It is used by one goroutine.
type Scheduler struct {
	opt     Options
	pool    *Pool
	keys    map[string]*key
	ring    []*key
	turn    int
	running []*Seq // the oldest first
	nwait   int
	nfork   int
	lastID  uint64
	batches [2]Batch
	flip    int
	guess   []int32
	burst   bool    // more waited for their first tokens than decoded, and some do yet
	credit  float64 // time that may be lost yet as prompts wait, in steps
	stats   Stats
}

// New makes a scheduler.
func New(opt Options) (*Scheduler, error) {
	if err := opt.defaults(); err != nil {
		return nil, err
	}
	c := &Scheduler{opt: opt, keys: map[string]*key{}}
	c.pool = NewPool(opt.Pages, opt.PageSize, opt.Slots, opt.HostPages)
	return c, nil
}

// Pool is where the sequences' pages come from.
func (c *Scheduler) Pool() *Pool { return c.pool }

// Add takes a request in, as one sequence a choice. It fails with *NeverFits or
// *QueueFull, and then nothing was taken in.
func (c *Scheduler) Add(r Request) ([]*Seq, error) {
	n := max(1, r.Choices)
	if len(r.Prompt) == 0 {
		return nil, errEmpty
	}
	most := r.Max
	if most <= 0 {
		most = c.opt.Context - len(r.Prompt) + 1
	}
	asked := len(r.Prompt) + most - 1 // the last token is not computed
	need := c.pool.pagesFor(asked)
	if asked > c.opt.Context || need > c.opt.Pages || most < 1 {
		asked = max(asked, len(r.Prompt)+max(1, r.Max)-1)
		return nil, &NeverFits{Prompt: len(r.Prompt), Max: max(1, r.Max), Need: need, Pages: c.opt.Pages,
			PageSize: c.opt.PageSize, Context: c.opt.Context, Asked: asked}
	}
	if waiting := c.nwait + c.nfork; waiting+n > c.opt.Queue {
		return nil, &QueueFull{Waiting: waiting, Most: c.opt.Queue}
	}
	k := c.enter(r.Key)
	now := c.now()
	seqs := make([]*Seq, n)
	for i := range seqs {
		c.lastID++
		s := &Seq{User: r.User, prompt: len(r.Prompt), max: len(r.Prompt) + most, root: r.Root, chain: r.Root, slot: -1,
			key: k, priority: r.Priority, arrival: now, id: c.lastID, nodraft: r.NoDraft, toEnd: r.Max <= 0,
			all: r.All && i == 0}
		room := len(r.Prompt) + min(most, 4096)
		s.tokens = append(make([]int32, 0, room), r.Prompt...)
		s.pages = make([]int32, 0, c.pool.pagesFor(room))
		seqs[i] = s
		k.seqs++
		if i > 0 {
			s.lead, s.where = seqs[0], forking
			seqs[0].forks = append(seqs[0].forks, s)
			c.nfork++
			continue
		}
		c.wait(s)
	}
	return seqs, nil
}

func (c *Scheduler) now() time.Time {
	if c.opt.Clock == nil {
		return time.Time{}
	}
	return c.opt.Clock()
}

// Plan makes the next step of at most budget rows. Each sequence whose tokens are
// all computed but the last gets its row first, so that nobody's next token waits
// for somebody's prompt; what is left of the budget goes to prompts, the keys by
// turns. Of that they get, while most sequences decode and Options.Times is given, what
// makes the step little longer. It may be called before Done of the step before: rows then name the row
// whose token they take. The batch is empty where there is nothing to do.
func (c *Scheduler) Plan(budget int) *Batch {
	c.flip ^= 1
	b := &c.batches[c.flip]
	b.reset()
	left := c.draft(c.decode(budget))
	c.fill(c.prompts(budget, left))
	for _, s := range c.running {
		if s.take > 0 {
			c.emit(b, s)
		}
	}
	b.Moves = c.pool.Moves(b.Moves)
	if len(b.Rows) > 0 {
		c.stats.Steps++
		c.stats.Rows += len(b.Rows)
		c.stats.Sizes[min(bits.Len(uint(len(b.Rows)-1)), StepSizes-1)]++
	}
	return b
}

// decode gives each sequence that has one position to compute its row.
func (c *Scheduler) decode(left int) int {
	for i := 0; i < len(c.running) && left > 0; i++ {
		s := c.running[i]
		total := len(s.tokens) + s.pending
		if s.planned != total-1 || s.fills || total >= s.max || s.drafting {
			continue
		}
		for !c.pool.Grow(s, s.planned, s.planned+1) {
			victim := c.running[len(c.running)-1]
			c.preempt(victim)
			if victim == s {
				break
			}
		}
		if s.where != running {
			break
		}
		s.take = 1
		s.key.deficit--
		left--
	}
	return left
}

// draft adds guesses behind the sequences that decode, in half of what is left of
// the budget and in pages that nobody has to give back for it.
func (c *Scheduler) draft(left int) int {
	c.guess = c.guess[:0]
	if c.opt.Draft == nil || c.pool.all > 0 {
		return left
	}
	room := left / 2
	for _, s := range c.running {
		most := min(room, s.max-len(s.tokens)-1)
		if s.take != 1 || s.fills || s.pending > 0 || s.nodraft || most < 1 {
			continue
		}
		at := len(c.guess)
		c.guess = c.opt.Draft(s, c.guess, most)
		n := min(len(c.guess)-at, most)
		for n > 0 && !c.pool.Grow(s, s.planned, s.planned+1+n) {
			n--
		}
		c.guess = c.guess[:at+n]
		s.guess, s.take = at, 1+n
		s.key.deficit -= n
		room -= n
		left -= n
	}
	return left
}

const (
	// give is what share of the time may be lost as prompts are computed in small steps, and giveSteps of how many steps
	// what was not lost can be yet.
	give      = 0.005
	giveSteps = 512
)

// prompts is how many rows prompts get at most of what is left of the budget. When more wait than decode, as at the
// beginning, it is all that Times.Fill lets a step have until none waits, for their first tokens. Else it is what makes
// the step little longer for those that decode, as long as little is lost by that: rows come cheaper the more of them a
// step has, and who waits does not decode.
func (c *Scheduler) prompts(budget, left int) int {
	if c.opt.Times == nil {
		return left
	}
	decode, wait, rows := c.demand()
	c.credit = min(c.credit+give, give*giveSteps)
	c.burst = rows > 0 && (c.burst || wait > decode)
	base, all := budget-left, min(left, rows)
	many := left
	if n := c.opt.Times.Fill(base, all) - base; n < all {
		many, all = n, n
	}
	if c.burst {
		return many
	}
	n := c.opt.Times.Most(base, all) - base
	if n >= all {
		return many
	}
	lost := c.opt.Times.lost(base, n, all) + float64(wait)/float64(decode+wait)
	if lost > c.credit {
		return many
	}
	c.credit -= lost
	return n
}

// demand counts the sequences that decode in the Plan under way, those that have no token yet and need not wait for
// others' pages, and the rows that the latter need.
func (c *Scheduler) demand() (decode, wait, rows int) {
	for _, s := range c.running {
		if s.take > 0 {
			decode++
		} else if s.fills {
			wait++
			rows += len(s.tokens) - s.planned
		}
	}
	room, free := c.opt.Running-len(c.running), c.pool.Free()
	for _, k := range c.ring {
		for i := len(k.waiting) - 1; i >= 0 && room > 0; i-- {
			n := len(k.waiting[i].tokens)
			if free -= c.pool.pagesFor(n); free < 0 {
				break
			}
			room--
			wait++
			rows += n
		}
	}
	return decode, wait, rows
}

// fill gives so many rows to prompts.
func (c *Scheduler) fill(left int) {
	for _, k := range c.ring {
		k.blocked, k.held = len(c.running) >= c.opt.Running, false
	}
	now := c.now()
	for left > 0 {
		k := c.pick(now)
		if k == nil {
			return
		}
		if len(k.filling) == 0 {
			if s := k.waiting[len(k.waiting)-1]; !c.admit(s) {
				k.blocked = true
				continue
			}
			if len(c.running) >= c.opt.Running {
				for _, o := range c.ring {
					o.blocked = true
				}
			}
		}
		s := k.filling[0]
		turn := k.deficit
		if turn <= 0 {
			turn = c.opt.Quantum
		}
		n := min(left, len(s.tokens)-s.planned-s.take, turn)
		n = c.untilKept(s, n)
		s.take += n
		left -= n
		k.deficit -= n
		if s.planned+s.take == len(s.tokens) {
			k.filling = slices.Delete(k.filling, 0, 1)
			s.fills = false
		} else if c.pool.all > 0 && (s.planned+s.take)%c.pool.size == 0 && c.keeps(s, s.planned+s.take) {
			k.held = true // the state is kept after this step: s has no more rows in it
		}
	}
}

// admit gives a waiting sequence its pages, those of all its known tokens at once.
// A sequence of a lower priority may be sent back for it.
func (c *Scheduler) admit(s *Seq) bool {
	for !c.place(s) {
		n := len(c.running)
		if n == 0 || !c.yields(c.running[n-1], s) || !c.enough(s) {
			return false
		}
		c.preempt(c.running[n-1])
	}
	k := s.key
	k.waiting = slices.DeleteFunc(k.waiting, func(o *Seq) bool { return o == s })
	c.nwait--
	s.where, s.ran = running, true
	at, _ := slices.BinarySearchFunc(c.running, s, func(a, b *Seq) int {
		if a.before(b, c.opt.Aging) {
			return -1
		}
		return 1
	})
	c.running = slices.Insert(c.running, at, s)
	k.filling = append(k.filling, s)
	s.fills = true
	return true
}

// yields says that o, which runs, gives its pages back for s.
func (c *Scheduler) yields(o, s *Seq) bool {
	return o.priority > s.priority && o.take == 0 && s.before(o, c.opt.Aging)
}

// enough says that s has pages when all have given theirs back who yield.
func (c *Scheduler) enough(s *Seq) bool {
	free := c.pool.Free()
	for i := len(c.running) - 1; i >= 0 && c.yields(c.running[i], s); i-- {
		for _, g := range c.running[i].pages {
			if c.pool.refs[g] == 1 {
				free++
			}
		}
	}
	return free >= c.pool.pagesFor(len(s.tokens))
}

// place finds pages, and a slot, for all known tokens of s: moved back from host
// memory, shared with its lead, known, or new ones. It changes nothing where they
// are not to be had.
func (c *Scheduler) place(s *Seq) bool {
	p := c.pool
	if len(s.hosted) > 0 {
		return c.swapIn(s)
	}
	shared := s.lead != nil && p.all == 0 && s.lead.where == running && s.lead.computed >= s.prompt-1 && !s.ran &&
		s.prompt > 1
	state := int32(-1)
	switch {
	case shared:
		p.Fork(s.lead, s, s.prompt-1)
	case s.all:
		p.Truncate(s, 0)
	default:
		_, state = p.Match(s)
	}
	if p.Need(s, s.computed, len(s.tokens)) > p.Free() {
		p.Truncate(s, 0)
		return false
	}
	if p.all > 0 {
		if state >= 0 { // it may be stolen only for s itself, after it is copied
			s.slot = p.takeSlot(false)
		}
		if s.slot < 0 {
			s.slot = p.takeSlot(true)
		}
		if s.slot < 0 {
			p.Truncate(s, 0)
			return false
		}
		if s.slot != state {
			p.moves = append(p.moves, Move{CopyState, state, s.slot})
		}
	}
	loaded := 0
	if c.opt.Fetch != nil && !shared && !s.all && p.all == 0 {
		loaded = c.fetch(s)
	}
	p.Grow(s, s.computed, len(s.tokens))
	c.stats.Recomputed += max(0, s.lost-s.computed)
	s.lost = 0
	if !s.ran {
		s.cached = min(s.computed, s.prompt)
		if !s.all && (s.lead == nil || !shared) {
			c.stats.PrefixQueries += s.prompt
			c.stats.PrefixHits += s.cached
			c.stats.PrefixLoaded += loaded
		}
	}
	return true
}

// fetch gives s, behind the pages that it matched, those that are to be had from elsewhere, as far as they
// follow each other, and counts the positions of those. There are pages enough for all of its tokens.
func (c *Scheduler) fetch(s *Seq) (loaded int) {
	p := c.pool
	for end := s.computed + p.size; end < len(s.tokens); end += p.size {
		h := s.chain.next(s.tokens[end-p.size:end], &p.buf)
		g := p.index.find(&h)
		if g >= 0 { // known, behind one that was not
			p.share(g)
		} else {
			from, ok := c.opt.Fetch(s, h)
			if !ok {
				break
			}
			g = p.take()
			p.moves = append(p.moves, Move{PageLoad, from, g})
			p.index.put(g, &h)
			p.known[g] = true
			loaded += p.size
		}
		s.pages = append(s.pages, g)
		s.chain, s.chained = h, s.chained+1
		s.computed, s.planned = end, end
	}
	return loaded
}

func (c *Scheduler) swapIn(s *Seq) bool {
	p := c.pool
	if max(len(s.hosted), p.pagesFor(len(s.tokens))) > p.Free() {
		return false
	}
	for _, h := range s.hosted {
		g := p.take()
		p.moves = append(p.moves, Move{PageIn, h, g})
		s.pages = append(s.pages, g)
	}
	p.host = append(p.host, s.hosted...)
	s.hosted = s.hosted[:0]
	return p.Grow(s, s.planned, len(s.tokens))
}

// preempt sends a running sequence back to wait.
func (c *Scheduler) preempt(s *Seq) {
	c.unlist(s)
	c.stats.Preemptions++
	p := c.pool
	if p.all == 0 && len(s.pages) > 0 && len(p.host) >= len(s.pages) && c.opt.Swap != nil && c.opt.Swap(s.planned,
		len(s.pages)) {
		c.stats.Swaps++
		for _, g := range s.pages {
			h := p.host[len(p.host)-1]
			p.host = p.host[:len(p.host)-1]
			s.hosted = append(s.hosted, h)
			p.moves = append(p.moves, Move{PageOut, g, h})
		}
		planned, computed := s.planned, s.computed
		p.Truncate(s, 0)
		s.planned, s.computed = planned, computed
	} else {
		s.epoch++
		s.lost = s.computed
		p.Release(s)
	}
	s.drafting = false
	c.wait(s)
}

// unlist takes a running sequence out of the lists.
func (c *Scheduler) unlist(s *Seq) {
	c.running = slices.DeleteFunc(c.running, func(o *Seq) bool { return o == s })
	s.key.filling = slices.DeleteFunc(s.key.filling, func(o *Seq) bool { return o == s })
	s.take, s.fills = 0, false
}

// keeps says whether the state of s at position n, a page's end, is kept: at the
// last page's end within the prompt, and every so many pages.
func (c *Scheduler) keeps(s *Seq, n int) bool {
	pages := n / c.pool.size
	return pages == (s.prompt-1)/c.pool.size || pages%c.opt.Every == 0
}

// untilKept shortens n rows of s to end where its state is to be kept.
func (c *Scheduler) untilKept(s *Seq, n int) int {
	if c.pool.all == 0 {
		return n
	}
	start := s.planned + s.take
	for end := (start/c.pool.size + 1) * c.pool.size; end < start+n; end += c.pool.size {
		if c.keeps(s, end) {
			return end - start
		}
	}
	return n
}

// emit writes the rows of s.
func (c *Scheduler) emit(b *Batch, s *Seq) {
	n := s.take
	s.take = 0
	run := Run{Seq: s, First: len(b.Rows), Rows: n, Start: s.planned, Slot: int(s.slot), Keep: -1, epoch: s.epoch}
	total := len(s.tokens) + s.pending
	run.Draft = max(0, s.planned+n-total)
	for i := range n {
		pos := s.planned + i
		r := Row{Run: int32(len(b.Runs)), Pos: int32(pos), Page: s.pages[pos/c.pool.size], Token: -1, From: -1,
			Known: s.all && pos < s.prompt-1}
		r.Want = r.Known || pos >= total-1
		switch {
		case pos < len(s.tokens):
			r.Token = s.tokens[pos]
		case run.Draft > 0:
			r.Token = c.guess[s.guess+pos-total]
		default:
			r.From = s.row
		}
		if r.Want {
			s.row = int32(len(b.Rows))
			b.Wanted++
		}
		b.Rows = append(b.Rows, r)
	}
	s.planned += n
	if s.planned >= total {
		s.pending++
		run.wants, s.drafting = true, run.Draft > 0
		c.stats.Drafted += run.Draft
		c.stats.Drafts += min(run.Draft, 1)
		for len(c.stats.AcceptedAt) < run.Draft {
			c.stats.AcceptedAt = append(c.stats.AcceptedAt, 0)
		}
	}
	if end := s.planned; c.pool.all > 0 && end%c.pool.size == 0 && c.keeps(s, end) {
		run.Keep = int(c.pool.takeSlot(false))
	}
	b.Runs = append(b.Runs, run)
}
