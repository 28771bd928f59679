// unevaluatedProperties and unevaluatedItems: which members and items the keywords beside them see depends on which of
// their schemas hold. Each such case is an alternative, in which the keyword is additionalProperties or items.

package grammar

import (
	"slices"
)

// maxEvaluations bounds the cases of one schema.
const maxEvaluations = 64

// evaluation is a case: what must hold, and what is seen then. That more may hold does no harm, as it only sees more.
type evaluation struct {
	holds           []lit
	names, patterns []string
	first           int // items
	all             bool
}

// nothing says that a case sees nothing.
func (e *evaluation) nothing() bool { return !e.all && len(e.names)+len(e.patterns)+e.first == 0 }

// sees says that some case does.
func sees(list []evaluation) bool {
	return slices.ContainsFunc(list, func(e evaluation) bool { return !e.nothing() })
}

// both joins cases of two lists of which each has one.
func both(a, b []evaluation) []evaluation {
	var out []evaluation
	for _, x := range a {
		for _, y := range b {
			out = append(out, evaluation{append(slices.Clip(x.holds), y.holds...), append(slices.Clip(x.names), y.names...),
				append(slices.Clip(x.patterns), y.patterns...), max(x.first, y.first), x.all || y.all})
		}
	}
	return out
}

// given adds what must hold to cases.
func given(l lit, list []evaluation) []evaluation {
	return both([]evaluation{{holds: []lit{l}}}, list)
}

// unevaluated finds the cases of a schema for one of the two keywords.
type unevaluated struct {
	c   *compiler
	k   litKey
	own *value // whose keyword it is
}

func (c *compiler) sayUnevaluated(m *meaning, k litKey, v *value) error {
	u := unevaluated{c, k, k.v}
	list, err := u.of(k.v, 0)
	if err != nil {
		return err
	}
	var alternatives [][]lit
	extra := *v
	for _, e := range list {
		if e.all {
			alternatives = append(alternatives, e.holds)
			continue
		}
		alternatives = append(alternatives, append(slices.Clip(e.holds), c.is(u.closed(&e, &extra))))
	}
	extra.parent, extra.name = k.v, k.keyword
	m.any = append(m.any, alternatives)
	return nil
}

// closed is the schema of what a case sees, and of the rest.
func (u *unevaluated) closed(e *evaluation, rest *value) *value {
	s := &value{kind: 'o', parent: u.k.v, name: u.k.keyword}
	if u.k.keyword == "unevaluatedItems" {
		first := &value{kind: 'a'}
		for range e.first {
			first.push(&value{kind: 't'})
		}
		s.put("prefixItems", first)
		s.put("items", rest)
		return s
	}
	names, patterns := &value{kind: 'o'}, &value{kind: 'o'}
	for _, name := range e.names {
		names.put(name, &value{kind: 't'})
	}
	for _, src := range e.patterns {
		patterns.put(src, &value{kind: 't'})
	}
	s.put("properties", names)
	s.put("patternProperties", patterns)
	s.put("additionalProperties", rest)
	return s
}

// here is what a schema sees itself.
func (u *unevaluated) here(v *value) (e evaluation, err error) {
	e.all = v != u.own && v.get(u.k.keyword) != nil
	if u.k.keyword == "unevaluatedItems" {
		first, other := itemSchemas(v)
		e.first, e.all = len(first), e.all || other != nil
		if v.get("contains") != nil && u.c.draft >= 2020 {
			return e, refuse(u.k.v, u.k.keyword, "it is not supported beside contains, which sees items by what they are")
		}
		return e, nil
	}
	if props := v.get("properties"); props != nil {
		e.names = props.keys
	}
	if patterns := v.get("patternProperties"); patterns != nil {
		e.patterns = patterns.keys
	}
	e.all = e.all || v.get("additionalProperties") != nil
	return e, nil
}

func (u *unevaluated) of(v *value, depth int) ([]evaluation, error) {
	c := u.c
	if v == nil || v.kind != 'o' {
		return []evaluation{{}}, nil
	}
	if depth > 30 {
		return nil, refuse(u.k.v, u.k.keyword, "the schemas beside it lead back to themselves")
	}
	e, err := u.here(v)
	if err != nil {
		return nil, err
	}
	list := []evaluation{e}
	for _, k := range c.present(v) {
		more, err := u.keyword(v, k, depth+1)
		if err != nil {
			return nil, err
		}
		if more == nil || !sees(more) {
			continue
		}
		if list = both(list, more); len(list) > maxEvaluations {
			return nil, refuse(u.k.v, u.k.keyword, "the schemas beside it hold in more than %d ways", maxEvaluations)
		}
	}
	return list, nil
}

// keyword gives the cases of a keyword that applies schemas to the same value; nil: it is none.
func (u *unevaluated) keyword(v *value, k string, depth int) ([]evaluation, error) {
	c, is := u.c, v.get(k)
	switch k {
	case "$ref":
		target, err := c.resolve(v, is)
		if err != nil {
			return nil, err
		}
		return u.of(target, depth)
	case "$dynamicRef", "$recursiveRef":
		target, err := c.resolveDynamic(v, k, is)
		if err != nil {
			return nil, err
		}
		return u.of(target, depth)
	case "allOf", "anyOf", "oneOf":
		return u.several(is, k, depth)
	case "if":
		when, err := u.of(is, depth)
		if err != nil {
			return nil, err
		}
		then, err := u.of(v.get("then"), depth)
		if err != nil {
			return nil, err
		}
		other, err := u.of(v.get("else"), depth)
		return append(given(c.is(is), both(when, then)), given(c.isNot(is), other)...), err
	case "dependentSchemas":
		list := []evaluation{{}}
		for _, key := range is.keys {
			one, err := u.of(is.members[key], depth)
			if err != nil {
				return nil, err
			}
			if sees(one) {
				list = both(list, append(given(c.has(v, key), one), evaluation{}))
			}
		}
		return list, nil
	}
	return nil, nil
}

// several gives the cases of a list of schemas: all of them, any, or one.
func (u *unevaluated) several(list *value, k string, depth int) ([]evaluation, error) {
	out := []evaluation{{}}
	single := []evaluation{}
	blind := false // some schema sees nothing, and may be the one that holds
	for _, s := range list.items {
		one, err := u.of(s, depth)
		if err != nil {
			return nil, err
		}
		if k == "allOf" {
			out = both(out, one)
			continue
		}
		if !sees(one) {
			blind = true
			continue
		}
		one = given(u.c.is(s), one)
		single = append(single, one...)
		if out = both(out, append(one, evaluation{})); len(out) > maxEvaluations {
			return nil, refuse(u.k.v, u.k.keyword, "the schemas beside it hold in more than %d ways", maxEvaluations)
		}
	}
	switch {
	case k == "oneOf" && blind:
		return append(single, evaluation{}), nil
	case k == "oneOf":
		return single, nil
	case k == "anyOf" && !blind && len(out) > 1:
		return out[:len(out)-1], nil // but for the case that none holds
	}
	return out, nil
}
