// Normalizers of tokenizer.json.

package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
	"github.com/rivo/uniseg"
)

// plainNormalizers are those without settings.
var plainNormalizers = map[string]func(string) string{
	"NFC":          func(s string) string { return unicodeForm(s, false, true) },
	"NFD":          func(s string) string { return unicodeForm(s, false, false) },
	"NFKC":         func(s string) string { return unicodeForm(s, true, true) },
	"NFKD":         func(s string) string { return unicodeForm(s, true, false) },
	"Lowercase":    lowerEach,
	"StripAccents": func(s string) string { return dropRunes(s, isAccent) },
	"Nmt":          nmt,
}

// lowerEach gives each character's own lower case, as Rust's char does: İ
// becomes two characters, and Σ becomes σ wherever it stands.
func lowerEach(s string) string {
	return mapRunes(strings.ReplaceAll(s, "\u0130", "i\u0307"), toLower)
}

func dropRunes(s string, drop func(rune) bool) string {
	return mapRunes(s, func(r rune) rune {
		if drop(r) {
			return -1
		}
		return r
	})
}

// mapRunes is strings.Map that leaves bytes which are not UTF-8 alone.
func mapRunes(s string, f func(rune) rune) string {
	var b strings.Builder
	b.Grow(len(s))
	for i, r := range s {
		if r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], "\uFFFD") {
			b.WriteByte(s[i])
		} else if r = f(r); r >= 0 {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// nmt drops control characters and writes the lesser known spaces as spaces.
func nmt(s string) string {
	return mapRunes(s, func(r rune) rune {
		switch {
		case 1 <= r && r <= 8, r == 0x0B, 0x0E <= r && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
			return -1
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, 0x200B <= r && r <= 0x200F, r == 0x2028, r == 0x2029,
			r == 0x2581, r == 0xFEFF, r == 0xFFFD:
			return ' '
		}
		return r
	})
}

// bertNormalizer is BERT's: clean, put spaces around ideographs, drop accents,
// lower.
func bertNormalizer(part *hfPart) func(string) string {
	on := func(flag *bool, otherwise bool) bool {
		if flag == nil {
			return otherwise
		}
		return *flag
	}
	clean, spaced, lower := on(part.CleanText, true), on(part.ChineseChars, true), on(part.Lowercase, true)
	accents := on(part.StripAccents, lower)
	return func(s string) string {
		if clean {
			s = mapRunes(s, cleanRune)
		}
		if spaced {
			s = spaceIdeographs(s)
		}
		if accents {
			s = dropRunes(unicodeForm(s, false, false), isBERTAccent)
		}
		if lower {
			s = lowerEach(s)
		}
		return s
	}
}

func cleanRune(r rune) rune {
	switch {
	case r == '\t' || r == '\n' || r == '\r' || unicode.IsSpace(r) && !unicode.Is(unicode.Cc, r):
		return ' '
	case r == 0 || r == 0xFFFD || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs) &&
		!unicode.Is(laterFormats, r):
		return -1
	}
	return r
}

func spaceIdeographs(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], "\uFFFD"):
			b.WriteByte(s[i])
		case 0x4E00 <= r && r <= 0x9FFF, 0x3400 <= r && r <= 0x4DBF, 0x20000 <= r && r <= 0x2A6DF,
			0x2A700 <= r && r <= 0x2B73F,
			0x2B740 <= r && r <= 0x2B81F, 0x2B920 <= r && r <= 0x2CEAF, 0xF900 <= r && r <= 0xFAFF, 0x2F800 <= r && r <= 0x2FA1F:
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// stripper takes whitespace off the ends.
func (p *hfPart) stripper() hfNormal {
	left := func(s string) string {
		if p.StripLeft {
			s = strings.TrimLeftFunc(s, unicode.IsSpace)
		}
		return s
	}
	return hfNormal{func(s string) (string, error) {
		if s = left(s); p.StripRight {
			s = strings.TrimRightFunc(s, unicode.IsSpace)
		}
		return s, nil
	}, func(s string, z int) (int, error) { return max(0, z-len(s)+len(left(s))), nil }}
}

// prepend puts the prefix before text that is not empty.
func (p *hfPart) prepend(s string) string {
	if s == "" {
		return s
	}
	return p.Prepend + s
}

func (p *pipeline) readNormalizer(root *hfPart) error {
	always := func(f func(string) string) {
		p.normal = append(p.normal, hfNormal{apply: func(s string) (string, error) { return f(s), nil }})
	}
	for _, part := range root.flatten("normalizers") {
		if f, ok := plainNormalizers[part.Type]; ok {
			always(f)
			if part.Type != "NFC" { // llama.cpp leaves it out as well, and most text is in NFC
				p.unnamed = "normalizer " + part.Type
			}
			continue
		}
		switch part.Type {
		case "BertNormalizer":
			always(bertNormalizer(part))
			p.unnamed = "normalizer " + part.Type
		case "ByteLevel":
			always(toByteAlphabet)
			p.byteLevel, p.mapped, p.unnamed = true, true, "normalizer ByteLevel"
		case "Strip":
			p.normal = append(p.normal, part.stripper())
		case "Prepend":
			if len(part.Prepend) > maxGrowth {
				return fmt.Errorf("Prepend of %d bytes", len(part.Prepend))
			}
			p.prefix = p.prefix || part.Prepend == space
			always(part.prepend)
		case "Replace":
			n, err := p.replace(part)
			if err != nil {
				return err
			}
			p.normal = append(p.normal, n)
		case "Precompiled":
			chars, err := newCharsMap(part.CharsMap)
			if err != nil {
				return err
			}
			p.charsMap = part.CharsMap
			if chars != nil {
				p.normal = append(p.normal, chars.normal())
			}
		default:
			return fmt.Errorf("type %q is not supported", part.Type)
		}
	}
	return nil
}

// normal is byGraphemes with what becomes of the first z bytes. The library counts characters: those that come out
// stand, one after another, for those that went in; what is more stands where the last of these ended, what is less is
// taken from what came out last, if anything did.
func (c *charsMap) normal() hfNormal {
	apply := func(s string) (string, error) { return c.byGraphemes(s), nil }
	return hfNormal{apply, func(s string, z int) (int, error) {
		type piece struct{ size, change int }
		var held []piece // the last of them may change yet
		at, lead := 0, 0
		settle := func() bool {
			p := held[0]
			held = held[1:]
			if from := at; p.change > 0 && from > z || p.change <= 0 && from >= z {
				return false
			}
			lead += p.size
			for ; p.change <= 0 && at < len(s); p.change++ {
				_, n := utf8.DecodeRuneInString(s[at:])
				at += n
			}
			return true
		}
		c.each(s, func(from, to string) bool {
			more := utf8.RuneCountInString(to) - utf8.RuneCountInString(from)
			for i, r := range []rune(to) {
				p := piece{size: utf8.RuneLen(r)}
				if i >= utf8.RuneCountInString(from) {
					p.change = 1
				}
				held = append(held, p)
			}
			if more < 0 && len(held) > 0 {
				held[len(held)-1].change += more
			}
			for len(held) > 1 {
				if !settle() {
					held = nil
					return false
				}
			}
			return true
		})
		if len(held) > 0 {
			settle()
		}
		return lead, nil
	}}
}

// byGraphemes maps text as Hugging Face's Precompiled does, which is not quite SentencePiece's way: a grapheme cluster
// of up to five bytes becomes what its shortest known beginning does, the rest of it left out; of others, and of those
// without one, each character is mapped alone.
func (c *charsMap) byGraphemes(s string) string {
	if c == nil {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	c.each(s, func(_, to string) bool {
		b.WriteString(to)
		return true
	})
	return b.String()
}

// each gives what is mapped and what it becomes, until visit has enough.
func (c *charsMap) each(s string, visit func(from, to string) bool) {
	for state := -1; s != ""; {
		var cluster string
		cluster, s, _, state = uniseg.FirstGraphemeClusterInString(s, state)
		if len(cluster) < 6 {
			if out, ok := c.shortest(cluster); ok {
				if !visit(cluster, out) {
					return
				}
				continue
			}
		}
		for _, r := range cluster {
			char := string(r)
			out, ok := c.shortest(char)
			if !ok {
				out = char
			}
			if !visit(char, out) {
				return
			}
		}
	}
}

// replace reads Replace, by a string or a pattern.
func (p *pipeline) replace(part *hfPart) (n hfNormal, err error) {
	content := part.text()
	if len(content) > maxGrowth {
		return n, fmt.Errorf("Replace by %d bytes", len(content))
	}
	if old, ok := part.literal(); ok {
		if old == "" {
			return n, errors.New("Replace of an empty string")
		}
		p.escapesSpace = p.escapesSpace || old == " " && content == space
		n.apply = func(s string) (string, error) { return strings.ReplaceAll(s, old, content), nil }
		n.lead = replaceLead(len(content), func(s string, visit func(from, to int) error) error {
			for at := 0; ; at += len(old) {
				i := strings.Index(s[at:], old)
				if i < 0 {
					return nil
				}
				at += i
				if err := visit(at, at+len(old)); err != nil {
					return err
				}
			}
		})
		return n, nil
	}
	pattern, err := part.regex()
	if err != nil {
		return n, err
	}
	re, err := compileOnig(pattern)
	if err != nil {
		return n, err
	}
	p.collapses = p.collapses || pattern == " {2,}"
	n.apply = replaceBy(re, content)
	n.lead = replaceLead(len(content), func(s string, visit func(from, to int) error) error {
		return eachMatch(re, s, visit)
	})
	return n, nil
}

// errPast ends a search: what follows does not matter.
var errPast = errors.New("past the beginning")

// replaceLead counts what is put in for matches that end within the first z bytes, and what is left between them: to
// the library, what replaces a longer match stands where that ended.
func replaceLead(content int, each func(s string, visit func(from, to int) error) error) func(string, int) (int,
	error) {
	return func(s string, z int) (int, error) {
		size, last := 0, 0
		err := each(s, func(from, to int) error {
			if to > z {
				size, last = size+max(0, min(from, z)-last), z
				return errPast
			}
			size, last = size+from-last+content, to
			return nil
		})
		if err == errPast {
			err = nil
		}
		return size + z - last, err
	}
}

func replaceBy(re *regexp2.Regexp, content string) func(string) (string, error) {
	return func(s string) (string, error) {
		var b strings.Builder
		last := 0
		err := eachMatch(re, s, func(from, to int) error {
			b.WriteString(s[last:from])
			b.WriteString(content)
			last = to
			return nil
		})
		b.WriteString(s[last:])
		return b.String(), err
	}
}
