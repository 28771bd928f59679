package jinja

// The lexer: text, tags and expressions to tokens, with Jinja's rules of whitespace around tags.

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tEOF tokenKind = iota
	tData
	tVarBegin
	tVarEnd
	tBlockBegin
	tBlockEnd
	tName
	tString
	tInt
	tFloat
	tOp
	tError // value is what the lexer could not read: it counts where the parser comes to it
)

type tok struct {
	kind  tokenKind
	text  string // of data, names and operators; strings are unescaped
	value any    // of numbers
	line  int
}

func (t tok) String() string {
	switch t.kind {
	case tEOF:
		return "end of template"
	case tVarEnd:
		return "end of print statement"
	case tBlockEnd:
		return "end of statement block"
	case tVarBegin:
		return "begin of print statement"
	case tBlockBegin:
		return "begin of statement block"
	case tData:
		return "template data / text"
	case tInt, tFloat:
		return fmt.Sprint(t.value)
	}
	return t.text
}

type lexer struct {
	src      string
	pos      int
	line     int
	tokens   []tok
	starting bool // the last match ended a line, or there was none
}

// pySpace says whether Python's str.isspace holds for r.
func pySpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func tokenize(source string) []tok {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{src: source, line: 1, starting: true}
	l.all()
	l.add(tEOF, "", nil)
	return l.tokens
}

func (l *lexer) all() {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(*Error)
			if !ok {
				panic(p)
			}
			l.add(tError, "", e)
		}
	}()
	for l.pos < len(l.src) {
		l.root()
	}
}

func (l *lexer) fail(format string, args ...any) {
	panic(&Error{Kind: "TemplateSyntaxError", Text: fmt.Sprintf(format, args...), Line: l.line})
}

func (l *lexer) add(kind tokenKind, text string, value any) {
	l.tokens = append(l.tokens, tok{kind, text, value, l.line})
}

// advance moves to a position and counts lines.
func (l *lexer) advance(to int) {
	l.line += strings.Count(l.src[l.pos:to], "\n")
	l.starting = to > 0 && to > l.pos && l.src[to-1] == '\n'
	l.pos = to
}

// nextTag finds where the next {{, {% or {# begins.
func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// root reads text up to a tag, and the tag.
func (l *lexer) root() {
	rest := l.src[l.pos:]
	i := nextTag(rest)
	if i < 0 {
		l.add(tData, rest, nil)
		l.advance(len(l.src))
		return
	}
	text, kind, at := rest[:i], rest[i+1], l.pos+i+2
	if end, sign, ok := l.rawBegin(at, kind); ok {
		l.data(text, sign, true)
		l.advance(end)
		l.raw()
		return
	}
	sign := l.sign(at)
	if sign != 0 {
		at++
	}
	l.data(text, sign, kind != '{')
	l.advance(at)
	switch kind {
	case '#':
		l.comment()
	case '%':
		l.add(tBlockBegin, "", nil)
		l.inside(tBlockEnd)
	default:
		l.add(tVarBegin, "", nil)
		l.inside(tVarEnd)
	}
}

func (l *lexer) sign(at int) byte {
	if at < len(l.src) && (l.src[at] == '-' || l.src[at] == '+') {
		return l.src[at]
	}
	return 0
}

// data adds the text before a tag, without what - or lstrip_blocks takes.
func (l *lexer) data(text string, sign byte, lstrip bool) {
	kept := text
	switch {
	case sign == '-':
		kept = strings.TrimRightFunc(text, pySpace)
	case sign != '+' && lstrip:
		at := strings.LastIndexByte(text, '\n') + 1
		if (at > 0 || l.starting) && strings.TrimLeftFunc(text[at:], pySpace) == "" {
			kept = text[:at]
		}
	}
	if kept != "" {
		l.add(tData, kept, nil)
	}
}

func (l *lexer) spaces(at int) int {
	return at + len(l.src[at:]) - len(strings.TrimLeftFunc(l.src[at:], pySpace))
}

// close matches the end of a tag at a position: it gives where the text goes on, or -1.
func (l *lexer) close(at int, end string, plus, newline bool) int {
	rest := l.src[at:]
	switch {
	case strings.HasPrefix(rest, "-"+end):
		return l.spaces(at + 1 + len(end))
	case plus && strings.HasPrefix(rest, "+"+end):
		return at + 1 + len(end)
	case strings.HasPrefix(rest, end):
		at += len(end)
		if newline && strings.HasPrefix(l.src[at:], "\n") {
			at++
		}
		return at
	}
	return -1
}

// rawBegin matches the rest of {% raw %}.
func (l *lexer) rawBegin(at int, kind byte) (end int, sign byte, ok bool) {
	if kind != '%' {
		return 0, 0, false
	}
	if sign = l.sign(at); sign != 0 {
		at++
	}
	at = l.spaces(at)
	if !strings.HasPrefix(l.src[at:], "raw") {
		return 0, 0, false
	}
	end = l.close(l.spaces(at+3), "%}", false, false)
	return end, sign, end >= 0
}

// raw reads up to {% endraw %}.
func (l *lexer) raw() {
	for at := l.pos; ; at++ {
		i := strings.Index(l.src[at:], "{%")
		if i < 0 {
			l.fail("Missing end of raw directive")
		}
		at += i
		p, sign := at+2, l.sign(at+2)
		if sign != 0 {
			p++
		}
		if p = l.spaces(p); !strings.HasPrefix(l.src[p:], "endraw") {
			continue
		}
		if end := l.close(l.spaces(p+6), "%}", true, true); end >= 0 {
			l.data(l.src[l.pos:at], sign, true)
			l.advance(end)
			return
		}
	}
}

func (l *lexer) comment() {
	for at := l.pos; ; at++ {
		i := strings.IndexAny(l.src[at:], "#-+")
		if i < 0 {
			l.fail("Missing end of comment tag")
		}
		at += i
		if end := l.close(at, "#}", true, true); end >= 0 {
			l.advance(end)
			return
		}
	}
}

// inside reads tokens up to the end of a tag.
func (l *lexer) inside(kind tokenKind) {
	var open []byte
	for {
		if l.pos = l.skipSpace(); l.pos >= len(l.src) {
			l.fail("unexpected end of template")
		}
		if len(open) == 0 {
			end := -1
			if kind == tBlockEnd {
				end = l.close(l.pos, "%}", true, true)
			} else {
				end = l.close(l.pos, "}}", false, false)
			}
			if end >= 0 {
				l.add(kind, "", nil)
				l.advance(end)
				return
			}
		}
		open = l.token(open)
	}
}

func (l *lexer) skipSpace() int {
	to := l.spaces(l.pos)
	l.line += strings.Count(l.src[l.pos:to], "\n")
	return to
}

var operators2 = []string{"//", "**", "==", "!=", ">=", "<="}

// token reads one token of an expression; open are the brackets that wait for their partner.
func (l *lexer) token(open []byte) []byte {
	c := l.src[l.pos]
	switch {
	case c >= '0' && c <= '9':
		l.number()
		return open
	case c == '\'' || c == '"':
		l.str(c)
		return open
	}
	if r, _ := utf8.DecodeRuneInString(l.src[l.pos:]); r == '_' || unicode.IsLetter(r) {
		end := l.pos
		for end < len(l.src) {
			r, n := utf8.DecodeRuneInString(l.src[end:])
			if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r) {
				break
			}
			end += n
		}
		l.add(tName, l.src[l.pos:end], nil)
		l.advance(end)
		return open
	}
	for _, op := range operators2 {
		if strings.HasPrefix(l.src[l.pos:], op) {
			l.add(tOp, op, nil)
			l.advance(l.pos + 2)
			return open
		}
	}
	if !strings.ContainsRune("+-/*%~[](){}><=.:|,;", rune(c)) {
		r, _ := utf8.DecodeRuneInString(l.src[l.pos:])
		l.fail("unexpected char %s at %d", reprString(string(r)), utf8.RuneCountInString(l.src[:l.pos]))
	}
	switch c {
	case '(', '[', '{':
		open = append(open, map[byte]byte{'(': ')', '[': ']', '{': '}'}[c])
	case ')', ']', '}':
		if len(open) == 0 {
			l.fail("unexpected '%c'", c)
		}
		if want := open[len(open)-1]; want != c {
			l.fail("unexpected '%c', expected '%c'", c, want)
		}
		open = open[:len(open)-1]
	}
	l.add(tOp, string(c), nil)
	l.advance(l.pos + 1)
	return open
}

// digits gives where a run of digits, divided by single underlines, ends; at if there is none.
func (l *lexer) digits(at int, ok func(byte) bool) int {
	for at < len(l.src) && ok(l.src[at]) {
		if at++; at+1 < len(l.src) && l.src[at] == '_' && ok(l.src[at+1]) {
			at++
		}
	}
	return at
}

func decimal(c byte) bool { return c >= '0' && c <= '9' }

// number reads an integer or a float.
func (l *lexer) number() {
	at := l.pos
	base := 10
	ok := decimal
	if l.src[at] == '0' && at+1 < len(l.src) {
		switch l.src[at+1] | 0x20 {
		case 'x':
			base, ok = 16, func(c byte) bool { return decimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
		case 'o':
			base, ok = 8, func(c byte) bool { return c >= '0' && c <= '7' }
		case 'b':
			base, ok = 2, func(c byte) bool { return c == '0' || c == '1' }
		}
	}
	if base != 10 && at+2 < len(l.src) && ok(l.src[at+2]) {
		end := l.digits(at+2, ok)
		l.integer(strings.ReplaceAll(l.src[at+2:end], "_", ""), base, end)
		return
	}
	end := l.digits(at, decimal)
	float := false
	afterDot := at > 0 && l.src[at-1] == '.' // x.1.2 is two subscripts
	if !afterDot {
		if end+1 < len(l.src) && l.src[end] == '.' && decimal(l.src[end+1]) {
			end, float = l.digits(end+1, decimal), true
		}
		if e := end; e < len(l.src) && l.src[e]|0x20 == 'e' {
			if e++; e < len(l.src) && (l.src[e] == '+' || l.src[e] == '-') {
				e++
			}
			if e < len(l.src) && decimal(l.src[e]) {
				end, float = l.digits(e, decimal), true
			}
		}
	}
	text := strings.ReplaceAll(l.src[at:end], "_", "")
	if !float {
		if text[0] == '0' { // a zero ends the number: what follows is another token
			end = at + len(text) - len(strings.TrimLeft(text, "0"))
			text = "0"
		}
		l.integer(text, 10, end)
		return
	}
	f, _ := strconv.ParseFloat(text, 64)
	l.add(tFloat, "", f)
	l.advance(end)
}

func (l *lexer) integer(text string, base, end int) {
	n, err := strconv.ParseInt(text, base, 64)
	if err != nil {
		l.fail("the integer %s does not fit 64 bits", text)
	}
	l.add(tInt, "", n)
	l.advance(end)
}

// str reads a string and its escapes.
func (l *lexer) str(quote byte) {
	at := l.pos + 1
	for ; at < len(l.src) && l.src[at] != quote; at++ {
		if l.src[at] == '\\' {
			at++
		}
	}
	if at >= len(l.src) {
		l.fail("unexpected char %s at %d", reprString(string(quote)), utf8.RuneCountInString(l.src[:l.pos]))
	}
	l.add(tString, l.unescape(l.src[l.pos+1:at]), nil)
	l.advance(at + 1)
}

var simpleEscapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': "",
}

// unescape reads escapes as Python's unicode-escape does; what it does not know stays.
func (l *lexer) unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if text, ok := simpleEscapes[s[i]]; ok {
			b.WriteString(text)
			continue
		}
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]
		switch {
		case width > 0:
			var n uint64
			var err error = strconv.ErrSyntax
			if i+width < len(s) {
				n, err = strconv.ParseUint(s[i+1:i+1+width], 16, 32)
			}
			if err != nil || n > unicode.MaxRune {
				l.fail("truncated \\%c escape in a string", s[i])
			}
			i += width
			if width == 4 && n >= 0xd800 && n < 0xdc00 && strings.HasPrefix(s[i+1:], `\u`) && i+6 < len(s) {
				if low, err := strconv.ParseUint(s[i+3:i+7], 16, 32); err == nil && low >= 0xdc00 && low < 0xe000 {
					n, i = 0x10000+(n-0xd800)<<10+(low-0xdc00), i+6
				}
			}
			b.WriteRune(rune(n))
		case s[i] >= '0' && s[i] <= '7':
			n, j := 0, i
			for ; j < len(s) && j < i+3 && s[j] >= '0' && s[j] <= '7'; j++ {
				n = n*8 + int(s[j]-'0')
			}
			b.WriteRune(rune(n))
			i = j - 1
		case s[i] == 'N': // one by its name in Unicode, whose list is not here
			l.fail("characters by name, \\N{...}, are not known in a string: write \\uXXXX")
		default:
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
