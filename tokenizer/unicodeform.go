// Unicode's normal forms (https://www.unicode.org/reports/tr15/), over the
// tables of golang.org/x/text. Its own functions put a joiner into long runs of
// marks and, in some places, compose characters that do not belong together.

package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Hangul syllables are put together by arithmetic.
const (
	hangulS, hangulL, hangulV, hangulT = 0xAC00, 0x1100, 0x1161, 0x11A7
	hangulLs, hangulVs, hangulTs       = 19, 21, 28
	hangulSs                           = hangulLs * hangulVs * hangulTs
)

// mark is a character with its combining class. What is not UTF-8 is kept:
// byte b as the character -1-b.
type mark struct {
	r     rune
	class uint8
}

// unicodeForm gives NFD or NFKD (compatible), composed to NFC or NFKC on wish.
func unicodeForm(s string, compatible, compose bool) string {
	limit := rune(utf8.RuneSelf)
	if compose && !compatible {
		limit = 0x300 // nothing below is changed by NFC
	}
	if strings.IndexFunc(s, func(r rune) bool { return r >= limit }) < 0 {
		return s
	}
	form := norm.NFD
	if compatible {
		form = norm.NFKD
	}
	marks := make([]mark, 0, len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			r = -1 - rune(s[i])
			marks = append(marks, mark{r, 0})
		case r < utf8.RuneSelf:
			marks = append(marks, mark{r, 0})
		case hangulS <= r && r < hangulS+hangulSs:
			k := r - hangulS
			marks = append(marks, mark{hangulL + k/(hangulVs*hangulTs), 0}, mark{hangulV + k%(hangulVs*hangulTs)/hangulTs, 0})
			if t := k % hangulTs; t > 0 {
				marks = append(marks, mark{hangulT + t, 0})
			}
		default:
			p := form.PropertiesString(s[i:])
			if d := p.Decomposition(); d != nil && !unicode.Is(formsSince9, r) {
				for _, r := range string(d) {
					marks = append(marks, mark{r, combiningClass(r)})
				}
			} else {
				marks = append(marks, mark{r, classOf(r, p)})
			}
		}
		i += n
	}
	orderMarks(marks)
	if compose {
		marks = composeMarks(marks)
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, m := range marks {
		if m.r < 0 {
			b.WriteByte(byte(-1 - m.r))
		} else {
			b.WriteRune(m.r)
		}
	}
	return b.String()
}

func combiningClass(r rune) uint8 {
	if r < 0x300 {
		return 0
	}
	return classOf(r, norm.NFD.PropertiesString(string(r)))
}

func classOf(r rune, p norm.Properties) uint8 {
	if c := p.CCC(); c == 0 || !unicode.Is(marksSince9, r) {
		return c
	}
	return 0
}

// orderMarks sorts what follows each base by combining class, keeping the
// order of equals.
func orderMarks(marks []mark) {
	for i := 0; i < len(marks); {
		if marks[i].class == 0 {
			i++
			continue
		}
		end := i
		for end < len(marks) && marks[end].class != 0 {
			end++
		}
		slices.SortStableFunc(marks[i:end], func(a, b mark) int { return int(a.class) - int(b.class) })
		i = end
	}
}

// composeMarks joins each base with the marks that nothing separates from it.
func composeMarks(marks []mark) []mark {
	out := marks[:0]
	base := -1 // index in out
	for _, m := range marks {
		if base >= 0 {
			last := out[len(out)-1]
			adjacent := len(out)-1 == base
			if adjacent || last.class != 0 && last.class < m.class {
				if r, ok := composed(out[base].r, m.r); ok {
					out[base].r = r
					continue
				}
			}
		}
		if m.class == 0 {
			base = len(out)
		}
		out = append(out, m)
	}
	return out
}

// composed gives the primary composite of two characters.
func composed(a, b rune) (rune, bool) {
	switch {
	case hangulL <= a && a < hangulL+hangulLs && hangulV <= b && b < hangulV+hangulVs:
		return hangulS + ((a-hangulL)*hangulVs+b-hangulV)*hangulTs, true
	case hangulS <= a && a < hangulS+hangulSs && (a-hangulS)%hangulTs == 0 && hangulT < b && b < hangulT+hangulTs:
		return a + b - hangulT, true
	}
	r, ok := composites()[[2]rune{a, b}]
	return r, ok
}

// composites are all pairs that compose: the last steps of the decompositions
// that NFC undoes.
var composites = sync.OnceValue(func() map[[2]rune]rune {
	pairs := make(map[[2]rune]rune, 1000)
	for r := rune(0xC0); r < 0x20000; r++ {
		if r == 0x3400 {
			r = 0x10000 // nothing between composes but Hangul
		}
		s := string(r)
		d := norm.NFD.PropertiesString(s).Decomposition()
		if d == nil || unicode.Is(formsSince9, r) || !norm.NFC.IsNormalString(s) {
			continue
		}
		_, last := utf8.DecodeLastRune(d)
		second, _ := utf8.DecodeLastRune(d)
		first, n := utf8.DecodeRuneInString(norm.NFC.String(string(d[:len(d)-last])))
		if n > 0 {
			pairs[[2]rune{first, second}] = r
		}
	}
	return pairs
})
