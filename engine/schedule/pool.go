package schedule

// Pool owns the pages and slots: who has which, which pages' content is known
// by a hash, and which of those nobody uses is given away next.
type Pool struct {
	size  int     // positions a page
	refs  []int32 // owners, by page
	known []bool  // the page is in the index
	state []int32 // slot in which the state at the page's end is kept; −1: none
	index index

	free       []int32 // pages whose content nobody knows
	prev, next []int32 // list of pages that are known and unused; the last element is its head
	unused     int     // length of that list

	slots []int32 // free slots
	all   int     // slots there are
	host  []int32 // free host pages
	moves []Move  // orders since the last Moves
	buf   []byte
}

// NewPool makes a pool of pages of size positions, of slots for fixed-size
// states and of pages in host memory.
func NewPool(pages, size, slots, host int) *Pool {
	p := &Pool{
		size: size, refs: make([]int32, pages), known: make([]bool, pages), state: make([]int32, pages),
		index: newIndex(pages), free: make([]int32, pages), prev: make([]int32, pages+1), next: make([]int32, pages+1),
		slots: make([]int32, slots), all: slots, host: make([]int32, host), buf: make([]byte, 0, 32+4*size),
	}
	for i := range p.free {
		p.free[i] = int32(pages - 1 - i)
		p.state[i] = -1
	}
	for i := range p.slots {
		p.slots[i] = int32(slots - 1 - i)
	}
	for i := range p.host {
		p.host[i] = int32(host - 1 - i)
	}
	p.prev[pages], p.next[pages] = int32(pages), int32(pages)
	return p
}

// Free counts the pages that can be had.
func (p *Pool) Free() int { return len(p.free) + p.unused }

// Moves appends to dst the orders that Grow and others gave since the last call.
func (p *Pool) Moves(dst []Move) []Move {
	dst = append(dst, p.moves...)
	p.moves = p.moves[:0]
	return dst
}

// pagesFor counts the pages of n positions.
func (p *Pool) pagesFor(n int) int { return (n + p.size - 1) / p.size }

// take gives a page with one owner, −1 where there is none.
func (p *Pool) take() int32 {
	if n := len(p.free); n > 0 {
		g := p.free[n-1]
		p.free = p.free[:n-1]
		p.refs[g] = 1
		return g
	}
	g := p.next[len(p.refs)] // the least recently used
	if int(g) == len(p.refs) {
		return -1
	}
	p.unlink(g)
	p.forget(g)
	p.refs[g] = 1
	return g
}

func (p *Pool) unlink(g int32) {
	p.next[p.prev[g]], p.prev[p.next[g]] = p.next[g], p.prev[g]
	p.unused--
}

func (p *Pool) forget(g int32) {
	if !p.known[g] {
		return
	}
	p.index.remove(g)
	p.known[g] = false
	if s := p.state[g]; s >= 0 {
		p.slots = append(p.slots, s)
		p.state[g] = -1
	}
}

// drop takes one owner from a page.
func (p *Pool) drop(g int32) {
	if p.refs[g]--; p.refs[g] > 0 {
		return
	}
	if !p.known[g] {
		p.free = append(p.free, g)
		return
	}
	head := int32(len(p.refs))
	last := p.prev[head]
	p.next[last], p.prev[g], p.next[g], p.prev[head] = g, last, head, g
	p.unused++
}

// share adds an owner to a page.
func (p *Pool) share(g int32) {
	if p.refs[g] == 0 {
		p.unlink(g)
	}
	p.refs[g]++
}

// Need counts the pages that Grow(s, from, to) would take.
func (p *Pool) Need(s *Seq, from, to int) int {
	n := max(0, p.pagesFor(to)-len(s.pages))
	for i := from / p.size; i < min(len(s.pages), p.pagesFor(to)); i++ {
		if p.refs[s.pages[i]] > 1 {
			n++
		}
	}
	return n
}

// Grow makes positions from to to−1 of s writable: pages that are missing are
// added, shared ones are copied. It says false, and changes nothing, where there
// are not enough pages.
func (p *Pool) Grow(s *Seq, from, to int) bool {
	if to <= from {
		return true
	}
	if p.Need(s, from, to) > p.Free() {
		return false
	}
	for i := from / p.size; i < p.pagesFor(to); i++ {
		if i >= len(s.pages) {
			s.pages = append(s.pages, p.take())
			continue
		}
		g := s.pages[i]
		switch {
		case p.refs[g] > 1:
			to := p.take()
			p.moves = append(p.moves, Move{CopyPage, g, to})
			p.refs[g]-- // never the last owner
			s.pages[i] = to
		case p.known[g]:
			p.forget(g)
		}
	}
	return true
}

// Fork gives to the pages of the first n positions of s, which both then own.
// to must have none. A state is not shared: the caller has it copied.
func (p *Pool) Fork(s, to *Seq, n int) {
	for _, g := range s.pages[:p.pagesFor(n)] {
		p.share(g)
		to.pages = append(to.pages, g)
	}
	to.computed, to.planned = n, n
	p.rechain(to)
}

// Truncate gives back the pages behind the first n positions of s.
func (p *Pool) Truncate(s *Seq, n int) {
	keep := p.pagesFor(n)
	for i := len(s.pages) - 1; i >= keep; i-- { // the beginning is the last to be given away
		p.drop(s.pages[i])
	}
	s.pages = s.pages[:min(keep, len(s.pages))]
	s.computed, s.planned = min(s.computed, n), min(s.planned, n)
	if s.chained > n/p.size {
		p.rechain(s)
	}
}

// rechain computes the hash of s's last full computed page from the beginning.
func (p *Pool) rechain(s *Seq) {
	s.chain, s.chained = s.root, 0
	for (s.chained+1)*p.size <= s.computed {
		s.chain = s.chain.next(s.tokens[s.chained*p.size:(s.chained+1)*p.size], &p.buf)
		s.chained++
	}
}

// Release gives back all that s has.
func (p *Pool) Release(s *Seq) {
	p.Truncate(s, 0)
	if s.slot >= 0 {
		p.slots = append(p.slots, s.slot)
		s.slot = -1
	}
	p.host = append(p.host, s.hosted...)
	s.hosted = s.hosted[:0]
}

// Match gives s, which must have no pages, those known pages that hold the
// beginning of its tokens, but never all of its tokens: the last one's logits are
// wanted. Where a state is needed it ends at a page whose state is kept, and gives
// the slot of that state, else −1.
func (p *Pool) Match(s *Seq) (positions int, state int32) {
	n, pages := p.lookup(s)
	state = -1
	if p.all > 0 && n > 0 {
		state = p.state[pages[n-1]]
	}
	s.computed, s.planned = n*p.size, n*p.size
	return s.computed, state
}

func (p *Pool) lookup(s *Seq) (int, []int32) {
	h := s.root
	s.chain, s.chained = s.root, 0
	most := (len(s.tokens) - 1) / p.size
	found := 0
	for i := 0; i < most; i++ {
		h = h.next(s.tokens[i*p.size:(i+1)*p.size], &p.buf)
		g := p.index.find(&h)
		if g < 0 {
			break
		}
		s.pages = append(s.pages, g)
		if p.all == 0 || p.state[g] >= 0 {
			found, s.chain, s.chained = i+1, h, i+1
		}
	}
	s.pages = s.pages[:found]
	for _, g := range s.pages {
		p.share(g)
	}
	return found, s.pages
}

// Learn enters the full pages of s that are computed in the index. keep is the
// slot in which the state at s.computed is kept, −1: none. Where another page of
// the same content is known already, s's stays unknown.
func (p *Pool) Learn(s *Seq, keep int32) {
	for (s.chained+1)*p.size <= s.computed && s.chained < len(s.pages) {
		h := s.chain.next(s.tokens[s.chained*p.size:(s.chained+1)*p.size], &p.buf)
		g := s.pages[s.chained]
		if other := p.index.find(&h); other < 0 && !p.known[g] {
			p.index.put(g, &h)
			p.known[g] = true
		} else if other >= 0 {
			g = other
		}
		s.chain, s.chained = h, s.chained+1
		if keep >= 0 && s.chained*p.size == s.computed && p.state[g] < 0 && p.known[g] {
			p.state[g] = keep
			keep = -1
		}
	}
	if keep >= 0 {
		p.slots = append(p.slots, keep)
	}
}

// takeSlot gives a free slot; where there is none, one in which a state is kept.
func (p *Pool) takeSlot(steal bool) int32 {
	if len(p.slots) == 0 && steal {
		head := int32(len(p.refs))
		for g := p.next[head]; g != head; g = p.next[g] { // unused pages first, the oldest of them
			if p.dropState(g) {
				break
			}
		}
		for g := int32(0); len(p.slots) == 0 && g < head; g++ {
			p.dropState(g)
		}
	}
	n := len(p.slots)
	if n == 0 {
		return -1
	}
	s := p.slots[n-1]
	p.slots = p.slots[:n-1]
	return s
}

func (p *Pool) dropState(g int32) bool {
	if p.state[g] < 0 {
		return false
	}
	p.slots = append(p.slots, p.state[g])
	p.state[g] = -1
	return true
}
