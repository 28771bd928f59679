package main

// The line that a person edits: a text by what is seen as one character ("grapheme clusters"), with the place of the
// cursor.

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// firstPaste and the characters behind it, for private use, stand in the line for long pastes.
const firstPaste = 0x100000

// longPaste is how many bytes of a paste are shown; of a longer one its name is.
const longPaste = 500

// line is a text that is edited.
type line struct {
	text   string
	pos    int // of the cursor, in bytes, at the border of a cluster
	pastes []pasted
	killed string
}

// pasted is a long paste.
type pasted struct{ name, text string }

// cluster is what is seen as one character, a long paste's name too.
type cluster struct {
	text, show string
	width      int // columns
}

// first takes the first cluster of a text.
func (l *line) first(text string) cluster {
	r, n := utf8.DecodeRuneInString(text)
	switch {
	case r >= firstPaste && int(r-firstPaste) < len(l.pastes):
		name := l.pastes[r-firstPaste].name
		return cluster{text[:n], name, uniseg.StringWidth(name)}
	case r == '\n':
		return cluster{"\n", "␤", 1}
	case r == '\t':
		return cluster{"\t", "␉", 1}
	}
	c, _, width, _ := uniseg.FirstGraphemeClusterInString(text, -1)
	switch {
	case unicode.Is(unicode.M, r): // with nothing to stand on
		return cluster{c, "◌" + c, 1}
	case width == 0: // such as marks of direction, which would turn the line around
		return cluster{c, "", 0}
	}
	return cluster{c, c, width}
}

// clusters divides a text.
func (l *line) clusters(text string) (all []cluster) {
	for text != "" {
		c := l.first(text)
		all, text = append(all, c), text[len(c.text):]
	}
	return all
}

// before is where the cluster before a place begins, after where that behind it ends.
func (l *line) before(pos int) int {
	at := 0
	for at < pos {
		next := at + len(l.first(l.text[at:]).text)
		if next >= pos {
			break
		}
		at = next
	}
	return at
}

func (l *line) after(pos int) int {
	if pos == len(l.text) {
		return pos
	}
	return pos + len(l.first(l.text[pos:]).text)
}

// put replaces a part of the text; the cursor stands behind what is new, where a cluster ends.
func (l *line) put(from, to int, text string) {
	end := from + len(text)
	l.text = l.text[:from] + text + l.text[to:]
	l.pos = 0
	for l.pos < end {
		l.pos += len(l.first(l.text[l.pos:]).text)
	}
}

// insert writes a text at the cursor.
func (l *line) insert(text string) { l.put(l.pos, l.pos, text) }

// paste writes a pasted text, a long one by a name.
func (l *line) paste(text string) {
	if len(text) > longPaste && len(l.pastes) < unicode.MaxRune-firstPaste {
		lines := 1 + strings.Count(strings.TrimRight(text, "\n"), "\n")
		name := fmt.Sprintf("[paste %d: %d lines, %d characters]", len(l.pastes)+1, lines, utf8.RuneCountInString(text))
		l.pastes = append(l.pastes, pasted{name, text})
		text = string(rune(firstPaste + len(l.pastes) - 1))
	}
	l.insert(text)
}

// whole is the text with long pastes as they are.
func (l *line) whole() string {
	var b strings.Builder
	for _, c := range l.clusters(l.text) {
		if r, _ := utf8.DecodeRuneInString(c.text); r >= firstPaste {
			c.text = l.pastes[r-firstPaste].text
		}
		b.WriteString(c.text)
	}
	return b.String()
}

// kill takes out a part, which Ctrl-Y puts in again.
func (l *line) kill(from, to int) {
	if from < to {
		l.killed = l.text[from:to]
		l.put(from, to, "")
	}
}

// wordLeft is where the word before the cursor begins, wordRight where that behind it ends.
func (l *line) wordLeft() int {
	left := strings.TrimRightFunc(l.text[:l.pos], noWord)
	at := strings.LastIndexFunc(left, noWord)
	if at < 0 {
		return 0
	}
	_, n := utf8.DecodeRuneInString(left[at:])
	return at + n
}

func (l *line) wordRight() int {
	rest := strings.TrimLeftFunc(l.text[l.pos:], noWord)
	end := strings.IndexFunc(rest, noWord)
	if end < 0 {
		end = len(rest)
	}
	return len(l.text) - len(rest) + end
}

// noWord says that a character is no part of a word; what joins to the one before it, and a long paste, is.
func noWord(r rune) bool {
	return !unicode.In(r, unicode.L, unicode.N, unicode.M, unicode.Cf) && r < firstPaste
}

// transpose changes the cluster at the cursor with the one before it.
func (l *line) transpose() {
	if l.pos == len(l.text) {
		l.pos = l.before(l.pos)
	}
	if l.pos == 0 {
		return
	}
	from, to := l.before(l.pos), l.after(l.pos)
	l.put(from, to, l.text[l.pos:to]+l.text[from:l.pos])
}

// edit does what a key says, false where it is no key of the line.
func (l *line) edit(k key) bool {
	switch k.code {
	case 0:
		if k.pasted {
			l.paste(k.text)
		} else {
			l.insert(k.text)
		}
	case ctrl('a'):
		l.pos = 0
	case ctrl('e'):
		l.pos = len(l.text)
	case ctrl('b'):
		l.pos = l.before(l.pos)
	case ctrl('f'):
		l.pos = l.after(l.pos)
	case keyWordLeft:
		l.pos = l.wordLeft()
	case keyWordRight:
		l.pos = l.wordRight()
	case ctrl('h'), keyBackspace:
		l.put(l.before(l.pos), l.pos, "")
	case ctrl('d'), keyDelete:
		l.put(l.pos, l.after(l.pos), "")
	case ctrl('k'):
		l.kill(l.pos, len(l.text))
	case ctrl('u'):
		l.kill(0, l.pos)
	case ctrl('w'), keyEraseWord:
		l.kill(l.wordLeft(), l.pos)
	case keyDeleteWord:
		l.kill(l.pos, l.wordRight())
	case ctrl('y'):
		l.insert(l.killed)
	case ctrl('t'):
		l.transpose()
	default:
		return false
	}
	return true
}

// lay divides clusters into a terminal's rows, behind a prompt of so many columns. The cursor stands before cluster
// at, in the row and column that are given; it has a row of its own where the last is full.
func lay(prompt int, all []cluster, at, width int) (out [][]cluster, row, col int) {
	out = [][]cluster{nil}
	used := prompt
	for i, c := range all {
		if c.width > width { // the name of a paste, in a narrow window
			c.show, c.width = c.show[:width], width
		}
		if used > 0 && used+c.width > width {
			if pad := width - used; pad > 0 { // a wide one that does not fit: the terminal must break the row here
				out[len(out)-1] = append(out[len(out)-1], cluster{"", strings.Repeat(" ", pad), pad})
			}
			out, used = append(out, nil), 0
		}
		if i == at {
			row, col = len(out)-1, used
		}
		out[len(out)-1], used = append(out[len(out)-1], c), used+c.width
	}
	if at == len(all) {
		if used >= width {
			out, used = append(out, nil), 0
		}
		row, col = len(out)-1, used
	}
	return out, row, col
}
