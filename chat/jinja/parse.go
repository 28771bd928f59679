package jinja

// The parser of statements, after Jinja's grammar.

import (
	"fmt"
	"slices"
	"strings"
)

// maxNesting bounds how deep expressions and blocks may lie in one another.
const maxNesting = 200

type parser struct {
	tokens  []tok
	at      int
	blocks  map[string]*blockStmt
	tags    []string   // open tags
	ends    [][]string // what would end them
	macros  []*macroDef
	loops   int  // loops around, within one function
	soft    bool // inside the branch of a condition
	nesting int
	filters []*filterExpr
	tests   []*testExpr
}

// checkNames refuses filters and tests that there are not.
func (p *parser) checkNames() {
	fail := func(line int, what, name string) {
		panic(&Error{Kind: "TemplateAssertionError", Text: "No " + what + " named " + reprString(name) + ".", Line: line})
	}
	for _, f := range p.filters {
		if filters[f.name] == nil && !f.soft {
			fail(f.line, "filter", f.name)
		}
	}
	for _, t := range p.tests {
		if tests[t.name] == nil && !t.soft {
			fail(t.line, "test", t.name)
		}
	}
}

func (p *parser) cur() tok {
	t := p.tokens[p.at]
	if t.kind == tError {
		panic(t.value)
	}
	return t
}

func (p *parser) peek() tok { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

func (p *parser) next() tok {
	t := p.cur()
	if t.kind != tEOF {
		p.at++
	}
	return t
}

func (p *parser) failAt(line int, format string, args ...any) {
	panic(&Error{Kind: "TemplateSyntaxError", Text: fmt.Sprintf(format, args...), Line: line})
}

func (p *parser) fail(format string, args ...any) { p.failAt(p.cur().line, format, args...) }

func (p *parser) deeper() func() {
	if p.nesting++; p.nesting > maxNesting {
		p.fail("the template is nested more than %d deep", maxNesting)
	}
	return func() { p.nesting-- }
}

func (p *parser) isOp(op string) bool { t := p.cur(); return t.kind == tOp && t.text == op }

func (p *parser) isName(name string) bool { t := p.cur(); return t.kind == tName && t.text == name }

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.at++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expectOp(op string) {
	if !p.skipOp(op) {
		p.expected(op)
	}
}

func (p *parser) expected(what string) {
	if p.cur().kind == tEOF {
		p.fail("unexpected end of template, expected %s.", reprString(what))
	}
	p.fail("expected token %s, got %s", reprString(what), reprString(p.cur().String()))
}

func (p *parser) expectName() string {
	if p.cur().kind != tName {
		p.expected("name")
	}
	return p.next().text
}

func (p *parser) expectKind(k tokenKind) {
	if p.cur().kind != k {
		p.expected(tok{kind: k}.String())
	}
	p.at++
}

// subparse reads statements up to one of the ending tags, which stays the current token.
func (p *parser) subparse(ends []string) []stmt {
	defer p.deeper()()
	if ends != nil {
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	var body []stmt
	for {
		switch t := p.cur(); t.kind {
		case tData:
			p.at++
			body = append(body, &dataStmt{t.text})
		case tVarBegin:
			p.at++
			x := p.tuple(tupleOpt{cond: true})
			p.expectKind(tVarEnd)
			body = append(body, &outputStmt{x, t.line})
		case tBlockBegin:
			p.at++
			if p.cur().kind == tName && slices.Contains(ends, p.cur().text) {
				return body
			}
			body = append(body, p.statement()...)
			p.expectKind(tBlockEnd)
		default:
			if ends != nil {
				p.unknownTag("")
			}
			return body
		}
	}
}

// statements reads the body of a tag, up to and with the name of the tag that ends it.
func (p *parser) statements(ends ...string) (body []stmt, end string) {
	p.skipOp(":")
	p.expectKind(tBlockEnd)
	body = p.subparse(ends)
	return body, p.next().text
}

// unknownTag says what was expected in place of a tag, or of the end.
func (p *parser) unknownTag(name string) {
	text := "Unexpected end of template."
	if name != "" {
		text = "Encountered unknown tag " + reprString(name) + "."
	}
	if n := len(p.ends); n > 0 {
		var known bool
		for _, ends := range p.ends {
			known = known || name != "" && slices.Contains(ends, name)
		}
		var quoted []string
		for _, e := range p.ends[n-1] {
			quoted = append(quoted, "'"+e+"'")
		}
		looking := strings.Join(quoted, " or ")
		if known {
			text += " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " +
				looking + "."
		} else {
			text += " Jinja was looking for the following tags: " + looking + "."
		}
	}
	if n := len(p.tags); n > 0 {
		text += " The innermost block that needs to be closed is " + reprString(p.tags[n-1]) + "."
	}
	p.fail("%s", text)
}

// statement reads one tag with its body.
func (p *parser) statement() []stmt {
	t := p.cur()
	if t.kind != tName {
		p.fail("tag name expected")
	}
	p.tags = append(p.tags, t.text)
	f, ok := tags[t.text]
	if !ok {
		p.tags = p.tags[:len(p.tags)-1]
		p.unknownTag(t.text)
	}
	p.at++
	all := f(p, t.line)
	p.tags = p.tags[:len(p.tags)-1]
	return all
}

var tags map[string]func(*parser, int) []stmt

func init() {
	one := func(f func(*parser, int) stmt) func(*parser, int) []stmt {
		return func(p *parser, line int) []stmt { return []stmt{f(p, line)} }
	}
	tags = map[string]func(*parser, int) []stmt{
		"for": one((*parser).forTag), "if": one((*parser).ifTag), "set": one((*parser).setTag),
		"macro": one((*parser).macroTag), "call": one((*parser).callTag), "filter": one((*parser).filterTag),
		"with": one((*parser).withTag), "autoescape": one((*parser).escapeTag), "block": one((*parser).blockTag),
		"print": (*parser).printTag, "generation": one((*parser).generationTag),
		"include": one((*parser).loaderTag), "import": one((*parser).loaderTag),
		"from": one((*parser).loaderTag), "extends": one((*parser).loaderTag),
		"break":    one(func(p *parser, line int) stmt { return p.jump(breakLoop, line) }),
		"continue": one(func(p *parser, line int) stmt { return p.jump(continueLoop, line) }),
	}
}

func (p *parser) jump(how signal, line int) stmt {
	if p.loops == 0 {
		name := map[signal]string{breakLoop: "'break' outside loop", continueLoop: "'continue' not properly in loop"}[how]
		panic(&Error{Kind: "SyntaxError", Text: name, Line: line})
	}
	return &jumpStmt{how}
}

// within reads something whose conditions and loops do not count outside.
func (p *parser) within(loops int, soft bool, f func()) {
	l, s := p.loops, p.soft
	p.loops, p.soft = loops, soft
	f()
	p.loops, p.soft = l, s
}

func (p *parser) forTag(line int) stmt {
	f := &forStmt{line: line}
	f.target = p.target(true, false, "in")
	if !p.skipName("in") {
		p.expected("in")
	}
	f.iter = p.tuple(tupleOpt{ends: []string{"recursive"}})
	if p.skipName("if") {
		f.test = p.expression(true)
	}
	f.recursive = p.skipName("recursive")
	var end string
	p.within(p.loops+1, false, func() { f.body, end = p.statements("endfor", "else") })
	if end == "else" {
		p.within(p.loops, false, func() { f.or, _ = p.statements("endfor") })
	}
	return f
}

func (p *parser) ifTag(line int) stmt {
	f := &ifStmt{line: line}
	p.within(p.loops, true, func() {
		for {
			f.tests = append(f.tests, p.tuple(tupleOpt{}))
			body, end := p.statements("elif", "else", "endif")
			f.then = append(f.then, body)
			if end == "elif" {
				continue
			}
			if end == "else" {
				f.or, _ = p.statements("endif")
			}
			return
		}
	})
	return f
}

func (p *parser) setTag(line int) stmt {
	target := p.target(true, true)
	if p.skipOp("=") {
		return &setStmt{target, p.tuple(tupleOpt{cond: true}), line}
	}
	b := &setBlockStmt{target: target, line: line}
	for p.isOp("|") {
		p.at++
		b.filter = p.filter(b.filterOf())
	}
	p.within(p.loops, false, func() { b.body, _ = p.statements("endset") })
	return b
}

func (b *setBlockStmt) filterOf() expr {
	if b.filter == nil {
		return nil
	}
	return b.filter
}

// signature reads the parameters of a macro.
func (p *parser) signature(m *macroDef) {
	p.expectOp("(")
	for !p.isOp(")") {
		if len(m.params) > 0 {
			p.expectOp(",")
		}
		name := p.target(false, false).(*nameExpr).name
		if p.skipOp("=") {
			m.defaults = append(m.defaults, p.expression(true))
		} else if len(m.defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
		m.params = append(m.params, name)
	}
	p.expectOp(")")
}

func (p *parser) macroBody(m *macroDef, end string) {
	p.macros = append(p.macros, m)
	p.within(0, false, func() { m.body, _ = p.statements(end) })
	p.macros = p.macros[:len(p.macros)-1]
}

func (p *parser) macroTag(line int) stmt {
	m := &macroDef{name: p.target(false, false).(*nameExpr).name}
	p.signature(m)
	p.macroBody(m, "endmacro")
	return &macroStmt{m, line}
}

func (p *parser) callTag(line int) stmt {
	m := &macroDef{name: "caller"}
	if p.isOp("(") {
		p.signature(m)
	}
	call, ok := p.expression(true).(*callExpr)
	if !ok {
		p.failAt(line, "expected call")
	}
	p.macroBody(m, "endcall")
	return &callStmt{m, call, line}
}

func (p *parser) filterTag(line int) stmt {
	f := &filterStmt{line: line, filter: p.filter(nil)}
	for p.skipOp("|") {
		f.filter = p.filter(f.filter)
	}
	p.within(p.loops, false, func() { f.body, _ = p.statements("endfilter") })
	return f
}

func (p *parser) withTag(int) stmt {
	w := &withStmt{}
	for p.cur().kind != tBlockEnd {
		if len(w.targets) > 0 {
			p.expectOp(",")
		}
		w.targets = append(w.targets, p.target(true, false))
		p.expectOp("=")
		w.values = append(w.values, p.expression(true))
	}
	p.within(p.loops, false, func() { w.body, _ = p.statements("endwith") })
	return w
}

func (p *parser) escapeTag(int) stmt {
	e := &escapeStmt{on: p.expression(true)}
	p.within(p.loops, false, func() { e.body, _ = p.statements("endautoescape") })
	return e
}

func (p *parser) generationTag(int) stmt {
	s := &scopeStmt{}
	p.within(0, false, func() { s.body, _ = p.statements("endgeneration") })
	return s
}

func (p *parser) blockTag(line int) stmt {
	b := &blockStmt{name: p.expectName()}
	b.scoped = p.skipName("scoped")
	p.skipName("required")
	if p.isOp("-") {
		p.fail("Block names in Jinja have to be valid Python identifiers and may not contain hyphens, " +
			"use an underscore instead.")
	}
	if _, ok := p.blocks[b.name]; ok {
		panic(&Error{Kind: "TemplateAssertionError", Text: "block " + reprString(b.name) + " defined twice", Line: line})
	}
	p.blocks[b.name] = b
	p.within(0, false, func() { b.body, _ = p.statements("endblock") })
	p.skipName(b.name)
	return b
}

func (p *parser) printTag(line int) []stmt {
	var all []stmt
	for p.cur().kind != tBlockEnd {
		if len(all) > 0 {
			p.expectOp(",")
		}
		all = append(all, &outputStmt{p.expression(true), line})
	}
	return all
}

func (p *parser) loaderTag(line int) stmt {
	for p.cur().kind != tBlockEnd && p.cur().kind != tEOF {
		p.at++
	}
	return &loaderStmt{line}
}

// target reads what a value is assigned to: a name, names, or an attribute of a namespace.
func (p *parser) target(tuple, namespace bool, ends ...string) expr {
	var x expr
	if tuple {
		x = p.tuple(tupleOpt{simple: true, namespace: namespace, ends: ends})
	} else {
		x = &nameExpr{p.expectName()}
	}
	p.checkTarget(x)
	return x
}

func (p *parser) checkTarget(x expr) {
	what := "other"
	switch t := x.(type) {
	case *nameExpr:
		if t.name != "true" && t.name != "false" && t.name != "none" && t.name != "True" && t.name != "False" &&
			t.name != "None" {
			return
		}
		what = "const"
	case *nsTarget:
		return
	case *tupleExpr:
		for _, i := range t.items {
			p.checkTarget(i)
		}
		return
	case *constExpr:
		what = "const"
	case *listExpr:
		what = "list"
	case *dictExpr:
		what = "dict"
	}
	p.fail("can't assign to %s", reprString(what))
}
