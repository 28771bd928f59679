package lang

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on an expression, so that no text can exhaust the stack: of nesting,
// and of length, as sums and products lean to the left without being nested.
const (
	maxDepth = 200
	maxText  = 1 << 16
)

// Parse reads one expression. The error, if any, is an *Error.
func Parse(text string) (Expr, error) {
	if len(text) > maxText {
		return nil, errorf(0, "an expression of %d characters; there may be %d", len(text), maxText)
	}
	p := &parser{text: text}
	p.next()
	e := p.cond()
	if p.err == nil && p.tok != tEnd {
		p.fail(p.at, "expected an operator or the end, found %s", p.found())
	}
	if p.err != nil {
		return nil, p.err
	}
	return e, nil
}

// IsName says whether s can be the name of a value or parameter.
func IsName(s string) bool {
	if s == "" || keyword(s) {
		return false
	}
	for i := range len(s) {
		if !letter(s[i]) && (i == 0 || !digit(s[i])) {
			return false
		}
	}
	return true
}

func keyword(s string) bool {
	switch s {
	case "if", "else", "as", "and", "or", "not", "in", "true", "false":
		return true
	}
	return false
}

type token uint8

const (
	tEnd token = iota
	tNum
	tStr
	tName
	tOp // punctuation, and the words as, if, else, and, or, not, in
)

type parser struct {
	text  string
	off   int // behind the current token
	at    int // start of the current token
	tok   token
	lit   string
	num   float64
	depth int
	err   *Error
}

func letter(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
func digit(c byte) bool { return '0' <= c && c <= '9' }

func (p *parser) fail(at int, format string, args ...any) {
	if p.err == nil {
		p.err = errorf(at, format, args...)
	}
	p.tok, p.off = tEnd, len(p.text) // ends every loop
}

func (p *parser) found() string {
	if p.tok == tEnd {
		return "the end"
	}
	return strconv.Quote(p.text[p.at:p.off])
}

var operators = []string{"...", "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "<", ">", "(", ")", "[",
	"]", ",", "=", ":"}

func (p *parser) next() {
	t := p.text
	for p.off < len(t) && (t[p.off] == ' ' || t[p.off] == '\t' || t[p.off] == '\n' || t[p.off] == '\r') {
		p.off++
	}
	p.at = p.off
	if p.off == len(t) {
		p.tok, p.lit = tEnd, ""
		return
	}
	c := t[p.off]
	switch {
	case letter(c):
		for p.off < len(t) && (letter(t[p.off]) || digit(t[p.off])) {
			p.off++
		}
		p.tok, p.lit = tName, t[p.at:p.off]
		if keyword(p.lit) && p.lit != "true" && p.lit != "false" {
			p.tok = tOp
		}
	case digit(c) || c == '.' && p.off+1 < len(t) && digit(t[p.off+1]):
		p.number()
	case c == '"' || c == '\'':
		end := strings.IndexByte(t[p.off+1:], c)
		if end < 0 {
			p.fail(p.at, "the quote %c is not closed", c)
			return
		}
		p.tok, p.lit = tStr, t[p.off+1:p.off+1+end]
		p.off += end + 2
	default:
		for _, op := range operators {
			if strings.HasPrefix(t[p.off:], op) {
				p.tok, p.lit = tOp, op
				p.off += len(op)
				return
			}
		}
		r, _ := utf8.DecodeRuneInString(t[p.off:])
		p.fail(p.at, "unexpected character %q", r)
	}
}

func (p *parser) number() {
	t := p.text
	for p.off < len(t) && (digit(t[p.off]) || t[p.off] == '.' || t[p.off] == '_') {
		p.off++
	}
	if p.off < len(t) && (t[p.off] == 'e' || t[p.off] == 'E') {
		q := p.off + 1
		if q < len(t) && (t[q] == '+' || t[q] == '-') {
			q++
		}
		if q < len(t) && digit(t[q]) {
			for q < len(t) && digit(t[q]) {
				q++
			}
			p.off = q
		}
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(t[p.at:p.off], "_", ""), 64)
	if err != nil || p.off < len(t) && letter(t[p.off]) {
		p.fail(p.at, "%q is not a number", t[p.at:min(len(t), p.off+1)])
		return
	}
	p.tok, p.num, p.lit = tNum, v, t[p.at:p.off]
}

func (p *parser) is(op string) bool { return p.tok == tOp && p.lit == op }

func (p *parser) accept(op string) bool {
	if p.is(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(op string) {
	if !p.accept(op) {
		p.fail(p.at, "expected %q, found %s", op, p.found())
	}
}

// deeper counts a level of nesting, and fails where there are too many.
func (p *parser) deeper() bool {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.at, "nested more than %d deep", maxDepth)
		return false
	}
	return true
}

// cond is the lowest level: x if c else y.
func (p *parser) cond() Expr {
	if !p.deeper() {
		return Num{}
	}
	defer func() { p.depth-- }()
	x := p.binary(0)
	if at := p.at; p.accept("if") {
		c := p.binary(0)
		p.expect("else")
		return Cond{At(at), c, x, p.cond()}
	}
	return x
}

// levels of binary operators, loosest first; all of them left-associative.
var levels = [][]string{{"or"}, {"and"}, {"==", "!=", "<=", ">=", "<", ">", "in", "not"}, {"+", "-"},
	{"*", "/", "//", "%"}}

func (p *parser) binary(level int) Expr {
	if level == len(levels) {
		return p.unary()
	}
	if level == 2 {
		if at := p.at; p.accept("not") {
			if !p.deeper() {
				return Num{}
			}
			defer func() { p.depth-- }()
			return Unary{At(at), "not", p.binary(level)}
		}
	}
	x := p.binary(level + 1)
next:
	for _, op := range levels[level] {
		if p.is(op) {
			at := p.at
			p.next()
			if op == "not" {
				p.expect("in")
				op = "not-in"
			}
			x = Binary{At(at), op, x, p.binary(level + 1)}
			goto next
		}
	}
	return x
}

func (p *parser) unary() Expr {
	if p.is("-") || p.is("+") {
		at, op := p.at, p.lit
		p.next()
		if !p.deeper() {
			return Num{}
		}
		defer func() { p.depth-- }()
		return Unary{At(at), op, p.unary()}
	}
	x := p.postfix()
	if at := p.at; p.accept("**") {
		if !p.deeper() {
			return Num{}
		}
		defer func() { p.depth-- }()
		return Binary{At(at), "**", x, p.unary()}
	}
	return x
}

func (p *parser) postfix() Expr {
	x := p.primary()
	for {
		at := p.at
		if p.is("[") {
			x = p.index(x)
			continue
		}
		if !p.accept("as") {
			return x
		}
		if !p.is("[") {
			p.fail(p.at, "expected [sizes] behind \"as\", found %s", p.found())
			return x
		}
		p.next()
		x = As{At(at), x, p.list("]")}
	}
}

// index reads what stands in brackets behind x: an index, or lo:hi with either left out.
func (p *parser) index(x Expr) Expr {
	at := At(p.at)
	p.next()
	if !p.deeper() {
		return Num{}
	}
	defer func() { p.depth-- }()
	var lo, hi Expr
	if !p.is(":") {
		lo = p.cond()
	}
	if !p.accept(":") {
		p.expect("]")
		return Index{at, x, lo}
	}
	if !p.is("]") {
		hi = p.cond()
	}
	p.expect("]")
	return Slice{at, x, lo, hi}
}

func (p *parser) list(end string) []Expr {
	var all []Expr
	for p.err == nil && !p.is(end) {
		all = append(all, p.cond())
		if !p.is(end) {
			p.expect(",")
		}
	}
	p.expect(end)
	return all
}

func (p *parser) primary() Expr {
	at := At(p.at)
	switch {
	case p.tok == tNum:
		v := p.num
		p.next()
		return Num{at, v}
	case p.tok == tStr:
		v := p.lit
		p.next()
		return Str{at, v}
	case p.tok == tName:
		name := p.lit
		p.next()
		if p.accept("(") {
			return p.call(at, name)
		}
		return Name{at, name}
	case p.accept("("):
		x := p.cond()
		p.expect(")")
		return x
	case p.accept("["):
		return List{at, p.list("]")}
	}
	p.fail(p.at, "expected a value, found %s", p.found())
	return Num{}
}

func (p *parser) call(at At, name string) Expr {
	c := Call{At: at, Func: name}
	for p.err == nil && !p.is(")") {
		start := p.at
		if p.accept("...") {
			rest := At(start)
			if c.Rest = &rest; !p.is(")") {
				p.fail(start, "\"...\" closes a call: \")\" must follow it, not %s", p.found())
			}
			break
		}
		x := p.cond()
		if n, ok := x.(Name); ok && p.is("=") {
			p.next()
			for _, o := range c.Named {
				if o.Name == n.Name {
					p.fail(start, "%s= is given twice", n.Name)
				}
			}
			c.Named = append(c.Named, Named{At(start), n.Name, p.cond()})
		} else if len(c.Named) > 0 {
			p.fail(start, "an operand cannot follow the attribute %s=", c.Named[len(c.Named)-1].Name)
		} else {
			c.Args = append(c.Args, x)
		}
		if !p.is(")") {
			p.expect(",")
		}
	}
	p.expect(")")
	return c
}
