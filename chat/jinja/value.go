package jinja

// Values. What a template computes with is one of: nil (None), bool, int64, float64, string, Markup, *List, *Tuple,
// *Dict, *Undefined, and the objects of this package (functions, macros, iterators, namespaces).

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Markup is a string that counts as escaped.
type Markup string

// List is a list; Tuple is one that is written with parentheses.
type (
	List  struct{ Items []any }
	Tuple struct {
		Items []any
		names []string // of the items of a named tuple
	}
)

func tuple(items ...any) *Tuple { return &Tuple{Items: items} }

// Undefined is a name, attribute or element that there is not.
type Undefined struct {
	hint   string
	of     any
	hasOf  bool
	name   any
	unsafe bool // an attribute that the sandbox refuses
}

func (u *Undefined) message() string {
	switch {
	case u.hint != "":
		return u.hint
	case !u.hasOf:
		return reprString(u.name.(string)) + " is undefined"
	}
	if name, ok := u.name.(string); ok {
		return reprString(objectType(u.of)) + " has no attribute " + reprString(name)
	}
	return objectType(u.of) + " has no element " + (&interp{limits: Limits{}.orDefault()}).repr(u.name)
}

// fail is what any use of an undefined value does.
func (u *Undefined) fail() {
	if u.unsafe {
		throw("SecurityError", "%s", u.message())
	}
	throw("UndefinedError", "%s", u.message())
}

func objectType(v any) string {
	switch v.(type) {
	case nil:
		return "None"
	case *Namespace:
		return "jinja2.utils.Namespace object"
	case *loopContext:
		return "jinja2.runtime.LoopContext object"
	case *macro:
		return "jinja2.runtime.Macro object"
	case Markup:
		return "markupsafe.Markup object"
	case *cycler:
		return "jinja2.utils.Cycler object"
	case *joiner:
		return "jinja2.utils.Joiner object"
	}
	return typeName(v) + " object"
}

// typeName is the name of a value's Python type.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case Markup:
		return "Markup"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *Undefined:
		return "Undefined"
	case *Namespace:
		return "Namespace"
	case *rangeValue:
		return "range"
	case *dictView:
		return "dict_" + v.what
	case *iterator:
		return v.typeName
	case *macro:
		return "Macro"
	case *loopContext:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	case *function:
		if v.method {
			return "builtin_function_or_method"
		}
		return "function"
	}
	return "object"
}

// Dict is a dict: it keeps the order in which keys came.
type Dict struct {
	at     map[any]int
	keys   []any
	values []any
}

// NewDict gives an empty dict.
func NewDict() *Dict { return &Dict{at: map[any]int{}} }

// hashKey gives what equal keys share, and false where the value cannot be a key.
func hashKey(k any, depth int) (any, bool) {
	switch v := k.(type) {
	case bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v), true
		}
		return v, true
	case Markup:
		return string(v), true
	case *Tuple:
		if depth > 20 {
			return nil, false
		}
		var b strings.Builder
		b.WriteString("\x00tuple")
		for _, i := range v.Items {
			h, ok := hashKey(i, depth+1)
			if !ok {
				return nil, false
			}
			switch h := h.(type) {
			case string:
				b.WriteString("s" + strconv.Quote(h))
			case int64:
				b.WriteString("i" + strconv.FormatInt(h, 10))
			case float64:
				b.WriteString("f" + strconv.FormatFloat(h, 'g', -1, 64))
			case nil:
				b.WriteString("n")
			default:
				return nil, false
			}
			b.WriteByte(',')
		}
		return b.String(), true
	case *List, *Dict, *dictView:
		return nil, false
	case *Undefined:
		return (*Undefined)(nil), true
	}
	return k, true
}

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Get finds a value.
func (d *Dict) Get(key any) (any, bool) {
	h, ok := hashKey(key, 0)
	if !ok {
		return nil, false
	}
	i, ok := d.at[h]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// Set puts a value; an equal key that is there keeps its place.
func (d *Dict) Set(key, value any) {
	h, ok := hashKey(key, 0)
	if !ok {
		throw("TypeError", "unhashable type: '%s'", typeName(key))
	}
	if i, ok := d.at[h]; ok {
		d.values[i] = value
		return
	}
	d.at[h] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, value)
}

// Each calls f for every key, in order.
func (d *Dict) Each(f func(key, value any)) {
	for i, k := range d.keys {
		f(k, d.values[i])
	}
}

// Copy gives a dict with the same values.
func (d *Dict) Copy() *Dict { return d.clone() }

// remove takes a key out of keyword arguments.
func (d *Dict) remove(key string) (any, bool) {
	i, ok := d.at[key]
	if !ok {
		return nil, false
	}
	v := d.values[i]
	rest := NewDict()
	for j, k := range d.keys {
		if j != i {
			rest.Set(k, d.values[j])
		}
	}
	*d = *rest
	return v, true
}

func (d *Dict) clone() *Dict {
	c := NewDict()
	for i, k := range d.keys {
		c.Set(k, d.values[i])
	}
	return c
}

// Namespace is what namespace() makes: attributes that set may change.
type Namespace struct{ attrs *Dict }

// dictView is what items, keys and values of a dict give.
type dictView struct {
	d    *Dict
	what string
}

func (v *dictView) at(i int) any {
	switch v.what {
	case "keys":
		return v.d.keys[i]
	case "values":
		return v.d.values[i]
	}
	return tuple(v.d.keys[i], v.d.values[i])
}

// rangeValue is what range() gives.
type rangeValue struct{ from, step, n int64 }

// iterator gives values once, as Python's generators do.
type iterator struct {
	typeName string
	next     func() (any, bool)
}

// function is a callable: a method, a global, a bound one.
type function struct {
	name   string
	method bool
	call   func(in *interp, args []any, kw *Dict) any
}

type cycler struct {
	items []any
	at    int
}

type joiner struct {
	sep  any
	used bool
}

// text gives a string's characters, of a str or a Markup.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Markup:
		return string(v), true
	}
	return "", false
}

// number says what a value is in arithmetic, where True is 1.
func number(v any) (i int64, f float64, isInt, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, 1, true, true
		}
		return 0, 0, true, true
	case int64:
		return v, float64(v), true, true
	case float64:
		return 0, v, false, true
	}
	return 0, 0, false, false
}

// truth is Python's bool().
func (in *interp) truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case Markup:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Tuple:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	case *dictView:
		return v.d.Len() > 0
	case *rangeValue:
		return v.n > 0
	case *Undefined:
		return false
	case *loopContext:
		return v.length() > 0
	}
	return true
}

// str is Python's str().
func (in *interp) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case Markup:
		return string(v)
	case *Undefined:
		return ""
	}
	return in.repr(v)
}

// repr is Python's repr().
func (in *interp) repr(v any) string {
	var b strings.Builder
	in.writeRepr(&b, v)
	return b.String()
}

func (in *interp) writeRepr(b *strings.Builder, v any) {
	in.step()
	before := b.Len()
	switch v := v.(type) {
	case *List:
		in.reprItems(b, "[", v.Items, "]")
	case *Tuple:
		end := ")"
		if len(v.Items) == 1 {
			end = ",)"
		}
		in.reprItems(b, "(", v.Items, end)
	case *Dict:
		in.reprDict(b, v)
	case *dictView:
		items := make([]any, v.d.Len())
		for i := range items {
			items[i] = v.at(i)
		}
		b.WriteString("dict_" + v.what + "(")
		in.reprItems(b, "[", items, "]")
		b.WriteString(")")
	case *Namespace:
		b.WriteString("<Namespace ")
		in.reprDict(b, v.attrs)
		b.WriteString(">")
	default:
		s := plainRepr(v)
		in.charge(len(s))
		b.WriteString(s)
	}
	if b.Len()-before > in.limits.Output {
		throw("LimitError", "a value's text has more than %d bytes", in.limits.Output)
	}
}

// plainRepr writes what holds no other values.
func plainRepr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return reprFloat(v)
	case string:
		return reprString(v)
	case Markup:
		return "Markup(" + reprString(string(v)) + ")"
	case *Undefined:
		return "Undefined"
	case *rangeValue:
		to := strconv.FormatInt(v.from+v.n*v.step, 10)
		text := "range(" + strconv.FormatInt(v.from, 10) + ", " + to
		if v.step != 1 {
			text += ", " + strconv.FormatInt(v.step, 10)
		}
		return text + ")"
	case *macro:
		if v.anonymous {
			return "<Macro anonymous>"
		}
		return "<Macro " + reprString(v.def.name) + ">"
	case *loopContext:
		return "<LoopContext " + strconv.Itoa(v.index+1) + "/" + strconv.Itoa(v.length()) + ">"
	case *function:
		if v.method {
			return "<built-in method " + v.name + ">"
		}
		return "<function " + v.name + ">"
	}
	return "<" + typeName(v) + " object>"
}

func (in *interp) reprItems(b *strings.Builder, begin string, items []any, end string) {
	defer in.enter()()
	b.WriteString(begin)
	for i, item := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		in.writeRepr(b, item)
	}
	b.WriteString(end)
}

func (in *interp) reprDict(b *strings.Builder, d *Dict) {
	defer in.enter()()
	b.WriteByte('{')
	for i, k := range d.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		in.writeRepr(b, k)
		b.WriteString(": ")
		in.writeRepr(b, d.values[i])
	}
	b.WriteByte('}')
}

// reprFloat writes a float with the fewest digits that give it back.
func reprFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// reprString quotes a string as Python does.
func reprString(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			writeHex(&b, r)
		}
	}
	b.WriteByte(quote)
	return b.String()
}

func writeHex(b *strings.Builder, r rune) {
	width, mark := 2, `\x`
	if r > 0xffff {
		width, mark = 8, `\U`
	} else if r > 0xff {
		width, mark = 4, `\u`
	}
	h := strconv.FormatInt(int64(r), 16)
	b.WriteString(mark + strings.Repeat("0", width-len(h)) + h)
}

// length is Python's len(), and false where there is none.
func (in *interp) length(v any) (int, bool) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case Markup:
		return utf8.RuneCountInString(string(v)), true
	case *List:
		return len(v.Items), true
	case *Tuple:
		return len(v.Items), true
	case *Dict:
		return v.Len(), true
	case *dictView:
		return v.d.Len(), true
	case *rangeValue:
		return int(v.n), true
	case *loopContext:
		return v.length(), true
	case *Undefined:
		return 0, true
	}
	return 0, false
}

// tryIter gives what iterates over a value, and false where it cannot be.
func (in *interp) tryIter(v any) (func() (any, bool), bool) {
	items := func(n int, at func(int) any) (func() (any, bool), bool) {
		i := 0
		return func() (any, bool) {
			in.step()
			if i >= n {
				return nil, false
			}
			i++
			return at(i - 1), true
		}, true
	}
	switch v := v.(type) {
	case string:
		rest := v
		return func() (any, bool) {
			in.step()
			if rest == "" {
				return nil, false
			}
			_, n := utf8.DecodeRuneInString(rest)
			c := rest[:n]
			rest = rest[n:]
			return c, true
		}, true
	case Markup:
		return in.tryIter(string(v))
	case *List:
		return items(len(v.Items), func(i int) any { return v.Items[i] })
	case *Tuple:
		return items(len(v.Items), func(i int) any { return v.Items[i] })
	case *Dict:
		return items(v.Len(), func(i int) any { return v.keys[i] })
	case *dictView:
		return items(v.d.Len(), v.at)
	case *rangeValue:
		return items(int(v.n), func(i int) any { return v.from + int64(i)*v.step })
	case *iterator:
		return func() (any, bool) { in.step(); return v.next() }, true
	case *loopContext:
		return func() (any, bool) { in.step(); return v.pair() }, true
	case *Undefined:
		return items(0, nil)
	}
	return nil, false
}

// iter gives what iterates over a value.
func (in *interp) iter(v any) func() (any, bool) {
	next, ok := in.tryIter(v)
	if !ok {
		throw("TypeError", "'%s' object is not iterable", typeName(v))
	}
	return next
}

// collect is Python's list(). The result may be changed.
func (in *interp) collect(v any) []any {
	items := []any{}
	next := in.iter(v)
	for x, ok := next(); ok; x, ok = next() {
		in.charge(16)
		items = append(items, x)
	}
	return items
}
