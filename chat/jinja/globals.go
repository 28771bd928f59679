package jinja

// The tests of `is`, and the names that every template knows.

import "strings"

var tests map[string]filterFunc

func init() {
	kind := func(ok func(any) bool) filterFunc {
		return func(_ *interp, v any, a *arguments) any { a.done(); return ok(v) }
	}
	compared := func(op string) filterFunc {
		return func(in *interp, v any, a *arguments) any {
			other := a.need("other")
			a.done()
			return in.compare(op, v, other)
		}
	}
	remainder := func(want int64) filterFunc {
		return func(in *interp, v any, a *arguments) any {
			a.done()
			return in.equal(in.binary("%", v, int64(2)), want)
		}
	}
	undefined := func(v any) bool { _, ok := v.(*Undefined); return ok }
	isBool := func(v any) bool { _, ok := v.(bool); return ok }
	tests = map[string]filterFunc{
		"defined": kind(func(v any) bool { return !undefined(v) }), "undefined": kind(undefined),
		"none": kind(func(v any) bool { return v == nil }), "boolean": kind(isBool),
		"true": kind(func(v any) bool { return v == true }), "false": kind(func(v any) bool { return v == false }),
		"integer": kind(func(v any) bool { _, ok := v.(int64); return ok }),
		"float":   kind(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":  kind(func(v any) bool { _, _, _, ok := number(v); return ok }),
		"string":  kind(func(v any) bool { _, ok := text(v); return ok }),
		"mapping": kind(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"escaped": kind(func(v any) bool { _, ok := v.(Markup); return ok }),
		"callable": kind(func(v any) bool {
			switch v.(type) {
			case *function, *macro, *loopContext, *joiner, *Undefined:
				return true
			}
			return false
		}),
		"iterable": func(in *interp, v any, a *arguments) any { a.done(); _, ok := in.tryIter(v); return ok },
		"sequence": func(in *interp, v any, a *arguments) any { a.done(); return in.isSequence(v) },
		"lower":    func(in *interp, v any, a *arguments) any { a.done(); return isLower(in.str(v)) },
		"upper":    func(in *interp, v any, a *arguments) any { a.done(); return isUpper(in.str(v)) },
		"odd":      remainder(1), "even": remainder(0),
		"divisibleby": func(in *interp, v any, a *arguments) any {
			by := a.need("num")
			a.done()
			return in.equal(in.binary("%", v, by), int64(0))
		},
		"sameas": func(_ *interp, v any, a *arguments) any { other := a.need("other"); a.done(); return same(v, other) },
		"in": func(in *interp, v any, a *arguments) any {
			seq := a.need("seq")
			a.done()
			return in.contains(seq, v)
		},
		"filter": func(in *interp, v any, a *arguments) any { a.done(); return filters[in.str(v)] != nil },
		"test":   func(in *interp, v any, a *arguments) any { a.done(); return tests[in.str(v)] != nil },
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"}, "<": {"<", "lt", "lessthan"}, "<=": {"<=", "le"},
		">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
	} {
		for _, n := range names {
			tests[n] = compared(op)
		}
	}
}

// same is Python's `is`, where small values are one object.
func same(a, b any) bool { return typeName(a) == typeName(b) && a == b }

// isSequence says whether a value has a length and elements.
func (in *interp) isSequence(v any) bool {
	switch v.(type) {
	case string, Markup, *List, *Tuple, *Dict, *rangeValue, *Undefined:
		return true
	}
	return false
}

// global gives what a name means that nobody set, or nil.
func (in *interp) global(name string) any {
	switch name {
	case "self":
		return &selfRef{}
	case "lipsum":
		return &function{name: name, call: func(*interp, []any, *Dict) any {
			throw("NotImplementedError", "lipsum() makes text by chance, which a chat template has no use for")
			return nil
		}}
	}
	f, ok := globals[name]
	if !ok {
		return nil
	}
	return &function{name: name, call: f}
}

var globals = map[string]func(in *interp, args []any, kw *Dict) any{
	"range": rangeGlobal,
	"dict": func(in *interp, args []any, kw *Dict) any {
		return in.makeDict("dict", args, kw)
	},
	"namespace": func(in *interp, args []any, kw *Dict) any {
		d := in.makeDict("dict", args, kw)
		for _, k := range d.keys {
			checkNamespace(k)
		}
		return &Namespace{d}
	},
	"cycler": func(_ *interp, args []any, _ *Dict) any {
		if len(args) == 0 {
			throw("RuntimeError", "at least one item has to be provided")
		}
		return &cycler{items: args}
	},
	"joiner": func(in *interp, args []any, kw *Dict) any {
		a := &arguments{in: in, what: "joiner", args: args, kw: kw}
		j := &joiner{sep: a.or("sep", ", ")}
		a.done()
		return j
	},
	"raise_exception": func(in *interp, args []any, kw *Dict) any {
		a := &arguments{in: in, what: "raise_exception", args: args, kw: kw}
		message := in.str(a.need("message"))
		a.done()
		throw("TemplateError", "%s", message)
		return nil
	},
	"strftime_now": func(in *interp, args []any, kw *Dict) any {
		a := &arguments{in: in, what: "strftime_now", args: args, kw: kw}
		format := a.need("format")
		a.done()
		s, ok := text(format)
		if !ok {
			throw("TypeError", "strftime() argument 1 must be str, not %s", typeName(format))
		}
		return in.strftime(s)
	},
}

// checkNamespace refuses what transformers' namespaces do.
func checkNamespace(name any) {
	if s, ok := text(name); ok && strings.HasPrefix(s, "_") {
		throw("SecurityError", "Chat templates cannot store underscore-prefixed attributes on a namespace, but got %s. "+
			"Please rename the attribute.", reprString(s))
	}
}

// fromKeys is dict.fromkeys.
func fromKeys(in *interp, args []any, kw *Dict) any {
	if kw.Len() > 0 {
		throw("TypeError", "dict.fromkeys() takes no keyword arguments")
	}
	if len(args) == 0 {
		throw("TypeError", "fromkeys expected at least 1 argument, got 0")
	}
	if len(args) > 2 {
		throw("TypeError", "fromkeys expected at most 2 arguments, got %d", len(args))
	}
	var v any
	if len(args) == 2 {
		v = args[1]
	}
	d := NewDict()
	for _, k := range in.collect(args[0]) {
		in.charge(64)
		in.hasKey(d, k) // which refuses what is no key
		d.Set(k, v)
	}
	return d
}

func (in *interp) makeDict(what string, args []any, kw *Dict) *Dict {
	d := NewDict()
	if len(args) > 1 {
		throw("TypeError", "%s expected at most 1 argument, got %d", what, len(args))
	}
	if len(args) == 1 {
		if from, ok := args[0].(*Dict); ok {
			in.charge(64 * from.Len())
			d = from.clone()
		} else {
			for i, pair := range in.collect(args[0]) {
				kv := in.collect(pair)
				if len(kv) != 2 {
					throw("ValueError", "dictionary update sequence element #%d has length %d; 2 is required", i, len(kv))
				}
				d.Set(kv[0], kv[1])
			}
		}
	}
	for i, k := range kw.keys {
		d.Set(k, kw.values[i])
	}
	return d
}

// mostRange is how long a range may be, as in Jinja's sandbox.
const mostRange = 100000

func rangeGlobal(in *interp, args []any, kw *Dict) any {
	if kw.Len() > 0 {
		throw("TypeError", "range() takes no keyword arguments")
	}
	if len(args) == 0 || len(args) > 3 {
		throw("TypeError", "range expected 1 to 3 arguments, got %d", len(args))
	}
	a := &arguments{in: in, what: "range", args: args}
	from, to, step := int64(0), a.integer("", 0), int64(1)
	if len(args) > 1 {
		from, to = to, a.integer("", 0)
	}
	if len(args) > 2 {
		step = a.integer("", 1)
	}
	if step == 0 {
		throw("ValueError", "range() arg 3 must not be zero")
	}
	if b := int64(1) << 40; step < -b || step > b || from < -b || from > b || to < -b || to > b {
		throw("OverflowError", "range() of numbers beyond 2^40")
	}
	n := int64(0)
	if step > 0 && from < to {
		n = (to - from + step - 1) / step
	} else if step < 0 && from > to {
		n = (from - to - step - 1) / -step
	}
	if n > mostRange {
		throw("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", mostRange)
	}
	return &rangeValue{from, step, n}
}
