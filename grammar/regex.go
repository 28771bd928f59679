// Regular languages as hash-consed expressions, read byte by byte with
// derivatives (Brzozowski 1964; Owens, Reppy, Turon 2009): an expression's node is
// the state of a lazily built automaton. Intersection and complement cost nothing
// extra, which JSON schema's allOf, not and oneOf need.

package grammar

import (
	"encoding/binary"
	"slices"
)

// rx names an expression of one arena. Equal names mean equal expressions.
type rx int32

const (
	rxNone rx = 0 // matches nothing
	rxEps  rx = 1 // matches the empty text
)

type rxKind uint8

const (
	kNone rxKind = iota
	kEps
	kSet  // one byte of a set
	kCat  // a then b
	kAlt  // any of list
	kAnd  // all of list
	kNot  // anything but a, also what is not UTF-8: see notText
	kRep  // a, m to n times; n < 0: without limit
	kStr  // the rest of a string of JSON or Python whose decoded text is a, its closing quote, then b
	kTrie // the rest of one of a list of texts
	kTag  // a, and its end carries the number m
	kCmp  // the rest of a decimal number that compares with a bound
	kMod  // the rest of a decimal number that is a multiple
)

// rxKey identifies a node. What the fields mean depends on the kind.
type rxKey struct {
	kind    rxKind
	a, b    rx
	m, n, x int32
}

type rxNode struct {
	rxKey
	null bool
	live int8 // 0 unknown, 1 matches something, 2 matches nothing
	list []rx
}

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(b byte)      { s[b>>6] |= 1 << (b & 63) }
func (s *byteSet) has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

func (s *byteSet) addRange(lo, hi byte) {
	for b := int(lo); b <= int(hi); b++ {
		s.add(byte(b))
	}
}

// arena holds expressions and the automaton over them.
type arena struct {
	nodes []rxNode
	ids   map[rxKey]rx
	lists map[string]int32 // operands of kAlt and kAnd, by their bytes
	sets  []byteSet
	setID map[byteSet]int32

	// Bytes that no expression tells apart share a class. frozen: no set may
	// split a class any more, since transitions are by class.
	class  [256]uint8
	member []byte    // one byte of each class
	width  [256]int  // how many bytes each class has
	alone  [256]bool // bytes with a class of their own, as far as noted
	frozen bool

	next  [][]int32 // by node and class: 1 + the derivative; 0: not yet computed
	parts partitions
	round [2][]rx // by direction and node: 1 + the expression with round counts; 0: not yet made
	tries []*textTrie
	allow [][]uint64 // subsets of a trie's texts
	allID map[string]int32
	bound []decimal
	mods  []multiple

	anyChar, text rx   // one character; any text. Both UTF-8
	plain         bool // no escapes but the needed ones within fixed texts

	work, most int  // steps of construction done, and allowed
	answering  bool // a text is being written: what is too complex is left out instead of refused
	buf        []byte
}

// tooComplex is thrown where a bound of size or steps is met, and caught where
// the package is entered.
type tooComplex struct{}

func (tooComplex) Error() string {
	return "too complex: its automaton exceeds the bound of size; make repetitions or alternatives smaller"
}

// spend counts construction.
func (a *arena) spend(n int) {
	if a.work += n; a.work > a.most {
		panic(tooComplex{})
	}
}

func newArena(most int) *arena {
	a := &arena{ids: map[rxKey]rx{}, lists: map[string]int32{}, setID: map[byteSet]int32{}, allID: map[string]int32{},
		most: most}
	a.nodes = append(a.nodes, rxNode{rxKey: rxKey{kind: kNone}, live: 2},
		rxNode{rxKey: rxKey{kind: kEps}, null: true, live: 1})
	a.next = make([][]int32, 2)
	a.parts = partitions{ids: map[string]int32{}, met: map[[2]int32]int32{}}
	a.member = []byte{0}
	for _, b := range []byte("0123456789abcdefABCDEFlnrstux\"\\/{}[]:,+-. \t\n\r") {
		a.split(byteSet{}.with(b))
	}
	var control byteSet
	control.addRange(0, 0x1f)
	a.split(control)
	a.anyChar = a.runes([]runeRange{{0, 0x10ffff}})
	a.text = a.rep(a.anyChar, 0, -1)
	return a
}

func (s byteSet) with(b byte) byteSet { s.add(b); return s }

// split makes classes respect a set.
func (a *arena) split(s byteSet) {
	var in, out [256]bool
	var first [256]byte
	for b := 255; b >= 0; b-- {
		c := a.class[b]
		if s.has(byte(b)) {
			in[c], first[c] = true, byte(b)
		} else {
			out[c] = true
		}
	}
	var fresh [256]uint8 // the class of the members in s, where one is divided
	for c := len(a.member) - 1; c >= 0; c-- {
		if !in[c] || !out[c] {
			continue
		}
		if a.frozen {
			panic("grammar: a set of bytes came after the classes were fixed")
		}
		fresh[c] = uint8(len(a.member))
		a.member = append(a.member, first[c])
	}
	for b := range 256 {
		if c := a.class[b]; fresh[c] != 0 && s.has(byte(b)) {
			a.class[b] = fresh[c]
		}
	}
	a.width = [256]int{}
	for b := 255; b >= 0; b-- {
		a.member[a.class[b]] = byte(b)
		a.width[a.class[b]]++
	}
}

// splitText gives every byte of a text its own class.
func (a *arena) splitText(s string) {
	for i := range len(s) {
		if !a.alone[s[i]] {
			a.split(byteSet{}.with(s[i]))
			a.alone[s[i]] = true
		}
	}
}

func (a *arena) intern(k rxKey, null bool, live int8, list []rx) rx {
	if id, ok := a.ids[k]; ok {
		return id
	}
	a.spend(1)
	id := rx(len(a.nodes))
	a.nodes = append(a.nodes, rxNode{rxKey: k, null: null, live: live, list: list})
	a.next = append(a.next, nil)
	a.ids[k] = id
	return id
}

func (a *arena) null(r rx) bool { return a.nodes[r].null }

func (a *arena) set(s byteSet) rx {
	if s == (byteSet{}) {
		return rxNone
	}
	id, ok := a.setID[s]
	if !ok {
		id = int32(len(a.sets))
		a.split(s)
		a.sets = append(a.sets, s)
		a.setID[s] = id
	}
	return a.intern(rxKey{kind: kSet, m: id}, false, 1, nil)
}

func (a *arena) bytes(lo, hi byte) rx {
	var s byteSet
	s.addRange(lo, hi)
	return a.set(s)
}

func (a *arena) lit(s string) rx {
	r := rxEps
	for i := len(s) - 1; i >= 0; i-- {
		r = a.cat(a.set(byteSet{}.with(s[i])), r)
	}
	return r
}

// cat is one expression after the other; kept leaning to the right.
func (a *arena) cat(list ...rx) rx {
	r := rxEps
	for i := len(list) - 1; i >= 0; i-- {
		r = a.cat2(list[i], r)
	}
	return r
}

func (a *arena) cat2(x, y rx) rx {
	switch {
	case x == rxNone || y == rxNone:
		return rxNone
	case x == rxEps:
		return y
	case y == rxEps:
		return x
	}
	if n := a.nodes[x]; n.kind == kCat {
		return a.cat2(n.a, a.cat2(n.b, y))
	} else if n.kind == kTag {
		return a.tag(a.cat2(n.a, y), n.m)
	}
	return a.intern(rxKey{kind: kCat, a: x, b: y}, a.null(x) && a.null(y), 0, nil)
}

// flat lists the operands of nested nodes of a kind, sorted, each once.
func (a *arena) flat(kind rxKind, list []rx) []rx {
	out := make([]rx, 0, len(list))
	for _, r := range list {
		if a.nodes[r].kind == kind {
			out = append(out, a.nodes[r].list...)
		} else {
			out = append(out, r)
		}
	}
	a.spend(len(out) / 2)
	slices.Sort(out)
	return slices.Compact(out)
}

func (a *arena) listID(list []rx) int32 {
	a.buf = a.buf[:0]
	for _, r := range list {
		a.buf = binary.LittleEndian.AppendUint32(a.buf, uint32(r))
	}
	id, ok := a.lists[string(a.buf)]
	if !ok {
		id = int32(len(a.lists))
		a.lists[string(a.buf)] = id
	}
	return id
}

func (a *arena) alt(list ...rx) rx {
	list = a.flat(kAlt, list)
	out := list[:0]
	var union byteSet
	sets, whole := 0, false
	for _, r := range list {
		switch n := &a.nodes[r]; {
		case r == rxNone:
		case n.kind == kSet:
			for i, w := range a.sets[n.m] {
				union[i] |= w
			}
			sets++
			out = append(out, r)
		default:
			whole = whole || r == a.text && a.text != 0
			out = append(out, r)
		}
	}
	if sets > 1 {
		out = slices.DeleteFunc(out, func(r rx) bool { return a.nodes[r].kind == kSet })
		out = append(out, a.set(union))
		slices.Sort(out)
	}
	if whole && a.isText(out) {
		return a.text
	}
	switch len(out) {
	case 0:
		return rxNone
	case 1:
		return out[0]
	}
	null := false
	for _, r := range out {
		null = null || a.null(r)
	}
	return a.intern(rxKey{kind: kAlt, m: a.listID(out)}, null, 0, slices.Clone(out))
}

// isText says that no operand reaches beyond UTF-8 text, as a complement does.
func (a *arena) isText(list []rx) bool {
	return !slices.ContainsFunc(list, func(r rx) bool { return a.nodes[r].kind == kNot })
}

func (a *arena) and(list ...rx) rx {
	list = a.flat(kAnd, list)
	positive := false
	for _, r := range list {
		if r == rxNone {
			return rxNone
		}
		positive = positive || r != a.text && a.nodes[r].kind != kNot
	}
	out := list[:0]
	null := true
	for _, r := range list {
		if n := a.nodes[r]; positive && n.kind == kNot && n.a == a.text && a.text != 0 {
			return rxNone // what is no text; the others are
		}
		if positive && r == a.text || a.nodes[r].kind == kNot && a.nodes[r].a == rxNone {
			continue
		}
		out = append(out, r)
		null = null && a.null(r)
	}
	switch len(out) {
	case 0:
		return a.text
	case 1:
		return out[0]
	}
	for _, r := range out { // x and not x
		if n := a.nodes[r]; n.kind == kNot && slices.Contains(out, n.a) {
			return rxNone
		}
		if r == rxEps {
			if null {
				return rxEps
			}
			return rxNone
		}
	}
	return a.intern(rxKey{kind: kAnd, m: a.listID(out)}, null, 0, slices.Clone(out))
}

func (a *arena) not(r rx) rx {
	if n := a.nodes[r]; n.kind == kNot {
		return n.a
	}
	return a.intern(rxKey{kind: kNot, a: r}, !a.null(r), 0, nil)
}

// notText is every text that r does not match.
func (a *arena) notText(r rx) rx {
	if r == a.text {
		return rxNone
	}
	if n := a.nodes[r]; n.kind == kAnd && len(n.list) == 2 { // not of not
		for i, x := range n.list {
			if x == a.text && a.nodes[n.list[1-i]].kind == kNot {
				return a.nodes[n.list[1-i]].a
			}
		}
	}
	return a.and(a.text, a.not(r))
}

func (a *arena) rep(r rx, m, n int) rx {
	if a.null(r) {
		m = 0
	}
	switch {
	case n == 0 || r == rxEps:
		return rxEps
	case r == rxNone:
		if m == 0 {
			return rxEps
		}
		return rxNone
	case m == 1 && n == 1:
		return r
	}
	live := int8(0)
	if m == 0 {
		live = 1
	}
	if n := a.nodes[r]; n.kind == kRep && m == 0 && n.m == 0 && n.n < 0 {
		return r
	}
	return a.intern(rxKey{kind: kRep, a: r, m: int32(m), n: int32(max(n, -1))}, m == 0, live, nil)
}

func (a *arena) star(r rx) rx { return a.rep(r, 0, -1) }
func (a *arena) opt(r rx) rx  { return a.rep(r, 0, 1) }

// tag marks the end of r with a number.
func (a *arena) tag(r rx, m int32) rx {
	if r == rxNone {
		return rxNone
	}
	return a.intern(rxKey{kind: kTag, a: r, m: m}, a.null(r), 0, nil)
}

// step gives what is left of r after a byte of a class: rxNone where nothing
// can match any more.
func (a *arena) step(r rx, class uint8) rx {
	if r <= rxEps {
		return rxNone
	}
	if row := a.next[r]; row != nil && row[class] != 0 {
		d := rx(row[class] - 1)
		if l := a.nodes[d].live; l == 1 {
			return d
		} else if l == 2 {
			return rxNone
		}
	}
	d := a.derive(r, class)
	if !a.alive(d) {
		d = rxNone
		a.next[r][class] = 1
	}
	return d
}

func (a *arena) stepByte(r rx, b byte) rx { return a.step(r, a.class[b]) }

// derive is step without asking whether the rest matches anything.
func (a *arena) derive(r rx, class uint8) rx {
	if r <= rxEps {
		return rxNone
	}
	if a.next[r] == nil {
		a.frozen = true
		a.next[r] = make([]int32, len(a.member))
		a.spend(len(a.member) / 16)
	}
	if d := a.next[r][class]; d != 0 {
		return rx(d - 1)
	}
	first := a.parts.first[a.partition(r)][class]
	if a.next[r][first] == 0 {
		a.spend(1)
		d := a.derivative(r, first)
		a.next[r][first] = int32(d) + 1
	}
	a.next[r][class] = a.next[r][first]
	return rx(a.next[r][class] - 1)
}

func (a *arena) derivative(r rx, class uint8) rx {
	n := a.nodes[r]
	b := a.member[class]
	switch n.kind {
	case kSet:
		if a.sets[n.m].has(b) {
			return rxEps
		}
		return rxNone
	case kCat:
		d := a.cat2(a.derive(n.a, class), n.b)
		if a.null(n.a) {
			return a.alt(d, a.derive(n.b, class))
		}
		return d
	case kAlt, kAnd:
		list := make([]rx, 0, len(n.list))
		for _, x := range n.list {
			d := a.derive(x, class)
			if d == rxNone {
				if n.kind == kAnd {
					return rxNone
				}
				continue
			}
			list = append(list, d)
		}
		if n.kind == kAlt {
			return a.alt(list...)
		}
		return a.and(list...)
	case kNot:
		return a.not(a.derive(n.a, class))
	case kRep:
		d := a.derive(n.a, class)
		if d == rxNone {
			return rxNone
		}
		return a.cat2(d, a.rep(n.a, max(int(n.m)-1, 0), max(int(n.n)-1, -1)))
	case kStr:
		return a.deriveString(n.rxKey, b)
	case kTrie:
		return a.deriveTrie(n.rxKey, b)
	case kTag:
		return a.tag(a.derive(n.a, class), n.m)
	case kCmp:
		return a.deriveCompare(n.rxKey, b)
	case kMod:
		return a.deriveMultiple(n.rxKey, b)
	}
	return rxNone
}

// alive says whether r matches anything.
func (a *arena) alive(r rx) bool {
	n := &a.nodes[r]
	if n.live != 0 {
		return n.live == 1
	}
	ok := false
	switch {
	case n.null:
		ok = true
	case n.kind == kCat:
		x, y := n.a, n.b
		ok = a.alive(x) && a.alive(y)
	case n.kind == kAlt:
		ok = slices.ContainsFunc(n.list, a.alive)
	case n.kind == kRep || n.kind == kTag:
		ok = a.alive(n.a)
	case n.kind == kStr && n.m == 0:
		x, y := n.a, n.b
		ok = a.alive(x) && a.alive(y)
	case n.kind == kStr && !a.plainly(n.a):
		// deriveHex asks before it goes on; only the first bytes of an escape do not.
		bare := n.m == escSlash || n.m == escUnit
		ok = !bare || a.runeAlive(n.a, 0, 0x10ffff) // none within a character
	default:
		return a.search(r)
	}
	a.nodes[r].live = 2
	if ok {
		a.nodes[r].live = 1
	}
	return ok
}

// maxSearch bounds the states in which a match is looked for. A variable for tests.
var maxSearch = 30000

// search looks for a match of r in its automaton, by turns from the state found last, which finds long ones, and from
// the one found first, which finds short ones. Where the bound is met nothing is made with r: an error while a source
// is compiled; later r counts as one that matches nothing. Of what an expression that is alive leads to something
// always stays alive, as the states on the way to the match are.
func (a *arena) search(r rx) bool {
	from := map[rx]rx{r: rxNone} // by state: the one that it was found from
	queue := []rx{r}
	for turn := 0; len(queue) > 0; turn++ {
		var at rx
		if turn%2 == 0 {
			at, queue = queue[len(queue)-1], queue[:len(queue)-1]
		} else {
			at, queue = queue[0], queue[1:]
		}
		first := a.parts.first[a.partition(at)]
		for class := range first {
			if int(first[class]) != class {
				continue // as another one before it
			}
			d := a.derive(at, uint8(class))
			a.spend(1)
			n := &a.nodes[d]
			if _, seen := from[d]; seen || n.live == 2 {
				continue
			}
			simple := !(n.kind == kAnd || n.kind == kNot || n.kind == kCmp || n.kind == kMod)
			if n.live == 1 || n.null || simple && a.alive(d) {
				a.nodes[d].live = 1
				for ; at != rxNone; at = from[at] {
					a.nodes[at].live = 1
				}
				return true
			}
			if a.nodes[d].live == 2 {
				continue
			}
			if len(from) > maxSearch {
				if !a.answering {
					panic(tooComplex{})
				}
				a.nodes[r].live = 2
				return false
			}
			from[d] = at
			queue = append(queue, d)
		}
	}
	for d := range from {
		a.nodes[d].live = 2
	}
	return false
}

// matches says whether r matches a whole text.
func (a *arena) matches(r rx, s string) bool {
	for i := 0; i < len(s) && r != rxNone; i++ {
		r = a.derive(r, a.class[s[i]])
	}
	return a.null(r)
}
