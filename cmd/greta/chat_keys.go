package main

// Keys that a person types, read from a terminal's bytes.

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Terminals that were told so mark what is pasted by a text before and behind it ("bracketed paste").
const (
	pasteOn    = "\x1b[?2004h"
	pasteOff   = "\x1b[?2004l"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// key is one key. code is a control character, or one of the names below; 0: text is typed or pasted.
type key struct {
	code   rune
	text   string
	pasted bool
}

// Keys without a control character of their own have those of Emacs, or these.
const (
	keyUnknown = -iota - 1
	keyDelete
	keyWordLeft
	keyWordRight
	keyDeleteWord
	keyEraseWord
)

func ctrl(letter rune) rune { return letter & 0x1f }

const keyBackspace = 0x7f

// sequences are what terminals, tmux, screen, rxvt and Linux's console send behind an escape.
var sequences = map[string]rune{
	"[A": ctrl('p'), "OA": ctrl('p'), "[B": ctrl('n'), "OB": ctrl('n'),
	"[C": ctrl('f'), "OC": ctrl('f'), "[D": ctrl('b'), "OD": ctrl('b'),
	"[H": ctrl('a'), "OH": ctrl('a'), "[1~": ctrl('a'), "[7~": ctrl('a'),
	"[F": ctrl('e'), "OF": ctrl('e'), "[4~": ctrl('e'), "[8~": ctrl('e'),
	"[3~": keyDelete, "[3;5~": keyDeleteWord, "[3;3~": keyDeleteWord, "d": keyDeleteWord,
	"[1;5C": keyWordRight, "[1;3C": keyWordRight, "f": keyWordRight,
	"[1;5D": keyWordLeft, "[1;3D": keyWordLeft, "b": keyWordLeft,
	"\x7f": keyEraseWord, "\b": keyEraseWord,
}

// firstKey takes the first key of raw, whose rest it gives too. It gives false where more must be read first, as of an
// escape by itself; end says that no more comes.
func firstKey(raw []byte, end bool) (k key, rest []byte, ok bool) {
	switch c := raw[0]; {
	case bytes.HasPrefix(raw, []byte(pasteBegin)):
		return paste(raw[len(pasteBegin):], end)
	case c == 0x1b:
		n := sequence(raw)
		if n == 0 && !end {
			return key{}, raw, false
		}
		if n == 0 {
			n = len(raw)
		}
		k.code = keyUnknown
		if code, known := sequences[string(raw[1:n])]; known {
			k.code = code
		}
		return k, raw[n:], true
	case c < ' ' || c == keyBackspace:
		return key{code: rune(c)}, raw[1:], true
	case !utf8.FullRune(raw) && !end:
		return key{}, raw, false
	}
	r, n := utf8.DecodeRune(raw)
	if r == utf8.RuneError && n == 1 || !printable(r) {
		return key{code: keyUnknown}, raw[n:], true
	}
	return key{text: string(r)}, raw[n:], true
}

// sequence is how many bytes a key's sequence has that begins with an escape; 0: it is not whole.
func sequence(raw []byte) int {
	if len(raw) < 2 {
		return 0
	}
	switch raw[1] {
	case 0x1b: // which begins another
		return 1
	case 'O':
		if len(raw) < 3 {
			return 0
		}
		return 3
	case '[':
		for i := 2; i < len(raw); i++ {
			if raw[i] >= '@' && raw[i] <= '~' {
				return i + 1
			}
			if raw[i] < ' ' || raw[i] > '~' { // no part of one
				return i
			}
		}
		return 0
	}
	return 2
}

// paste reads what is pasted. Ctrl-C ends a paste whose end does not come.
func paste(raw []byte, end bool) (key, []byte, bool) {
	at, c := bytes.Index(raw, []byte(pasteEnd)), bytes.IndexByte(raw, ctrlC)
	switch {
	case c >= 0 && (at < 0 || c < at):
		return key{code: ctrlC}, raw[c+1:], true
	case at >= 0:
		return key{text: pastedText(raw[:at]), pasted: true}, raw[at+len(pasteEnd):], true
	case end:
		return key{text: pastedText(raw), pasted: true}, nil, true
	}
	return key{}, append([]byte(pasteBegin), raw...), false
}

const ctrlC = 3

// pastedText is a pasted text with ends of lines as they are here, and without control characters.
func pastedText(raw []byte) string {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(raw))
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !printable(r) {
			return -1
		}
		return r
	}, text)
}

// printable says whether a character can stand in the edited line: no control character, and none of those by which
// the line names long pastes.
func printable(r rune) bool { return !unicode.IsControl(r) && r < firstPaste }
