// Merging: the loop that all BPE variants share.

package tokenizer

// symbol is a stretch text[start:end] in a chain of neighbours.
type symbol struct {
	id         int32 // None: no token of its own
	start, end int32
	prev, next int32 // indices, -1 at the ends
}

// candidate is a pair of neighbours that may become one token.
type candidate struct {
	rank        int32 // lowest first, leftmost among equals
	left, right int32 // indices of symbols
	end         int32 // of the right symbol when the pair was seen
	id          int32 // of the token that it becomes
}

func (a *candidate) before(b *candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.left < b.left
}

// merger is the scratch space of one Encode. Its work is n log n in the number
// of symbols, whatever the text: a pair is queued at most twice per merge, and
// a pair that has changed since is recognised and dropped when it is popped.
type merger struct {
	symbols []symbol
	heap    []candidate
}

// add appends a symbol that starts where the last one ended.
func (m *merger) add(id int32, end int) {
	n := int32(len(m.symbols))
	s := symbol{id: id, end: int32(end), prev: n - 1, next: -1}
	if n > 0 {
		s.start = m.symbols[n-1].end
		m.symbols[n-1].next = n
	}
	m.symbols = append(m.symbols, s)
}

func (m *merger) reset() {
	m.symbols, m.heap = m.symbols[:0], m.heap[:0]
}

// pairer says whether two neighbours merge, how early, and into which token.
type pairer interface {
	pair(text string, left, right *symbol) (rank, id int32, ok bool)
}

// run merges until no pair is left. The chain from symbols[0] is the result.
func (m *merger) run(text string, p pairer) {
	for i := 1; i < len(m.symbols); i++ {
		m.consider(text, p, int32(i-1), int32(i))
	}
	for len(m.heap) > 0 {
		c := m.pop()
		left, right := &m.symbols[c.left], &m.symbols[c.right]
		if left.next != c.right || right.prev != c.left || right.end != c.end {
			continue
		}
		left.id, left.end, left.next = c.id, right.end, right.next
		right.prev, right.next = -1, -1 // out of the chain
		if left.next >= 0 {
			m.symbols[left.next].prev = c.left
			m.consider(text, p, c.left, left.next)
		}
		if left.prev >= 0 {
			m.consider(text, p, left.prev, c.left)
		}
	}
}

func (m *merger) consider(text string, p pairer, left, right int32) {
	l, r := &m.symbols[left], &m.symbols[right]
	rank, id, ok := p.pair(text, l, r)
	if !ok {
		return
	}
	m.push(candidate{rank: rank, left: left, right: right, end: r.end, id: id})
}

func (m *merger) push(c candidate) {
	m.heap = append(m.heap, c)
	i := len(m.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !c.before(&m.heap[up]) {
			break
		}
		m.heap[i] = m.heap[up]
		i = up
	}
	m.heap[i] = c
}

func (m *merger) pop() candidate {
	top := m.heap[0]
	n := len(m.heap) - 1
	last := m.heap[n]
	m.heap = m.heap[:n]
	if n == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && m.heap[down+1].before(&m.heap[down]) {
			down++
		}
		if !m.heap[down].before(&last) {
			break
		}
		m.heap[i] = m.heap[down]
		i = down
	}
	m.heap[i] = last
	return top
}
