package jinja

// Statements, loops and macros.

// run runs statements in order.
func (in *interp) run(body []stmt, s *scope, out *buffer) signal {
	for _, st := range body {
		in.step()
		if sig := st.exec(in, s, out); sig != goOn {
			return sig
		}
	}
	return goOn
}

// capture gives the text of statements. It passes on no break, which ends at the capture as in Jinja's functions.
func (in *interp) capture(body []stmt, s *scope) (string, signal) {
	out := &buffer{in: in}
	sig := in.run(body, s, out)
	return out.b.String(), sig
}

func (in *interp) markup(s string) any {
	if in.autoescape {
		return Markup(s)
	}
	return s
}

func (d *dataStmt) exec(in *interp, _ *scope, out *buffer) signal {
	out.write(d.text)
	return goOn
}

func (o *outputStmt) exec(in *interp, s *scope, out *buffer) signal {
	in.line = o.line
	v := o.x.eval(in, s)
	if in.autoescape {
		out.write(in.escape(v))
	} else {
		out.write(in.str(v))
	}
	return goOn
}

func (f *ifStmt) exec(in *interp, s *scope, out *buffer) signal {
	for i, t := range f.tests {
		in.line = f.line
		if in.truth(t.eval(in, s)) {
			return in.run(f.then[i], s, out)
		}
	}
	return in.run(f.or, s, out)
}

// assign puts a value into a target.
func (in *interp) assign(s *scope, target expr, v any) {
	switch t := target.(type) {
	case *nameExpr:
		s.set(t.name, v)
	case *nsTarget:
		ns, ok := in.lookup(s, t.ns).(*Namespace)
		if !ok {
			throw("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
		}
		in.charge(64)
		checkNamespace(t.attr)
		ns.attrs.Set(t.attr, v)
	case *tupleExpr:
		next, ok := in.tryIter(v)
		if !ok {
			throw("TypeError", "cannot unpack non-iterable %s object", typeName(v))
		}
		for i, target := range t.items {
			x, ok := next()
			if !ok {
				throw("ValueError", "not enough values to unpack (expected %d, got %d)", len(t.items), i)
			}
			in.assign(s, target, x)
		}
		if _, ok := next(); ok {
			throw("ValueError", "too many values to unpack (expected %d)", len(t.items))
		}
	}
}

func (t *setStmt) exec(in *interp, s *scope, _ *buffer) signal {
	in.line = t.line
	in.assign(s, t.target, t.x.eval(in, s))
	return goOn
}

// filtered hands text to a filter, whose innermost operand it is.
func (in *interp) filtered(f *filterExpr, s *scope, text string) any {
	var v any = in.markup(text)
	if f.of != nil {
		v = in.filtered(f.of.(*filterExpr), s, text)
	}
	c := *f
	c.of = &constExpr{v}
	return c.eval(in, s)
}

func (t *setBlockStmt) exec(in *interp, s *scope, _ *buffer) signal {
	in.line = t.line
	text, sig := in.capture(t.body, newScope(s))
	if sig != goOn {
		return sig
	}
	v := in.markup(text)
	if t.filter != nil {
		v = in.filtered(t.filter, s, text)
	}
	in.assign(s, t.target, v)
	return goOn
}

func (t *filterStmt) exec(in *interp, s *scope, out *buffer) signal {
	in.line = t.line
	text, sig := in.capture(t.body, newScope(s))
	if sig != goOn {
		return sig
	}
	out.write(in.str(in.filtered(t.filter, s, text)))
	return goOn
}

func (w *withStmt) exec(in *interp, s *scope, out *buffer) signal {
	inner := newScope(s)
	values := in.all(w.values, s)
	for i, t := range w.targets {
		in.assign(inner, t, values[i])
	}
	return in.run(w.body, inner, out)
}

func (t *scopeStmt) exec(in *interp, s *scope, out *buffer) signal {
	return in.run(t.body, newScope(s), out)
}

func (e *escapeStmt) exec(in *interp, s *scope, out *buffer) signal {
	before := in.autoescape
	in.autoescape = in.truth(e.on.eval(in, s))
	defer func() { in.autoescape = before }()
	return in.run(e.body, newScope(s), out)
}

func (b *blockStmt) exec(in *interp, s *scope, out *buffer) signal {
	defer in.enter()()
	if !b.scoped {
		s = in.root
	}
	inner := newScope(s)
	inner.set("super", &Undefined{hint: "there is no parent block called " + reprString(b.name) + "."})
	in.run(b.body, inner, out)
	return goOn
}

func (l *loaderStmt) exec(in *interp, _ *scope, _ *buffer) signal {
	in.line = l.line
	throw("TypeError", "no loader for this environment specified")
	return goOn
}

func (j *jumpStmt) exec(*interp, *scope, *buffer) signal { return j.how }

// loopContext is the variable loop.
type loopContext struct {
	in       *interp
	of       any // what is looped over
	next     func() (any, bool)
	index    int // of the current item, from 0; -1 before the first
	depth    int
	n        int // -1: not known yet
	ahead    []any
	current  any
	previous any
	changed  []any
	again    func(of any, depth int) any // nil: not recursive
}

// length counts the items; those of an iterator are taken from it for that.
func (l *loopContext) length() int {
	if l.n < 0 {
		if n, ok := l.in.length(l.of); ok {
			l.n = n
		} else {
			for v, ok := l.next(); ok; v, ok = l.next() {
				l.in.charge(16)
				l.ahead = append(l.ahead, v)
			}
			l.n = l.index + 1 + len(l.ahead)
		}
	}
	return l.n
}

func (l *loopContext) peek() (any, bool) {
	if len(l.ahead) == 0 {
		v, ok := l.next()
		if !ok {
			return nil, false
		}
		l.ahead = append(l.ahead, v)
	}
	return l.ahead[0], true
}

func (l *loopContext) advance() (any, bool) {
	v, ok := l.peek()
	if !ok {
		return nil, false
	}
	l.ahead = l.ahead[1:]
	l.index++
	l.previous, l.current = l.current, v
	return v, true
}

// pair is what iterating over loop itself gives.
func (l *loopContext) pair() (any, bool) {
	v, ok := l.advance()
	return tuple(v, l), ok
}

func (l *loopContext) attribute(name string) (any, bool) {
	switch name {
	case "index":
		return int64(l.index + 1), true
	case "index0":
		return int64(l.index), true
	case "revindex":
		return int64(l.length() - l.index), true
	case "revindex0":
		return int64(l.length() - l.index - 1), true
	case "first":
		return l.index == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return int64(l.length()), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.index == 0 {
			return &Undefined{hint: "there is no previous item"}, true
		}
		return l.previous, true
	case "nextitem":
		if v, ok := l.peek(); ok {
			return v, true
		}
		return &Undefined{hint: "there is no next item"}, true
	case "cycle":
		return &function{name: name, call: func(_ *interp, args []any, _ *Dict) any {
			if len(args) == 0 {
				throw("TypeError", "no items for cycling given")
			}
			return args[l.index%len(args)]
		}}, true
	case "changed":
		return &function{name: name, call: func(in *interp, args []any, _ *Dict) any {
			if l.changed != nil && in.equalItems(l.changed, args) {
				return false
			}
			l.changed = append([]any{}, args...)
			return true
		}}, true
	}
	return nil, false
}

func (l *loopContext) recurse(in *interp, args []any) any {
	if l.again == nil {
		throw("TypeError", "The loop must have the 'recursive' marker to be called recursively.")
	}
	if len(args) != 1 {
		throw("TypeError", "a loop is called with one iterable")
	}
	return l.again(args[0], l.depth+1)
}

func (f *forStmt) exec(in *interp, s *scope, out *buffer) signal {
	in.line = f.line
	return f.loop(in, s, out, f.iter.eval(in, s), 0)
}

// loop runs the body for each item.
func (f *forStmt) loop(in *interp, s *scope, out *buffer, of any, depth int) signal {
	next := in.iter(of)
	if f.test != nil {
		plain := next
		next = func() (any, bool) {
			for {
				v, ok := plain()
				if !ok {
					return nil, false
				}
				inner := newScope(s)
				in.assign(inner, f.target, v)
				if in.truth(f.test.eval(in, inner)) {
					return v, true
				}
			}
		}
		of = nil // its length says nothing
	}
	l := &loopContext{in: in, of: of, next: next, index: -1, depth: depth, n: -1}
	if f.recursive {
		l.again = func(of any, depth int) any {
			inner := &buffer{in: in}
			f.loop(in, s, inner, of, depth)
			return in.markup(inner.b.String())
		}
	}
	for {
		v, ok := l.advance()
		if !ok {
			break
		}
		in.line = f.line
		inner := newScope(s)
		inner.set("loop", l)
		in.assign(inner, f.target, v)
		if in.run(f.body, inner, out) == breakLoop {
			break
		}
	}
	if l.index < 0 {
		return in.run(f.or, newScope(s), out)
	}
	return goOn
}

// macro is a macro with the names that it sees.
type macro struct {
	def       *macroDef
	in        *scope
	anonymous bool // the body of a call block
}

func (m *macroStmt) exec(in *interp, s *scope, _ *buffer) signal {
	s.set(m.macro.name, &macro{def: m.macro, in: s})
	return goOn
}

func (c *callStmt) exec(in *interp, s *scope, out *buffer) signal {
	in.line = c.line
	f := c.call.of.eval(in, s)
	args, kw := c.call.args.values(in, s)
	kw.Set("caller", &macro{c.caller, s, true})
	v := in.call(f, args, kw)
	if in.autoescape {
		out.write(in.escape(v))
	} else {
		out.write(in.str(v))
	}
	return goOn
}

// call binds arguments as Jinja's macros do and gives the body's text.
func (m *macro) call(in *interp, args []any, kw *Dict) any {
	d := m.def
	kw = kw.clone()
	s := newScope(m.in)
	required := len(d.params) - len(d.defaults)
	explicit := false
	given := make([]bool, len(d.params))
	for i, name := range d.params {
		explicit = explicit || name == "caller"
		if i < len(args) {
			s.set(name, args[i])
			given[i] = true
		} else if v, ok := kw.remove(name); ok {
			s.set(name, v)
			given[i] = true
		}
	}
	if d.caller && !explicit {
		v, ok := kw.remove("caller")
		if !ok || v == nil {
			v = &Undefined{hint: "No caller defined"}
		}
		s.set("caller", v)
	}
	if d.kwargs {
		s.set("kwargs", kw)
	} else if kw.Len() > 0 {
		name := kw.keys[0].(string)
		if _, ok := kw.Get("caller"); ok {
			throw("TypeError", "macro %s was invoked with two values for the special caller argument. "+
				"This is most likely a bug.", reprString(d.name))
		}
		throw("TypeError", "macro %s takes no keyword argument %s", reprString(d.name), reprString(name))
	}
	if d.varargs {
		rest := []any{}
		if len(args) > len(d.params) {
			rest = args[len(d.params):]
		}
		s.set("varargs", tuple(rest...))
	} else if len(args) > len(d.params) {
		throw("TypeError", "macro %s takes not more than %d argument(s)", reprString(d.name), len(d.params))
	}
	for i, name := range d.params {
		switch {
		case given[i]:
		case i >= required:
			s.set(name, d.defaults[i-required].eval(in, s))
		default:
			s.set(name, &Undefined{hint: "parameter " + reprString(name) + " was not provided"})
		}
	}
	line := in.line
	text, _ := in.capture(d.body, s)
	in.line = line
	return in.markup(text)
}

func (m *macro) attribute(name string) (any, bool) {
	switch name {
	case "name":
		return m.def.name, true
	case "arguments":
		names := &Tuple{}
		for _, p := range m.def.params {
			names.Items = append(names.Items, p)
		}
		return names, true
	case "catch_kwargs":
		return m.def.kwargs, true
	case "catch_varargs":
		return m.def.varargs, true
	case "caller":
		return m.def.caller, true
	}
	return nil, false
}
