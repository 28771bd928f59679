// The networks of a schema's places: objects whose members come in any order,
// arrays that count, values that are one of several.

package grammar

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// schemaShift divides a state's spec into the schema and its part.
const schemaShift = 24

type schemaNet struct {
	c       *compiler
	id      int32 // << schemaShift
	rule    []int32
	objects []*objectSpec
	arrays  []*arraySpec
	owner   []int32 // rule of each object, then of each array
	owners  []int32
	lists   [2][][]int32 // by node: its objects, its arrays
	sets    [][]uint64
	setIDs  map[string]int32
	words   struct{ open, comma, colon, close, openA, closeA rx }
}

// Phases of objects and arrays.
const (
	phFirst = iota // after { or [
	phKey          // after a comma: a key or an item must come
	phValue        // after the colon
	phAfter        // after a value
	phOther        // phValue + 1 + class: after the colon of a key that is not named
)

// addSchema makes the networks of a compiled schema and gives the rule of its root.
func (m *machine) addSchema(c *compiler, root int32) int32 {
	n := &schemaNet{c: c, id: int32(len(m.schemas)) << schemaShift, setIDs: map[string]int32{}}
	m.schemas = append(m.schemas, n)
	a := c.a
	n.words.open, n.words.openA = a.cat(a.lit("{"), c.ws), a.cat(a.lit("["), c.ws)
	n.words.comma = a.cat(c.ws, a.lit(c.comma), c.ws)
	n.words.colon = a.cat(c.ws, a.lit(c.colon), c.ws)
	n.words.close, n.words.closeA = a.cat(c.ws, a.lit("}")), a.cat(c.ws, a.lit("]"))
	for i, place := range c.nodes {
		rule := int32(len(m.rules))
		n.rule = append(n.rule, rule)
		m.rules = append(m.rules, m.stateOf(stateKey{kind: stValue, spec: n.id | int32(i)}))
		var objects, arrays []int32
		for _, o := range place.objects {
			objects = append(objects, int32(len(n.objects)))
			n.objects, n.owner = append(n.objects, o), append(n.owner, rule)
		}
		for _, ar := range place.arrays {
			arrays = append(arrays, int32(len(n.arrays)))
			n.arrays, n.owners = append(n.arrays, ar), append(n.owners, rule)
		}
		n.lists[0], n.lists[1] = append(n.lists[0], objects), append(n.lists[1], arrays)
	}
	return n.rule[root]
}

// seenSet interns a bit set.
func (n *schemaNet) seenSet(set []uint64) int32 {
	buf := make([]byte, 0, 64)
	for _, w := range set {
		buf = binary.LittleEndian.AppendUint64(buf, w)
	}
	id, ok := n.setIDs[string(buf)]
	if !ok {
		id = int32(len(n.sets))
		n.sets = append(n.sets, slices.Clone(set))
		n.setIDs[string(buf)] = id
	}
	return id
}

// state makes a state of the net.
func (n *schemaNet) state(m *machine, k stateKey) state {
	spec := k.spec &^ n.id
	switch k.kind {
	case stValue:
		if place := n.c.nodes[spec]; place.tagged != nil {
			return n.taggedState(m, k, place)
		}
		s := state{rule: n.rule[spec]}
		done := m.stateOf(stateKey{kind: stDone, spec: k.spec})
		if r := n.c.nodes[spec].scalar; r != rxNone {
			s.terms = append(s.terms, term{r, done})
		}
		for _, o := range n.lists[0][spec] {
			open := n.words.open
			if n.objects[o].bare != nil {
				open = rxEps
			}
			s.terms = append(s.terms, term{open, m.stateOf(n.firstOf(o))})
		}
		for _, ar := range n.lists[1][spec] {
			first := stateKey{kind: stArray, spec: n.id | ar}
			if d := n.arrays[ar].distinct; d != nil {
				first.seen = n.seenSet(make([]uint64, (d.n+63)/64))
			}
			s.terms = append(s.terms, term{n.words.openA, m.stateOf(first)})
		}
		return s
	case stDone:
		return state{rule: n.rule[spec], final: true}
	case stObject:
		return n.objectState(m, k, n.objects[spec], n.owner[spec])
	}
	return n.arrayState(m, k, n.arrays[spec], n.owners[spec])
}

// firstOf is the state before the members of an object.
func (n *schemaNet) firstOf(o int32) stateKey {
	return stateKey{kind: stObject, spec: n.id | o, seen: n.seenSet(make([]uint64, len(n.objects[o].required)))}
}

// done is the final state of the place whose rule is given.
func (n *schemaNet) done(m *machine, rule int32) int32 {
	k := m.stateKey[m.rules[rule]]
	return m.stateOf(stateKey{kind: stDone, spec: k.spec})
}

func (n *schemaNet) objectState(m *machine, k stateKey, o *objectSpec, rule int32) state {
	s := state{rule: rule}
	seen := n.sets[k.seen]
	if k.phase == phAfter || k.phase == phFirst {
		if n.mayClose(k, o, seen) {
			r := n.words.close
			switch {
			case o.bare != nil:
				r = rxEps
			case k.phase == phFirst: // whitespace was read with the brace
				r = n.c.a.lit("}")
			}
			s.terms = append(s.terms, term{r, n.done(m, rule)})
		}
	}
	switch k.phase {
	case phAfter:
		if named, others := n.mayFollow(k, o, seen); others || anyBit(named, 0, int32(len(o.keys))) {
			next, comma := k, n.words.comma
			if next.phase = phKey; o.bare != nil {
				comma = o.bare.between
			}
			s.terms = append(s.terms, term{comma, m.stateOf(next)})
		}
	case phFirst, phKey:
		n.keyTerms(m, k, o, seen, &s)
	case phValue: // k.n carries the key: see afterKey
		list := o.values[k.n&0xffff]
		for _, v := range list {
			if to := n.afterMember(m, k, o, k.n&0xffff, v.duty); to >= 0 {
				s.calls = append(s.calls, call{n.rule[v.node], to})
			}
		}
	default:
		for _, v := range o.others[k.phase-phOther].values {
			if to := n.afterMember(m, k, o, -1, v.duty); to >= 0 {
				s.calls = append(s.calls, call{n.rule[v.node], to})
			}
		}
	}
	return s
}

func (n *schemaNet) mayClose(k stateKey, o *objectSpec, seen []uint64) bool {
	for i, w := range o.required {
		if w&^seen[i] != 0 {
			return false
		}
	}
	return int(k.n) >= o.min && k.duty == 1<<o.duties-1
}

// mayFollow gives the named keys that may come next, by their place in the
// schema, and whether others may.
func (n *schemaNet) mayFollow(k stateKey, o *objectSpec, seen []uint64) (named []uint64, others bool) {
	named = make([]uint64, len(o.required))
	missing := 0
	for i, w := range o.required {
		missing += bits.OnesCount64(w &^ seen[i])
	}
	full := o.max >= 0 && int(k.n)+1 > o.max
	spare := o.max < 0 || int(k.n)+1+missing <= o.max
	others = len(o.others) > 0 && spare && !full
	last := -1
	if n.c.opt.Ordered {
		for i := range o.keys {
			if seen[i>>6]>>(i&63)&1 != 0 {
				last = i
			}
		}
		others = others && missing == 0
	}
	for i := range o.keys {
		has := func(set []uint64) bool { return set[i>>6]>>(i&63)&1 != 0 }
		if has(seen) || len(o.values[i]) == 0 || full || !spare && !has(o.required) || i <= last {
			continue
		}
		named[i>>6] |= 1 << (i & 63)
		if n.c.opt.Ordered && has(o.required) {
			break
		}
	}
	return named, others
}

func (n *schemaNet) keyTerms(m *machine, k stateKey, o *objectSpec, seen []uint64, s *state) {
	named, others := n.mayFollow(k, o, seen)
	self := m.stateOf(k)
	a := n.c.a
	var byText []uint64
	for i := range o.rank {
		place := o.rank[i]
		if o.duties > 0 && !n.canFollow(m, k, o, place, o.values[place]) {
			continue
		}
		if named[place>>6]>>(place&63)&1 != 0 {
			if byText == nil {
				byText = make([]uint64, len(named))
			}
			byText[i>>6] |= 1 << (i & 63)
		}
	}
	if o.bare != nil {
		n.bareKeys(m, k, o, byText, s)
	} else if byText != nil {
		s.terms = append(s.terms, term{n.c.quoted(a.oneOf(o.trie, byText), n.words.colon), ^self})
	}
	if !others {
		return
	}
	for i, class := range o.others {
		if !n.canFollow(m, k, o, -1, class.values) {
			continue
		}
		next := k
		next.phase = int8(phOther + i)
		key := rxNone
		if o.bare != nil {
			key = a.cat(o.bare.before, class.keys, o.bare.behind)
		} else {
			key = n.c.quoted(class.keys, n.words.colon)
		}
		s.terms = append(s.terms, term{key, m.stateOf(next)})
	}
}

// afterKey gives the state after a named key.
func (n *schemaNet) afterKey(m *machine, k stateKey, tag int32) int32 {
	if k.kind == stArray {
		ar := n.arrays[k.spec&^n.id]
		return n.afterDistinct(m, k, ar, ar.distinct.which[tag])
	}
	o := n.objects[k.spec&^n.id]
	k.phase = phValue
	k.n = k.n<<16 | o.rank[tag]
	return m.stateOf(k)
}

// afterMember gives the state after a member; key is -1 where it is not named. It
// is -1 itself where a duty could not be fulfilled any more.
func (n *schemaNet) afterMember(m *machine, k stateKey, o *objectSpec, key int32, duty uint32) int32 {
	if k.phase == phValue {
		k.n >>= 16
	}
	if key >= 0 {
		seen := slices.Clone(n.sets[k.seen])
		seen[key>>6] |= 1 << (key & 63)
		k.seen = n.seenSet(seen)
	}
	k.phase, k.duty = phAfter, k.duty|duty
	if o.max >= 0 || int(k.n) < o.min { // otherwise the number does not matter
		k.n++
	}
	if o.duties > 0 && !n.hopeful(k, o) {
		return -1
	}
	return m.stateOf(k)
}

// hopeful says that members to come can fulfil the duties that are left.
func (n *schemaNet) hopeful(k stateKey, o *objectSpec) bool {
	seen := n.sets[k.seen]
	var ways []uint32
	for i := len(o.values) - 1; i >= 0; i-- {
		if seen[i>>6]>>(i&63)&1 != 0 {
			if n.c.opt.Ordered {
				break
			}
			continue
		}
		for _, v := range o.values[i] {
			ways = append(ways, v.duty)
		}
	}
	for _, class := range o.others {
		for _, v := range class.values {
			ways = append(ways, v.duty)
		}
	}
	left := o.duties
	if o.max >= 0 {
		left = o.max - int(k.n)
	}
	return covers(ways, (1<<o.duties-1)&^k.duty, left)
}

// covers says that some of the ways, no more than a number, together have all bits
// of a set.
func covers(ways []uint32, all uint32, most int) bool {
	have := map[uint32]bool{0: true}
	for range min(most, 32) {
		if have[all] {
			return true
		}
		next := map[uint32]bool{}
		for h := range have {
			for _, w := range ways {
				next[(h|w)&all] = true
			}
		}
		have = next
	}
	return have[all]
}

// canFollow says that some way to read a member leads on.
func (n *schemaNet) canFollow(m *machine, k stateKey, o *objectSpec, key int32, list []variant) bool {
	if o.duties == 0 {
		return len(list) > 0
	}
	return slices.ContainsFunc(list, func(v variant) bool { return n.afterMember(m, k, o, key, v.duty) >= 0 })
}

func (n *schemaNet) arrayState(m *machine, k stateKey, ar *arraySpec, rule int32) state {
	s := state{rule: rule}
	if k.phase == phFirst || k.phase == phAfter {
		if n.mayEnd(k, ar) {
			r := n.words.closeA
			if k.phase == phFirst {
				r = n.c.a.lit("]")
			}
			s.terms = append(s.terms, term{r, n.done(m, rule)})
		}
	}
	if ar.max >= 0 && int(k.n) >= ar.max {
		return s
	}
	if k.phase == phAfter {
		k.phase = phKey
		s.terms = append(s.terms, term{n.words.comma, m.stateOf(k)})
		return s
	}
	if ar.distinct != nil {
		n.distinctTerms(m, k, ar, &s)
		return s
	}
	list := ar.other
	if int(k.n) < len(ar.first) {
		list = ar.first[k.n]
	}
	for _, v := range list {
		if to := n.afterItem(m, k, ar, v.duty); to >= 0 {
			s.calls = append(s.calls, call{n.rule[v.node], to})
		}
	}
	return s
}

func (n *schemaNet) mayEnd(k stateKey, ar *arraySpec) bool {
	for d, need := range ar.need {
		if int(k.duty>>(8*d)&255) < need {
			return false
		}
	}
	return int(k.n) >= ar.min
}

// afterItem gives the state after an item that fulfils duties; -1 where one of
// them has been fulfilled as often as it may, or does not count here.
func (n *schemaNet) afterItem(m *machine, k stateKey, ar *arraySpec, duty uint32) int32 {
	for d, most := range ar.most {
		if duty>>d&1 == 0 {
			continue
		}
		have := int(k.duty >> (8 * d) & 255)
		switch {
		case int(k.n) < ar.from[d] || ar.to[d] >= 0 && int(k.n) > ar.to[d], most >= 0 && have >= most:
			return -1
		case have < max(ar.need[d], most):
			k.duty += 1 << (8 * d)
		}
	}
	left := ar.max - int(k.n) - 1
	for d, need := range ar.need {
		missing := need - int(k.duty>>(8*d)&255)
		if missing > 0 && (ar.max >= 0 && missing > left || ar.to[d] >= 0 && int(k.n) >= ar.to[d]) {
			return -1
		}
	}
	k.phase = phAfter
	least := max(ar.min, len(ar.first))
	for d := range ar.from {
		least = max(least, ar.from[d]+1, ar.to[d]+1)
	}
	if ar.max >= 0 || int(k.n) < least {
		k.n++
	}
	return m.stateOf(k)
}
