// Arrays whose items differ: where each is one of a list, a state keeps which of the list there were.

package grammar

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// mostDistinct bounds such a list.
const mostDistinct = 1000

// distinctItems are the values of such a list. Those that are texts are read by one expression.
type distinctItems struct {
	n     int // values
	texts bool
	trie  int32
	which []int32 // by the trie's number of a text: the value's, from 0
}

// distinct makes an array's items those of a list, each once; false where the rules of an item list no values.
func (c *compiler) distinct(ar *arraySpec, rules []lit) bool {
	var list []*value
	found := false
	for _, l := range rules {
		if k := c.lits[l]; !found && l > litFalse && k.keyword == "" && !k.not {
			list, found = c.listed(k.v, 0)
		}
	}
	if !found {
		return false
	}
	var out []variant
	numbers := map[string]int32{} // of texts
	seen := map[string]bool{}
	for _, v := range list {
		id, ok := v.identity()
		if !ok {
			return false
		}
		if seen[id] {
			continue
		}
		seen[id] = true
		if v.kind == 's' {
			numbers[v.text] = int32(len(out))
		}
		only := &value{kind: 'o', parent: v.parent, name: v.name}
		one, enum := *v, &value{kind: 'a'}
		enum.push(&one)
		only.put("enum", enum)
		out = append(out, variant{node: c.place(append(slices.Clone(rules), c.is(only))), which: int32(len(out) + 1)})
	}
	ar.other, ar.distinct = out, &distinctItems{n: len(out)}
	if len(numbers) > 0 {
		t, id := c.a.trie(slices.Collect(maps.Keys(numbers)))
		t.keys = true
		ar.distinct.texts, ar.distinct.trie = true, id
		for _, text := range t.texts {
			ar.distinct.which = append(ar.distinct.which, numbers[text])
		}
	}
	return len(out) <= mostDistinct
}

// distinctTerms are the ways on from a state where an item comes that there was not.
func (n *schemaNet) distinctTerms(m *machine, k stateKey, ar *arraySpec, s *state) {
	d, seen := ar.distinct, n.sets[k.seen]
	left := make([]bool, d.n)
	for _, v := range ar.other {
		i := v.which - 1
		left[i] = seen[i>>6]>>(i&63)&1 == 0
	}
	if d.texts {
		texts, some := make([]uint64, (len(d.which)+63)/64), false
		for i, which := range d.which {
			if left[which] {
				texts[i>>6] |= 1 << (i & 63)
				left[which], some = false, true
			}
		}
		if some {
			s.terms = append(s.terms, term{n.c.quoted(n.c.a.oneOf(d.trie, texts), rxEps), ^m.stateOf(k)})
		}
	}
	for _, v := range ar.other {
		if left[v.which-1] {
			s.calls = append(s.calls, call{n.rule[v.node], n.afterDistinct(m, k, ar, v.which-1)})
		}
	}
}

// afterDistinct gives the state after a value of the list.
func (n *schemaNet) afterDistinct(m *machine, k stateKey, ar *arraySpec, which int32) int32 {
	seen := slices.Clone(n.sets[k.seen])
	seen[which>>6] |= 1 << (which & 63)
	k.seen = n.seenSet(seen)
	return n.afterItem(m, k, ar, 0)
}

// listed gives values among which are all that meet a schema, where it lists them.
func (c *compiler) listed(v *value, depth int) ([]*value, bool) {
	if v.kind != 'o' || depth > 20 {
		return nil, false
	}
	for _, k := range c.present(v) {
		is := v.get(k)
		switch k {
		case "const":
			return []*value{is}, true
		case "enum":
			return is.items, is.kind == 'a'
		case "$ref":
			if target, err := c.resolve(v, is); err == nil {
				if list, ok := c.listed(target, depth+1); ok {
					return list, true
				}
			}
		case "type":
			if is.kind == 's' && is.text == "boolean" {
				return []*value{{kind: 't', parent: v, name: k}, {kind: 'f', parent: v, name: k}}, true
			}
		case "allOf":
			for _, part := range is.items {
				if list, ok := c.listed(part, depth+1); ok {
					return list, true
				}
			}
		case "anyOf", "oneOf":
			var all []*value
			every := len(is.items) > 0
			for _, part := range is.items {
				list, ok := c.listed(part, depth+1)
				all, every = append(all, list...), every && ok
			}
			if every {
				return all, true
			}
		}
	}
	return nil, false
}

// identity is the same of values that are equal, as JSON schema has it; false where a number is too long.
func (v *value) identity() (string, bool) {
	switch v.kind {
	case 's':
		return strconv.Quote(v.text), true
	case 'n':
		d, ok := parseDecimal(v.text)
		return fmt.Sprint(d), ok
	case 'a', 'o':
		var parts []string
		for _, item := range v.items {
			id, ok := item.identity()
			if !ok {
				return "", false
			}
			parts = append(parts, id)
		}
		for _, key := range slices.Sorted(slices.Values(v.keys)) {
			id, ok := v.members[key].identity()
			if !ok {
				return "", false
			}
			parts = append(parts, strconv.Quote(key)+":"+id)
		}
		return string(v.kind) + "(" + strings.Join(parts, ",") + ")", true
	}
	return string(v.kind), true
}
