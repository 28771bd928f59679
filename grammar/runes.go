// Sets of characters as expressions over UTF-8 bytes.

package grammar

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/sorting"
)

type runeRange struct{ lo, hi rune }

// normal sorts ranges and joins what touches.
func normal(ranges []runeRange) []runeRange {
	list := slices.Clone(ranges)
	sorting.Sort(list, func(x, y runeRange) int { return int(x.lo) - int(y.lo) })
	out := list[:0]
	for _, r := range list {
		if r.lo > r.hi {
			continue
		}
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// otherRunes is the complement.
func otherRunes(ranges []runeRange) []runeRange {
	var out []runeRange
	next := rune(0)
	for _, r := range normal(ranges) {
		if r.lo > next {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeRange{next, unicode.MaxRune})
	}
	return out
}

// tableRunes lists a Unicode table.
func tableRunes(t *unicode.RangeTable) []runeRange {
	var out []runeRange
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, runeRange{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, runeRange{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return normal(out)
}

// runes matches one character of the ranges; surrogates are no characters.
func (a *arena) runes(ranges []runeRange) rx {
	var ascii byteSet
	var list []rx
	for _, r := range normal(ranges) {
		for _, cut := range []runeRange{{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}} {
			lo, hi := max(r.lo, cut.lo), min(r.hi, cut.hi)
			if lo > hi {
				continue
			}
			if hi < 0x80 {
				ascii.addRange(byte(lo), byte(hi))
				continue
			}
			var l, h [4]byte
			n := utf8.EncodeRune(l[:], lo)
			utf8.EncodeRune(h[:], hi)
			list = append(list, a.sequences(l[:n], h[:n])...)
		}
	}
	return a.alt(append(list, a.set(ascii))...)
}

// sequences covers the byte strings from lo to hi, of one length, whose bytes
// after the first are continuations.
func (a *arena) sequences(lo, hi []byte) []rx {
	if len(lo) == 1 {
		return []rx{a.bytes(lo[0], hi[0])}
	}
	if lo[0] == hi[0] {
		return []rx{a.cat(a.bytes(lo[0], lo[0]), a.alt(a.sequences(lo[1:], hi[1:])...))}
	}
	var out []rx
	least, most := slices.Repeat([]byte{0x80}, len(lo)-1), slices.Repeat([]byte{0xbf}, len(lo)-1)
	from, to := lo[0], hi[0]
	if !slices.Equal(lo[1:], least) {
		out = append(out, a.cat(a.bytes(from, from), a.alt(a.sequences(lo[1:], most)...)))
		from++
	}
	if !slices.Equal(hi[1:], most) {
		out = append(out, a.cat(a.bytes(to, to), a.alt(a.sequences(least, hi[1:])...)))
		to--
	}
	if from <= to {
		out = append(out, a.cat(a.bytes(from, to), a.alt(a.sequences(least, most)...)))
	}
	return out
}
