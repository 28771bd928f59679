package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph/lang"
)

// A parameter of a model that mentions i, the number of the block, has a value for each block that the model repeats.
// So has one that reads a key or asks for a weight with $i in its name, and one that mentions such a parameter.

// markPerBlock finds these, and reports what is used where no block is.
func (r *reader) markPerBlock() {
	f := r.f
	if f.block {
		return
	}
	users := map[string][]string{} // of a name: what mentions it
	f.perBlock = map[string]bool{}
	var found []string
	mark := func(name string) {
		if !f.perBlock[name] {
			f.perBlock[name] = true
			found = append(found, name)
		}
	}
	mentions := func(user string, list ...*expr) {
		for _, e := range list {
			if e != nil {
				walk(e.tree, func(n lang.Name) { users[n.Name] = append(users[n.Name], user) })
			}
		}
	}
	for _, p := range f.params {
		name := p.name.string
		mentions(name, p.is, p.null, p.among, p.length)
		for _, at := range append(p.params(), p.from.string) {
			users[at] = append(users[at], name)
		}
		if strings.Contains(strings.Join(slices.Concat(p.gguf, p.hf), " "), "$i") {
			mark(name)
		}
	}
	for _, w := range f.weights {
		mentions(w.name.string, w.when)
		for _, name := range w.params() {
			users[name] = append(users[name], w.name.string)
		}
		for _, patterns := range w.sources {
			for _, p := range patterns {
				if strings.Contains(p.name, "$i") {
					mark(w.name.string)
				}
			}
		}
	}
	for _, name := range users["i"] {
		mark(name)
	}
	for len(found) > 0 {
		name := found[0]
		found = found[1:]
		for _, user := range users[name] {
			mark(user)
		}
	}
	r.outsideBlocks()
}

// outsideBlocks reports the number of the block, and parameters that depend on it, where no block is.
func (r *reader) outsideBlocks() {
	f := r.f
	look := func(t text, prefix string, e lang.Expr) {
		walk(e, func(n lang.Name) {
			if n.Name == "i" || f.perBlock[n.Name] && f.param(n.Name) != nil {
				r.add(r.fail(t, n.Pos(), "%s%s", prefix, onlyInBlocks(n.Name)))
			}
		})
	}
	all := func(name text, list ...expr) {
		for _, e := range list {
			look(e.text, name.string+": ", e.tree)
		}
	}
	for _, e := range f.require {
		look(e.text, "require: ", e.tree)
	}
	for _, s := range f.says {
		all(s.name, s.expr)
	}
	for _, d := range slices.Concat(f.in, f.state) {
		all(d.name, d.dims...)
		if d.of != nil {
			all(d.name, *d.of)
		}
	}
	for _, w := range f.weights {
		if !f.read[w.name.string] { // only whether a block has it matters
			continue
		}
		all(w.name, w.shape...)
		for _, e := range []*expr{w.numbers, w.when} {
			if e != nil {
				all(w.name, *e)
			}
		}
	}
	for _, eq := range f.body {
		if eq.repeat == nil {
			all(eq.text, eq.rhs)
			continue
		}
		look(eq.rhs.text, eq.string+": ", eq.repeat.count)
		for _, a := range eq.repeat.args[:min(len(eq.names), len(eq.repeat.args))] {
			look(eq.rhs.text, eq.string+": an operand that blocks hand on is computed once: ", a)
		}
	}
}

// onlyInBlocks is the message for i, or a parameter that depends on it, where no block is.
func onlyInBlocks(name string) string {
	if name == "i" {
		return "i, the number of the block, is known under params: and inside repeat(...) only"
	}
	return fmt.Sprintf("%s has a value for each block, by its number i: it is known under params: and inside repeat(...) "+
		"only", name)
}

// varies says whether an expression differs from block to block.
func (f *File) varies(e lang.Expr) bool {
	found := false
	walk(e, func(n lang.Name) { found = found || n.Name == "i" || f.perBlock[n.Name] })
	return found
}
