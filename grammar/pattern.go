// ECMA-262 regular expressions, as JSON schema's pattern has them, as
// expressions of an arena. Lookahead becomes intersection; lookbehind, word
// boundaries and back references are refused.

package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type reOp uint8

const (
	reSet   reOp = iota // one character
	reSeq               // subs one after the other; none: the empty text
	reAlt               // one of subs
	reRep               // subs[0] lo to hi times, hi < 0: without limit
	reBegin             // ^
	reEnd               // $
	reAhead             // (?=…)
	reNever             // (?!…)
)

type reNode struct {
	op     reOp
	subs   []*reNode
	lo, hi int
	set    []runeRange
	zero   bool // holds an anchor or a lookahead
}

// maxPattern and maxDepth bound what is read.
const (
	maxPattern = 1 << 16
	maxDepth   = 200
	maxRepeat  = 1 << 20
)

type reParser struct {
	src   string
	pos   int
	depth int
}

func (p *reParser) errorf(format string, args ...any) error {
	return fmt.Errorf("regular expression %.60q, byte %d: %s", p.src, p.pos, fmt.Sprintf(format, args...))
}

func parsePattern(src string) (*reNode, error) {
	p := &reParser{src: src}
	if len(src) > maxPattern {
		return nil, p.errorf("longer than %d bytes", maxPattern)
	}
	if !utf8.ValidString(src) {
		return nil, p.errorf("not UTF-8")
	}
	n, err := p.alternatives()
	if err == nil && p.pos < len(src) {
		err = p.errorf("a ) without its (")
	}
	return n, err
}

func (p *reParser) peek(s string) bool { return strings.HasPrefix(p.src[p.pos:], s) }

func (p *reParser) take(s string) bool {
	if !p.peek(s) {
		return false
	}
	p.pos += len(s)
	return true
}

func (p *reParser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	return r
}

func (p *reParser) alternatives() (*reNode, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf("groups nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	alt := &reNode{op: reAlt}
	for {
		seq := &reNode{op: reSeq}
		for p.pos < len(p.src) && !p.peek("|") && !p.peek(")") {
			n, err := p.repeated()
			if err != nil {
				return nil, err
			}
			seq.subs = append(seq.subs, n)
			seq.zero = seq.zero || n.zero
		}
		alt.subs = append(alt.subs, seq)
		alt.zero = alt.zero || seq.zero
		if !p.take("|") {
			break
		}
	}
	if len(alt.subs) == 1 {
		return alt.subs[0], nil
	}
	return alt, nil
}

func (p *reParser) repeated() (*reNode, error) {
	n, err := p.atom()
	if err != nil {
		return nil, err
	}
	lo, hi, ok, err := p.quantifier()
	if err != nil || !ok {
		return n, err
	}
	if n.op == reBegin || n.op == reEnd {
		return nil, p.errorf("an anchor cannot be repeated")
	}
	p.take("?") // lazy: the same texts match
	if _, _, again, _ := p.quantifier(); again {
		return nil, p.errorf("a repetition of a repetition; put the first in (?:…)")
	}
	return &reNode{op: reRep, subs: []*reNode{n}, lo: lo, hi: hi, zero: n.zero}, nil
}

func (p *reParser) quantifier() (lo, hi int, ok bool, err error) {
	switch {
	case p.take("*"):
		return 0, -1, true, nil
	case p.take("+"):
		return 1, -1, true, nil
	case p.take("?"):
		return 0, 1, true, nil
	case !p.peek("{"):
		return 0, 0, false, nil
	}
	body, _, closed := strings.Cut(p.src[p.pos+1:], "}")
	from, to, comma := strings.Cut(body, ",")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !closed || !digits(from) || comma && to != "" && !digits(to) {
		return 0, 0, false, nil // a { by itself
	}
	p.pos += len(body) + 2
	lo, err = strconv.Atoi(from)
	hi = lo
	if comma {
		if hi = -1; to != "" && err == nil {
			hi, err = strconv.Atoi(to)
		}
	}
	if err != nil || lo > maxRepeat || hi > maxRepeat {
		return 0, 0, false, p.errorf("{%s} repeats more than %d times", body, maxRepeat)
	}
	if hi >= 0 && hi < lo {
		return 0, 0, false, p.errorf("{%s} ends before it begins", body)
	}
	return lo, hi, true, nil
}

func (p *reParser) atom() (*reNode, error) {
	switch {
	case p.take("("):
		return p.group()
	case p.take("["):
		set, err := p.class()
		return &reNode{op: reSet, set: set}, err
	case p.take("."):
		return &reNode{op: reSet, set: otherRunes(lineEnds)}, nil
	case p.take("^"):
		return &reNode{op: reBegin, zero: true}, nil
	case p.take("$"):
		return &reNode{op: reEnd, zero: true}, nil
	case p.take(`\`):
		set, _, err := p.escape(false)
		return &reNode{op: reSet, set: set}, err
	case p.peek("*") || p.peek("+") || p.peek("?"):
		return nil, p.errorf("%q repeats nothing", p.src[p.pos:p.pos+1])
	}
	if _, _, ok, _ := (&reParser{src: p.src, pos: p.pos}).quantifier(); ok {
		return nil, p.errorf("{ repeats nothing")
	}
	r := p.rune()
	return &reNode{op: reSet, set: []runeRange{{r, r}}}, nil
}

func (p *reParser) group() (*reNode, error) {
	op, wrap := reSeq, false
	switch {
	case p.take("?="):
		op, wrap = reAhead, true
	case p.take("?!"):
		op, wrap = reNever, true
	case p.peek("?<=") || p.peek("?<!"):
		return nil, p.errorf("lookbehind is not supported")
	case p.take("?:"):
	case p.take("?<") || p.take("?P<"):
		name, _, ok := strings.Cut(p.src[p.pos:], ">")
		if !ok || name == "" {
			return nil, p.errorf("a group's name is not closed by >")
		}
		p.pos += len(name) + 1
	case p.peek("?"):
		return nil, p.errorf("the group (%.4s is not supported", p.src[p.pos:])
	}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.errorf("a ( without its )")
	}
	if wrap {
		n = &reNode{op: op, subs: []*reNode{n}, zero: true}
	}
	return n, nil
}

var (
	lineEnds = []runeRange{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
	digitSet = []runeRange{{'0', '9'}}
	wordSet  = []runeRange{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	spaceSet = []runeRange{{'\t', '\r'}, {' ', ' '}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
		{0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}}
	controlEscapes = map[rune]rune{'t': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r'}
)

// escape reads what follows a backslash; single says that it is one character.
func (p *reParser) escape(inClass bool) (set []runeRange, single bool, err error) {
	if p.pos == len(p.src) {
		return nil, false, p.errorf("a backslash at the end")
	}
	one := func(r rune) ([]runeRange, bool, error) { return []runeRange{{r, r}}, true, nil }
	switch c := p.rune(); c {
	case 'd':
		return digitSet, false, nil
	case 'D':
		return otherRunes(digitSet), false, nil
	case 'w':
		return wordSet, false, nil
	case 'W':
		return otherRunes(wordSet), false, nil
	case 's':
		return spaceSet, false, nil
	case 'S':
		return otherRunes(spaceSet), false, nil
	case 't', 'n', 'v', 'f', 'r':
		return one(controlEscapes[c])
	case 'b':
		if inClass {
			return one('\b')
		}
		return nil, false, p.errorf(`the word boundary \b is not supported`)
	case 'p', 'P':
		set, err = p.property(c == 'P')
		return set, false, err
	case 'x', 'u':
		r, err := p.hexEscape(c)
		if err != nil {
			return nil, false, err
		}
		return one(r)
	case 'c':
		if p.pos < len(p.src) && unicode.IsLetter(rune(p.src[p.pos])) {
			p.pos++
			return one(rune(p.src[p.pos-1] & 31))
		}
		return nil, false, p.errorf(`\c wants a letter`)
	case '0':
		if p.pos == len(p.src) || p.src[p.pos] < '0' || p.src[p.pos] > '9' {
			return one(0)
		}
		return nil, false, p.errorf("octal escapes are not supported")
	default:
		if c >= '1' && c <= '9' {
			return nil, false, p.errorf(`back references such as \%c are not supported`, c)
		}
		if c < 0x80 && (unicode.IsLetter(c)) {
			return nil, false, p.errorf(`the escape \%c is not supported`, c)
		}
		return one(c)
	}
}

func (p *reParser) hexEscape(c rune) (rune, error) {
	digits := func(n int) (rune, bool) {
		if p.pos+n > len(p.src) {
			return 0, false
		}
		v, err := strconv.ParseUint(p.src[p.pos:p.pos+n], 16, 32)
		p.pos += n
		return rune(v), err == nil
	}
	if c == 'x' {
		if r, ok := digits(2); ok {
			return r, nil
		}
		return 0, p.errorf(`\x wants two hexadecimal digits`)
	}
	if p.take("{") {
		body, _, ok := strings.Cut(p.src[p.pos:], "}")
		v, err := strconv.ParseUint(body, 16, 32)
		if !ok || err != nil || v > unicode.MaxRune {
			return 0, p.errorf(`\u{ wants a code point and }`)
		}
		p.pos += len(body) + 1
		return rune(v), nil
	}
	r, ok := digits(4)
	if !ok {
		return 0, p.errorf(`\u wants four hexadecimal digits`)
	}
	if r >= 0xd800 && r < 0xdc00 && p.take(`\u`) {
		if low, ok := digits(4); ok && low >= 0xdc00 && low < 0xe000 {
			return 0x10000 + (r-0xd800)<<10 + low - 0xdc00, nil
		}
	}
	if r >= 0xd800 && r < 0xe000 {
		return 0, p.errorf(`half a surrogate pair, \u%04x, matches no character`, r)
	}
	return r, nil
}

func (p *reParser) property(negated bool) ([]runeRange, error) {
	if !p.take("{") {
		return nil, p.errorf(`\p wants {…}`)
	}
	body, _, ok := strings.Cut(p.src[p.pos:], "}")
	if !ok {
		return nil, p.errorf(`\p{ without }`)
	}
	name := body
	if key, value, pair := strings.Cut(body, "="); pair {
		if !slices.Contains([]string{"General_Category", "gc", "Script", "sc"}, key) {
			return nil, p.errorf(`the property %s is not supported`, key)
		}
		name = value
	}
	if alias, ok := unicode.CategoryAliases[name]; ok {
		name = alias
	}
	table := unicode.Categories[name]
	if table == nil {
		table = unicode.Scripts[name]
	}
	var set []runeRange
	switch {
	case table != nil:
		set = tableRunes(table)
	case name == "Any":
		set = []runeRange{{0, unicode.MaxRune}}
	case name == "ASCII":
		set = []runeRange{{0, 0x7f}}
	default:
		return nil, p.errorf(`the property \p{%s} is not supported`, body)
	}
	p.pos += len(body) + 1
	if negated {
		set = otherRunes(set)
	}
	return set, nil
}

// class reads a bracket's inside.
func (p *reParser) class() ([]runeRange, error) {
	negated := p.take("^")
	var set []runeRange
	for !p.take("]") {
		if p.pos >= len(p.src) {
			return nil, p.errorf("a [ without its ]")
		}
		lo, single, err := p.classAtom()
		if err != nil {
			return nil, err
		}
		if !p.peek("-") || p.peek("-]") {
			set = append(set, lo...)
			continue
		}
		p.pos++
		if p.pos >= len(p.src) {
			return nil, p.errorf("a [ without its ]")
		}
		hi, alsoSingle, err := p.classAtom()
		if err != nil {
			return nil, err
		}
		if !single || !alsoSingle { // [\w-.]: three members
			set = append(append(append(set, lo...), hi...), runeRange{'-', '-'})
			continue
		}
		if lo[0].lo > hi[0].lo {
			return nil, p.errorf("the range %c-%c ends before it begins", lo[0].lo, hi[0].lo)
		}
		set = append(set, runeRange{lo[0].lo, hi[0].lo})
	}
	if negated {
		return otherRunes(set), nil
	}
	return normal(set), nil
}

func (p *reParser) classAtom() (set []runeRange, single bool, err error) {
	if p.take(`\`) {
		return p.escape(true)
	}
	r := p.rune()
	return []runeRange{{r, r}}, true, nil
}

// plainPattern gives the expression of a node without anchors and lookahead.
func (a *arena) plainPattern(n *reNode) rx {
	list := make([]rx, len(n.subs))
	for i, s := range n.subs {
		list[i] = a.plainPattern(s)
	}
	a.spend(1)
	switch n.op {
	case reSet:
		return a.runes(n.set)
	case reSeq:
		return a.cat(list...)
	case reAlt:
		return a.alt(list...)
	}
	return a.rep(list[0], n.lo, n.hi)
}

// rest gives the expression of what comes after a node, where atStart says that
// nothing has been read yet.
type rest func(atStart bool) rx

// pattern gives the texts that n and then k match.
func (a *arena) pattern(n *reNode, k rest, atStart bool) (rx, error) {
	a.spend(1)
	if !n.zero {
		r := a.plainPattern(n)
		first, later := rxNone, k(false)
		if atStart && a.null(r) {
			first = k(true)
		}
		if !atStart || !a.null(r) || first == later {
			return a.cat2(r, later), nil
		}
		return a.alt(first, a.cat2(a.and(r, a.rep(a.anyChar, 1, -1)), later)), nil
	}
	switch n.op {
	case reBegin:
		if !atStart {
			return rxNone, nil
		}
		return k(true), nil
	case reEnd:
		if a.null(k(atStart)) {
			return rxEps, nil
		}
		return rxNone, nil
	case reAhead, reNever:
		r, err := a.pattern(n.subs[0], func(bool) rx { return a.text }, atStart)
		if err != nil {
			return rxNone, err
		}
		if n.op == reNever {
			r = a.notText(r)
		}
		return a.and(k(atStart), r), nil
	case reAlt:
		list := make([]rx, len(n.subs))
		for i, s := range n.subs {
			var err error
			if list[i], err = a.pattern(s, k, atStart); err != nil {
				return rxNone, err
			}
		}
		return a.alt(list...), nil
	case reSeq:
		return a.sequence(n.subs, k, atStart)
	}
	if n.hi < 0 || n.hi > 3 {
		return rxNone, fmt.Errorf("an anchor or lookahead inside a repetition is not supported")
	}
	var list []rx
	for count := n.lo; count <= n.hi; count++ {
		r, err := a.sequence(slices.Repeat([]*reNode{n.subs[0]}, count), k, atStart)
		if err != nil {
			return rxNone, err
		}
		list = append(list, r)
	}
	return a.alt(list...), nil
}

func (a *arena) sequence(subs []*reNode, k rest, atStart bool) (rx, error) {
	if len(subs) == 0 {
		return k(atStart), nil
	}
	var failed error
	var known [2]rx
	var have [2]bool
	tail := func(start bool) rx {
		i := 0
		if start {
			i = 1
		}
		if !have[i] {
			r, err := a.sequence(subs[1:], k, start)
			if err != nil {
				failed = err
			}
			known[i], have[i] = r, true
		}
		return known[i]
	}
	r, err := a.pattern(subs[0], tail, atStart)
	if err == nil {
		err = failed
	}
	return r, err
}

// search gives the texts in which the pattern is found somewhere.
func (a *arena) searchPattern(src string) (rx, error) {
	n, err := parsePattern(src)
	if err != nil {
		return rxNone, err
	}
	after := func(bool) rx { return a.text }
	if !n.zero {
		return a.cat(a.text, a.plainPattern(n), a.text), nil
	}
	first, err := a.pattern(n, after, true)
	if err != nil {
		return rxNone, fmt.Errorf("regular expression %.60q: %w", src, err)
	}
	later, err := a.pattern(n, after, false)
	if err != nil {
		return rxNone, fmt.Errorf("regular expression %.60q: %w", src, err)
	}
	return a.alt(first, a.cat(a.rep(a.anyChar, 1, -1), later)), nil
}

// wholePattern gives the texts that the pattern matches from end to end.
func (a *arena) wholePattern(src string) (rx, error) {
	n, err := parsePattern(src)
	if err != nil {
		return rxNone, err
	}
	r, err := a.pattern(n, func(bool) rx { return rxEps }, true)
	if err != nil {
		return rxNone, fmt.Errorf("regular expression %.60q: %w", src, err)
	}
	return r, nil
}
