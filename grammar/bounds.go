// Counted repetitions: what may come next depends little on how much of a large count is left. The tokens of an
// expression with smaller, round counts are allowed, those of one with larger counts are all that may be; what is
// between the two masks is looked at token by token.

package grammar

import (
	"math"
	"math/bits"
	"slices"
)

// Counts below fewCounts stay as they are, and there is one round count from mostCounts on.
const (
	fewCounts  = 32
	mostCounts = 128
	maxBetween = 256 // tokens that are looked at one by one
)

// direction says on which side an expression with round counts is.
type direction uint8

const (
	within direction = iota // its texts are some of the other's
	around                  // they are more
)

// rounded gives an expression with round counts, whose texts are within those of r or around them. rxNone is within.
func (a *arena) rounded(r rx, d direction) rx {
	memo := a.round[d]
	if int(r) < len(memo) && memo[r] != 0 {
		return memo[r] - 1
	}
	out := a.roundedOf(a.nodes[r], r, d)
	if memo = a.round[d]; int(r) >= len(memo) {
		memo = append(memo, make([]rx, len(a.nodes)-len(memo))...)
	}
	memo[r] = out + 1
	a.round[d] = memo
	return out
}

func (a *arena) roundedOf(n rxNode, r rx, d direction) rx {
	switch n.kind {
	case kCat:
		if x, y := a.rounded(n.a, d), a.rounded(n.b, d); x != n.a || y != n.b {
			return a.cat2(x, y)
		}
	case kAlt, kAnd:
		list, other := make([]rx, len(n.list)), false
		for i, x := range n.list {
			list[i] = a.rounded(x, d)
			other = other || list[i] != x
		}
		if other && n.kind == kAlt {
			return a.alt(list...)
		} else if other {
			return a.and(list...)
		}
	case kNot:
		if x := a.rounded(n.a, 1-d); x != n.a {
			return a.not(x)
		}
	case kTag:
		if x := a.rounded(n.a, d); x != n.a {
			return a.tag(x, n.m)
		}
	case kRep:
		least, most := roundCounts(n.m, n.n, d)
		if most >= 0 && least > most {
			return rxNone
		}
		if x := a.rounded(n.a, d); x != n.a || least != n.m || most != n.n {
			return a.rep(x, int(least), int(most))
		}
	case kStr:
		x, y := a.rounded(n.a, d), a.rounded(n.b, d)
		switch {
		case x == n.a && y == n.b:
		case n.m == 0 && a.nodes[x].kind != kTrie:
			return a.str(n.rxKey, x, y, 0)
		case d == within: // what an escape leads to is not known
			return rxNone
		}
	}
	return r
}

// roundCounts gives the counts of a repetition for less texts or more.
func roundCounts(m, n int32, d direction) (least, most int32) {
	floor := func(x int32) int32 {
		if x < fewCounts {
			return x
		}
		return min(mostCounts, int32(1)<<(bits.Len32(uint32(x))-1))
	}
	switch {
	case d == within && m >= fewCounts:
		m = 1 << min(30, bits.Len32(uint32(m-1)))
	case d == around:
		m = floor(m)
	}
	switch {
	case d == around && n >= fewCounts:
		n = -1
	case d == within:
		n = floor(n)
	}
	return m, n
}

// below says that a text of x is one of y, as far as is seen from their forms: they differ by counts.
func (a *arena) below(x, y rx) bool {
	if x == y {
		return true
	}
	n, o := &a.nodes[x], &a.nodes[y]
	if n.kind != o.kind {
		return false
	}
	switch n.kind {
	case kCat:
		return a.below(n.a, o.a) && a.below(n.b, o.b)
	case kAlt, kAnd:
		if len(n.list) != len(o.list) {
			return false
		}
		for i, j := 0, 0; i < len(n.list); i++ { // lists are in order: at most one differs
			for i < len(n.list) && slices.Contains(o.list, n.list[i]) {
				i++
			}
			for j < len(o.list) && slices.Contains(n.list, o.list[j]) {
				j++
			}
			if i < len(n.list) && !a.below(n.list[i], o.list[j]) {
				return false
			}
			j++
		}
		return true
	case kNot:
		return a.below(o.a, n.a)
	case kRep:
		return n.a == o.a && n.m >= o.m && (o.n < 0 || n.n >= 0 && n.n <= o.n)
	case kTag:
		return n.m == o.m && a.below(n.a, o.a)
	case kStr:
		return n.m == 0 && o.m == 0 && n.x == o.x && a.below(n.a, o.a) && a.below(n.b, o.b)
	}
	return false
}

// roundedConf gives the configuration with round counts within; dead where it is the same, or nothing can come of a
// part of it.
func (g *Grammar) roundedConf(conf int32) int32 {
	m, other := g.m, false
	m.flying = m.flying[:0]
	for _, s := range m.configs[conf].scans {
		r := m.a.rounded(s.rx, within)
		if r == rxNone || !m.a.alive(r) {
			return dead
		}
		other = other || r != s.rx
		m.flying = append(m.flying, scan{r, s.to, s.origin})
	}
	if !other {
		return dead
	}
	return m.configOf(-1, m.flying)
}

// belowConf is below for configurations.
func (g *Grammar) belowConf(x, y int32) bool {
	a, b := g.m.configs[x].scans, g.m.configs[y].scans
	if len(a) != len(b) {
		return false
	}
	for _, s := range a {
		if !slices.ContainsFunc(b, func(o scan) bool {
			return s.to == o.to && s.origin == o.origin && g.m.a.below(s.rx, o.rx)
		}) {
			return false
		}
	}
	return true
}

// counted makes a configuration's mask of two others: of the configuration with round counts, and of the first one that
// led to it. It keeps the mask; false where it cannot make it.
func (g *Grammar) counted(conf int32, set []uint32) bool {
	a := g.m.a
	a.work, a.most = 0, math.MaxInt
	low := g.roundedConf(conf)
	if low == dead {
		return false
	}
	p, ok := g.pairs[low]
	switch {
	case ok && p.first == dead:
		return false
	case !ok || g.m.configs[p.first].mask == nil || !g.belowConf(conf, p.first):
		g.pairs[low] = maskPair{first: conf}
		return false
	case !p.made || g.m.configs[low].mask == nil:
		if p, ok = g.pair(low, p.first, set); !ok {
			clear(set)
			return false
		}
	}
	mask := g.m.configs[low].mask
	if len(p.between) == 0 && !g.m.configs[conf].accept {
		g.m.configs[conf].mask = mask
		g.masked = append(g.masked, conf)
	}
	copy(set, mask)
	a.work, a.most = 0, maskWork
	for _, id := range p.between {
		if g.reads(conf, g.vocab.words[id]) {
			set[id>>5] |= 1 << (id & 31)
		}
	}
	if g.m.configs[conf].accept {
		g.setEnds(set)
	}
	if g.m.configs[conf].mask == nil {
		g.keep(conf, set)
	}
	return true
}

// maskPair is what lies between the mask of a configuration with round counts and that of the first that led to it.
type maskPair struct {
	first   int32 // dead: too much lies between
	made    bool
	between []int32
}

// pair makes both masks, with room for one of them.
func (g *Grammar) pair(low, first int32, room []uint32) (maskPair, bool) {
	p := maskPair{first: first, made: true}
	high := g.m.configs[first].mask
	clear(room)
	g.fillWhole(low, room)
	mask := g.m.configs[low].mask
	if mask == nil {
		p.first = dead
	}
	for i := 0; i < len(mask) && p.first != dead; i++ {
		for w := high[i] &^ mask[i]; w != 0; w &= w - 1 {
			id := int32(i*32 + bits.TrailingZeros32(w))
			if len(g.vocab.words[id]) > 0 { // else it ends the text
				p.between = append(p.between, id)
			}
		}
		if len(p.between) > maxBetween {
			p = maskPair{made: true}
		}
	}
	g.pairs[low] = p
	return p, p.first != dead
}

// reads says whether a token can be read; one that takes too much work cannot.
func (g *Grammar) reads(conf int32, word []byte) (ok bool) {
	defer func() {
		if r := recover(); r != nil && r != (tooComplex{}) {
			panic(r)
		}
	}()
	_, at := g.m.read(conf, string(word))
	return at < 0
}
