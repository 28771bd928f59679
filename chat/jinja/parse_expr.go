package jinja

// The parser of expressions, after Jinja's order of operators.

import "slices"

// tupleOpt says how the parts of a tuple are read.
type tupleOpt struct {
	simple    bool // names and literals only, as targets are
	cond      bool // an inline if may stand there
	paren     bool // in parentheses, so that () is a tuple
	namespace bool
	ends      []string // names that end it
}

func (p *parser) tupleEnds(ends []string) bool {
	t := p.cur()
	return t.kind == tVarEnd || t.kind == tBlockEnd || p.isOp(")") || t.kind == tName && slices.Contains(ends, t.text)
}

func (p *parser) tuple(o tupleOpt) expr {
	var items []expr
	tuple := false
	for {
		if len(items) > 0 {
			p.expectOp(",")
		}
		if p.tupleEnds(o.ends) {
			break
		}
		if o.simple {
			items = append(items, p.primary(o.namespace))
		} else {
			items = append(items, p.expression(o.cond))
		}
		if !p.isOp(",") {
			break
		}
		tuple = true
	}
	if !tuple {
		if len(items) > 0 {
			return items[0]
		}
		if !o.paren {
			p.fail("Expected an expression, got %s", reprString(p.cur().String()))
		}
	}
	return &tupleExpr{items}
}

func (p *parser) expression(cond bool) expr {
	defer p.deeper()()
	if !cond {
		return p.or()
	}
	x := p.or()
	for p.isName("if") {
		line := p.next().line
		c := &condExpr{then: x, line: line}
		soft := p.soft
		p.soft = true
		c.test = p.or()
		if p.skipName("else") {
			c.or = p.expression(true)
		}
		p.soft = soft
		markSoft(x)
		x = c
	}
	return x
}

// markSoft makes unknown filters and tests of a branch errors of the run, as the branch may not be taken.
func markSoft(x expr) {
	switch x := x.(type) {
	case *filterExpr:
		x.soft = true
		if x.of != nil {
			markSoft(x.of)
		}
	case *testExpr:
		x.soft = true
		markSoft(x.of)
	case *binaryExpr:
		markSoft(x.x)
		markSoft(x.y)
	case *logicExpr:
		markSoft(x.x)
		markSoft(x.y)
	case *concatExpr:
		for _, i := range x.items {
			markSoft(i)
		}
	case *unaryExpr:
		markSoft(x.x)
	case *callExpr:
		markSoft(x.of)
	case *attrExpr:
		markSoft(x.of)
	case *itemExpr:
		markSoft(x.of)
	}
}

func (p *parser) or() expr {
	x := p.and()
	for p.skipName("or") {
		x = &logicExpr{true, x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for p.skipName("and") {
		x = &logicExpr{false, x, p.not()}
	}
	return x
}

func (p *parser) not() expr {
	if p.skipName("not") {
		defer p.deeper()()
		return &unaryExpr{"not", p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	x := p.sum()
	var ops []operand
	for {
		t := p.cur()
		switch {
		case t.kind == tOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			p.at++
			ops = append(ops, operand{t.text, p.sum()})
		case p.skipName("in"):
			ops = append(ops, operand{"in", p.sum()})
		case p.isName("not") && p.peek().kind == tName && p.peek().text == "in":
			p.at += 2
			ops = append(ops, operand{"not in", p.sum()})
		default:
			if ops == nil {
				return x
			}
			return &compareExpr{x, ops}
		}
	}
}

// binary reads operators of one rank, from the left.
func (p *parser) binary(part func() expr, ops ...string) expr {
	x := part()
	for n := 0; p.cur().kind == tOp && slices.Contains(ops, p.cur().text); n++ {
		if n > 5*maxNesting {
			p.fail("more than %d operators in a row", 5*maxNesting)
		}
		t := p.next()
		x = &binaryExpr{t.text, x, part(), t.line}
	}
	return x
}

func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	items := []expr{p.product()}
	for p.skipOp("~") {
		items = append(items, p.product())
	}
	if len(items) == 1 {
		return items[0]
	}
	return &concatExpr{items}
}

func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr { return p.binary(func() expr { return p.unary(true) }, "**") }

func (p *parser) unary(filters bool) expr {
	var x expr
	if p.isOp("-") || p.isOp("+") {
		defer p.deeper()()
		op := p.next().text
		x = &unaryExpr{op, p.unary(false)}
	} else {
		x = p.primary(false)
	}
	x = p.postfix(x)
	if !filters {
		return x
	}
	for n := 0; ; n++ {
		if n > 5*maxNesting {
			p.fail("more than %d filters in a row", 5*maxNesting)
		}
		switch {
		case p.skipOp("|"):
			x = p.filter(x)
		case p.isName("is"):
			x = p.test(x)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) primary(namespace bool) expr {
	t := p.cur()
	switch t.kind {
	case tName:
		p.at++
		return p.name(t.text, namespace)
	case tString:
		text := ""
		for p.cur().kind == tString {
			text += p.next().text
		}
		return &constExpr{text}
	case tInt, tFloat:
		p.at++
		return &constExpr{t.value}
	case tOp:
		switch t.text {
		case "(":
			p.at++
			x := p.tuple(tupleOpt{cond: true, paren: true})
			p.expectOp(")")
			return x
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	p.fail("unexpected %s", reprString(t.String()))
	return nil
}

func (p *parser) name(name string, namespace bool) expr {
	switch name {
	case "true", "True":
		return &constExpr{true}
	case "false", "False":
		return &constExpr{false}
	case "none", "None":
		return &constExpr{nil}
	}
	if namespace && p.skipOp(".") {
		return &nsTarget{name, p.expectName()}
	}
	for _, m := range p.macros {
		m.caller = m.caller || name == "caller"
		m.kwargs = m.kwargs || name == "kwargs"
		m.varargs = m.varargs || name == "varargs"
	}
	return &nameExpr{name}
}

func (p *parser) list() expr {
	p.expectOp("[")
	l := &listExpr{}
	for !p.isOp("]") {
		if len(l.items) > 0 {
			if p.expectOp(","); p.isOp("]") {
				break
			}
		}
		l.items = append(l.items, p.expression(true))
	}
	p.expectOp("]")
	return l
}

func (p *parser) dict() expr {
	p.expectOp("{")
	d := &dictExpr{}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			if p.expectOp(","); p.isOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression(true))
		p.expectOp(":")
		d.values = append(d.values, p.expression(true))
	}
	p.expectOp("}")
	return d
}

func (p *parser) postfix(x expr) expr {
	for n := 0; ; n++ {
		if n > 5*maxNesting {
			p.fail("more than %d subscripts in a row", 5*maxNesting)
		}
		switch {
		case p.skipOp("."):
			t := p.next()
			switch t.kind {
			case tName:
				x = &attrExpr{x, t.text}
			case tInt:
				x = &itemExpr{x, &constExpr{t.value}}
			default:
				p.failAt(t.line, "expected name or number")
			}
		case p.isOp("["):
			x = p.subscript(x)
		case p.isOp("("):
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) subscript(x expr) expr {
	p.expectOp("[")
	var args []expr
	for !p.isOp("]") {
		if len(args) > 0 {
			p.expectOp(",")
		}
		args = append(args, p.subscribed())
	}
	p.expectOp("]")
	if len(args) == 1 {
		return &itemExpr{x, args[0]}
	}
	return &itemExpr{x, &tupleExpr{args}}
}

func (p *parser) subscribed() expr {
	s := &sliceExpr{}
	if !p.isOp(":") {
		x := p.expression(true)
		if !p.isOp(":") {
			return x
		}
		s.from = x
	}
	p.expectOp(":")
	part := func() expr {
		if p.isOp("]") || p.isOp(",") || p.isOp(":") {
			return nil
		}
		return p.expression(true)
	}
	s.to = part()
	if p.skipOp(":") {
		s.step = part()
	}
	return s
}

func (p *parser) call(x expr) expr {
	line := p.cur().line
	return &callExpr{x, p.args(), line}
}

func (p *parser) args() callArgs {
	var c callArgs
	line := p.cur().line
	ensure := func(ok bool) {
		if !ok {
			p.failAt(line, "invalid syntax for function call expression")
		}
	}
	p.expectOp("(")
	for n := 0; !p.isOp(")"); n++ {
		if n > 0 {
			if p.expectOp(","); p.isOp(")") {
				break
			}
		}
		switch {
		case p.skipOp("*"):
			ensure(c.star == nil && c.starred == nil)
			c.star = p.expression(true)
		case p.skipOp("**"):
			ensure(c.starred == nil)
			c.starred = p.expression(true)
		case p.cur().kind == tName && p.peek().kind == tOp && p.peek().text == "=":
			ensure(c.starred == nil)
			c.names = append(c.names, p.next().text)
			p.at++
			c.named = append(c.named, p.expression(true))
		default:
			ensure(c.star == nil && c.starred == nil && c.names == nil)
			c.args = append(c.args, p.expression(true))
		}
	}
	p.expectOp(")")
	return c
}

func (p *parser) dotted() string {
	name := p.expectName()
	for p.skipOp(".") {
		name += "." + p.expectName()
	}
	return name
}

// filter reads a filter behind its |. A name that there is not is an error here, but for what may not be reached.
func (p *parser) filter(of expr) *filterExpr {
	f := &filterExpr{of: of, line: p.cur().line, soft: p.soft, name: p.dotted()}
	if p.isOp("(") {
		f.args = p.args()
	}
	p.filters = append(p.filters, f)
	return f
}

func (p *parser) test(of expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	t := &testExpr{of: of, line: line, soft: p.soft, name: p.dotted()}
	switch c := p.cur(); {
	case p.isOp("("):
		t.args = p.args()
	case c.kind == tString || c.kind == tInt || c.kind == tFloat || p.isOp("[") || p.isOp("{") ||
		c.kind == tName && c.text != "else" && c.text != "or" && c.text != "and":
		if p.isName("is") {
			p.fail("You cannot chain multiple tests with is")
		}
		t.args.args = []expr{p.postfix(p.primary(false))}
	}
	p.tests = append(p.tests, t)
	if negated {
		return &unaryExpr{"not", t}
	}
	return t
}
