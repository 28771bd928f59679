// The parser: Earley's algorithm (Earley 1970) over transition networks whose
// states are made on demand, reading bytes. Terminals are expressions in
// progress, so no lexer decides early. Item sets and configurations are
// hash-consed: a configuration that comes again is the same number, with its
// transitions and its mask already there.

package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// state of a network. A rule is accepted where a state is final.
type state struct {
	known bool
	final bool
	rule  int32
	terms []term
	calls []call
}

// term reads an expression and goes on in state `to`. Where to < 0 the state is
// ^to, and which one follows depends on the tag at the expression's end.
type term struct {
	rx rx
	to int32
}

// call reads a rule and goes on.
type call struct{ rule, to int32 }

// stateKey identifies the states of objects, arrays and values; those of grammars
// given as rules have the kind stFixed.
type stateKey struct {
	kind  stateKind
	spec  int32
	phase int8
	n     int32  // members or items so far
	seen  int32  // which named members there were, as an interned bit set
	duty  uint32 // duties fulfilled, or 8 bits of count for each
}

type stateKind uint8

const (
	stFixed stateKind = iota
	stValue
	stDone
	stObject
	stArray
)

// item is an Earley item: a state, and the set where its rule began.
type item struct{ state, origin int32 }

// scan is an expression in progress.
type scan struct {
	rx         rx
	to, origin int32
}

// wait is an item that waits for a rule to end.
type wait struct{ rule, to, origin int32 }

type itemSet struct {
	scans  []scan
	waits  []wait
	accept bool
}

// config is the parser between two bytes.
type config struct {
	scans  []scan
	accept bool
	row    []int32  // by class: 1 + the configuration after it; 0: not yet computed
	mask   []uint32 // the tokens that may come next, once computed: as bits
	few    []int32  // or as a list
}

// dead is the configuration from which nothing can come.
const dead int32 = 0

type machine struct {
	a        *arena
	states   []state
	stateKey []stateKey
	stateIDs map[stateKey]int32
	rules    []int32 // the first state of each
	root     int32
	schemas  []*schemaNet

	sets    []itemSet
	setIDs  map[string]int32
	configs []config
	confIDs map[string]int32
	start   int32
	buf     []byte
	kernel  []item
	flying  []scan
}

func newMachine(a *arena) *machine {
	return &machine{a: a, stateIDs: map[stateKey]int32{}, setIDs: map[string]int32{}, confIDs: map[string]int32{},
		configs: make([]config, 1)}
}

// fixed makes a state of a rule that is given.
func (m *machine) fixed(rule int32) int32 {
	m.states = append(m.states, state{known: true, rule: rule})
	m.stateKey = append(m.stateKey, stateKey{kind: stFixed})
	return int32(len(m.states) - 1)
}

func (m *machine) stateOf(k stateKey) int32 {
	id, ok := m.stateIDs[k]
	if !ok {
		id = int32(len(m.states))
		m.a.spend(4)
		m.states = append(m.states, state{})
		m.stateKey = append(m.stateKey, k)
		m.stateIDs[k] = id
	}
	return id
}

// get fills in a state.
func (m *machine) get(id int32) *state {
	if s := &m.states[id]; s.known {
		return s
	}
	k := m.stateKey[id]
	s := m.schemas[k.spec>>schemaShift].state(m, k)
	s.known = true
	m.a.spend(len(s.terms) + len(s.calls))
	m.states[id] = s
	return &m.states[id]
}

// begin computes the first configuration.
func (m *machine) begin(root int32) {
	m.root = root
	m.kernel = append(m.kernel[:0], item{m.rules[root], -1})
	m.start = m.configOf(m.setOf(m.kernel), nil)
}

// target gives the state after a term's expression ended.
func (m *machine) target(to int32, r rx) int32 {
	if to >= 0 {
		return to
	}
	tag := int32(-1)
	if n := m.a.nodes[r]; n.kind == kTag {
		tag = n.m
	}
	k := m.stateKey[^to]
	return m.schemas[k.spec>>schemaShift].afterKey(m, k, tag)
}

// setOf gives the item set with a kernel, closed over calls and ends of rules.
func (m *machine) setOf(kernel []item) int32 {
	slices.SortFunc(kernel, func(x, y item) int {
		if x.state != y.state {
			return int(x.state) - int(y.state)
		}
		return int(x.origin) - int(y.origin)
	})
	kernel = slices.Compact(kernel)
	m.buf = m.buf[:0]
	for _, it := range kernel {
		m.buf = binary.LittleEndian.AppendUint32(m.buf, uint32(it.state))
		m.buf = binary.LittleEndian.AppendUint32(m.buf, uint32(it.origin))
	}
	if id, ok := m.setIDs[string(m.buf)]; ok {
		return id
	}
	id, key := int32(len(m.sets)), string(m.buf)
	set := m.closure(slices.Clone(kernel), id) // first: it may run out of budget
	m.sets = append(m.sets, set)
	m.setIDs[key] = id
	return id
}

func (m *machine) closure(items []item, self int32) itemSet {
	var set itemSet
	seen := make(map[item]bool, len(items)*2)
	for _, it := range items {
		seen[it] = true
	}
	add := func(state, origin int32) {
		it := item{state, origin}
		if !seen[it] {
			seen[it] = true
			items = append(items, it)
		}
	}
	var empty []int32 // rules that ended where they began
	for i := 0; i < len(items); i++ {
		it := items[i]
		m.a.spend(2)
		s := m.get(it.state)
		if s.final {
			switch {
			case it.origin < 0:
				set.accept = set.accept || s.rule == m.root
			case it.origin == self:
				if !slices.Contains(empty, s.rule) {
					empty = append(empty, s.rule)
					for _, w := range slices.Clone(set.waits) {
						if w.rule == s.rule {
							add(w.to, w.origin)
						}
					}
				}
			default:
				for _, w := range m.sets[it.origin].waits {
					if w.rule == s.rule {
						add(w.to, w.origin)
					}
				}
			}
		}
		for _, c := range s.calls {
			set.waits = append(set.waits, wait{c.rule, c.to, it.origin})
			if slices.Contains(empty, c.rule) {
				add(c.to, it.origin)
			}
			add(m.rules[c.rule], self)
		}
		for _, t := range s.terms {
			if m.a.null(t.rx) {
				add(m.target(t.to, t.rx), it.origin)
			}
			if t.rx != rxEps {
				set.scans = append(set.scans, scan{t.rx, t.to, it.origin})
			}
		}
	}
	return set
}

// configOf gives the configuration with an item set just reached (or -1) and
// expressions in progress.
func (m *machine) configOf(set int32, flying []scan) int32 {
	slices.SortFunc(flying, func(x, y scan) int {
		if x.rx != y.rx {
			return int(x.rx) - int(y.rx)
		} else if x.to != y.to {
			return int(x.to) - int(y.to)
		}
		return int(x.origin) - int(y.origin)
	})
	flying = slices.Compact(flying)
	m.buf = binary.LittleEndian.AppendUint32(m.buf[:0], uint32(set))
	for _, s := range flying {
		m.buf = binary.LittleEndian.AppendUint32(m.buf, uint32(s.rx))
		m.buf = binary.LittleEndian.AppendUint32(m.buf, uint32(s.to))
		m.buf = binary.LittleEndian.AppendUint32(m.buf, uint32(s.origin))
	}
	if id, ok := m.confIDs[string(m.buf)]; ok {
		return id
	}
	c := config{scans: slices.Clone(flying)}
	if set >= 0 {
		c.accept = m.sets[set].accept
		for _, s := range m.sets[set].scans {
			if !slices.Contains(c.scans, s) {
				c.scans = append(c.scans, s)
			}
		}
	}
	id := dead
	if len(c.scans) > 0 || c.accept {
		id = int32(len(m.configs))
		m.configs = append(m.configs, c)
	}
	m.a.spend(2 + len(c.scans))
	m.confIDs[string(m.buf)] = id
	return id
}

// step gives the configuration after a byte of a class.
func (m *machine) step(conf int32, class uint8) int32 {
	row := m.configs[conf].row
	if row != nil {
		if n := row[class]; n != 0 {
			return n - 1
		}
	} else {
		m.a.frozen = true
		row = make([]int32, len(m.a.member))
		m.configs[conf].row = row
	}
	kernel, flying := m.kernel[:0], m.flying[:0]
	var last rx
	next := rxNone
	for _, s := range m.configs[conf].scans {
		if s.rx != last {
			last, next = s.rx, m.a.step(s.rx, class)
		}
		if next == rxNone {
			continue
		}
		if m.a.null(next) {
			kernel = append(kernel, item{m.target(s.to, next), s.origin})
		}
		if n := &m.a.nodes[next]; next != rxEps && !(n.kind == kTag && n.a == rxEps) {
			flying = append(flying, scan{next, s.to, s.origin})
		}
	}
	m.kernel, m.flying = kernel, flying
	id := dead
	if len(kernel) > 0 {
		id = m.configOf(m.setOf(kernel), flying)
	} else if len(flying) > 0 {
		id = m.configOf(-1, flying)
	}
	row[class] = id + 1
	return id
}

func (m *machine) stepByte(conf int32, b byte) int32 { return m.step(conf, m.a.class[b]) }

// read takes a text from a configuration; at is where it could not go on, or -1.
func (m *machine) read(conf int32, text string) (end int32, at int) {
	for i := range len(text) {
		next := m.stepByte(conf, text[i])
		if next == dead {
			return conf, i
		}
		conf = next
	}
	return conf, -1
}

// expected tells, for errors, which bytes may come next.
func (m *machine) expected(conf int32) string {
	var out []byte
	for b := 0x20; b < 0x7f; b++ {
		if m.stepByte(conf, byte(b)) != dead {
			out = append(out, byte(b))
		}
	}
	switch {
	case m.configs[conf].accept && len(out) == 0:
		return "the end"
	case len(out) > 40:
		return "something else"
	}
	return fmt.Sprintf("one of %s", out)
}
