package parse

// Calls written as Python: [f(a=1), g(b="x")].

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
)

// pythonBody reads a list of calls; each is given when it is whole.
type pythonBody struct {
	c      *calls
	opened string
	bare   bool
	text   string
	at     int // how much of the text was given
	any    bool
	failed bool
	ended  bool
	behind string
	quote  byte // of the string in which the text ended; 0: in none
}

// maxNested bounds lists within lists, as encoding/json does.
const maxNested = 10000

func (b *pythonBody) write(p *Parser, text string) (string, bool) {
	if b.ended {
		return skipTo(&b.behind, text, b.c.Close)
	}
	b.text += text
	if b.quote != 0 && strings.IndexByte(text, b.quote) < 0 {
		return "", false // a long string is not read anew with each piece
	}
	for {
		s := &scanner{text: b.text, at: b.at}
		s.space()
		for !b.bare && !b.any && s.skip('[') || b.any && s.skip(',') {
			s.space()
		}
		if s.skip(']') || b.c.Close != "" && strings.HasPrefix(s.text[s.at:], b.c.Close) {
			b.ended = true
			return skipTo(&b.behind, s.text[s.at:], b.c.Close)
		}
		name, args, ok := s.call()
		if !ok {
			if s.broken {
				b.failed = true
				if b.any { // what stands behind a call and is none is text
					return b.text[b.at:], true
				}
				p.literal(b.opened + b.text[:s.at])
				return b.text[s.at:], true
			}
			b.quote = s.quote
			return "", false
		}
		p.begin(name)
		p.arguments(args)
		b.any, b.at = true, s.at
	}
}

// end gives what there is of a call that the answer's end cut: its name, and its arguments as JSON that breaks off too.
func (b *pythonBody) end(p *Parser) {
	if b.ended || b.failed {
		return
	}
	s := &scanner{text: b.text, at: b.at}
	for s.space(); !b.bare && !b.any && s.skip('[') || b.any && s.skip(','); {
		s.space()
	}
	if s.call(); s.name != "" && (!b.bare || b.any || p.hasTool(s.name)) {
		p.begin(s.name)
		p.arguments(s.args.String() + s.cut)
	} else if !b.any {
		p.literal(b.opened + b.text)
	}
}

// scanner reads Python's literals. Where the text ends too early it fails without being broken.
type scanner struct {
	text   string
	at     int
	broken bool
	quote  byte // of the string in which it ended

	// Of the call at hand: its name, what its arguments are in JSON so far, and the beginning of a string behind them.
	name, cut string
	args      strings.Builder
}

func (s *scanner) space() {
	for s.at < len(s.text) && strings.IndexByte(" \n\r\t", s.text[s.at]) >= 0 {
		s.at++
	}
}

func (s *scanner) skip(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// fail says that the text is none of these, unless it has only not come yet.
func (s *scanner) fail() bool {
	s.broken = s.at < len(s.text)
	return false
}

func (s *scanner) word() string {
	from := s.at
	for s.at < len(s.text) {
		c := s.text[s.at]
		if c != '_' && c != '.' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			break
		}
		s.at++
	}
	return s.text[from:s.at]
}

// call reads NAME(KEY=VALUE, …) as a name and JSON.
func (s *scanner) call() (name, args string, ok bool) {
	name = s.word()
	if name == "" || !s.skip('(') {
		return "", "", s.fail()
	}
	s.name = name
	b := &s.args
	b.Reset()
	b.WriteByte('{')
	for n := 0; ; n++ {
		s.space()
		if s.skip(')') {
			b.WriteByte('}')
			return name, b.String(), true
		}
		if n > 0 {
			if !s.skip(',') {
				return "", "", s.fail()
			}
			s.space()
			b.WriteString(", ")
		}
		key := s.word()
		s.space()
		if key == "" || !s.skip('=') {
			return "", "", s.fail()
		}
		s.space()
		from := s.at
		v, ok := s.value(0)
		if !ok {
			if s.quote != 0 && s.text[from] == s.quote && s.at == from { // the string is the value itself
				s.cut = quote(key) + ": " + strings.TrimSuffix(s.cut, `"`)
			} else {
				s.cut = ""
			}
			return "", "", false
		}
		b.WriteString(quote(key) + ": " + v)
	}
}

// value reads a literal as JSON.
func (s *scanner) value(depth int) (string, bool) {
	s.space()
	if s.at >= len(s.text) || depth > maxNested {
		s.broken = depth > maxNested
		return "", false
	}
	switch c := s.text[s.at]; {
	case c == '"' || c == '\'':
		return s.str(c)
	case c == '[' || c == '(':
		return s.items(c, depth)
	case c == '{':
		return s.dict(depth)
	}
	from := s.at
	for s.at < len(s.text) && strings.IndexByte(",)]} \n", s.text[s.at]) < 0 {
		s.at++
	}
	if s.at >= len(s.text) {
		return "", false
	}
	word := s.text[from:s.at]
	switch word {
	case "True", "False":
		return strings.ToLower(word), true
	case "None":
		return "null", true
	}
	if json.Valid([]byte(word)) {
		return word, true
	}
	if _, err := strconv.ParseFloat(word, 64); err == nil {
		return quote(word), true
	}
	return "", s.fail()
}

func (s *scanner) str(q byte) (string, bool) {
	var b strings.Builder
	s.quote = q
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == q:
			s.at, s.quote = i+1, 0
			return quote(b.String()), true
		case c == '\\':
			n := unescape(&b, s.text[i+1:])
			if n == 0 {
				s.cut = quote(b.String())
				return "", false
			}
			i += n
		default:
			b.WriteByte(c)
		}
	}
	s.cut = quote(b.String())
	return "", false
}

func (s *scanner) items(open byte, depth int) (string, bool) {
	end := byte(']')
	if open == '(' {
		end = ')'
	}
	s.at++
	var all []string
	for {
		s.space()
		if s.skip(end) {
			return "[" + strings.Join(all, ", ") + "]", true
		}
		if len(all) > 0 && !s.skip(',') {
			return "", s.fail()
		}
		if s.space(); s.skip(end) {
			return "[" + strings.Join(all, ", ") + "]", true
		}
		v, ok := s.value(depth + 1)
		if !ok {
			return "", false
		}
		all = append(all, v)
	}
}

func (s *scanner) dict(depth int) (string, bool) {
	s.at++
	var all []string
	for {
		s.space()
		if s.skip('}') {
			return "{" + strings.Join(all, ", ") + "}", true
		}
		if len(all) > 0 && !s.skip(',') {
			return "", s.fail()
		}
		k, ok := s.value(depth + 1)
		if !ok {
			return "", false
		}
		if s.space(); !s.skip(':') {
			return "", s.fail()
		}
		v, ok := s.value(depth + 1)
		if !ok {
			return "", false
		}
		if k[0] != '"' {
			k = quote(k)
		}
		all = append(all, k+": "+v)
	}
}

// unescape writes what an escape behind a backslash means in Python, and gives its length; 0: it is not whole.
func unescape(b *strings.Builder, text string) int {
	if text == "" {
		return 0
	}
	digits := 0
	switch c := text[0]; c {
	case '\\', '\'', '"':
		b.WriteByte(c)
		return 1
	case '\n': // the line goes on
		return 1
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		if i := strings.IndexByte("ntrbfav0", c); i >= 0 {
			b.WriteByte("\n\t\r\b\f\a\v\x00"[i])
			return 1
		}
		b.WriteByte('\\') // Python leaves it
		b.WriteByte(c)
		return 1
	}
	if len(text) <= digits {
		return 0
	}
	n, err := strconv.ParseUint(text[1:1+digits], 16, 32)
	if err != nil {
		b.WriteByte('\\')
		b.WriteByte(text[0])
		return 1
	}
	low := text[1+digits:]
	if utf16.IsSurrogate(rune(n)) && digits == 4 { // as JSON writes a character beyond 16 bits
		if len(low) < 6 && strings.HasPrefix("\\u", low[:min(2, len(low))]) {
			return 0
		}
		if m, err := strconv.ParseUint(low[min(2, len(low)):min(6, len(low))], 16, 32); err == nil && low[:2] == "\\u" {
			b.WriteRune(utf16.DecodeRune(rune(n), rune(m)))
			return 1 + digits + 6
		}
	}
	b.WriteRune(rune(n))
	return 1 + digits
}

// pythonLiteral reads one of Python's literals as JSON.
func pythonLiteral(text string) (string, bool) {
	s := &scanner{text: text + "\n"}
	v, ok := s.value(0)
	s.space()
	return v, ok && s.at == len(s.text)
}

// pythonArguments writes an object of JSON as a call's arguments: a=1, b="x".
func pythonArguments(object string) string {
	d := json.NewDecoder(strings.NewReader(object))
	d.UseNumber()
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return ""
	}
	var all []string
	for d.More() {
		name, _ := d.Token()
		key, ok := name.(string)
		if !ok {
			break
		}
		all = append(all, key+"="+pythonValue(d))
	}
	return strings.Join(all, ", ")
}

// pythonValue writes the next value of JSON as Python's literal.
func pythonValue(d *json.Decoder) string {
	t, _ := d.Token()
	switch t := t.(type) {
	case json.Number:
		return t.String()
	case string:
		return quote(t)
	case bool:
		if t {
			return "True"
		}
		return "False"
	case json.Delim:
		var all []string
		for d.More() {
			v := pythonValue(d)
			if t == '{' {
				v += ": " + pythonValue(d)
			}
			all = append(all, v)
		}
		end, _ := d.Token()
		if end == nil { // it broke off
			return "None"
		}
		return t.String() + strings.Join(all, ", ") + end.(json.Delim).String()
	}
	return "None"
}
