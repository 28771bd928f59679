package jinja

// Expressions.

func (e *constExpr) eval(in *interp, _ *scope) any { in.step(); return e.value }

func (e *nameExpr) eval(in *interp, s *scope) any { in.step(); return in.lookup(s, e.name) }

func (e *nsTarget) eval(in *interp, s *scope) any { return in.getAttr(in.lookup(s, e.ns), e.attr) }

func (in *interp) all(list []expr, s *scope) []any {
	in.charge(16 * len(list))
	items := make([]any, len(list))
	for i, x := range list {
		items[i] = x.eval(in, s)
	}
	return items
}

func (e *listExpr) eval(in *interp, s *scope) any { in.step(); return &List{in.all(e.items, s)} }

func (e *tupleExpr) eval(in *interp, s *scope) any { in.step(); return tuple(in.all(e.items, s)...) }

func (e *dictExpr) eval(in *interp, s *scope) any {
	in.step()
	in.charge(64 * len(e.keys))
	d := NewDict()
	for i, k := range e.keys {
		key := k.eval(in, s)
		d.Set(key, e.values[i].eval(in, s))
	}
	return d
}

func (e *attrExpr) eval(in *interp, s *scope) any {
	in.step()
	return in.getAttr(e.of.eval(in, s), e.name)
}

func (e *itemExpr) eval(in *interp, s *scope) any {
	in.step()
	x := e.of.eval(in, s)
	if sl, ok := e.key.(*sliceExpr); ok {
		part := func(x expr) any {
			if x == nil {
				return nil
			}
			return x.eval(in, s)
		}
		from, to, step := part(sl.from), part(sl.to), part(sl.step)
		return in.slice(x, from, to, step)
	}
	return in.getItem(x, e.key.eval(in, s))
}

func (e *sliceExpr) eval(*interp, *scope) any {
	throw("TypeError", "unhashable type: 'slice'")
	return nil
}

func (e *unaryExpr) eval(in *interp, s *scope) any {
	in.step()
	v := e.x.eval(in, s)
	if e.op == "not" {
		return !in.truth(v)
	}
	if u, ok := v.(*Undefined); ok {
		u.fail()
	}
	i, f, isInt, ok := number(v)
	switch {
	case !ok:
		throw("TypeError", "bad operand type for unary %s: '%s'", e.op, typeName(v))
	case isInt && e.op == "-":
		return intOp("-", 0, i)
	case isInt:
		return i
	case e.op == "-":
		return -f
	}
	return f
}

func (e *binaryExpr) eval(in *interp, s *scope) any {
	in.step()
	x := e.x.eval(in, s)
	y := e.y.eval(in, s)
	return in.binary(e.op, x, y)
}

func (e *logicExpr) eval(in *interp, s *scope) any {
	in.step()
	x := e.x.eval(in, s)
	if in.truth(x) == e.or {
		return x
	}
	return e.y.eval(in, s)
}

func (e *compareExpr) eval(in *interp, s *scope) any {
	in.step()
	x := e.x.eval(in, s)
	for _, o := range e.ops {
		y := o.y.eval(in, s)
		if !in.compare(o.op, x, y) {
			return false
		}
		x = y
	}
	return true
}

func (e *concatExpr) eval(in *interp, s *scope) any {
	in.step()
	items := in.all(e.items, s)
	n, markup := 0, false
	texts := make([]string, len(items))
	for _, v := range items {
		_, ok := v.(Markup)
		markup = markup || ok
	}
	markup = markup && in.autoescape
	for i, v := range items {
		if texts[i] = in.str(v); markup {
			texts[i] = in.escape(v)
		}
		n += len(texts[i])
	}
	in.charge(n)
	all := make([]byte, 0, n)
	for _, t := range texts {
		all = append(all, t...)
	}
	if markup {
		return Markup(all)
	}
	return string(all)
}

func (e *condExpr) eval(in *interp, s *scope) any {
	in.step()
	switch {
	case in.truth(e.test.eval(in, s)):
		return e.then.eval(in, s)
	case e.or != nil:
		return e.or.eval(in, s)
	}
	return &Undefined{hint: "the inline if-expression on line " + plainRepr(int64(e.line)) +
		" evaluated to false and no else section was defined."}
}

// values evaluates the arguments of a call.
func (c *callArgs) values(in *interp, s *scope) (args []any, kw *Dict) {
	args = in.all(c.args, s)
	kw = NewDict()
	if c.star != nil {
		args = append(args, in.collect(c.star.eval(in, s))...)
	}
	for i, name := range c.names {
		if _, ok := kw.Get(name); ok {
			throw("SyntaxError", "keyword argument repeated: %s", name)
		}
		kw.Set(name, c.named[i].eval(in, s))
	}
	if c.starred != nil {
		d, ok := c.starred.eval(in, s).(*Dict)
		if !ok {
			throw("TypeError", "argument after ** must be a mapping")
		}
		for i, k := range d.keys {
			if _, ok := k.(string); !ok {
				throw("TypeError", "keywords must be strings")
			}
			kw.Set(k, d.values[i])
		}
	}
	return args, kw
}

func (e *callExpr) eval(in *interp, s *scope) any {
	in.step()
	f := e.of.eval(in, s)
	args, kw := e.args.values(in, s)
	return in.call(f, args, kw)
}

// call calls a value.
func (in *interp) call(f any, args []any, kw *Dict) any {
	defer in.enter()()
	switch f := f.(type) {
	case *Undefined:
		f.fail()
	case *function:
		return f.call(in, args, kw)
	case *macro:
		return f.call(in, args, kw)
	case *loopContext:
		return f.recurse(in, args)
	case *joiner:
		if !f.used {
			f.used = true
			return ""
		}
		return f.sep
	}
	throw("TypeError", "'%s' object is not callable", typeName(f))
	return nil
}

func (e *filterExpr) eval(in *interp, s *scope) any {
	in.step()
	v := e.of.eval(in, s)
	args, kw := e.args.values(in, s)
	f := filters[e.name]
	if f == nil {
		throw("TemplateRuntimeError", "No filter named %s found.", reprString(e.name))
	}
	return in.filter(f, e.name, v, args, kw)
}

func (in *interp) filter(f filterFunc, name string, v any, args []any, kw *Dict) any {
	defer in.enter()()
	out := f(in, v, &arguments{in: in, what: name, args: args, kw: kw})
	if s, ok := text(out); ok {
		in.charge(len(s))
	}
	return out
}

func (e *testExpr) eval(in *interp, s *scope) any {
	in.step()
	v := e.of.eval(in, s)
	args, kw := e.args.values(in, s)
	f := tests[e.name]
	if f == nil {
		throw("TemplateRuntimeError", "No test named %s found.", reprString(e.name))
	}
	return f(in, v, &arguments{in: in, what: e.name, args: args, kw: kw})
}

// arguments are those of a filter, a test or a method; its readers follow Python's rules.
type arguments struct {
	in   *interp
	what string
	args []any
	kw   *Dict
	at   int
	safe bool // the text whose method it is counts as escaped: what it takes in is escaped
}

// get takes the next argument, by position or by name.
func (a *arguments) get(name string) (any, bool) {
	i := a.at
	a.at++
	if i < len(a.args) {
		return a.args[i], true
	}
	if a.kw != nil {
		return a.kw.remove(name)
	}
	return nil, false
}

func (a *arguments) or(name string, or any) any {
	if v, ok := a.get(name); ok {
		return v
	}
	return or
}

func (a *arguments) need(name string) any {
	v, ok := a.get(name)
	if !ok {
		throw("TypeError", "%s() missing 1 required positional argument: '%s'", a.what, name)
	}
	return v
}

// done refuses arguments that nobody took.
func (a *arguments) done() {
	if a.kw != nil && a.kw.Len() > 0 {
		throw("TypeError", "%s() got an unexpected keyword argument %s", a.what, plainRepr(a.kw.keys[0]))
	}
	if len(a.args) > a.at {
		throw("TypeError", "%s() takes %d positional arguments but %d were given", a.what, a.at, len(a.args))
	}
}

// truth, integer and string read an argument of that kind.
func (a *arguments) truth(name string, or bool) bool { return a.in.truth(a.or(name, or)) }

func (a *arguments) integer(name string, or int64) int64 {
	v := a.or(name, or)
	if u, ok := v.(*Undefined); ok {
		u.fail()
	}
	i, _, isInt, ok := number(v)
	if !ok || !isInt {
		throw("TypeError", "'%s' object cannot be interpreted as an integer", typeName(v))
	}
	return i
}

func (a *arguments) string(name string, or string) string {
	v := a.or(name, or)
	s, ok := text(v)
	if !ok {
		throw("TypeError", "%s() argument must be str, not %s", a.what, typeName(v))
	}
	return s
}

// width bounds a number of characters that is asked for.
func (a *arguments) width(n int64) int {
	if n > int64(a.in.limits.Output) {
		throw("LimitError", "a text of %d characters is asked for", n)
	}
	n = max(n, 0)
	a.in.charge(int(n))
	return int(n)
}
