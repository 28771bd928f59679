// JSON schema: keywords of objects and arrays, references, and what dependencies say.

package grammar

import (
	"net/url"
	"strings"
)

func (c *compiler) sayObject(m *meaning, k litKey, v *value) error {
	switch k.keyword {
	case "required":
		return c.sayRequired(m, k, v)
	case "properties":
		return c.sayProperties(m, k)
	case "propertyNames":
		keys, err := c.textsOf(c.is(v))
		if err != nil {
			return err
		}
		if k.not {
			m.only(typeObject)
			other := c.a.notText(keys)
			m.do(func(s *shape) { s.some = append(s.some, someMember{other, litTrue}) })
			return nil
		}
		m.do(func(s *shape) { s.names = append(s.names, keys) })
		return nil
	}
	return c.sayCount(m, k, v, typeObject, func(s *shape) (least, most *int) { return &s.minP, &s.maxP })
}

// sayCount bounds how many parts a value of a type has, by a keyword that begins with min or max.
func (c *compiler) sayCount(m *meaning, k litKey, v *value, kind uint8, bounds func(*shape) (least, most *int)) error {
	n, err := c.count(k, v)
	if err != nil {
		return err
	}
	least := strings.HasPrefix(k.keyword, "min")
	if k.not {
		m.only(kind)
		if least {
			n--
		} else {
			n++
		}
		least = !least
	}
	m.do(func(s *shape) {
		low, high := bounds(s)
		switch {
		case least:
			*low = max(*low, n)
		case n < 0:
			s.types &^= kind
		default:
			*high = atMost(*high, n)
		}
	})
	return nil
}

func (c *compiler) sayRequired(m *meaning, k litKey, v *value) error {
	if v.kind != 'a' {
		return refuse(k.v, k.keyword, "it must be a list of names")
	}
	var names []string
	for _, n := range v.items {
		if n.kind != 's' {
			return refuse(k.v, k.keyword, "it must be a list of names")
		}
		names = append(names, n.text)
	}
	if k.not {
		var alternatives [][]lit
		for _, n := range names {
			alternatives = append(alternatives, []lit{c.lacks(k.v, n)})
		}
		m.any = append(m.any, alternatives)
		return nil
	}
	m.do(func(s *shape) { s.required = append(s.required, names...) })
	return nil
}

// lacks says that a value is an object without a member.
func (c *compiler) lacks(at *value, name string) lit {
	never := &value{kind: 'o'}
	props := &value{kind: 'o'}
	props.put(name, &value{kind: 'f'})
	never.put("properties", props)
	never.parent, never.name = at, "required"
	return c.special(at, "lacks "+name, &meaning{apply: []func(*shape){func(s *shape) {
		s.types &= typeObject
		s.closed = append(s.closed, never)
	}}})
}

// has says that a value is an object with a member.
func (c *compiler) has(at *value, name string) lit {
	return c.special(at, "has "+name, &meaning{apply: []func(*shape){func(s *shape) {
		s.types &= typeObject
		s.required = append(s.required, name)
	}}})
}

// holds says that a value is an object with a member that is as l says.
func (c *compiler) holds(at *value, id string, keys rx, l lit) lit {
	return c.special(at, "holds "+id, &meaning{apply: []func(*shape){func(s *shape) {
		s.types &= typeObject
		s.some = append(s.some, someMember{keys, l})
	}}})
}

// checkObject refuses malformed parts of the three keywords.
func (c *compiler) checkObject(v *value) error {
	for _, key := range []string{"properties", "patternProperties"} {
		if p := v.get(key); p != nil && p.kind != 'o' {
			return refuse(v, key, "it must be an object")
		}
	}
	if p := v.get("patternProperties"); p != nil {
		for _, src := range p.keys {
			if _, err := c.patternText(src); err != nil {
				return refuse(v, "patternProperties", "%v", err)
			}
		}
	}
	return nil
}

func (c *compiler) sayProperties(m *meaning, k litKey) error {
	if err := c.checkObject(k.v); err != nil {
		return err
	}
	if !k.not {
		m.do(func(s *shape) { s.closed = append(s.closed, k.v) })
		return nil
	}
	// The contrary: some member is not what it should be.
	var alternatives [][]lit
	var covered []rx
	add := func(id string, keys rx, s *value) {
		if l := c.isNot(s); l != litFalse {
			alternatives = append(alternatives, []lit{c.holds(k.v, id, keys, l)})
		}
	}
	props, patterns := k.v.get("properties"), k.v.get("patternProperties")
	if props != nil {
		for _, key := range props.keys {
			r := c.a.lit(key)
			covered = append(covered, r)
			if l := c.isNot(props.members[key]); l != litFalse {
				alternatives = append(alternatives, []lit{c.special(k.v, "is not "+key, &meaning{apply: []func(*shape){
					func(s *shape) {
						s.types &= typeObject
						s.required = append(s.required, key)
						s.one = append(s.one, oneMember{key, l})
					}}})})
			}
		}
	}
	if patterns != nil {
		for _, src := range patterns.keys {
			r := c.regexes[src]
			covered = append(covered, r)
			add("pattern "+src, r, patterns.members[src])
		}
	}
	if extra := k.v.get("additionalProperties"); extra != nil {
		add("others", c.a.notText(c.a.alt(covered...)), extra)
	}
	m.any = append(m.any, alternatives)
	return nil
}

// memberRules gives what a schema says of the member of a key.
func (c *compiler) memberRules(v *value, key string) []lit {
	var out []lit
	if s := v.get("properties").get(key); s != nil {
		out = append(out, c.is(s))
	}
	if patterns := v.get("patternProperties"); patterns != nil {
		for _, src := range patterns.keys {
			if c.a.matches(c.regexes[src], key) {
				out = append(out, c.is(patterns.members[src]))
			}
		}
	}
	if extra := v.get("additionalProperties"); extra != nil && len(out) == 0 {
		out = append(out, c.is(extra))
	}
	return out
}

func (c *compiler) sayDependent(m *meaning, k litKey, v *value) error {
	if v.kind != 'o' {
		return refuse(k.v, k.keyword, "it must be an object")
	}
	var contrary [][]lit
	for _, key := range v.keys {
		then := v.members[key]
		var need []lit
		var alternatives [][]lit
		switch {
		case then.kind == 'a' && k.keyword != "dependentSchemas", then.kind == 's' && k.keyword == "dependencies":
			names := then.items
			if then.kind == 's' {
				names = []*value{then}
			}
			for _, n := range names {
				need = append(need, c.has(k.v, n.text))
				alternatives = append(alternatives, []lit{c.has(k.v, key), c.lacks(k.v, n.text)})
			}
		case k.keyword == "dependentRequired":
			return refuse(k.v, k.keyword, "each must be a list of names")
		default:
			need = append(need, c.is(then))
			alternatives = [][]lit{{c.has(k.v, key), c.isNot(then)}}
		}
		if k.not {
			contrary = append(contrary, alternatives...)
			continue
		}
		m.any = append(m.any, [][]lit{{c.hasNot(k.v, key)}, append(need, c.has(k.v, key))})
	}
	if k.not {
		m.any = append(m.any, contrary)
	}
	return nil
}

// hasNot says that a value is no object with a member.
func (c *compiler) hasNot(at *value, name string) lit {
	return c.special(at, "hasNot "+name, &meaning{any: [][][]lit{{
		{c.special(at, "no object", &meaning{apply: []func(*shape){func(s *shape) { s.types &^= typeObject }}})},
		{c.lacks(at, name)}}}})
}

func (c *compiler) sayArray(m *meaning, k litKey, v *value) error {
	switch k.keyword {
	case "items":
		return c.sayItems(m, k)
	case "contains":
		return c.sayContains(m, k, v)
	case "uniqueItems":
		is, ok := v.bool()
		if !ok {
			return refuse(k.v, k.keyword, "it must be true or false")
		}
		switch {
		case is && k.not:
			return refuse(k.v, k.keyword, "its contrary is not supported")
		case is:
			m.do(func(s *shape) { s.unique = k.v })
		case k.not:
			m.any = append(m.any, nil)
		}
		return nil
	}
	return c.sayCount(m, k, v, typeArray, func(s *shape) (least, most *int) { return &s.minI, &s.maxI })
}

// itemSchemas gives the schemas of the first items and of those after them, nil
// where anything goes. The list form of items is that of drafts before 2020.
func itemSchemas(v *value) (first []*value, other *value) {
	items := v.get("items")
	if p := v.get("prefixItems"); p != nil {
		first, other = p.items, items
		return first, other
	}
	if items != nil && items.kind == 'a' {
		return items.items, v.get("additionalItems")
	}
	return nil, items
}

func (c *compiler) sayItems(m *meaning, k litKey) error {
	if p := k.v.get("prefixItems"); p != nil && p.kind != 'a' {
		return refuse(k.v, "prefixItems", "it must be a list of schemas")
	}
	first, other := itemSchemas(k.v)
	if !k.not {
		m.do(func(s *shape) { s.items = append(s.items, k.v) })
		return nil
	}
	var alternatives [][]lit
	for i, s := range first {
		alternatives = append(alternatives, []lit{c.someItem(s, containing{is: c.isNot(s), from: i, min: 1, max: i})})
	}
	if other != nil {
		alternatives = append(alternatives,
			[]lit{c.someItem(other, containing{is: c.isNot(other), from: len(first), min: 1, max: -1})})
	}
	m.any = append(m.any, alternatives)
	return nil
}

// someItem says that a value is an array with an item that is as told, at a place
// from `from` to `max`.
func (c *compiler) someItem(at *value, what containing) lit {
	return c.special(at, "some item", &meaning{apply: []func(*shape){func(s *shape) {
		s.types &= typeArray
		s.someItem = append(s.someItem, what)
	}}})
}

func (c *compiler) sayContains(m *meaning, k litKey, v *value) error {
	least, most := 1, -1
	for key, to := range map[string]*int{"minContains": &least, "maxContains": &most} {
		if n := k.v.get(key); n != nil && c.draft >= 2019 {
			count, err := c.count(litKey{v: k.v, keyword: key}, n)
			if err != nil {
				return err
			}
			*to = count
		}
	}
	what := containing{is: c.is(v), other: c.isNot(v), min: least, max: most}
	if !k.not {
		m.do(func(s *shape) { s.contains = append(s.contains, what) })
		return nil
	}
	// Too few, or too many.
	var alternatives [][]lit
	contrary := func(id string, w containing) {
		alternatives = append(alternatives, []lit{c.special(k.v, id+" contained", &meaning{apply: []func(*shape){
			func(s *shape) {
				s.types &= typeArray
				s.contains = append(s.contains, w)
			}}})})
	}
	if least > 0 {
		contrary("few", containing{is: what.is, other: what.other, max: least - 1})
	}
	if most >= 0 {
		contrary("many", containing{is: what.is, other: what.other, min: most + 1, max: -1})
	}
	m.any = append(m.any, alternatives)
	return nil
}

// findID finds the schema with an identifier, told whole or by its end.
func (c *compiler) findID(base string) *value {
	if v := c.ids[base]; v != nil {
		return v
	}
	if u, err := url.Parse(c.rootID()); err == nil && c.rootID() != "" {
		if r, err := u.Parse(base); err == nil {
			if r.String() == strings.TrimSuffix(c.rootID(), "#") {
				return c.root
			}
			for id, v := range c.ids {
				if full, err := u.Parse(id); err == nil && full.String() == r.String() {
					return v
				}
			}
		}
	}
	return nil
}

func (c *compiler) rootID() string {
	for _, key := range []string{"$id", "id"} {
		if id := c.root.get(key); id != nil && id.kind == 's' {
			return id.text
		}
	}
	return ""
}

// collect notes the identifiers and anchors below v, and registers every text and
// pattern, whose bytes must be told apart before the first automaton is built.
func (c *compiler) collect(v *value) {
	if v.kind == 's' {
		c.a.splitText(v.text)
	}
	for _, item := range v.items {
		c.collect(item)
	}
	for _, key := range v.keys {
		m := v.members[key]
		c.a.splitText(key)
		c.collect(m)
		if key == "patternProperties" && m.kind == 'o' {
			for _, src := range m.keys {
				_, _ = c.patternText(src) // an error is told where the pattern is used
			}
		}
		if m.kind != 's' {
			continue
		}
		switch key {
		case "pattern":
			_, _ = c.patternText(m.text)
		case "format":
			if r, ok, err := c.a.formatText(m.text); ok && err == nil {
				c.regexes["format "+m.text] = r
			}
		case "$id", "id":
			c.ids[strings.TrimSuffix(m.text, "#")] = v
		case "$anchor":
			c.ids["#"+m.text] = v
		}
	}
}
