// SentencePiece's normalizer: character map, whitespace rules, dummy prefix.

package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// space is how SentencePiece spells a space inside pieces.
const space = "▁"

// prefixRule says which parts of a text get the dummy prefix.
type prefixRule uint8

const (
	prefixNever prefixRule = iota
	prefixFirst            // the beginning of the text
	prefixEach             // also what follows a special token
)

// spNormalizer follows normalizer.cc of SentencePiece: text is mapped longest
// match first, then spaces are collapsed, escaped and prefixed as the flags say.
type spNormalizer struct {
	chars       *charsMap // nil: identity
	prefix      prefixRule
	removeExtra bool // drop leading, trailing and repeated spaces
	escape      bool // write spaces as ▁
	suffix      bool // the dummy "prefix" goes to the end
	user        *trie
}

func (n *spNormalizer) normalize(text string, first bool) string {
	dummy := n.prefix == prefixEach || n.prefix == prefixFirst && first
	blank := " "
	if n.escape {
		blank = space
	}
	if n.removeExtra {
		for text != "" {
			out, size := n.next(text)
			if out != " " {
				break
			}
			text = text[size:]
		}
	}
	if text == "" {
		return ""
	}
	var b strings.Builder
	b.Grow(len(text) + len(text)/2 + 8)
	if dummy && !n.suffix {
		b.WriteString(blank)
	}
	afterSpace := n.removeExtra
	for text != "" {
		out, size := n.next(text)
		text = text[size:]
		for afterSpace && strings.HasPrefix(out, " ") {
			out = out[1:]
		}
		if out == "" {
			continue
		}
		for i := 0; i < len(out); i++ {
			if out[i] == ' ' {
				b.WriteString(blank)
			} else {
				b.WriteByte(out[i])
			}
		}
		afterSpace = n.removeExtra && out[len(out)-1] == ' '
	}
	result := b.String()
	for n.removeExtra && strings.HasSuffix(result, blank) { // also those that the text has so
		result = result[:len(result)-len(blank)]
	}
	if dummy && n.suffix {
		result += blank
	}
	return result
}

// next maps the beginning of text: what comes out, and how many bytes it stands for.
func (n *spNormalizer) next(text string) (string, int) {
	if n.user != nil {
		if size, id := n.user.longest(text); id != None {
			return text[:size], size
		}
	}
	if n.chars != nil {
		if out, size := n.chars.longest(text); size > 0 {
			return out, size
		}
	}
	r, size := utf8.DecodeRuneInString(text)
	if r == utf8.RuneError && size == 1 {
		return "\uFFFD", 1
	}
	return text[:size], size
}

// charsMap is SentencePiece's precompiled character map: a double-array trie
// (Darts-clone units of 32 bits) whose values are offsets of NUL-ended strings.
type charsMap struct {
	units   []uint32
	strings string
	blob    []byte
}

// maxMapped bounds what one match becomes, so that a broken map cannot blow
// text up; NFKC needs 33 bytes at most.
const maxMapped = 256

// newCharsMap reads the map: the trie's size in bytes, the trie, the strings.
func newCharsMap(blob []byte) (*charsMap, error) {
	if len(blob) == 0 {
		return nil, nil
	}
	if len(blob) < 4 {
		return nil, errors.New("character map of under 4 bytes")
	}
	size := int64(binary.LittleEndian.Uint32(blob))
	if size%4 != 0 || size == 0 || size > int64(len(blob)-4) {
		return nil, fmt.Errorf("character map: a trie of %d bytes in a map of %d", size, len(blob))
	}
	c := &charsMap{units: make([]uint32, size/4), strings: string(blob[4+size:]), blob: blob}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(blob[4+4*i:])
	}
	return c, nil
}

func unitOffset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }

// shortest maps the shortest known beginning of text; false where none is known.
func (c *charsMap) shortest(text string) (string, bool) {
	for end := 1; end <= len(text); end++ {
		if out, size := c.longest(text[:end]); size > 0 {
			return out, true
		}
	}
	return "", false
}

// longest maps the longest known beginning of text; 0 where none is known.
func (c *charsMap) longest(text string) (string, int) {
	node := unitOffset(c.units[0])
	value, size := uint32(0), 0
	for i := 0; i < len(text); i++ {
		node ^= uint32(text[i])
		if node >= uint32(len(c.units)) {
			break
		}
		u := c.units[node]
		if u&(1<<31|0xff) != uint32(text[i]) {
			break
		}
		node ^= unitOffset(u)
		if u>>8&1 == 1 && node < uint32(len(c.units)) {
			value, size = c.units[node]&(1<<31-1), i+1
		}
	}
	if size == 0 || value >= uint32(len(c.strings)) {
		return "", 0
	}
	out := c.strings[value:min(len(c.strings), int(value)+maxMapped+1)]
	end := strings.IndexByte(out, 0)
	if end < 0 {
		return "", 0
	}
	return out[:end], size
}
