// GPT-2's byte alphabet: each byte is written as a visible character, so that
// byte-level vocabularies are text.

package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// byteRunes maps bytes to characters: printable Latin-1 to itself, the rest to
// U+0100 and up, in order. runeBytes is the inverse, -1 where there is none.
var byteRunes, runeBytes = func() (to [256]rune, from [0x100 + 68]int16) {
	for i := range from {
		from[i] = -1
	}
	next := rune(0x100)
	for b := range to {
		r := rune(b)
		if !('!' <= r && r <= '~' || '¡' <= r && r <= '¬' || '®' <= r && r <= 'ÿ') {
			r = next
			next++
		}
		to[b] = r
		from[r] = int16(b)
	}
	return to, from
}()

func byteOf(r rune) (byte, bool) {
	if r < 0 || int(r) >= len(runeBytes) || runeBytes[r] < 0 {
		return 0, false
	}
	return byte(runeBytes[r]), true
}

// fromByteAlphabet gives the bytes that text spells; false where a character
// is not of the alphabet.
func fromByteAlphabet(text string) (string, bool) {
	raw := make([]byte, 0, len(text))
	for _, r := range text {
		b, ok := byteOf(r)
		if !ok {
			return text, false
		}
		raw = append(raw, b)
	}
	return string(raw), true
}

// toByteAlphabet spells bytes.
func toByteAlphabet(raw string) string {
	var b strings.Builder
	b.Grow(len(raw) * 2)
	for i := 0; i < len(raw); i++ {
		var buf [utf8.UTFMax]byte
		b.Write(buf[:utf8.EncodeRune(buf[:], byteRunes[raw[i]])])
	}
	return b.String()
}

// spellsBytes says that the vocabulary has every character of the alphabet, so that nothing is unknown to it.
func spellsBytes(pieces []piece) bool {
	var seen [256]bool
	left := len(seen)
	for _, p := range pieces {
		if r, one := onlyRune(p.text); one && !p.outside && p.kind != Unknown {
			if b, ok := byteOf(r); ok && !seen[b] {
				seen[b] = true
				left--
			}
		}
	}
	return left == 0
}
