// Expressions whose state is a number or two: JSON strings read through their
// escapes, lists of texts, and decimal numbers compared or divided as they come.

package grammar

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// jsonString matches a JSON string, quotes included, whose decoded text is
// inner's, then after. Any escape of a character is as good as the character.
func (a *arena) jsonString(inner, after rx) rx { return a.quoted(`"`, 0, inner, after) }

// pythonString is one of Python's.
func (a *arena) pythonString(inner, after rx) rx {
	return a.alt(a.quoted(`"`, '"', inner, after), a.quoted("'", '\'', inner, after))
}

func (a *arena) quoted(quote string, python int32, inner, after rx) rx {
	if inner == rxNone || after == rxNone {
		return rxNone
	}
	return a.cat2(a.lit(quote), a.str(rxKey{x: python}, inner, after, 0))
}

// str is the inside of a string. esc says where in an escape it is: bits 0-11
// the value of the digits so far, 12-13 their number, 14-16 the mode, 17-26 the
// high half of a surrogate pair. of.x is the quote of one of Python's, 0 of JSON's.
func (a *arena) str(of rxKey, inner, after rx, esc int32) rx {
	if inner == rxNone || esc == 0 && !a.alive(inner) {
		return rxNone
	}
	return a.intern(rxKey{kind: kStr, a: inner, b: after, m: esc, x: of.x}, false, 0, nil)
}

const (
	escNone  = iota << 14
	escSlash // after a backslash
	escUnit  // after \u
	escPair  // a high surrogate is there: the next is a backslash
	escPairU // then u
	escLow   // then the low half
	escDigit // after \x, \u or \U of Python's: see deriveDigit
	escMode  = 7 << 14
)

var shortEscapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (a *arena) deriveString(k rxKey, b byte) rx {
	inner, after := k.a, k.b
	switch k.m & escMode {
	case escNone:
		switch {
		case k.x == 0 && b == '"', k.x != 0 && b == byte(k.x):
			if !a.null(inner) {
				return rxNone
			}
			if n := a.nodes[inner]; n.kind == kTrie && a.tries[n.m].keys {
				return a.tag(after, a.tries[n.m].nodes[n.n].text)
			}
			return after
		case b == '\\':
			return a.str(k, inner, after, escSlash)
		case b < 0x20:
			return rxNone
		}
		return a.str(k, a.stepByte(inner, b), after, 0)
	case escSlash:
		if k.x != 0 {
			return a.derivePython(k, b)
		} else if b == 'u' {
			return a.str(k, inner, after, escUnit)
		}
		c, ok := shortEscapes[b]
		if !ok || a.plainly(inner) && b == '/' {
			return rxNone
		}
		return a.str(k, a.stepByte(inner, c), after, 0)
	case escDigit:
		return a.deriveDigit(k, b)
	case escPair:
		if b != '\\' {
			return rxNone
		}
		return a.str(k, inner, after, k.m&^escMode|escPairU)
	case escPairU:
		if b != 'u' {
			return rxNone
		}
		return a.str(k, inner, after, k.m&^escMode|escLow)
	}
	return a.deriveHex(k, b)
}

// plainly says that a fixed text is written without escapes it does not need.
func (a *arena) plainly(inner rx) bool { return a.plain && a.nodes[inner].kind == kTrie }

// deriveHex reads one of the four digits after \u.
func (a *arena) deriveHex(k rxKey, b byte) rx {
	d, ok := hexValue(b)
	if !ok {
		return rxNone
	}
	v, n, mode, high := k.m&0xfff<<4|d, k.m>>12&3+1, k.m&escMode, k.m>>17
	rest := int32(1) << (4 * (4 - n)) // how many values the digits to come tell apart
	lo, hi := v*rest, v*rest+rest-1
	if a.plainly(k.a) {
		if hi = min(hi, 0x1f); lo > hi || mode == escLow {
			return rxNone
		}
	}
	if mode == escLow {
		lo, hi = max(lo, 0xdc00), min(hi, 0xdfff)
		pair := func(low int32) rune { return 0x10000 + high<<10 + low - 0xdc00 }
		if lo > hi || !a.runeAlive(k.a, pair(lo), pair(hi)) {
			return rxNone
		}
		if n == 4 {
			return a.str(k, a.stepRune(k.a, pair(lo)), k.b, 0)
		}
	} else {
		if n == 4 && lo >= 0xd800 && lo < 0xdc00 {
			first := 0x10000 + (lo-0xd800)<<10
			if !a.runeAlive(k.a, first, first+0x3ff) {
				return rxNone
			}
			return a.str(k, k.a, k.b, escPair|(lo-0xd800)<<17)
		}
		high := hi >= 0xd800 && lo < 0xdc00 && a.runeAlive(k.a, 0x10000, 0x10ffff)
		if !high && !a.runeAlive(k.a, lo, hi) {
			return rxNone
		}
		if n == 4 {
			return a.str(k, a.stepRune(k.a, lo), k.b, 0)
		}
	}
	return a.intern(rxKey{kind: kStr, a: k.a, b: k.b, m: v | n<<12 | mode | high<<17}, false, 0, nil)
}

var (
	pythonEscapes = map[byte]byte{'"': '"', '\'': '\'', '\\': '\\', 'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r',
		't': '\t', 'v': '\v'}
	pythonDigits = map[byte]int32{'x': 2, 'u': 4, 'U': 8}
)

// derivePython reads what follows a backslash in one of Python's strings.
func (a *arena) derivePython(k rxKey, b byte) rx {
	if n := pythonDigits[b]; n > 0 {
		k.m, k.n = escDigit, n<<24
		return a.digits(k, 0, 1<<(4*n)-1)
	}
	c, ok := pythonEscapes[b]
	if !ok || a.plainly(k.a) && (b == '"' || b == '\'') && b != byte(k.x) {
		return rxNone
	}
	return a.str(k, a.stepByte(k.a, c), k.b, 0)
}

// deriveDigit reads one of the digits of a character: k.n has how many are to come in bits 24-27, and the value of
// those that came.
func (a *arena) deriveDigit(k rxKey, b byte) rx {
	d, ok := hexValue(b)
	if !ok {
		return rxNone
	}
	left, v := k.n>>24-1, int64(k.n&0xffffff)<<4|int64(d)
	lo := v << (4 * left)
	if k.n = left<<24 | int32(v); lo > unicode.MaxRune {
		return rxNone
	}
	return a.digits(k, lo, lo+1<<(4*left)-1)
}

// digits is the inside of a string within the digits of a character from lo to hi.
func (a *arena) digits(k rxKey, lo, hi int64) rx {
	if hi = min(hi, unicode.MaxRune); a.plainly(k.a) {
		hi = min(hi, 0x1f)
	}
	if lo > hi || !a.runeAlive(k.a, rune(lo), rune(hi)) {
		return rxNone
	}
	if k.n>>24 == 0 {
		return a.str(k, a.stepRune(k.a, rune(lo)), k.b, 0)
	}
	return a.intern(k, false, 1, nil)
}

func hexValue(b byte) (int32, bool) {
	switch {
	case b >= '0' && b <= '9':
		return int32(b - '0'), true
	case b >= 'a' && b <= 'f':
		return int32(b-'a') + 10, true
	case b >= 'A' && b <= 'F':
		return int32(b-'A') + 10, true
	}
	return 0, false
}

func (a *arena) stepRune(r rx, c rune) rx {
	if c >= 0xd800 && c < 0xe000 {
		return rxNone
	}
	var buf [4]byte
	for _, b := range buf[:utf8.EncodeRune(buf[:], c)] {
		r = a.stepByte(r, b)
	}
	return r
}

// runeAlive says whether a character from lo to hi leads on.
func (a *arena) runeAlive(r rx, lo, hi rune) bool {
	if r == a.text {
		return lo < 0xd800 || hi >= 0xe000
	}
	if n := &a.nodes[r]; n.kind == kTrie {
		return a.trieRune(n.rxKey, 0, 0, lo, hi)
	}
	for c := lo; c <= hi; {
		if c >= 0xd800 && c < 0xe000 {
			c = 0xe000
			continue
		}
		if c < 0x80 {
			if a.stepByte(r, byte(c)) != rxNone {
				return true
			}
			c++
			continue
		}
		var buf [4]byte
		n := utf8.EncodeRune(buf[:], c)
		p := r
		for i, b := range buf[:n] {
			if p = a.stepByte(p, b); p == rxNone { // none of those with this byte here
				c = c>>(6*(n-1-i))<<(6*(n-1-i)) + 1<<(6*(n-1-i))
				break
			}
			if first := c >> (6 * (n - 1 - i)) << (6 * (n - 1 - i)); i < n-1 && first >= lo && first+1<<(6*(n-1-i))-1 <= hi {
				return true // all that go on from here are in the range
			}
		}
		if p != rxNone {
			return true
		}
	}
	return false
}

// trieRune says whether a text of a trie goes on with a character from lo to hi,
// of which some bytes were read.
func (a *arena) trieRune(k rxKey, read rune, left int, lo, hi rune) bool {
	n := &a.tries[k.m].nodes[k.n]
	for i, b := range n.bytes {
		kid := &a.tries[k.m].nodes[n.kids[i]]
		if k.x >= 0 && !anyBit(a.allow[k.x], kid.lo, kid.hi) {
			continue
		}
		c, more := rune(b), left-1
		switch {
		case left > 0:
			c = read<<6 | c&0x3f
		case b < 0x80:
			more = 0
		case b < 0xc0: // within a character, where no other begins
			continue
		default:
			more = bits.LeadingZeros8(^b) - 1
			c &= 0x3f >> more
		}
		if more > 0 {
			next := k
			next.n = n.kids[i]
			if a.trieRune(next, c, more, lo, hi) {
				return true
			}
		} else if c >= lo && c <= hi {
			return true
		}
	}
	return false
}

// textTrie holds a list of texts as a tree of bytes.
type textTrie struct {
	keys  bool     // the end of a text carries its number
	texts []string // sorted
	nodes []trieNode
}

type trieNode struct {
	bytes  []byte
	kids   []int32
	text   int32 // the text that ends here, or -1
	lo, hi int32 // the texts below, a range of texts
}

func newTextTrie(texts []string) *textTrie {
	t := &textTrie{texts: slices.Clone(texts)}
	slices.Sort(t.texts)
	t.texts = slices.Compact(t.texts)
	t.build(0, len(t.texts), 0)
	return t
}

func (t *textTrie) build(lo, hi, depth int) int32 {
	id := int32(len(t.nodes))
	t.nodes = append(t.nodes, trieNode{text: -1, lo: int32(lo), hi: int32(hi)})
	if lo < hi && len(t.texts[lo]) == depth {
		t.nodes[id].text = int32(lo)
		lo++
	}
	for lo < hi {
		b := t.texts[lo][depth]
		end := lo
		for end < hi && t.texts[end][depth] == b {
			end++
		}
		kid := t.build(lo, end, depth+1)
		t.nodes[id].bytes = append(t.nodes[id].bytes, b)
		t.nodes[id].kids = append(t.nodes[id].kids, kid)
		lo = end
	}
	return id
}

// trie registers a list of texts; its bytes get classes of their own.
func (a *arena) trie(texts []string) (*textTrie, int32) {
	t := newTextTrie(texts)
	for _, s := range t.texts {
		a.splitText(s)
		a.spend(1 + len(s)/4)
	}
	a.tries = append(a.tries, t)
	return t, int32(len(a.tries) - 1)
}

// oneOf matches one of the texts of a trie that the subset allows, nil for all.
func (a *arena) oneOf(trie int32, subset []uint64) rx {
	return a.trieAt(trie, 0, a.subset(subset))
}

// subset interns a bit set of a trie's texts: -1 is all of them.
func (a *arena) subset(bits []uint64) int32 {
	if bits == nil {
		return -1
	}
	var buf []byte
	for _, w := range bits {
		buf = binary.LittleEndian.AppendUint64(buf, w)
	}
	id, ok := a.allID[string(buf)]
	if !ok {
		id = int32(len(a.allow))
		a.allow = append(a.allow, slices.Clone(bits))
		a.allID[string(buf)] = id
	}
	return id
}

func (a *arena) trieAt(trie, node, subset int32) rx {
	n := &a.tries[trie].nodes[node]
	null := n.text >= 0
	if subset >= 0 {
		bits := a.allow[subset]
		if !anyBit(bits, n.lo, n.hi) {
			return rxNone
		}
		null = null && bits[n.text>>6]>>(n.text&63)&1 != 0
		if n.hi-n.lo == 1 {
			subset = -1
		}
	} else if n.lo == n.hi {
		return rxNone
	}
	return a.intern(rxKey{kind: kTrie, m: trie, n: node, x: subset}, null, 1, nil)
}

func anyBit(bits []uint64, lo, hi int32) bool {
	for i := lo; i < hi; {
		if i&63 == 0 && i+64 <= hi {
			if bits[i>>6] != 0 {
				return true
			}
			i += 64
			continue
		}
		if bits[i>>6]>>(i&63)&1 != 0 {
			return true
		}
		i++
	}
	return false
}

func (a *arena) deriveTrie(k rxKey, b byte) rx {
	n := &a.tries[k.m].nodes[k.n]
	if i, ok := slices.BinarySearch(n.bytes, b); ok {
		return a.trieAt(k.m, n.kids[i], k.x)
	}
	return rxNone
}

// decimal is a number as digits: its value is ±digits with a point after the
// first `whole` of them.
type decimal struct {
	negative bool
	digits   string // no zeros at either end but one where whole would be empty
	whole    int
}

// parseDecimal reads a JSON number. ok is false where it has more digits than
// can be compared.
func parseDecimal(s string) (d decimal, ok bool) {
	s, d.negative = strings.CutPrefix(s, "-")
	mantissa, exp, _ := strings.Cut(strings.ToLower(s), "e")
	whole, frac, _ := strings.Cut(mantissa, ".")
	shift := 0
	if exp != "" {
		sign := 1
		switch exp[0] {
		case '-':
			sign, exp = -1, exp[1:]
		case '+':
			exp = exp[1:]
		}
		for _, c := range exp {
			if shift = shift*10 + int(c-'0'); shift > 300 {
				return d, false
			}
		}
		shift *= sign
	}
	digits, point := whole+frac, len(whole)+shift
	if point < 1 {
		digits, point = strings.Repeat("0", 1-point)+digits, 1
	}
	if len(digits) < point {
		digits += strings.Repeat("0", point-len(digits))
	}
	for point > 1 && digits[0] == '0' {
		digits, point = digits[1:], point-1
	}
	for len(digits) > point && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	d.digits, d.whole = digits, point
	if strings.Trim(digits, "0") == "" {
		d.negative = false
	}
	return d, len(digits) < 400
}

func (d decimal) zero() bool { return d.whole == 1 && d.digits == "0" }

// Which results of a comparison a number may have.
const (
	cmpLess    = 1
	cmpEqual   = 2
	cmpGreater = 4
)

// compare matches the decimal numbers (without exponent, unless the bound is
// zero) that compare with a bound as ops says. It is met with a number's syntax.
func (a *arena) compare(d decimal, ops int32) rx {
	i := slices.Index(a.bound, d)
	if i < 0 {
		i = len(a.bound)
		a.bound = append(a.bound, d)
	}
	return a.compareAt(int32(i), cmpState{}, ops)
}

// cmpState is what is known of the number read so far: its magnitude against
// the bound's.
type cmpState struct {
	negative, frac, exp bool
	at                  int32 // digits of this part read, no more than the bound has and one
	order               int32 // -1, 0, 1: of the digits so far
}

func (s cmpState) pack() int32 {
	v := s.at<<5 | (s.order+1)<<3
	for i, bit := range []bool{s.negative, s.frac, s.exp} {
		if bit {
			v |= 1 << i
		}
	}
	return v
}

func unpackCmp(v int32) cmpState {
	return cmpState{negative: v&1 != 0, frac: v&2 != 0, exp: v&4 != 0, order: v>>3&3 - 1, at: v >> 5}
}

func (a *arena) compareAt(bound int32, s cmpState, ops int32) rx {
	d := &a.bound[bound]
	magnitude := s.order
	if !s.frac && !s.exp {
		if int(s.at) < d.whole {
			magnitude = -1
		} else if int(s.at) > d.whole {
			magnitude = 1
		}
	}
	if magnitude == 0 && (!s.frac && len(d.digits) > d.whole || s.frac && int(s.at) < len(d.digits)-d.whole) {
		magnitude = -1
	}
	var result int32
	zero := d.zero()
	switch {
	case s.negative && d.negative:
		result = -magnitude
	case s.negative && zero && magnitude == 0:
		result = 0
	case s.negative:
		result = -1
	case d.negative:
		result = 1
	default:
		result = magnitude
	}
	null := ops>>(result+1)&1 != 0
	return a.intern(rxKey{kind: kCmp, m: bound, n: s.pack(), x: ops}, null, 0, nil)
}

func (a *arena) deriveCompare(k rxKey, b byte) rx {
	s, d := unpackCmp(k.n), &a.bound[k.m]
	switch {
	case s.exp:
		if b < '0' && b != '+' && b != '-' || b > '9' {
			return rxNone
		}
	case b == '-':
		s.negative = true
	case b == '.':
		if int(s.at) < d.whole {
			s.order = -1
		} else if int(s.at) > d.whole {
			s.order = 1
		}
		s.frac, s.at = true, 0
	case b == 'e' || b == 'E':
		if !d.zero() {
			return rxNone
		}
		if !s.frac && s.at > 1 {
			s.order = 1
		}
		s.exp, s.at = true, 0
	case b < '0' || b > '9':
		return rxNone
	default:
		want, at, most := byte('0'), int(s.at), d.whole
		if s.frac {
			at, most = at+d.whole, len(d.digits)
		}
		if at < most {
			want = d.digits[at]
		}
		if s.order == 0 && (at < most || s.frac) {
			s.order = int32(min(max(int(b)-int(want), -1), 1))
		}
		if at < most || !s.frac && at == most {
			s.at++
		}
	}
	return a.compareAt(k.m, s, k.x)
}

// multiple is divisor / 10^places.
type multiple struct {
	divisor int64
	places  int
}

// multipleOf matches the decimal numbers without exponent that are whole
// multiples; ok is false where the divisor has too many digits.
func (a *arena) multipleOf(d decimal) (r rx, ok bool) {
	m := multiple{places: len(d.digits) - d.whole}
	if m.places > 18 || len(strings.TrimLeft(d.digits, "0")) > 9 || d.zero() {
		return rxNone, false
	}
	for _, c := range d.digits {
		m.divisor = m.divisor*10 + int64(c-'0')
	}
	i := slices.Index(a.mods, m)
	if i < 0 {
		i = len(a.mods)
		a.mods = append(a.mods, m)
	}
	return a.multipleAt(int32(i), 0, 0), true
}

// multipleAt has the remainder of the digits read, and 1 + the number of digits
// after the point, or 0 before it.
func (a *arena) multipleAt(mod int32, rem int64, after int32) rx {
	m := a.mods[mod]
	scaled := rem
	for i := max(after-1, 0); i < int32(m.places); i++ {
		scaled = scaled * 10 % m.divisor
	}
	return a.intern(rxKey{kind: kMod, m: mod, n: int32(rem), x: after}, scaled == 0, 0, nil)
}

func (a *arena) deriveMultiple(k rxKey, b byte) rx {
	m := a.mods[k.m]
	switch {
	case b == '-':
		return a.multipleAt(k.m, int64(k.n), k.x)
	case b == '.':
		return a.multipleAt(k.m, int64(k.n), 1)
	case b < '0' || b > '9':
		return rxNone
	case k.x > int32(m.places):
		if b != '0' {
			return rxNone
		}
		return a.multipleAt(k.m, int64(k.n), k.x)
	}
	after := k.x
	if after > 0 {
		after++
	}
	return a.multipleAt(k.m, (int64(k.n)*10+int64(b-'0'))%m.divisor, after)
}
