// GBNF, llama.cpp's notation of grammars. Rules that are regular become
// expressions; the others, networks. Left recursion is allowed.

package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxGBNF       = 1 << 20 // bytes of a grammar
	maxGBNFRepeat = 20000   // copies of one part
)

type gOp uint8

const (
	gText gOp = iota // text, or one character of set
	gRef             // a rule
	gSeq
	gAlt
	gRep // subs[0] lo to hi times, hi < 0: without limit
)

type gNode struct {
	op     gOp
	r      rx // of gText
	name   string
	subs   []*gNode
	lo, hi int
	pos    int
}

type gbnfReader struct {
	a     *arena
	s     string
	pos   int
	depth int
	rules map[string]*gNode
	names []string
}

func (p *gbnfReader) errorAt(pos int, format string, args ...any) error {
	line, col := lineColumn(p.s, pos)
	return fmt.Errorf("GBNF, %d:%d: %s", line, col, fmt.Sprintf(format, args...))
}

func (p *gbnfReader) errorf(format string, args ...any) error {
	return p.errorAt(p.pos, format, args...)
}

// space skips blanks and comments, and line ends where they divide nothing.
func (p *gbnfReader) space(lines bool) {
	for p.pos < len(p.s) {
		switch c := p.s[p.pos]; {
		case c == ' ' || c == '\t' || lines && (c == '\n' || c == '\r'):
			p.pos++
		case c == '#':
			for p.pos < len(p.s) && p.s[p.pos] != '\n' && p.s[p.pos] != '\r' {
				p.pos++
			}
		default:
			return
		}
	}
}

func (p *gbnfReader) take(s string) bool {
	if strings.HasPrefix(p.s[p.pos:], s) {
		p.pos += len(s)
		return true
	}
	return false
}

// name reads a rule's name; empty where there is none.
func (p *gbnfReader) name() string {
	from := p.pos
	for p.pos < len(p.s) {
		c := rune(p.s[p.pos])
		if c >= 0x80 || !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '-' && c != '_' {
			break
		}
		p.pos++
	}
	return p.s[from:p.pos]
}

func (p *gbnfReader) read() error {
	if len(p.s) > maxGBNF || !utf8.ValidString(p.s) {
		return fmt.Errorf("GBNF: not UTF-8 or longer than %d bytes", maxGBNF)
	}
	for p.space(true); p.pos < len(p.s); p.space(true) {
		at := p.pos
		name := p.name()
		if name == "" {
			return p.errorf("a rule's name is expected")
		}
		if p.space(false); !p.take("::=") {
			return p.errorf("::= is expected after %s", name)
		}
		p.space(true)
		n, err := p.alternatives(false)
		if err != nil {
			return err
		}
		if p.pos < len(p.s) && p.s[p.pos] != '\n' && p.s[p.pos] != '\r' {
			return p.errorf("a line end is expected after the rule %s", name)
		}
		if p.rules[name] != nil {
			return p.errorAt(at, "the rule %s is there twice", name)
		}
		n.pos = at
		p.rules[name] = n
		p.names = append(p.names, name)
	}
	if p.rules["root"] == nil {
		return fmt.Errorf("GBNF: there is no rule root")
	}
	return nil
}

func (p *gbnfReader) alternatives(nested bool) (*gNode, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf("groups nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	alt := &gNode{op: gAlt, pos: p.pos}
	for {
		seq := &gNode{op: gSeq, pos: p.pos}
		for {
			p.space(nested)
			n, err := p.part(nested)
			if err != nil {
				return nil, err
			}
			if n == nil {
				break
			}
			seq.subs = append(seq.subs, n)
		}
		alt.subs = append(alt.subs, seq)
		if p.space(nested); !p.take("|") {
			return alt, nil
		}
		p.space(true)
	}
}

// part reads one part with its repetitions; nil where none begins.
func (p *gbnfReader) part(nested bool) (*gNode, error) {
	at := p.pos
	var n *gNode
	var err error
	switch {
	case p.take(`"`):
		n, err = p.literal()
	case p.take("["):
		n, err = p.class()
	case p.take("."):
		n = &gNode{r: p.a.anyChar}
	case p.take("("):
		p.space(true)
		if n, err = p.alternatives(true); err == nil && !p.take(")") {
			err = p.errorf(") is expected for the ( at %d:%d", first(lineColumn(p.s, at)), second(lineColumn(p.s, at)))
		}
	case p.pos < len(p.s) && strings.IndexByte("*+?{", p.s[p.pos]) >= 0:
		return nil, p.errorf("%q repeats nothing", p.s[p.pos])
	case p.pos < len(p.s) && p.s[p.pos] == '<':
		return nil, p.errorf("tokens in < > are not supported")
	default:
		name := p.name()
		if name == "" {
			if p.pos < len(p.s) && strings.IndexByte("|)\n\r", p.s[p.pos]) < 0 {
				return nil, p.errorf("%q begins no part of a rule", first(utf8.DecodeRuneInString(p.s[p.pos:])))
			}
			return nil, nil
		}
		n = &gNode{op: gRef, name: name}
	}
	if err != nil {
		return nil, err
	}
	n.pos = at
	return p.repeats(n, nested)
}

func first[A, B any](a A, _ B) A  { return a }
func second[A, B any](_ A, b B) B { return b }

func (p *gbnfReader) repeats(n *gNode, nested bool) (*gNode, error) {
	for {
		back := p.pos
		p.space(nested)
		lo, hi := 0, -1
		switch {
		case p.take("*"):
		case p.take("+"):
			lo = 1
		case p.take("?"):
			hi = 1
		case p.take("{"):
			body, _, ok := strings.Cut(p.s[p.pos:], "}")
			from, to, comma := strings.Cut(strings.Join(strings.Fields(body), ""), ",")
			var err error
			if lo, err = strconv.Atoi(from); !ok || err != nil || lo < 0 {
				return nil, p.errorf("{m}, {m,} or {m,n} is expected")
			}
			if !comma {
				hi = lo
			} else if to != "" {
				if hi, err = strconv.Atoi(to); err != nil || hi < lo {
					return nil, p.errorf("{m,n} wants a number n from m")
				}
			}
			if max(lo, hi) > maxGBNFRepeat {
				return nil, p.errorf("a part is repeated more than %d times", maxGBNFRepeat)
			}
			p.pos += len(body) + 1
		default:
			p.pos = back
			return n, nil
		}
		n = &gNode{op: gRep, subs: []*gNode{n}, lo: lo, hi: hi, pos: n.pos}
	}
}

func (p *gbnfReader) literal() (*gNode, error) {
	list := []rx{}
	for !p.take(`"`) {
		r, err := p.char("a \" is expected at the end of a text")
		if err != nil {
			return nil, err
		}
		list = append(list, p.a.runes([]runeRange{{r, r}}))
	}
	return &gNode{r: p.a.cat(list...)}, nil
}

func (p *gbnfReader) class() (*gNode, error) {
	not := p.take("^")
	var set []runeRange
	for !p.take("]") {
		lo, err := p.char("a ] is expected at the end of a class")
		if err != nil {
			return nil, err
		}
		hi := lo
		if strings.HasPrefix(p.s[p.pos:], "-") && !strings.HasPrefix(p.s[p.pos:], "-]") {
			p.pos++
			if hi, err = p.char("a ] is expected at the end of a class"); err != nil {
				return nil, err
			}
			if hi < lo {
				return nil, p.errorf("a range ends before it begins")
			}
		}
		set = append(set, runeRange{lo, hi})
	}
	if not {
		set = otherRunes(set)
	}
	return &gNode{r: p.a.runes(set)}, nil
}

func (p *gbnfReader) char(missing string) (rune, error) {
	if p.pos >= len(p.s) || p.s[p.pos] == '\n' {
		return 0, p.errorf("%s", missing)
	}
	r, n := utf8.DecodeRuneInString(p.s[p.pos:])
	p.pos += n
	if r != '\\' {
		return r, nil
	}
	if p.pos >= len(p.s) {
		return 0, p.errorf("%s", missing)
	}
	c := p.s[p.pos]
	p.pos++
	switch c {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case '\\', '"', '[', ']', '-', '^':
		return rune(c), nil
	case 'x', 'u', 'U':
		n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		if p.pos+n <= len(p.s) {
			v, err := strconv.ParseUint(p.s[p.pos:p.pos+n], 16, 32)
			if err == nil && v <= unicode.MaxRune && (v < 0xd800 || v >= 0xe000) {
				p.pos += n
				return rune(v), nil
			}
		}
		return 0, p.errorf("\\%c wants %d hexadecimal digits of a character", c, n)
	}
	p.pos--
	return 0, p.errorf("the escape \\%c is not known", c)
}

// regular gives a node's expression; false where it is recursive.
func (p *gbnfReader) regular(n *gNode, done map[string]rx, within map[string]bool) (rx, bool) {
	p.a.spend(1)
	switch n.op {
	case gText:
		return n.r, true
	case gRef:
		if r, ok := done[n.name]; ok {
			return r, r >= 0
		}
		if within[n.name] {
			return 0, false
		}
		within[n.name] = true
		r, ok := p.regularRule(n.name, done, within)
		delete(within, n.name)
		if !ok && len(within) > 0 { // perhaps only because of a rule that is being read
			return 0, false
		}
		if !ok {
			r = -1
		}
		done[n.name] = r
		return r, ok
	}
	list := make([]rx, len(n.subs))
	for i, s := range n.subs {
		r, ok := p.regular(s, done, within)
		if !ok {
			return 0, false
		}
		list[i] = r
	}
	switch n.op {
	case gSeq:
		return p.a.cat(list...), true
	case gAlt:
		return p.a.alt(list...), true
	}
	return p.a.rep(list[0], n.lo, n.hi), true
}

// regularRule is regular for a rule, which may end in itself: r ::= x r | y is x* y.
func (p *gbnfReader) regularRule(name string, done map[string]rx, within map[string]bool) (rx, bool) {
	var again, last []rx
	for _, seq := range p.rules[name].subs {
		to := &last
		if n := len(seq.subs); n > 0 && seq.subs[n-1].op == gRef && seq.subs[n-1].name == name {
			seq, to = &gNode{op: gSeq, subs: seq.subs[:n-1]}, &again
		}
		r, ok := p.regular(seq, done, within)
		if !ok {
			return 0, false
		}
		*to = append(*to, r)
	}
	return p.a.cat(p.a.star(p.a.alt(again...)), p.a.alt(last...)), true
}

// check finds references that lead nowhere, and rules that never end.
func (p *gbnfReader) check() error {
	var visit func(n *gNode) error
	visit = func(n *gNode) error {
		if n.op == gRef && p.rules[n.name] == nil {
			return p.errorAt(n.pos, "there is no rule %s", n.name)
		}
		for _, s := range n.subs {
			if err := visit(s); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range p.names {
		if err := visit(p.rules[name]); err != nil {
			return err
		}
	}
	ends := map[string]bool{}
	var may func(n *gNode) bool
	may = func(n *gNode) bool {
		switch n.op {
		case gText:
			return n.r != rxNone
		case gRef:
			return ends[n.name]
		case gSeq:
			return !slices.ContainsFunc(n.subs, func(s *gNode) bool { return !may(s) })
		case gAlt:
			return slices.ContainsFunc(n.subs, may)
		}
		return n.lo == 0 || may(n.subs[0])
	}
	for changed := true; changed; {
		changed = false
		for _, name := range p.names {
			if !ends[name] && may(p.rules[name]) {
				ends[name], changed = true, true
			}
		}
	}
	for _, name := range p.names {
		if !ends[name] {
			return p.errorAt(p.rules[name].pos, "the rule %s never ends, or matches nothing", name)
		}
	}
	return nil
}

func (b *builder) gbnf(text string) (func() (int32, error), error) {
	p := &gbnfReader{a: b.m.a, s: text, rules: map[string]*gNode{}}
	if err := p.read(); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	done := map[string]rx{}
	for _, name := range p.names {
		p.regular(&gNode{op: gRef, name: name}, done, map[string]bool{})
	}
	return func() (int32, error) {
		net := &gbnfNet{b: b, p: p, done: done, rules: map[string]int32{}}
		root := net.rule("root")
		return root, net.err
	}, nil
}

// gbnfNet makes networks of rules.
type gbnfNet struct {
	b     *builder
	p     *gbnfReader
	done  map[string]rx
	rules map[string]int32
	err   error
}

func (g *gbnfNet) rule(name string) int32 {
	if id, ok := g.rules[name]; ok {
		return id
	}
	id, first := g.b.rule()
	g.rules[name] = id
	end := g.b.m.fixed(id)
	g.b.m.states[end].final = true
	g.node(g.p.rules[name], id, first, end)
	return id
}

func (g *gbnfNet) term(from, to int32, r rx) {
	s := &g.b.m.states[from]
	s.terms = append(s.terms, term{r, to})
}

// node makes the way from one state to another that reads n.
func (g *gbnfNet) node(n *gNode, rule, from, to int32) {
	m := g.b.m
	m.a.spend(1)
	if r, ok := g.p.regular(n, g.done, map[string]bool{}); ok {
		g.term(from, to, r)
		return
	}
	switch n.op {
	case gRef:
		id := g.rule(n.name)
		m.states[from].calls = append(m.states[from].calls, call{id, to})
	case gSeq:
		for i, s := range n.subs {
			next := to
			if i < len(n.subs)-1 {
				next = m.fixed(rule)
			}
			g.node(s, rule, from, next)
			from = next
		}
	case gAlt:
		for _, s := range n.subs {
			g.node(s, rule, from, to)
		}
	case gRep:
		for range n.lo {
			next := m.fixed(rule)
			g.node(n.subs[0], rule, from, next)
			from = next
		}
		if n.hi < 0 {
			loop := m.fixed(rule)
			g.term(from, loop, rxEps)
			g.node(n.subs[0], rule, loop, loop)
			g.term(loop, to, rxEps)
			return
		}
		for range n.hi - n.lo {
			g.term(from, to, rxEps)
			next := m.fixed(rule)
			g.node(n.subs[0], rule, from, next)
			from = next
		}
		g.term(from, to, rxEps)
	}
}
