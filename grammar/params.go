// An object whose members are tagged parameters, as XML-like calls of tools have them:
// <parameter=city>Rome</parameter>. Texts stand as they are, other values as JSON.

package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Tags say how a member of an object is written: Open, the name, then a text between the two of Text, or another value
// as JSON between the two of Value.
type Tags struct {
	Open        string
	Text, Value [2]string
	// NameEnd and End are what a reader looks for behind a name and a value: names do not have the first, values not
	// the second, also where JSON could escape it. A name does not begin or end with white space.
	NameEnd, End string
	// Lines says that a reader takes an end of line away at both ends of a value.
	Lines bool
	// Types are JSON schema's types which the reader knows that a member may have, Others those of members that
	// Types does not name; nil: it knows none. Where Text and Value are equal it takes a value for a text only where
	// it is no other of these, so that texts that could be are not written.
	Types  map[string][]string
	Others []string
}

// Params constrains to the objects that are valid under a JSON schema, their members written as Tags say.
func Params(schema string, t Tags) Source { return Source{kind: "params", text: schema, tags: &t} }

// paramTags are the expressions of Tags.
type paramTags struct {
	*Tags
	open, endless, edges rx // endless: texts without End; edges: those that keep their ends of line
	text, value          [2]rx
	names                rx // those that can be written
}

// params reads a schema and gives a function that makes the rule of its tagged objects.
func (b *builder) params(text string, t *Tags) (func() (int32, error), error) {
	if t.Open == "" || t.NameEnd == "" || t.End == "" {
		return nil, errors.New("grammar: tags without Open, NameEnd or End")
	}
	root, err := parseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	c := newCompiler(b.m.a, root, b.opt)
	c.a.splitText("null true false None True False ()" + t.Open + t.NameEnd + t.End)
	c.a.splitText(strings.Join(append(t.Text[:], t.Value[:]...), ""))
	c.tags = b.tagged(t)
	return func() (int32, error) {
		place := c.place([]lit{c.is(root)})
		if err := c.explore(); err != nil {
			return 0, err
		}
		place, err := c.tagRoot(place)
		if err != nil {
			return 0, err
		}
		return b.m.addSchema(c, place), nil
	}, nil
}

// tagged makes the expressions. Sets of bytes come before any automaton.
func (b *builder) tagged(t *Tags) *paramTags {
	a := b.m.a
	without := func(s string) rx { return a.notText(a.cat(a.text, a.lit(s), a.text)) }
	edge := func(r rx) rx { return a.and(a.notText(a.cat(r, a.text)), a.notText(a.cat(a.text, r))) }
	g := &paramTags{Tags: t, open: b.tag(t.Open), endless: without(t.End), edges: a.text}
	for i := range g.text {
		g.text[i], g.value[i] = b.tag(t.Text[i]), b.tag(t.Value[i])
	}
	if t.Lines {
		g.edges = edge(a.lit("\n"))
	}
	g.names = a.and(edge(a.space()), without(t.NameEnd), without("\n"))
	return g
}

// space is a character that strings.TrimSpace takes away.
func (a *arena) space() rx { return a.runes(tableRunes(unicode.White_Space)) }

// Kinds of values, as a reader tells them.
var readerTypes = map[string]uint8{"null": typeNull, "boolean": typeTrue | typeFalse, "number": typeNumber,
	"integer": typeNumber, "string": typeString, "array": typeArray, "object": typeObject}

// known gives the types that a reader takes a value for; any says that it knows none.
func (g *paramTags) known(types []string) (bits uint8, any bool) {
	for _, t := range types {
		bits |= readerTypes[t]
	}
	return bits, types == nil
}

// look is what a reader could take for a value of these types that is no text. Where it knows none, JSON in quotes is
// read as JSON, and Python's words and brackets are not.
func (c *compiler) look(bits uint8, any bool) rx {
	a := c.a
	var list []rx
	word := func(bit uint8, json, python string) {
		if any || bits&bit != 0 {
			list = append(list, a.lit(json), a.lit(python))
		}
	}
	word(typeNull, "null", "None")
	word(typeTrue, "true", "True")
	word(typeFalse, "false", "False")
	if any || bits&typeNumber != 0 {
		list = append(list, c.number)
	}
	between := func(bit uint8, open, shut string) {
		if any || bits&bit != 0 {
			list = append(list, a.cat(a.lit(open), a.text, a.lit(shut)))
		}
	}
	between(typeArray, "[", "]")
	between(typeArray, "(", ")")
	between(typeObject, "{", "}")
	if any {
		list = append(list, a.cat(a.lit(`"`), a.text, a.lit(`"`)))
	}
	blank := a.star(a.space())
	return a.cat(blank, a.alt(list...), blank)
}

// tagRoot makes a place of the root's objects with tagged members.
func (c *compiler) tagRoot(root int32) (int32, error) {
	made := map[taggedKey]int32{}
	n := &vnode{scalar: rxNone}
	for _, o := range c.nodes[root].objects {
		t := *o
		t.bare = &bareMembers{c.tags.open, rxEps, rxEps}
		t.values, t.others = nil, nil
		for i, list := range o.values {
			types, ok := c.tags.Types[o.keys[i]]
			if !ok {
				types = c.tags.Others
			}
			values, err := c.tagAll(list, types, made)
			if err != nil {
				return 0, err
			}
			if len(list) > 0 && (len(values) == 0 || !c.a.matches(c.tags.names, o.keys[i])) {
				return 0, refuse(c.root, "properties", "neither a text nor JSON between the tags of the model's calls "+
					"can be the member %q", o.keys[i])
			}
			t.values = append(t.values, values)
		}
		for _, k := range o.others {
			values, err := c.tagAll(k.values, c.tags.Others, made)
			if err != nil {
				return 0, err
			}
			if k.keys = c.a.and(k.keys, c.tags.names); c.a.alive(k.keys) && len(values) > 0 {
				t.others = append(t.others, keyClass{k.keys, values})
			}
		}
		if c.objectPossible(&t) {
			n.objects = append(n.objects, &t)
		}
	}
	if len(n.objects) == 0 {
		return 0, refuse(c.root, "schema", "no object is valid")
	}
	c.nodes = append(c.nodes, n)
	return int32(len(c.nodes) - 1), nil
}

// taggedKey is a place as a reader of some types reads it.
type taggedKey struct {
	node  int32
	types uint8
	any   bool
}

// taggedValue is how a member's value stands between its tags.
type taggedValue struct {
	tags *paramTags
	text rx    // a text, the tags around it included
	json int32 // the place of other values; < 0: none
}

// tagAll makes places of tagged values, and leaves out those of which no value can be written.
func (c *compiler) tagAll(list []variant, types []string, made map[taggedKey]int32) ([]variant, error) {
	var out []variant
	for _, v := range list {
		key := taggedKey{node: v.node}
		key.types, key.any = c.tags.known(types)
		id, ok := made[key]
		if !ok {
			var err error
			if id, err = c.tagValue(key); err != nil {
				return nil, err
			}
			made[key] = id
		}
		if id >= 0 {
			out = append(out, variant{node: id, duty: v.duty})
		}
	}
	return out, nil
}

// tagValue makes the place of a tagged value; -1 where none can be written.
func (c *compiler) tagValue(key taggedKey) (int32, error) {
	apart := c.tags.Text != c.tags.Value
	from := c.nodes[key.node]
	shapes, err := c.shapes(from.lits)
	if err != nil {
		return 0, err
	}
	allowed := key.types &^ typeString
	if key.any {
		allowed = typeAny
		if apart {
			allowed &^= typeString
		}
	}
	var texts, scalars []rx
	for _, s := range shapes {
		if s.types&typeString != 0 && (key.any || key.types&typeString != 0) {
			texts = append(texts, c.shapeText(s))
		}
		only := s.clone()
		only.types &= allowed
		scalars = append(scalars, c.scalars(only))
	}
	g := c.tags
	text := c.a.alt(texts...)
	if g.edges != c.a.text {
		text = c.a.and(text, g.edges)
	}
	if !apart && (key.any || allowed != 0) {
		text = c.a.and(text, c.a.notText(c.look(key.types, key.any)))
	}
	if !c.a.alive(text) {
		text = rxNone
	}
	json := &vnode{scalar: c.a.alt(scalars...), live: true}
	if allowed&typeObject != 0 {
		json.objects = from.objects
	}
	if allowed&typeArray != 0 {
		json.arrays = from.arrays
	}
	n := &vnode{scalar: rxNone, live: true, tagged: &taggedValue{tags: g, json: -1}}
	if text != rxNone {
		n.tagged.text = c.a.cat(g.text[0], text, g.text[1])
	}
	if json.scalar != rxNone || len(json.objects)+len(json.arrays) > 0 {
		n.tagged.json = int32(len(c.nodes))
		c.nodes = append(c.nodes, json)
	}
	if text == rxNone && n.tagged.json < 0 {
		return -1, nil
	}
	c.nodes = append(c.nodes, n)
	return int32(len(c.nodes) - 1), nil
}

// writable leaves out of a string's texts those with the tag that ends values. A list of texts without it stays a list.
func (c *compiler) writable(text rx) rx {
	if c.tags == nil {
		return text
	}
	if n := c.a.nodes[text]; n.kind == kTrie && !slices.ContainsFunc(c.a.tries[n.m].texts, c.endsTag) {
		return text
	}
	return c.a.and(text, c.tags.endless)
}

func (c *compiler) endsTag(text string) bool { return strings.Contains(text, c.tags.End) }

// taggedState is the first, the middle or the last state of a tagged value.
func (n *schemaNet) taggedState(m *machine, k stateKey, place *vnode) state {
	spec := k.spec &^ n.id
	s := state{rule: n.rule[spec]}
	t := place.tagged
	next := k
	switch k.phase {
	case phFirst:
		if t.text != rxNone {
			s.terms = append(s.terms, term{t.text, m.stateOf(stateKey{kind: stDone, spec: k.spec})})
		}
		if t.json >= 0 {
			next.phase = phValue
			s.terms = append(s.terms, term{t.tags.value[0], m.stateOf(next)})
		}
	case phValue:
		next.phase = phAfter
		s.calls = []call{{n.rule[t.json], m.stateOf(next)}}
	case phAfter:
		s.terms = []term{{t.tags.value[1], m.stateOf(stateKey{kind: stDone, spec: k.spec})}}
	}
	return s
}

// bareKeys reads a name that the schema has, in a set of them by their texts.
func (n *schemaNet) bareKeys(m *machine, k stateKey, o *objectSpec, byText []uint64, s *state) {
	for i, place := range o.rank {
		if byText != nil && byText[i>>6]>>(i&63)&1 != 0 {
			name := n.c.a.cat(o.bare.before, n.c.a.lit(o.keys[place]), o.bare.behind)
			s.terms = append(s.terms, term{name, n.afterKey(m, k, int32(i))})
		}
	}
}
