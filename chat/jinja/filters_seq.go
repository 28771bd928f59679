package jinja

// The builtin filters of sequences.

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/internal/sorting"
)

func filterLength(in *interp, v any, a *arguments) any {
	a.done()
	n, ok := in.length(v)
	if !ok {
		throw("TypeError", "object of type '%s' has no len()", typeName(v))
	}
	return int64(n)
}

func filterFirst(in *interp, v any, a *arguments) any {
	a.done()
	if x, ok := in.iter(v)(); ok {
		return x
	}
	return &Undefined{hint: "No first item, sequence was empty."}
}

// reversible says whether Python's reversed() takes a value.
func reversible(v any) bool {
	switch v.(type) {
	case string, Markup, *List, *Tuple, *Dict, *dictView, *rangeValue:
		return true
	}
	return false
}

func filterLast(in *interp, v any, a *arguments) any {
	a.done()
	if _, undefined := v.(*Undefined); !undefined && !reversible(v) {
		throw("TypeError", "'%s' object is not reversible", typeName(v))
	}
	items := in.collect(v)
	if len(items) == 0 {
		return &Undefined{hint: "No last item, sequence was empty."}
	}
	return items[len(items)-1]
}

func filterRandom(in *interp, v any, a *arguments) any {
	a.done()
	items := in.collect(v)
	if len(items) == 0 {
		return &Undefined{hint: "No random item, sequence was empty."}
	}
	return items[rand.IntN(len(items))]
}

func filterList(in *interp, v any, a *arguments) any {
	a.done()
	return &List{in.collect(v)}
}

// lazily gives an iterator over items, made when the first is wanted.
func lazily(typeName string, items func() []any) *iterator {
	var all []any
	made := false
	return &iterator{typeName: typeName, next: func() (any, bool) {
		if !made {
			all, made = items(), true
		}
		if len(all) == 0 {
			return nil, false
		}
		v := all[0]
		all = all[1:]
		return v, true
	}}
}

func filterReverse(in *interp, v any, a *arguments) any {
	a.done()
	if _, ok := text(v); ok {
		return in.slice(v, nil, nil, int64(-1))
	}
	next, ok := in.tryIter(v)
	if !ok {
		filterArgument("argument must be iterable")
	}
	if !reversible(v) {
		items := []any{}
		for x, ok := next(); ok; x, ok = next() {
			items = append(items, x)
		}
		slices.Reverse(items)
		return &List{items}
	}
	name := map[string]string{"list": "list_reverseiterator", "range": "range_iterator"}[typeName(v)]
	if name == "" {
		name = "reversed"
	}
	return lazily(name, func() []any {
		items := in.collect(v)
		slices.Reverse(items)
		return items
	})
}

// getter follows a dotted attribute of each item, where default stands for what is not there.
func (in *interp) getter(attribute any, or any, lower bool) func(any) any {
	var parts []any
	if s, ok := text(attribute); ok {
		for part := range strings.SplitSeq(s, ".") {
			if n, err := strconv.ParseUint(part, 10, 32); err == nil {
				parts = append(parts, int64(n))
			} else {
				parts = append(parts, part)
			}
		}
	} else if attribute != nil {
		parts = append(parts, attribute)
	}
	return func(v any) any {
		for _, p := range parts {
			v = in.getItem(v, p)
			if _, ok := v.(*Undefined); ok && or != nil {
				v = or
			}
		}
		if lower {
			return ignoreCase(v)
		}
		return v
	}
}

func ignoreCase(v any) any {
	if s, ok := text(v); ok {
		return strings.ToLower(s)
	}
	return v
}

func filterJoin(in *interp, v any, a *arguments) any {
	sep := in.str(a.or("d", ""))
	attribute, byAttr := a.get("attribute")
	a.done()
	get := func(v any) any { return v }
	if byAttr && attribute != nil {
		get = in.getter(attribute, nil, false)
	}
	var b strings.Builder
	next := in.iter(v)
	for i := 0; ; i++ {
		x, ok := next()
		if !ok {
			return b.String()
		}
		s := in.str(get(x))
		in.charge(len(s) + len(sep))
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(s)
	}
}

func filterSum(in *interp, v any, a *arguments) any {
	attribute := a.or("attribute", nil)
	total := a.or("start", int64(0))
	a.done()
	if _, ok := text(total); ok {
		throw("TypeError", "sum() can't sum strings [use ''.join(seq) instead]")
	}
	get := in.getter(attribute, nil, false)
	next := in.iter(v)
	for x, ok := next(); ok; x, ok = next() {
		total = in.binary("+", total, get(x))
	}
	return total
}

func filterMinMax(most bool) filterFunc {
	return func(in *interp, v any, a *arguments) any {
		cased := a.truth("case_sensitive", false)
		get := in.getter(a.or("attribute", nil), nil, !cased)
		a.done()
		next := in.iter(v)
		best, ok := next()
		if !ok {
			return &Undefined{hint: "No aggregated item, sequence was empty."}
		}
		key := get(best)
		for x, ok := next(); ok; x, ok = next() {
			k := get(x)
			if most && in.compareValues(k, key, ">") == 1 || !most && in.less(k, key) {
				best, key = x, k
			}
		}
		return best
	}
}

// sorted sorts items by a key, those of one key in the order in which they came.
func (in *interp) sorted(items []any, key func(any) any, reverse bool) []any {
	type keyed struct{ key, item any }
	all := make([]keyed, len(items))
	in.charge(32 * len(items))
	for i, x := range items {
		all[i] = keyed{key(x), x}
	}
	sorting.Sort(all, func(x, y keyed) int {
		a, b := x, y
		if reverse {
			a, b = y, x
		}
		switch {
		case in.less(a.key, b.key):
			return -1
		case in.less(b.key, a.key):
			return 1
		}
		return 0
	})
	for i := range all {
		items[i] = all[i].item
	}
	return items
}

func filterSort(in *interp, v any, a *arguments) any {
	reverse := a.truth("reverse", false)
	cased := a.truth("case_sensitive", false)
	attribute := a.or("attribute", nil)
	a.done()
	gets := []func(any) any{}
	if s, ok := text(attribute); ok {
		for part := range strings.SplitSeq(s, ",") {
			gets = append(gets, in.getter(part, nil, !cased))
		}
	} else {
		gets = append(gets, in.getter(attribute, nil, !cased))
	}
	return &List{in.sorted(in.collect(v), func(x any) any {
		keys := make([]any, len(gets))
		for i, get := range gets {
			keys[i] = get(x)
		}
		return &List{keys}
	}, reverse)}
}

func filterDictSort(in *interp, v any, a *arguments) any {
	cased := a.truth("case_sensitive", false)
	by := in.str(a.or("by", "key"))
	reverse := a.truth("reverse", false)
	a.done()
	if by != "key" && by != "value" {
		filterArgument(`You can only sort by either "key" or "value"`)
	}
	d, ok := v.(*Dict)
	if !ok {
		noAttribute(v, "items")
	}
	return &List{in.sorted(in.collect(&dictView{d, "items"}), func(x any) any {
		k := x.(*Tuple).Items[0]
		if by == "value" {
			k = x.(*Tuple).Items[1]
		}
		if !cased {
			k = ignoreCase(k)
		}
		return k
	}, reverse)}
}

func filterUnique(in *interp, v any, a *arguments) any {
	cased := a.truth("case_sensitive", false)
	get := in.getter(a.or("attribute", nil), nil, !cased)
	a.done()
	seen := NewDict()
	var next func() (any, bool)
	return &iterator{typeName: "generator", next: func() (any, bool) {
		if next == nil {
			next = in.iter(v)
		}
		for {
			x, ok := next()
			if !ok {
				return nil, false
			}
			k := get(x)
			if in.hasKey(seen, k) {
				continue
			}
			in.charge(32)
			seen.Set(k, true)
			return x, true
		}
	}}
}

func filterGroupBy(in *interp, v any, a *arguments) any {
	attribute := a.need("attribute")
	or := a.or("default", nil)
	cased := a.truth("case_sensitive", false)
	a.done()
	key, plain := in.getter(attribute, or, !cased), in.getter(attribute, or, false)
	out := &List{[]any{}}
	var last any
	for _, x := range in.sorted(in.collect(v), key, false) {
		k := key(x)
		if n := len(out.Items); n > 0 && in.equal(last, k) {
			group := out.Items[n-1].(*Tuple).Items[1].(*List)
			group.Items = append(group.Items, x)
			continue
		}
		last = k
		out.Items = append(out.Items, &Tuple{[]any{plain(x), &List{[]any{x}}}, []string{"grouper", "list"}})
	}
	return out
}

func filterBatch(in *interp, v any, a *arguments) any {
	size := a.integer("linecount", 0)
	fill := a.or("fill_with", nil)
	a.done()
	return lazily("generator", func() []any {
		var out []any
		row := []any{}
		for _, x := range in.collect(v) {
			if int64(len(row)) == size {
				out, row = append(out, &List{row}), []any{}
			}
			row = append(row, x)
		}
		if len(row) > 0 {
			if fill != nil && int64(len(row)) < size {
				in.bounded(size * 16)
				for int64(len(row)) < size {
					row = append(row, fill)
				}
			}
			out = append(out, &List{row})
		}
		return out
	})
}

func filterSlice(in *interp, v any, a *arguments) any {
	n := a.integer("slices", 0)
	fill := a.or("fill_with", nil)
	a.done()
	return lazily("generator", func() []any {
		items := in.collect(v)
		if n == 0 {
			throw("ZeroDivisionError", "integer division or modulo by zero")
		}
		in.bounded(max(n, 0) * 32)
		var out []any
		each, extra := int64(len(items))/max(n, 1), int64(len(items))%max(n, 1)
		at := int64(0)
		for i := range n {
			end := at + each
			if i < extra {
				end++
			}
			part := slices.Clone(items[at:end])
			if fill != nil && i >= extra {
				part = append(part, fill)
			}
			out = append(out, &List{part})
			at = end
		}
		return out
	})
}

func filterItems(in *interp, v any, a *arguments) any {
	a.done()
	return lazily("generator", func() []any {
		switch d := v.(type) {
		case *Undefined:
			return nil
		case *Dict:
			return in.collect(&dictView{d, "items"})
		}
		throw("TypeError", "Can only get item pairs from a mapping.")
		return nil
	})
}

// generate gives an iterator that takes from another what each keeps.
func (in *interp) generate(v any, prepare func() func(any) (any, bool)) *iterator {
	var next func() (any, bool)
	var each func(any) (any, bool)
	return &iterator{typeName: "generator", next: func() (any, bool) {
		if next == nil {
			if !in.truth(v) {
				return nil, false
			}
			each = prepare()
			next = in.iter(v)
		}
		for {
			x, ok := next()
			if !ok {
				return nil, false
			}
			if x, ok = each(x); ok {
				return x, true
			}
		}
	}}
}

func filterMap(in *interp, v any, a *arguments) any {
	return in.generate(v, func() func(any) (any, bool) {
		if attribute, ok := a.kw.Get("attribute"); ok && len(a.args) == 0 {
			or, _ := a.kw.Get("default")
			for _, k := range a.kw.keys {
				if k != "attribute" && k != "default" {
					filterArgument("Unexpected keyword argument %s", plainRepr(k))
				}
			}
			get := in.getter(attribute, or, false)
			return func(x any) (any, bool) { return get(x), true }
		}
		if len(a.args) == 0 {
			filterArgument("map requires a filter argument")
		}
		name := in.str(a.args[0])
		f := filters[name]
		if f == nil {
			throw("TemplateRuntimeError", "No filter named %s.", reprString(name))
		}
		return func(x any) (any, bool) { return in.filter(f, name, x, a.args[1:], a.kw.clone()), true }
	})
}

// selecting is select and its kin: want says what a test must give, attr that it is of an attribute.
func selecting(want, attr bool) filterFunc {
	return func(in *interp, v any, a *arguments) any {
		return in.generate(v, func() func(any) (any, bool) {
			args := a.args
			get := func(x any) any { return x }
			if attr {
				if len(args) == 0 {
					filterArgument("Missing parameter for attribute name")
				}
				get, args = in.getter(args[0], nil, false), args[1:]
			}
			if len(args) == 0 {
				return func(x any) (any, bool) { return x, in.truth(get(x)) == want }
			}
			name := in.str(args[0])
			test := tests[name]
			if test == nil {
				throw("TemplateRuntimeError", "No test named %s.", reprString(name))
			}
			return func(x any) (any, bool) {
				rest := &arguments{in: in, what: name, args: args[1:], kw: a.kw.clone()}
				return x, in.truth(test(in, get(x), rest)) == want
			}
		})
	}
}
