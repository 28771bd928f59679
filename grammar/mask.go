// Masks: which tokens may come next, and how a text went so far.

package grammar

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/engine"
)

var _ engine.Mask = (*Mask)(nil)

// maxKept bounds the nodes, states and configurations that one grammar keeps: more,
// and its automata are made anew. A variable for tests.
var maxKept = 400_000

// maskWork bounds the steps of construction of one mask. A variable for tests.
var maskWork = 5_000_000

const maxMasks = 16 << 20 // bytes of masks

// Grammar is a compiled source for one vocabulary. Any number of texts may be
// read with it at once.
type Grammar struct {
	vocab *Vocabulary
	src   Source
	opt   Options

	mu     sync.Mutex
	m      *machine
	epoch  int // how often the automata were made anew
	least  int // what they may grow to however small maxKept is
	kept   int // bytes of masks
	masked []int32
	stack  []int32
	rows   [][]int32
	room   map[roomKey]int

	pairs map[int32]maskPair // by a configuration with round counts

	letters map[alphabetKey]*[8][]step8
	seen    []int32 // by expression and state of UTF-8: the last round that saw it
	round   int32
}

type roomKey struct {
	r    rx
	kind sliceKind
}

type alphabetKey struct {
	kind sliceKind
	part int32
}

// Compile prepares a source for a vocabulary. A schema that cannot be honoured
// gives *Refused. Without Options.Triggers the source must be set.
func Compile(v *Vocabulary, src Source, opt Options) (*Grammar, error) {
	g := &Grammar{vocab: v, src: src, opt: opt, room: map[roomKey]int{},
		letters: map[alphabetKey]*[8][]step8{}, pairs: map[int32]maskPair{}}
	deepest := 0
	for _, s := range v.slices {
		deepest = max(deepest, s.tree.depth)
	}
	g.stack, g.rows = make([]int32, deepest+1), make([][]int32, deepest+1)
	var err error
	g.m, err = build(src, opt, v.find)
	return g, err
}

func (v *Vocabulary) find(name string) (int32, bool) {
	id, ok := v.special[name]
	return id, ok && len(v.words[id]) > 0
}

// Mask follows one text. It is not for several goroutines at once; several Masks
// of a Grammar are.
type Mask struct {
	g      *Grammar
	conf   []int32 // before each token, and now
	tokens []int32
	ended  bool
	epoch  int
}

// NewMask begins a text.
func (g *Grammar) NewMask() *Mask {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &Mask{g: g, conf: []int32{g.m.start}, epoch: g.epoch}
}

// Clone gives a Mask that stands where this one does.
func (k *Mask) Clone() engine.Mask {
	c := *k
	c.conf, c.tokens = slices.Clone(k.conf), slices.Clone(k.tokens)
	return &c
}

// enter locks the grammar and brings the mask to its present automata. From here on nothing is too complex.
func (k *Mask) enter() error {
	g := k.g
	g.mu.Lock()
	if g.m.size() > max(maxKept, g.least) {
		m, err := build(g.src, g.opt, g.vocab.find)
		if err != nil {
			return err
		}
		g.m, g.kept, g.masked = m, 0, nil
		g.room, g.letters, g.seen = map[roomKey]int{}, map[alphabetKey]*[8][]step8{}, nil
		g.pairs = map[int32]maskPair{}
		g.epoch++
	}
	g.m.a.answering, g.m.a.work, g.m.a.most = true, 0, math.MaxInt
	if k.epoch == g.epoch {
		return nil
	}
	k.conf, k.epoch = []int32{g.m.start}, g.epoch
	for i, t := range k.tokens {
		if k.ended && i == len(k.tokens)-1 {
			k.conf = append(k.conf, k.now())
			break
		}
		conf, at := g.m.read(k.now(), string(g.vocab.words[t]))
		if at >= 0 {
			return fmt.Errorf("grammar: token %d cannot be read again", t)
		}
		k.conf = append(k.conf, conf)
	}
	g.least = max(g.least, 2*g.m.size()) // a long text needs so much
	return nil
}

func (m *machine) size() int { return len(m.a.nodes) + len(m.states) + len(m.configs) + len(m.sets) }

func (k *Mask) now() int32 { return k.conf[len(k.conf)-1] }

// Allowed sets bit t of word t/32 for each token t that may come next, and clears
// the others. Tokens that end a text are among them where it may end. The length
// of set is Vocabulary.Words or more, where a model's vocabulary is padded.
func (k *Mask) Allowed(set []uint32) (err error) {
	words := k.g.vocab.Words()
	if len(set) < words {
		return fmt.Errorf("grammar: a mask of %d words is wanted for %d tokens, not %d", words, k.g.vocab.size, len(set))
	}
	defer catch(&err)
	defer k.g.mu.Unlock()
	if err := k.enter(); err != nil {
		return err
	}
	clear(set)
	set = set[:words]
	if k.ended {
		k.g.setEnds(set)
		return nil
	}
	k.g.fill(k.now(), set)
	return nil
}

func (g *Grammar) setEnds(set []uint32) {
	for _, id := range g.vocab.ends {
		set[id>>5] |= 1 << (id & 31)
	}
}

// fill computes a configuration's mask into set, which is clear, or takes it from where it is kept.
func (g *Grammar) fill(conf int32, set []uint32) {
	if !g.known(conf, set) && !g.counted(conf, set) {
		g.fillWhole(conf, set)
	}
}

// known takes a mask from where it is kept: as bits, or as a list where few tokens are allowed.
func (g *Grammar) known(conf int32, set []uint32) bool {
	c := &g.m.configs[conf]
	if c.mask != nil {
		copy(set, c.mask)
	}
	for _, id := range c.few {
		set[id>>5] |= 1 << (id & 31)
	}
	return c.mask != nil || c.few != nil
}

// fillWhole is fill by a walk through the vocabulary. A mask that costs too much has the tokens that were found until
// then.
func (g *Grammar) fillWhole(conf int32, set []uint32) {
	if g.known(conf, set) {
		return
	}
	for most := maskWork; ; most *= 4 {
		if g.m.a.work, g.m.a.most = 0, most; g.compute(conf, set) {
			g.keep(conf, set)
			return
		} else if slices.ContainsFunc(set, func(w uint32) bool { return w != 0 }) {
			return
		}
	}
}

// compute sets the tokens that may come next; false where that took too much work.
func (g *Grammar) compute(conf int32, set []uint32) (whole bool) {
	defer func() {
		if r := recover(); r != nil && r != (tooComplex{}) {
			panic(r)
		}
	}()
	c := g.m.configs[conf]
	free := slices.ContainsFunc(c.scans, func(sc scan) bool { return g.m.a.room(sc.rx) >= longToken })
	if free { // all slices at once
		copy(set, g.vocab.safe)
	}
	if c.accept {
		g.setEnds(set)
	}
	for i := range g.vocab.slices {
		s := &g.vocab.slices[i]
		if free && s.chars > 0 && s.kind <= sliceMarks {
			continue
		}
		if s.chars > 0 && g.passes(conf, s) {
			for w, b := range s.bits {
				set[w] |= b
			}
			continue
		}
		g.walk(&s.tree, conf, set)
	}
	return true
}

// keep stores a mask.
func (g *Grammar) keep(conf int32, set []uint32) {
	n := 0
	for _, w := range set {
		n += bits.OnesCount32(w)
	}
	if g.kept > maxMasks {
		for _, id := range g.masked {
			g.m.configs[id].mask, g.m.configs[id].few = nil, nil
		}
		g.kept, g.masked = 0, g.masked[:0]
	}
	c := &g.m.configs[conf]
	if n < len(set)/2 {
		c.few = make([]int32, 0, n)
		for w, b := range set {
			for ; b != 0; b &= b - 1 {
				c.few = append(c.few, int32(w*32+bits.TrailingZeros32(b)))
			}
		}
		g.kept += 4 * n
	} else {
		c.mask = slices.Clone(set)
		g.kept += 4 * len(set)
	}
	g.masked = append(g.masked, conf)
}

// walk sets the tokens of a tree that can be read from a configuration.
func (g *Grammar) walk(t *tree, conf int32, set []uint32) {
	m := g.m
	class := &m.a.class
	g.stack[0] = conf
	m.step(conf, 0) // makes the row
	g.rows[0] = m.configs[conf].row
	for i := 0; i < len(t.nodes); {
		n := &t.nodes[i]
		d := int(n.depth)
		next := g.rows[d][class[n.byte]] - 1
		if next < 0 {
			next = m.step(g.stack[d], class[n.byte])
		}
		if next == dead {
			i = int(n.skip)
			continue
		}
		if int(n.skip) > i+1 {
			row := m.configs[next].row
			if row == nil {
				m.step(next, 0)
				row = m.configs[next].row
			}
			g.stack[d+1], g.rows[d+1] = next, row
		}
		if n.token >= 0 {
			set[n.token>>5] |= 1 << (n.token & 31)
			if more := t.same[int32(i)]; len(t.same) > 0 && more != nil {
				for _, id := range more {
					set[id>>5] |= 1 << (id & 31)
				}
			}
		}
		i++
	}
}

// passes says that an expression in progress lets every token of a slice pass.
func (g *Grammar) passes(conf int32, s *slice) bool {
	for _, sc := range g.m.configs[conf].scans {
		if s.kind <= sliceMarks && g.m.a.room(sc.rx) >= s.chars {
			return true
		}
		for _, kind := range widerKinds[s.kind] {
			if g.reach(sc.rx, kind) >= s.chars {
				return true
			}
		}
	}
	return false
}

// widerKinds are kinds whose tokens may hold all that those of a kind may; the first answers for most.
var widerKinds = [sliceKinds][]sliceKind{
	sliceLower:  {sliceLines, sliceWord, sliceLower},
	sliceWord:   {sliceLines, sliceWord},
	sliceSpace:  {sliceLines, sliceSpace},
	sliceText:   {sliceLines, sliceText},
	sliceMarks:  {sliceOthers, sliceMarks},
	sliceLines:  {sliceLines},
	sliceOthers: {sliceOthers},
}

// room gives how many characters of any text that a JSON string holds as it is
// can follow, as far as is seen from the expression's form.
func (a *arena) room(r rx) int {
	n := &a.nodes[r]
	switch n.kind {
	case kAlt:
		best := 0
		for _, x := range n.list {
			best = max(best, a.room(x))
		}
		return best
	case kStr:
		if n.m != 0 || n.x == '\'' {
			return 0
		}
		return a.textRoom(n.a)
	case kCat:
		return a.textRoom(n.a)
	}
	return a.textRoom(r)
}

func (a *arena) textRoom(r rx) int {
	n := &a.nodes[r]
	switch {
	case r == a.text:
		return endless
	case n.kind == kRep && n.a == a.anyChar && n.n < 0:
		return endless
	case n.kind == kRep && n.a == a.anyChar:
		return int(n.n)
	case n.kind == kCat && n.b == a.text: // some of the text is still asked for
		return 0
	case n.kind == kAnd:
		room := endless
		for _, x := range n.list {
			if y := &a.nodes[x]; y.kind == kNot && a.nodes[y.a].kind == kTrie {
				continue // a finite list is left by going on
			}
			room = min(room, a.textRoom(x))
		}
		return room - 1
	}
	return 0
}

// step8 is a class of bytes within a character, and the state of UTF-8 after it.
type step8 struct{ class, next uint8 }

// step8At is an expression at a state of UTF-8.
type step8At struct {
	r     rx
	state uint8
}

// Ranges of bytes by the state of UTF-8: in the first a character begins, in those from the second to the fourth one to
// three bytes are left, in the others a range of the second byte is.
var utf8Steps = [8][]struct{ lo, hi, next uint8 }{
	{{0, 0x7f, 0}, {0xc2, 0xdf, 1}, {0xe0, 0xe0, 4}, {0xe1, 0xec, 2}, {0xed, 0xed, 5}, {0xee, 0xef, 2}, {0xf0, 0xf0, 6},
		{0xf1, 0xf3, 3}, {0xf4, 0xf4, 7}},
	{{0x80, 0xbf, 0}}, {{0x80, 0xbf, 1}}, {{0x80, 0xbf, 2}},
	{{0xa0, 0xbf, 1}}, {{0x80, 0x9f, 1}}, {{0x90, 0xbf, 2}}, {{0x80, 0x8f, 2}},
}

// alphabet gives the bytes that a slice's tokens are of, by the state of UTF-8: of those that a partition holds to be
// alike one.
func (g *Grammar) alphabet(kind sliceKind, part int32) *[8][]step8 {
	key := alphabetKey{kind, part}
	if out := g.letters[key]; out != nil {
		return out
	}
	out := new([8][]step8)
	first := g.m.a.parts.first[part]
	for state, ranges := range utf8Steps {
		for _, r := range ranges {
			for b := int(r.lo); b <= int(r.hi); b++ {
				step := step8{first[g.m.a.class[b]], r.next}
				if kindHolds(kind, byte(b)) && !slices.Contains(out[state], step) {
					out[state] = append(out[state], step)
				}
			}
		}
	}
	g.letters[key] = out
	return out
}

// kindHolds says whether a slice's tokens may hold a byte.
func kindHolds(kind sliceKind, b byte) bool {
	letter := b|0x20 >= 'a' && b|0x20 <= 'z'
	plain := b >= 0x20 && b != '"' && b != '\\'
	switch kind {
	case sliceLower:
		return b >= 'a' && b <= 'z'
	case sliceWord, sliceSpace:
		return letter
	case sliceText:
		return plain && strings.IndexByte(marks, b) < 0
	case sliceMarks:
		return plain
	case sliceLines:
		return strings.IndexByte(marks, b) < 0
	}
	return true
}

const (
	endless  = 1 << 30
	maxReach = 400 // expressions that are looked at
)

// reach gives a number of characters of a slice's: any text of so many, or of fewer, can follow.
func (g *Grammar) reach(r rx, kind sliceKind) int {
	key := roomKey{r, kind}
	n, known := g.room[key]
	switch {
	case known:
	case kind == sliceSpace:
		if d := g.m.a.stepByte(r, ' '); d != rxNone {
			n = 1 + g.reach(d, sliceWord)
		}
		g.room[key] = n
	default:
		n = g.reachOf(r, kind)
		g.room[key] = n
	}
	return n
}

// reachOf walks through the expressions that characters lead to, one character after the other.
func (g *Grammar) reachOf(r rx, kind sliceKind) int {
	layer, all := []step8At{{r, 0}}, []rx{r}
	g.round++
	g.see(r, 0)
	most := longToken
	if kind >= sliceMarks && kind != sliceLines {
		most = shortToken // a tag may come: few long tokens are worth the way to its end
	}
	for n := 0; n < most; n++ {
		var next []step8At
		for len(layer) > 0 {
			at := layer[len(layer)-1]
			layer = layer[:len(layer)-1]
			for _, s := range g.alphabet(kind, g.m.a.partition(at.r))[at.state] {
				d := g.m.a.step(at.r, s.class)
				if d == rxNone || len(all) > maxReach {
					return n
				}
				if g.see(d, s.next) {
					continue
				}
				if s.next == 0 {
					next, all = append(next, step8At{d, 0}), append(all, d)
				} else {
					layer = append(layer, step8At{d, s.next})
				}
			}
		}
		if layer = next; len(layer) == 0 {
			for _, d := range all { // none of them leads to an end
				g.room[roomKey{d, kind}] = endless
			}
			return endless
		}
	}
	return most
}

// see notes an expression at a state of UTF-8, and says whether it was seen in this round.
func (g *Grammar) see(r rx, state uint8) bool {
	at := int(r)*8 + int(state)
	if at >= len(g.seen) {
		g.seen = append(g.seen, make([]int32, at+1-len(g.seen)+len(g.m.a.nodes)*4)...)
	}
	was := g.seen[at] == g.round
	g.seen[at] = g.round
	return was
}

// Accept reads a token. One that is not allowed is an error, and changes nothing.
func (k *Mask) Accept(token int32) (err error) {
	g := k.g
	if token < 0 || int(token) >= g.vocab.size {
		return fmt.Errorf("grammar: there is no token %d, the vocabulary has %d", token, g.vocab.size)
	}
	defer catch(&err)
	defer g.mu.Unlock()
	if err := k.enter(); err != nil {
		return err
	}
	conf := k.now()
	switch end := slices.Contains(g.vocab.ends, token); {
	case k.ended && !end:
		return fmt.Errorf("grammar: token %d comes after the end", token)
	case k.ended:
		return nil
	case end && !g.m.configs[conf].accept:
		return fmt.Errorf("grammar: the text cannot end here: %s is expected", g.m.expected(conf))
	case end:
		k.ended = true
	case len(g.vocab.words[token]) == 0:
		return fmt.Errorf("grammar: token %d has no text", token)
	default:
		word := string(g.vocab.words[token])
		next, at := g.m.read(conf, word)
		if at >= 0 {
			return fmt.Errorf("grammar: token %d (%q) is not allowed: at byte %d of it, %s is expected", token, word, at,
				g.m.expected(next))
		}
		conf = next
	}
	k.conf, k.tokens = append(k.conf, conf), append(k.tokens, token)
	return nil
}

// Rollback takes back the last n tokens.
func (k *Mask) Rollback(n int) error {
	if n < 0 || n > len(k.tokens) {
		return fmt.Errorf("grammar: %d tokens cannot be taken back, %d were read", n, len(k.tokens))
	}
	if n > 0 {
		k.ended = false
	}
	k.tokens = k.tokens[:len(k.tokens)-n]
	if len(k.conf) > len(k.tokens)+1 {
		k.conf = k.conf[:len(k.tokens)+1]
	}
	return nil
}

// Ended says that an end was read.
func (k *Mask) Ended() bool { return k.ended }

// MayEnd says that the text is whole as it is.
func (k *Mask) MayEnd() (may bool, err error) {
	defer catch(&err)
	defer k.g.mu.Unlock()
	if err := k.enter(); err != nil {
		return false, err
	}
	return k.ended || k.g.m.configs[k.now()].accept, nil
}

// Forced gives the tokens that must come next, nil where there is a choice: the
// text that is certain, spelt as the tokenizer does, without the tokens at its end
// that a longer one could replace.
func (k *Mask) Forced() []int32 {
	g := k.g
	var text []byte
	var err error
	func() {
		defer catch(&err)
		defer g.mu.Unlock()
		if err = k.enter(); err != nil || k.ended {
			return
		}
		text = g.m.forced(k.now())
	}()
	if err != nil || len(text) == 0 {
		return nil
	}
	ids := g.vocab.Spell(string(text))
	start := make([]int, len(ids)+1)
	for i, id := range ids {
		start[i+1] = start[i] + len(g.vocab.words[id])
	}
	sure := 0 // all before it are surely those
	for i := range ids {
		if start[i+1] == len(text) && g.vocab.longer(string(text[start[i]:])) || start[i+1] > len(text) {
			break
		}
		if g.vocab.longer(string(text[start[i]:])) { // a token might span the rest and what follows
			break
		}
		sure = i + 1
	}
	if sure == 0 {
		return nil
	}
	return ids[:sure]
}

// maxForced bounds the text that is looked ahead.
const maxForced = 1024

// forced gives the bytes that can only come in one way.
func (m *machine) forced(conf int32) []byte {
	var text []byte
	for len(text) < maxForced && !m.configs[conf].accept {
		only, next := -1, dead
		for c := range m.a.member {
			n := m.step(conf, uint8(c))
			if n == dead {
				continue
			}
			if only >= 0 || m.a.width[c] > 1 {
				return text
			}
			only, next = int(m.a.member[c]), n
		}
		if only < 0 {
			return text
		}
		text, conf = append(text, byte(only)), next
	}
	return text
}
