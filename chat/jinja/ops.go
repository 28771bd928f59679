package jinja

// Operators with Python's rules: sums, products, comparisons, membership, subscripts and slices.

import (
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// equal is Python's ==.
func (in *interp) equal(a, b any) bool {
	in.step()
	if s, ok := text(a); ok {
		t, ok := text(b)
		return ok && s == t
	}
	if i, f, isInt, ok := number(a); ok {
		j, g, isInt2, ok := number(b)
		if !ok {
			return false
		}
		if isInt && isInt2 {
			return i == j
		}
		return f == g
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case *List:
		y, ok := b.(*List)
		return ok && (x == y || in.equalItems(x.Items, y.Items))
	case *Tuple:
		y, ok := b.(*Tuple)
		return ok && (x == y || in.equalItems(x.Items, y.Items))
	case *Dict:
		y, ok := b.(*Dict)
		return ok && (x == y || in.equalDicts(x, y))
	case *Undefined:
		_, ok := b.(*Undefined)
		return ok
	case *rangeValue:
		y, ok := b.(*rangeValue)
		return ok && x.n == y.n && (x.n == 0 || x.from == y.from && (x.n == 1 || x.step == y.step))
	}
	return a == b
}

func (in *interp) equalItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	defer in.enter()()
	for i := range a {
		if !in.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (in *interp) equalDicts(a, b *Dict) bool {
	if a.Len() != b.Len() {
		return false
	}
	defer in.enter()()
	for i, k := range a.keys {
		v, ok := b.Get(k)
		if !ok || !in.equal(a.values[i], v) {
			return false
		}
	}
	return true
}

// compareValues orders two values: -1, 0, 1, or 2 where a NaN has no order. op is for the error.
func (in *interp) compareValues(a, b any, op string) int {
	in.step()
	for _, v := range []any{a, b} {
		if u, ok := v.(*Undefined); ok {
			u.fail()
		}
	}
	if s, ok := text(a); ok {
		if t, ok := text(b); ok {
			return strings.Compare(s, t)
		}
	}
	if i, f, isInt, ok := number(a); ok {
		if j, g, isInt2, ok := number(b); ok {
			return compareNumbers(i, j, f, g, isInt && isInt2)
		}
	}
	var x, y []any
	both := false
	switch v := a.(type) {
	case *List:
		if w, ok := b.(*List); ok {
			x, y, both = v.Items, w.Items, true
		}
	case *Tuple:
		if w, ok := b.(*Tuple); ok {
			x, y, both = v.Items, w.Items, true
		}
	}
	if !both {
		throw("TypeError", "'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	}
	defer in.enter()()
	for i := 0; i < len(x) && i < len(y); i++ {
		if !in.equal(x[i], y[i]) {
			return in.compareValues(x[i], y[i], op)
		}
	}
	return compareNumbers(int64(len(x)), int64(len(y)), 0, 0, true)
}

func compareNumbers(i, j int64, f, g float64, ints bool) int {
	switch {
	case ints && i < j, !ints && f < g:
		return -1
	case ints && i > j, !ints && f > g:
		return 1
	case !ints && f != g:
		return 2
	}
	return 0
}

// less is Python's <.
func (in *interp) less(a, b any) bool { return in.compareValues(a, b, "<") == -1 }

func (in *interp) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return in.equal(a, b)
	case "!=":
		return !in.equal(a, b)
	case "in":
		return in.contains(b, a)
	case "not in":
		return !in.contains(b, a)
	}
	c := in.compareValues(a, b, op)
	switch op {
	case "<":
		return c == -1
	case "<=":
		return c == -1 || c == 0
	case ">":
		return c == 1
	}
	return c == 1 || c == 0
}

// contains is Python's `x in seq`.
func (in *interp) contains(seq, x any) bool {
	if s, ok := text(seq); ok {
		part, ok := text(x)
		if !ok {
			throw("TypeError", "'in <string>' requires string as left operand, not %s", typeName(x))
		}
		return strings.Contains(s, part)
	}
	switch v := seq.(type) {
	case *Dict:
		return in.hasKey(v, x)
	case *dictView:
		if v.what == "keys" {
			return in.hasKey(v.d, x)
		}
	}
	next, ok := in.tryIter(seq)
	if !ok {
		throw("TypeError", "argument of type '%s' is not iterable", typeName(seq))
	}
	for v, ok := next(); ok; v, ok = next() {
		if in.equal(v, x) {
			return true
		}
	}
	return false
}

func (in *interp) hasKey(d *Dict, k any) bool {
	if _, ok := hashKey(k, 0); !ok {
		throw("TypeError", "unhashable type: '%s'", typeName(k))
	}
	_, ok := d.Get(k)
	return ok
}

// binary computes x op y.
func (in *interp) binary(op string, x, y any) any {
	_, xs := text(x)
	if op == "%" && xs {
		if m, ok := x.(Markup); ok {
			return Markup(in.percent(string(m), y, true))
		}
		return in.percent(x.(string), y, false)
	}
	for _, v := range []any{x, y} {
		if u, ok := v.(*Undefined); ok {
			u.fail()
		}
	}
	switch op {
	case "+":
		if v, ok := in.concat(x, y); ok {
			return v
		}
	case "*":
		if v, ok := in.repeat(x, y); ok {
			return v
		}
	}
	i, f, isInt, ok := number(x)
	j, g, isInt2, ok2 := number(y)
	if !ok || !ok2 {
		if op == "**" {
			op = "** or pow()"
		}
		throw("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(x), typeName(y))
	}
	if isInt && isInt2 && op != "/" {
		return intOp(op, i, j)
	}
	return floatOp(op, f, g, isInt && isInt2)
}

// concat adds strings, lists and tuples; false where these are numbers or nothing that can be added.
func (in *interp) concat(x, y any) (any, bool) {
	s, xs := text(x)
	t, ys := text(y)
	_, xm := x.(Markup)
	_, ym := y.(Markup)
	switch {
	case xs && ys:
		in.charge(len(s) + len(t))
		switch {
		case xm || ym:
			return Markup(in.escape(x) + in.escape(y)), true
		}
		return s + t, true
	case xm:
		return nil, false
	case xs:
		throw("TypeError", "can only concatenate str (not \"%s\") to str", typeName(y))
	}
	join := func(a, b []any) []any {
		in.charge(16 * (len(a) + len(b)))
		return append(append(make([]any, 0, len(a)+len(b)), a...), b...)
	}
	switch v := x.(type) {
	case *List:
		w, ok := y.(*List)
		if !ok {
			throw("TypeError", "can only concatenate list (not \"%s\") to list", typeName(y))
		}
		return &List{join(v.Items, w.Items)}, true
	case *Tuple:
		w, ok := y.(*Tuple)
		if !ok {
			throw("TypeError", "can only concatenate tuple (not \"%s\") to tuple", typeName(y))
		}
		return tuple(join(v.Items, w.Items)...), true
	}
	return nil, false
}

// repeat multiplies strings, lists and tuples by an integer.
func (in *interp) repeat(x, y any) (any, bool) {
	seq, times := x, y
	isSeq := func(v any) bool {
		switch v.(type) {
		case string, Markup, *List, *Tuple:
			return true
		}
		return false
	}
	if !isSeq(seq) {
		seq, times = y, x
	}
	if !isSeq(seq) {
		return nil, false
	}
	n, _, isInt, ok := number(times)
	if !ok || !isInt {
		throw("TypeError", "can't multiply sequence by non-int of type '%s'", typeName(times))
	}
	n = max(n, 0)
	size := func(each int) int {
		if each == 0 {
			n = 0
		}
		if hi, lo := bits.Mul64(uint64(each), uint64(n)); hi > 0 || lo > math.MaxInt32 {
			throw("LimitError", "a value repeated %d times is too large", n)
		}
		in.charge(each * int(n))
		return int(n)
	}
	items := func(all []any) []any {
		k := size(16 * len(all))
		out := make([]any, 0, k*len(all))
		for range k {
			out = append(out, all...)
		}
		return out
	}
	switch v := seq.(type) {
	case string:
		return strings.Repeat(v, size(len(v))), true
	case Markup:
		return Markup(strings.Repeat(string(v), size(len(v)))), true
	case *List:
		return &List{items(v.Items)}, true
	default:
		return tuple(items(v.(*Tuple).Items)...), true
	}
}

func overflow(op string) {
	throw("OverflowError", "the result of %s does not fit 64 bits", op)
}

func intOp(op string, i, j int64) any {
	switch op {
	case "+":
		s := i + j
		if i > 0 == (j > 0) && s > 0 != (i > 0) && i != 0 && j != 0 {
			overflow(op)
		}
		return s
	case "-":
		s := i - j
		if i < 0 != (j < 0) && s < 0 != (i < 0) {
			overflow(op)
		}
		return s
	case "*":
		if i == 0 || j == 0 {
			return int64(0)
		}
		p := i * j
		if p/j != i || i == -1 && j == math.MinInt64 || j == -1 && i == math.MinInt64 {
			overflow(op)
		}
		return p
	case "//", "%":
		if j == 0 {
			if op == "%" {
				throw("ZeroDivisionError", "integer modulo by zero")
			}
			throw("ZeroDivisionError", "integer division or modulo by zero")
		}
		if j == -1 {
			if op == "%" {
				return int64(0)
			}
			return intOp("-", 0, i)
		}
		q, r := i/j, i%j
		if r != 0 && r < 0 != (j < 0) {
			q, r = q-1, r+j
		}
		if op == "%" {
			return r
		}
		return q
	}
	return intPow(i, j)
}

func intPow(i, j int64) any {
	if j < 0 {
		return floatOp("**", float64(i), float64(j), true)
	}
	switch i {
	case 0, 1:
		if j == 0 {
			return int64(1)
		}
		return i
	case -1:
		return 1 - 2*(j&1)
	}
	r := int64(1)
	for ; j > 0; j-- {
		r = intOp("*", r, i).(int64) // ends soon, as it overflows
	}
	return r
}

func floatOp(op string, f, g float64, ints bool) any {
	switch op {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "/":
		if g == 0 {
			if ints {
				throw("ZeroDivisionError", "division by zero")
			}
			throw("ZeroDivisionError", "float division by zero")
		}
		return f / g
	case "**":
		if f == 0 && g < 0 {
			throw("ZeroDivisionError", "0.0 cannot be raised to a negative power")
		}
		p := math.Pow(f, g)
		if math.IsInf(p, 0) && !math.IsInf(f, 0) && !math.IsInf(g, 0) {
			throw("OverflowError", "(34, 'Numerical result out of range')")
		}
		return p
	}
	if g == 0 {
		if op == "%" {
			throw("ZeroDivisionError", "float modulo")
		}
		throw("ZeroDivisionError", "float floor division by zero")
	}
	m := math.Mod(f, g)
	if m != 0 && m < 0 != (g < 0) {
		m += g
	}
	if op == "%" {
		if m == 0 {
			m = math.Copysign(0, g)
		}
		return m
	}
	return math.Round((f - m) / g)
}

// getAttr is x.name: an attribute, else an element.
func (in *interp) getAttr(x any, name string) any {
	if u, ok := x.(*Undefined); ok {
		u.fail()
	}
	if v, ok := in.attribute(x, name); ok {
		return v
	}
	if d, ok := x.(*Dict); ok {
		if v, ok := d.Get(name); ok {
			return v
		}
	}
	return &Undefined{of: x, hasOf: true, name: name}
}

// getItem is x[key]: an element, else an attribute.
func (in *interp) getItem(x, key any) any {
	if u, ok := x.(*Undefined); ok {
		u.fail()
	}
	if v, ok := in.element(x, key); ok {
		return v
	}
	if name, ok := text(key); ok {
		if v, ok := in.attribute(x, name); ok {
			return v
		}
	}
	return &Undefined{of: x, hasOf: true, name: key}
}

// element finds what a subscript names.
func (in *interp) element(x, key any) (any, bool) {
	if d, ok := x.(*Dict); ok {
		return d.Get(key)
	}
	i, _, isInt, ok := number(key)
	if !ok || !isInt {
		return nil, false
	}
	n, ok := in.length(x)
	if !ok {
		return nil, false
	}
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return nil, false
	}
	switch v := x.(type) {
	case *List:
		return v.Items[i], true
	case *Tuple:
		return v.Items[i], true
	case *rangeValue:
		return v.from + i*v.step, true
	case string:
		return runeAt(v, int(i)), true
	case Markup:
		return Markup(runeAt(string(v), int(i))), true
	}
	return nil, false
}

func runeAt(s string, i int) string {
	for ; i > 0; i-- {
		_, n := utf8.DecodeRuneInString(s)
		s = s[n:]
	}
	_, n := utf8.DecodeRuneInString(s)
	return s[:n]
}

// slice is x[from:to:step]; nil parts are not given.
func (in *interp) slice(x, from, to, step any) any {
	var items []any
	switch v := x.(type) {
	case *Undefined:
		v.fail()
	case string, Markup, *rangeValue:
		items = in.collect(x)
	case *List:
		items = v.Items
	case *Tuple:
		items = v.Items
	case *Dict:
		throw("TypeError", "unhashable type: 'slice'")
	default:
		throw("TypeError", "'%s' object is not subscriptable", typeName(x))
	}
	picked := pick(items, from, to, step)
	in.charge(16 * len(picked))
	switch r := x.(type) {
	case *rangeValue:
		n, by := int64(len(picked)), r.step
		if step != nil {
			by *= step.(int64)
		}
		if n == 0 {
			return &rangeValue{r.from, by, 0}
		}
		return &rangeValue{picked[0].(int64), by, n}
	case *Tuple:
		return tuple(picked...)
	case string, Markup:
		var b strings.Builder
		for _, c := range picked {
			b.WriteString(c.(string))
		}
		if _, ok := x.(Markup); ok {
			return Markup(b.String())
		}
		return b.String()
	}
	return &List{picked}
}

// pick takes the elements of a slice.
func pick(items []any, from, to, step any) []any {
	bound := func(v any, or int64) int64 {
		if v == nil {
			return or
		}
		i, _, isInt, ok := number(v)
		if !ok || !isInt {
			throw("TypeError", "slice indices must be integers or None or have an __index__ method")
		}
		return i
	}
	n := int64(len(items))
	by := bound(step, 1)
	if by == 0 {
		throw("ValueError", "slice step cannot be zero")
	}
	low, high := int64(0), n // where the bounds may lie
	if by < 0 {
		low, high = -1, n-1
	}
	clamp := func(v any, or int64) int64 {
		if v == nil {
			return or
		}
		i := bound(v, 0)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	start, end := clamp(from, low), clamp(to, high)
	if by < 0 {
		start, end = clamp(from, high), clamp(to, low)
	}
	out := []any{}
	for i := start; by > 0 && i < end || by < 0 && i > end; i += by {
		out = append(out, items[i])
		if by > n || by < -n {
			break
		}
	}
	return out
}
