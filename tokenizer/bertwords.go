// How BERT's pre-tokenizer cuts text: at whitespace, and around each punctuation character.

package tokenizer

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// bertWords emits the words of s.
func bertWords(s string, emit func(string) error) error {
	start := 0
	flush := func(end int) error {
		if start == end {
			return nil
		}
		return emit(s[start:end])
	}
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		blank, mark := unicode.IsSpace(r), bertPunctuation(r)
		if !blank && !mark {
			i += size
			continue
		}
		if err := flush(i); err != nil {
			return err
		}
		if start = i + size; mark {
			if err := emit(s[i:start]); err != nil {
				return err
			}
		}
		i = start
	}
	return flush(len(s))
}

// bertStep is bertWords; a word behind whitespace does not begin the text.
func bertStep(s string, lead int, emit func(part string, lead int) error) error {
	at := 0
	return bertWords(s, func(part string) error {
		at += strings.Index(s[at:], part) // only whitespace is between
		err := emit(part, lead-at)
		at += len(part)
		return err
	})
}

// bertPunctuation says what counts as punctuation: all of ASCII that is neither letter, digit, space nor control, and
// the general category P as Unicode 7 has it. Later characters are letters to it.
func bertPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~'
	}
	return unicode.Is(unicode.P, r) && !unicode.Is(laterMarks, r) || r == 0x166D || r == 0x111C9
}

// setBERTPunctuation is the set of it.
var setBERTPunctuation = sync.OnceValue(func() runeSet {
	return tableSet(unicode.P).tidy().and(tableSet(laterMarks).not()).
		union(spans('!', '/', ':', '@', '[', '`', '{', '~', 0x166D, 0x166D, 0x111C9, 0x111C9))
})

// laterMarks is punctuation that came after Unicode 7, laterFormats format characters (Cf) that did.
var (
	laterMarks   = tableOf(laterMarks16, laterMarks32)
	laterFormats = tableOf([][2]uint32{{0x890, 0x891}, {0x8E2, 0x8E2}},
		[][2]uint32{{0x110CD, 0x110CD}, {0x13430, 0x1343F}})
)

var laterMarks16 = [][2]uint32{{0x61D, 0x61D}, {0x9FD, 0x9FD}, {0xA76, 0xA76}, {0xC77, 0xC77}, {0xC84, 0xC84},
	{0x1B4E, 0x1B4F}, {0x1B7D, 0x1B7F}, {0x2E43, 0x2E4F}, {0x2E52, 0x2E5D}}

var laterMarks32 = [][2]uint32{{0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89},
	{0x113D4, 0x113D8}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
	{0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2},
	{0x11B00, 0x11B09}, {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
	{0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF},
	{0x1E95E, 0x1E95F}}

// tableOf makes a table of ranges below and from U+10000.
func tableOf(low, high [][2]uint32) *unicode.RangeTable {
	t := &unicode.RangeTable{}
	for _, r := range low {
		t.R16 = append(t.R16, unicode.Range16{Lo: uint16(r[0]), Hi: uint16(r[1]), Stride: 1})
	}
	for _, r := range high {
		t.R32 = append(t.R32, unicode.Range32{Lo: r[0], Hi: r[1], Stride: 1})
	}
	return t
}
