// Package draft guesses the tokens that follow, for speculation: a step then
// verifies several positions at once, and keeps the guesses that are what the model
// would have chosen.
package draft

import "math/bits"

// NGram guesses that what followed the last tokens when they came before follows
// again: right where a text repeats its prompt or itself. How many tokens it guesses
// depends on how many were right, so that it falls silent where it loses. It
// belongs to one sequence.
type NGram struct {
	cost   func(guesses int) float64
	levels [len(lengths)]level
	seen   int // tokens entered
	level  int // of the last proposal
	given  int // tokens of the last proposal
}

// lengths are those of the grams that are looked up, the longest first.
var lengths = [...]int{6, 3}

type level struct {
	last []int32 // by hash of a gram: the position behind where it came last, 0: nowhere
	pace Pace
}

// Most is how many tokens are guessed at most.
const Most = 15

// New makes a guesser. cost says what a step with so many guesses takes, as a multiple of a step
// with none; nil: each guess adds a twentieth.
func New(cost func(guesses int) float64) *NGram {
	if cost == nil {
		cost = func(n int) float64 { return 1 + float64(n)/20 }
	}
	g := &NGram{cost: cost}
	for i := range g.levels {
		g.levels[i] = level{last: make([]int32, 1024)}
	}
	return g
}

func hash(gram []int32) uint64 {
	h := uint64(len(gram))
	for _, t := range gram {
		h = (h ^ uint64(uint32(t))) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	return h
}

// enter makes the grams of tokens known that end before the last token, whose followers are known.
func (g *NGram) enter(tokens []int32) {
	if len(tokens) < g.seen { // cut: what was entered may not be there
		g.seen = 0
		for i := range g.levels {
			clear(g.levels[i].last)
		}
	}
	if n := len(g.levels[0].last); 2*len(tokens) > n {
		n = 1 << bits.Len(uint(4*len(tokens)))
		for i := range g.levels {
			g.levels[i].last = make([]int32, n)
		}
		g.seen = 0
	}
	for end := max(g.seen, 1); end < len(tokens); end++ {
		for i, n := range lengths {
			if end >= n {
				last := g.levels[i].last
				last[hash(tokens[end-n:end])&uint64(len(last)-1)] = int32(end)
			}
		}
	}
	g.seen = max(g.seen, len(tokens))
}

// find gives the position behind the last occurrence of the end of tokens, and its level.
func (g *NGram) find(tokens []int32) (int, int) {
	for i, n := range lengths {
		if len(tokens) <= n {
			continue
		}
		gram := tokens[len(tokens)-n:]
		last := g.levels[i].last
		at := int(last[hash(gram)&uint64(len(last)-1)])
		if at == 0 {
			continue
		}
		same := true
		for j, t := range tokens[at-n : at] { // the table holds one gram a place
			same = same && t == gram[j]
		}
		if same {
			return at, i
		}
	}
	return 0, -1
}

// Propose appends to dst what may follow tokens, most at most. tokens are those of all calls before
// with what was chosen since. It allocates nothing but, sometimes, where tokens have become twice as many.
func (g *NGram) Propose(tokens, dst []int32, most int) []int32 {
	g.given = 0
	g.enter(tokens)
	at, level := g.find(tokens)
	if at == 0 {
		return dst
	}
	n := g.levels[level].pace.Next(g.cost, most)
	g.level = level
	base := len(dst)
	for ; n > 0; n, at = n-1, at+1 {
		next := int32(0)
		if at < len(tokens) {
			next = tokens[at]
		} else { // what is guessed is what is repeated
			next = dst[base+at-len(tokens)]
		}
		dst = append(dst, next)
	}
	g.given = len(dst) - base
	return dst
}

// Verified says how many of the last proposal's tokens were tried and how many of them accepted.
func (g *NGram) Verified(tried, accepted int) {
	tried = min(tried, g.given)
	if tried <= 0 {
		return
	}
	g.levels[g.level].pace.Verified(g.cost, tried, accepted)
	g.given = 0
}

// Accepted counts the guesses that are right: chosen are the tokens chosen behind the last known token
// and behind each guess in turn, one more than there are guesses. The count plus one of them are the text: each
// was chosen, by the rule and the random number of its position, behind tokens that are the text, so that
// the text is the one that comes without guesses, greedy or drawn.
func Accepted(guesses, chosen []int32) int {
	for i, g := range guesses {
		if i >= len(chosen) || chosen[i] != g {
			return i
		}
	}
	return len(guesses)
}
