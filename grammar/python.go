// Calls of functions as Python writes them: [f(a=1), g(b="x")].

package grammar

import (
	"errors"
	"fmt"
)

// Call is a function that may be called, and the JSON schema of its arguments.
type Call struct{ Name, Schema string }

// Python constrains to a list of one call, or of several, as Python writes them: [f(a=1), g(b="x")].
// Arguments are the objects that are valid under a call's schema, their members written as arguments with a name.
func Python(calls []Call, several bool) Source {
	return Source{kind: "python", calls: calls, several: several}
}

// pythonName is what functions and arguments may be called, as far as readers understand it.
const pythonName = `[A-Za-z0-9_.\-]+`

// python reads the schemas and gives a function that makes the rule of the list.
func (b *builder) python(calls []Call, several bool) (func() (int32, error), error) {
	a := b.m.a
	if len(calls) == 0 {
		return nil, errors.New("grammar: no function to call")
	}
	a.splitText("NoneTrueFalse[](){}'\"\\xuUabfnrtv=,: ")
	names, err := a.wholePattern(pythonName)
	if err != nil {
		return nil, err
	}
	identifiers, err := a.wholePattern(`[A-Za-z_][A-Za-z0-9_]*`)
	if err != nil {
		return nil, err
	}
	var compilers []*compiler
	for _, call := range calls {
		root, err := parseJSON(call.Schema)
		if err != nil {
			return nil, fmt.Errorf("the schema of %s: %w", call.Name, err)
		}
		a.splitText(call.Name)
		c := newCompiler(a, root, Options{Compact: true, Ordered: b.opt.Ordered})
		c.words, c.quoted, c.comma, c.colon = [3]string{"None", "True", "False"}, a.pythonString, ", ", ": "
		compilers = append(compilers, c)
	}
	return func() (int32, error) {
		m := b.m
		rule, first := b.rule()
		begin, next, end := m.fixed(rule), m.fixed(rule), m.fixed(rule)
		m.states[first].terms = []term{{a.lit("["), begin}}
		m.states[next].terms = []term{{a.lit("]"), end}}
		if several {
			m.states[next].terms = append(m.states[next].terms, term{a.lit(", "), begin})
		}
		m.states[end].final = true
		for i, c := range compilers {
			name := calls[i].Name
			if !a.matches(names, name) {
				return 0, fmt.Errorf("grammar: a function cannot be called %q in Python", name)
			}
			inner, err := c.arguments(m, names, identifiers)
			if err != nil {
				return 0, fmt.Errorf("the arguments of %s: %w", name, err)
			}
			open, shut := m.fixed(rule), m.fixed(rule)
			m.states[begin].terms = append(m.states[begin].terms, term{a.lit(name + "("), open})
			m.states[open].calls = []call{{inner, shut}}
			m.states[shut].terms = []term{{a.lit(")"), next}}
		}
		return rule, nil
	}, nil
}

// arguments makes the rule of a call's arguments. Those that the schema names have what is in names, others what is
// in identifiers.
func (c *compiler) arguments(m *machine, names, identifiers rx) (int32, error) {
	root := c.place([]lit{c.is(c.root)})
	if err := c.explore(); err != nil {
		return 0, err
	}
	n := &vnode{scalar: rxNone, live: true}
	for _, o := range c.nodes[root].objects {
		t := *o
		t.bare, t.others = &bareMembers{rxEps, c.a.lit("="), c.a.lit(", ")}, nil
		for i, list := range o.values {
			if len(list) > 0 && !c.a.matches(names, o.keys[i]) {
				return 0, refuse(c.root, "properties", "an argument cannot be called %q in Python", o.keys[i])
			}
		}
		for _, k := range o.others {
			if k.keys = c.a.and(k.keys, identifiers); c.a.alive(k.keys) {
				t.others = append(t.others, k)
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
	return m.addSchema(c, int32(len(c.nodes)-1)), nil
}
