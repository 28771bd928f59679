// What Hugging Face's tokenizers 0.23 and this Go release know of Unicode differs: the library's normal forms and
// accents are Unicode 9's, its patterns go by Unicode 16, its lower case and digits by Unicode 17. The tables were
// found by comparing every character.

package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
)

var (
	// marksSince9 are marks (M) that are none to the library: they have no combining class and are no accents.
	marksSince9 = tableOf([][2]uint32{
		{0x7FD, 0x7FD}, {0x898, 0x89F}, {0x8CA, 0x8D3}, {0x9FE, 0x9FE}, {0xAFA, 0xAFF}, {0xB55, 0xB55},
		{0xC04, 0xC04}, {0xC3C, 0xC3C}, {0xCF3, 0xCF3}, {0xD00, 0xD00}, {0xD3B, 0xD3C}, {0xD81, 0xD81},
		{0xEBA, 0xEBA}, {0xECE, 0xECE}, {0x1715, 0x1715}, {0x180F, 0x180F}, {0x1ABF, 0x1ACE},
		{0x1CF7, 0x1CF7}, {0x1DF6, 0x1DFA}, {0xA82C, 0xA82C}, {0xA8FF, 0xA8FF},
	}, [][2]uint32{
		{0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
		{0x11070, 0x11070}, {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x11145, 0x11146}, {0x111C9, 0x111C9},
		{0x111CE, 0x111CF}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x1182C, 0x1183A},
		{0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193B, 0x1193E}, {0x11940, 0x11940}, {0x11942, 0x11943},
		{0x119D1, 0x119D7}, {0x119DA, 0x119E0}, {0x119E4, 0x119E4}, {0x11A01, 0x11A0A}, {0x11A33, 0x11A39},
		{0x11A3B, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A51, 0x11A5B}, {0x11A8A, 0x11A99}, {0x11D31, 0x11D36},
		{0x11D3A, 0x11D3A}, {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D8A, 0x11D8E},
		{0x11D90, 0x11D91}, {0x11D93, 0x11D97}, {0x11EF3, 0x11EF6}, {0x11F00, 0x11F01}, {0x11F03, 0x11F03},
		{0x11F34, 0x11F3A}, {0x11F3E, 0x11F42}, {0x13440, 0x13440}, {0x13447, 0x13455}, {0x16F4F, 0x16F4F},
		{0x16F7F, 0x16F87}, {0x16FE4, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x1CF00, 0x1CF2D}, {0x1CF30, 0x1CF46},
		{0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
	})

	// marksSince7 are no accents to BertNormalizer either, which goes by Unicode 7.
	marksSince7 = tableOf([][2]uint32{
		{0x8D4, 0x8E1}, {0x1885, 0x1886}, {0x1DFB, 0x1DFB}, {0xA8C5, 0xA8C5}, {0xA9BD, 0xA9BD},
	}, [][2]uint32{
		{0x1123E, 0x1123E}, {0x11438, 0x1143F}, {0x11442, 0x11444}, {0x11446, 0x11446}, {0x11C30, 0x11C36},
		{0x11C38, 0x11C3D}, {0x11C3F, 0x11C3F}, {0x11C92, 0x11CA7}, {0x11CAA, 0x11CB0}, {0x11CB2, 0x11CB3},
		{0x11CB5, 0x11CB6}, {0x1E000, 0x1E006}, {0x1E008, 0x1E018}, {0x1E01B, 0x1E021}, {0x1E023, 0x1E024},
		{0x1E026, 0x1E02A}, {0x1E944, 0x1E94A},
	})

	// formsSince9 have a decomposition that the library does not know.
	formsSince9 = tableOf([][2]uint32{
		{0x32FF, 0x32FF}, {0xA7F2, 0xA7F4}, {0xAB69, 0xAB69},
	}, [][2]uint32{
		{0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x11938, 0x11938}, {0x1E030, 0x1E06D},
		{0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
	})
)

// lowerSince15 are capitals that came with Unicode 16 and 17, which Rust knows: those from first to last lie that far
// below their small letters.
var lowerSince15 = []struct{ first, last, distance rune }{{0x1C89, 0x1C89, 1}, {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
	{0xA7CC, 0xA7CC, 1}, {0xA7CE, 0xA7CE, 1}, {0xA7D2, 0xA7D2, 1}, {0xA7D4, 0xA7D4, 1}, {0xA7DA, 0xA7DA, 1},
	{0xA7DC, 0xA7DC, 0x19B - 0xA7DC}, {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B}}

// toLower is unicode.ToLower with the capitals of lowerSince15.
func toLower(r rune) rune {
	if r >= lowerSince15[0].first {
		for _, c := range lowerSince15 {
			if c.first <= r && r <= c.last {
				return r + c.distance
			}
		}
	}
	return unicode.ToLower(r)
}

// isAccent says what StripAccents leaves out, isBERTAccent what BertNormalizer does behind NFD.
func isAccent(r rune) bool {
	return unicode.Is(unicode.M, r) && !unicode.Is(marksSince9, r) || r == 0x1CF2 || r == 0x1CF3
}

func isBERTAccent(r rune) bool {
	return unicode.Is(unicode.Mn, r) && !unicode.In(r, marksSince9, marksSince7) || r == 0x1734
}

// changes are characters that a table of Unicode 15 lacks, and those that Unicode 16 has taken from it.
type changes struct{ more, less runeSet }

// since15 are the changes by Go's names of the tables: from Unicode 15 to 16, which Oniguruma's data is of.
var since15 = sync.OnceValue(func() map[string]changes {
	all := map[string]changes{}
	name, less := "", false
	for word := range strings.FieldsSeq(changesSince15) {
		switch {
		case word == "-":
			less = true
		case strings.ContainsFunc(word, unicode.IsLower):
			name, less = word, false
		default:
			var r runeSpan
			if n, _ := fmt.Sscanf(word, "%X-%X", &r.lo, &r.hi); n == 1 {
				r.hi = r.lo
			}
			c := all[name]
			if less {
				c.less = append(c.less, r)
			} else {
				c.more = append(c.more, r)
			}
			all[name] = c
		}
	}
	return all
})

// letterSince15 and numberSince15 say of a character that Unicode 15 has none of the kind whether Unicode 16 has.
func letterSince15(r rune) bool { return r >= 0x1C89 && lettersSince15().has(r) }
func numberSince15(r rune) bool { return r >= 0x10D40 && since15()["Nd"].more.has(r) }

var lettersSince15 = sync.OnceValue(func() runeSet {
	c := since15()
	return slices.Concat(c["Lu"].more, c["Ll"].more, c["Lm"].more, c["Lo"].more).tidy()
})

// foldsSince15 gives capitals and small letters for one another where one of them came with Unicode 16.
var foldsSince15 = sync.OnceValue(func() map[rune]rune {
	folds, capitals := map[rune]rune{}, since15()["Lu"].more
	for _, c := range lowerSince15 {
		for r := c.first; r <= c.last && capitals.has(r); r++ {
			folds[r], folds[r+c.distance] = r+c.distance, r
		}
	}
	return folds
})

// simpleFold is unicode.SimpleFold as Unicode 16 has it.
func simpleFold(r rune) rune {
	if o, ok := foldsSince15()[r]; ok {
		return o
	}
	return unicode.SimpleFold(r)
}

const changesSince15 = `
Lu 1C89 A7CB-A7CC A7DA A7DC 10D50-10D65
Ll 1C8A A7CD A7DB 10D70-10D85
Lm 10D4E 10D6F 16D40-16D42 16D6B-16D6C
Lo 105C0-105F3 10D4A-10D4D 10D4F 10EC2-10EC4 11380-11389 1138B 1138E 11390-113B5 113B7 113D1 113D3 11BC0-11BE0
 13460-143FA 16100-1611D 16D43-16D6A 18CFF 1E5D0-1E5ED 1E5F0 2EBF0-2EE5D
Mn 897 10D69-10D6D 10EFC 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11F5A 1611E-16129 1612D-1612F 1E5EE-1E5EF - 1171E
Mc 113B8-113BA 113C2 113C5 113C7-113CA 113CC-113CD 113CF 1171E 1612A-1612C
Nd 10D40-10D49 116D0-116E3 11BF0-11BF9 16130-16139 16D70-16D79 1CCF0-1CCF9 1E5F1-1E5FA
Pd 10D6E
Po 1B4E-1B4F 1B7F 113D4-113D5 113D7-113D8 11BE1 16D6D-16D6F 1E5FF
Sm 10D8E-10D8F
So 2427-2429 2FFC-2FFF 31E4-31E5 31EF 1CC00-1CCEF 1CD00-1CEB3 1F8B2-1F8BB 1F8C0-1F8C1 1FA89 1FA8F 1FABE 1FAC6 1FADC
 1FADF 1FAE9 1FBCB-1FBEF
Other_Alphabetic 363-36F 897 1DD3-1DE6 10D69 10EFC 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113CD 1611E-1612E
Other_ID_Continue 200C-200D 30FB FF65
Dash 10D6E
Diacritic E3A 1734 1A60 1BE6 1BF2-1BF3 A806 A82C 10A38-10A3A 10A3F 10D4E 10D69-10D6D 1133B 113CE-113D0 113D2-113D3
 113E1-113E2 11F41-11F42 11F5A 1612F 16D6B-16D6C 1E5EE-1E5EF
Extender A71 AFB 10D4E 10D6A 10D6F 11237 113D2-113D3 1E5EF
STerm 17D4-17D5 1B4E-1B4F 1B7F 2024 2CF9-2CFB FE12 FE15-FE16 113D4-113D5 16D6E-16D6F
Sentence_Terminal 17D4-17D5 1B4E-1B4F 1B7F 2024 2CF9-2CFB FE12 FE15-FE16 113D4-113D5 16D6E-16D6F
Terminal_Punctuation 1B4E-1B4F 1B7F 2024 2CF9-2CFB FE12 FE15-FE16 113D4-113D5 16D6E-16D6F - 836
Ideographic 18CFF 2EBF0-2EE5D
Unified_Ideograph 2EBF0-2EE5D
IDS_Binary_Operator 2FFC-2FFD 31EF
Han 2EBF0-2EE5D
Latin A7CB-A7CD A7DA-A7DC
Cyrillic 1C89-1C8A
Arabic 897 10EC2-10EC4 10EFC
Common 2427-2429 2FFC-2FFF 31E4-31E5 31EF 1CC00-1CCF9 1CD00-1CEB3 1F8B2-1F8BB 1F8C0-1F8C1 1FA89 1FA8F 1FABE 1FAC6
 1FADC 1FADF 1FAE9 1FBCB-1FBEF
Myanmar 116D0-116E3
Kawi 11F5A
Egyptian_Hieroglyphs 13460-143FA
Khitan_Small_Script 18CFF
`
