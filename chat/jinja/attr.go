package jinja

// Attributes of values: the methods of str, list, tuple, dict and numbers that do not change them. Those that
// would are there but refused, as the immutable sandbox does.

import (
	"slices"
	"strings"
)

var mutating = map[string][]string{
	"list": {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"},
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
}

// attribute finds an attribute of a value, not its elements.
func (in *interp) attribute(x any, name string) (any, bool) {
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") && slices.Contains(dunders, name) {
		return unsafeAttr(x, name), true
	}
	switch v := x.(type) {
	case string:
		if name == "format" || name == "format_map" {
			return formatMethod(v, name, false), true
		}
		return bindMethod(strMethods, name, v, false)
	case Markup:
		if name == "format" || name == "format_map" {
			return formatMethod(string(v), name, true), true
		}
		return bindMethod(strMethods, name, string(v), true)
	case *Namespace:
		return v.attrs.Get(name)
	case *List:
		if slices.Contains(mutating["list"], name) {
			return unsafeAttr(x, name), true
		}
		return itemsMethod(x, v.Items, name)
	case *Tuple:
		if i := slices.Index(v.names, name); i >= 0 {
			return v.Items[i], true
		}
		return itemsMethod(x, v.Items, name)
	case *Dict:
		if slices.Contains(mutating["dict"], name) {
			return unsafeAttr(x, name), true
		}
		return dictMethod(v, name)
	case *loopContext:
		return v.attribute(name)
	case *macro:
		return v.attribute(name)
	case *cycler:
		return v.attribute(name)
	case int64, bool:
		return intAttribute(v, name)
	case float64:
		if name == "is_integer" {
			return method(name, func(*interp, []any, *Dict) any { return v == float64(int64(v)) }), true
		}
	case *function:
		if v.name == "dict" && !v.method && name == "fromkeys" {
			return method(name, fromKeys), true
		}
	case *selfRef:
		return in.block(name)
	}
	return nil, false
}

// dunders are names that every object of Python has.
var dunders = []string{"__class__", "__dict__", "__doc__", "__init__", "__len__", "__getattribute__", "__getitem__",
	"__subclasses__", "__mro__", "__base__", "__globals__", "__call__", "__eq__", "__hash__", "__str__", "__repr__",
	"__reduce__", "__module__", "__new__", "__dir__", "__format__", "__iter__", "__contains__", "__add__", "__mod__"}

func unsafeAttr(x any, name string) any {
	return &Undefined{unsafe: true, name: name, of: x, hasOf: true, hint: "access to attribute " + reprString(name) +
		" of " + reprString(typeName(x)) + " object is unsafe."}
}

func method(name string, call func(in *interp, args []any, kw *Dict) any) *function {
	return &function{name: name, method: true, call: call}
}

func intAttribute(v any, name string) (any, bool) {
	i, _, _, _ := number(v)
	switch name {
	case "real", "numerator":
		return i, true
	case "imag":
		return int64(0), true
	case "denominator":
		return int64(1), true
	case "bit_length":
		return method(name, func(*interp, []any, *Dict) any {
			n := int64(0)
			for ; i != 0; i /= 2 {
				n++
			}
			return n
		}), true
	}
	return nil, false
}

// itemsMethod are the methods of lists and tuples.
func itemsMethod(x any, items []any, name string) (any, bool) {
	switch name {
	case "copy":
		if _, ok := x.(*List); ok {
			return method(name, func(in *interp, _ []any, _ *Dict) any {
				in.charge(16 * len(items))
				return &List{slices.Clone(items)}
			}), true
		}
	case "count":
		return method(name, func(in *interp, args []any, kw *Dict) any {
			a := &arguments{in: in, what: name, args: args, kw: kw}
			want, n := a.need("value"), int64(0)
			for _, v := range items {
				if in.equal(v, want) {
					n++
				}
			}
			return n
		}), true
	case "index":
		return method(name, func(in *interp, args []any, kw *Dict) any {
			a := &arguments{in: in, what: name, args: args, kw: kw}
			want := a.need("value")
			from, to := bounds(len(items), a)
			for i := from; i < to; i++ {
				if in.equal(items[i], want) {
					return int64(i)
				}
			}
			if _, ok := x.(*List); ok {
				throw("ValueError", "%s is not in list", in.repr(want))
			}
			throw("ValueError", "tuple.index(x): x not in tuple")
			return nil
		}), true
	}
	return nil, false
}

// bounds reads the start and end that searching methods take.
func bounds(n int, a *arguments) (from, to int) {
	at := func(name string, or int64) int {
		if a.at < len(a.args) && a.args[a.at] == nil {
			a.at++
			return int(or)
		}
		i := a.integer(name, or)
		if i < 0 {
			i = max(i+int64(n), 0)
		}
		return int(min(i, int64(n)))
	}
	from = at("start", 0)
	return from, at("end", int64(n))
}

func dictMethod(d *Dict, name string) (any, bool) {
	switch name {
	case "items", "keys", "values":
		return method(name, func(in *interp, args []any, kw *Dict) any {
			(&arguments{in: in, what: "dict." + name, args: args, kw: kw}).done()
			return &dictView{d, name}
		}), true
	case "copy":
		return method(name, func(in *interp, _ []any, _ *Dict) any {
			in.charge(64 * d.Len())
			return d.clone()
		}), true
	case "get":
		return method(name, func(in *interp, args []any, kw *Dict) any {
			if len(args) == 0 {
				throw("TypeError", "get expected at least 1 argument, got 0")
			}
			if kw.Len() > 0 {
				throw("TypeError", "dict.get() takes no keyword arguments")
			}
			if len(args) > 2 {
				throw("TypeError", "get expected at most 2 arguments, got %d", len(args))
			}
			in.hasKey(d, args[0]) // refuses what cannot be a key
			if v, ok := d.Get(args[0]); ok {
				return v
			}
			if len(args) > 1 {
				return args[1]
			}
			return nil
		}), true
	case "fromkeys":
		return method(name, func(in *interp, args []any, kw *Dict) any {
			a := &arguments{in: in, what: name, args: args, kw: kw}
			out, keys := NewDict(), in.collect(a.need("iterable"))
			v := a.or("value", nil)
			for _, k := range keys {
				out.Set(k, v)
			}
			return out
		}), true
	}
	return nil, false
}

func (c *cycler) attribute(name string) (any, bool) {
	switch name {
	case "current":
		return c.items[c.at], true
	case "next":
		return method(name, func(*interp, []any, *Dict) any {
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		}), true
	case "reset":
		return method(name, func(*interp, []any, *Dict) any { c.at = 0; return nil }), true
	}
	return nil, false
}

// selfRef is the variable self, whose attributes are the template's blocks.
type selfRef struct{}

func (in *interp) block(name string) (any, bool) {
	b, ok := in.t.blocks[name]
	if !ok {
		return nil, false
	}
	return &function{name: name, call: func(in *interp, _ []any, _ *Dict) any {
		out := &buffer{in: in}
		b.exec(in, in.root, out)
		return in.markup(out.b.String())
	}}, true
}

type strMethod func(s string, a *arguments) any

func bindMethod(all map[string]strMethod, name, s string, safe bool) (any, bool) {
	f, ok := all[name]
	if !ok {
		return nil, false
	}
	return method(name, func(in *interp, args []any, kw *Dict) any {
		a := &arguments{in: in, what: "str." + name, args: args, kw: kw, safe: safe}
		v := f(s, a)
		a.done()
		if t, ok := v.(string); ok {
			in.charge(len(t))
		}
		if safe {
			return markupResult(v)
		}
		return v
	}), true
}

// markupResult makes what a method of a Markup gives escaped too.
func markupResult(v any) any {
	switch v := v.(type) {
	case string:
		return Markup(v)
	case *List:
		for i, x := range v.Items {
			v.Items[i] = markupResult(x)
		}
	case *Tuple:
		for i, x := range v.Items {
			v.Items[i] = markupResult(x)
		}
	}
	return v
}
