package models

import (
	"maps"
	"slices"
	"sync"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
)

// builtins are the names that every file knows.
var builtins = []string{"S", "C", "R", "i", "gguf", "hf"}

var builtinDoc = map[string]string{
	"S":    "the number of tokens in the step",
	"C":    "the context length",
	"R":    "the number of rows whose logits are wanted",
	"i":    "the number of the block",
	"gguf": "whether the weights speak GGUF's names",
	"hf":   "whether the weights speak Hugging Face's names",
}

// words are the words of all operators' attributes and the operators' names:
// parameters can hold and compare them without quotes.
var words = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for _, name := range ops.Table.Names() {
		all[name] = true
		for _, a := range ops.Table.Lookup(name).Attrs() {
			for _, w := range a.Words {
				all[w] = true
			}
		}
	}
	return all
})

// walk visits every name in an expression.
func walk(e lang.Expr, f func(lang.Name)) {
	visit(e, func(x lang.Expr) {
		if n, ok := x.(lang.Name); ok {
			f(n)
		}
	})
}

// calls visits every call in an expression.
func calls(e lang.Expr, f func(lang.Call)) {
	visit(e, func(x lang.Expr) {
		if c, ok := x.(lang.Call); ok {
			f(c)
		}
	})
}

func visit(e lang.Expr, f func(lang.Expr)) {
	f(e)
	switch e := e.(type) {
	case lang.List:
		for _, x := range e.Elems {
			visit(x, f)
		}
	case lang.Unary:
		visit(e.X, f)
	case lang.Binary:
		visit(e.X, f)
		visit(e.Y, f)
	case lang.Cond:
		visit(e.Then, f)
		visit(e.If, f)
		visit(e.Else, f)
	case lang.Call:
		for _, x := range e.Args {
			visit(x, f)
		}
		for _, n := range e.Named {
			visit(n.X, f)
		}
	case lang.Index:
		visit(e.X, f)
		visit(e.I, f)
	case lang.Slice:
		visit(e.X, f)
		if e.Lo != nil {
			visit(e.Lo, f)
		}
		if e.Hi != nil {
			visit(e.Hi, f)
		}
	case lang.As:
		visit(e.X, f)
		for _, d := range e.Dims {
			visit(d, f)
		}
	}
}

// reads gives the names whose tensors an equation may read: not those that it only asks for by has(…).
func (eq *equation) reads(f func(name string)) {
	look := func(e lang.Expr) {
		asked := map[lang.At]bool{}
		calls(e, func(c lang.Call) {
			if c.Func == "has" {
				for _, a := range c.Args {
					walk(a, func(n lang.Name) { asked[n.At] = true })
				}
			}
		})
		walk(e, func(n lang.Name) {
			if !asked[n.At] {
				f(n.Name)
			}
		})
	}
	if eq.repeat == nil {
		look(eq.rhs.tree)
		return
	}
	for _, a := range eq.repeat.args {
		look(a)
	}
}

// mentions gives the names in an equation, but for the block that it repeats.
func (eq *equation) mentions(f func(lang.Name)) {
	if eq.repeat == nil {
		walk(eq.rhs.tree, f)
		return
	}
	walk(eq.repeat.count, f)
	for _, b := range eq.repeat.blocks {
		b.conditions(func(e lang.Expr) { walk(e, f) })
	}
	for _, a := range eq.repeat.args {
		walk(a, f)
	}
	for _, n := range eq.repeat.named {
		walk(n.X, f)
	}
}

// check finds what can be known without any number: names that mean nothing,
// equations out of order, and declarations that nothing uses.
// It is in one piece: one walk over the declarations fills what the checks behind it read.
func (r *reader) check() {
	f := r.f
	f.used, f.read = map[string]bool{}, map[string]bool{}
	for i := range f.body {
		f.body[i].reads(func(name string) { f.read[name] = true })
	}
	params := map[string]bool{}
	for _, p := range f.params {
		params[p.name.string] = true
	}
	weights := map[string]*weightDecl{}
	for i := range f.weights {
		weights[f.weights[i].name.string] = &f.weights[i]
	}
	number := func(e expr, wordsToo bool, known []string) {
		walk(e.tree, func(n lang.Name) {
			f.used[n.Name] = true
			switch {
			case params[n.Name] || slices.Contains(builtins, n.Name) || n.Name == "true" || n.Name == "false":
			case wordsToo && (weights[n.Name] != nil || words()[n.Name]):
			default:
				if at, ok := r.names[n.Name]; ok {
					r.add(r.fail(e.text, n.Pos(), "%s (line %d) is a tensor, a number is wanted here", n.Name, at.node.Line))
					return
				}
				r.add(r.fail(e.text, n.Pos(), "unknown name %s%s", n.Name, didYouMean(n.Name, known)))
			}
		})
	}
	sizes := append(slices.Sorted(maps.Keys(params)), "S", "C", "R")
	anything := append(slices.Concat(sizes, slices.Sorted(maps.Keys(words()))), slices.Sorted(maps.Keys(weights))...)
	for _, p := range f.params {
		for _, e := range []*expr{p.is, p.null, p.among, p.length} {
			if e != nil {
				number(*e, true, anything)
			}
		}
		if p.from.string == "" {
			continue
		}
		switch w := weights[p.from.string]; {
		case w == nil:
			r.add(r.fail(p.from, 0, "unknown weight %s%s", p.from.string,
				didYouMean(p.from.string, slices.Sorted(maps.Keys(weights)))))
		case w.dimension(p.name.string) < 0:
			r.add(r.fail(p.from, 0, "the shape of %s has no dimension that is %s alone", p.from.string, p.name.string))
		}
	}
	for _, e := range f.require {
		number(e, true, anything)
	}
	for _, s := range f.says {
		number(s.expr, true, anything)
	}
	for _, d := range slices.Concat(f.in, f.state) {
		for _, e := range d.dims {
			number(e, false, sizes)
		}
		if d.of != nil {
			number(*d.of, true, anything)
		}
	}
	inNames := func(in text, what string, names []string) {
		for _, name := range names {
			f.used[name] = true
			if !params[name] {
				r.add(r.fail(in, 0, "%s: $(%s) in %s is no parameter%s", in.string, name, what,
					didYouMean(name, slices.Sorted(maps.Keys(params)))))
			}
		}
	}
	for i := range f.params {
		inNames(f.params[i].name, "a key", f.params[i].params())
	}
	for _, w := range f.weights {
		for _, e := range w.shape {
			number(e, false, sizes)
		}
		inNames(w.name, "a tensor's name", w.params())
		for _, e := range []*expr{w.numbers, w.when} {
			if e != nil {
				number(*e, true, anything)
			}
		}
	}
	r.markPerBlock()
	r.order()
	r.unusedEquations()
	for _, w := range f.weights {
		if !f.used[w.name.string] && w.name.src == nil {
			f.late.add(r.fail(w.name, 0, "weight %s is never used", w.name.string))
		}
	}
	for _, s := range f.state {
		if !f.used[s.name.string] {
			f.late.add(r.fail(s.name, 0, "state %s is never used", s.name.string))
		}
	}
	if f.block {
		f.unusedParams(&f.late, nil)
	}
	if r.err() != nil {
		r.operators()
	}
}

// operators finds unknown operators in a file that is refused anyway; where the
// file is sound so far, Build finds them together with wrong shapes.
func (r *reader) operators() {
	for _, eq := range r.f.body {
		if eq.repeat != nil {
			continue
		}
		calls(eq.rhs.tree, func(c lang.Call) {
			if ops.Table.Lookup(c.Func) == nil && !lang.IsFunction(c.Func) && c.Func != graph.Activation {
				r.add(r.fail(eq.rhs.text, c.Pos(), "%s: unknown operator %s%s", eq.string, c.Func,
					didYouMean(c.Func, ops.Table.Names())))
			}
		})
	}
}

// order checks that equations use only what stands above them, and that the
// results are names of the file.
func (r *reader) order() {
	f := r.f
	place := map[string]int{}
	for k := range f.body {
		for _, n := range f.body[k].names {
			place[n.string] = k
		}
	}
	for k := range f.body {
		eq := &f.body[k]
		eq.mentions(func(n lang.Name) {
			f.used[n.Name] = true
			at, ok := place[n.Name]
			switch {
			case ok && at == k:
				r.add(r.fail(eq.rhs.text, n.Pos(), "%s: a cycle: it uses its own result %s", eq.string, n.Name))
				eq.broken = true
			case ok && at > k:
				r.add(r.fail(eq.rhs.text, n.Pos(), "%s: uses %s, which line %d defines later: equations run from top to bottom, "+
					"so a cycle cannot be computed",
					eq.string, n.Name, f.body[at].node.Line))
				eq.broken = true
			}
		})
	}
	for _, o := range f.out {
		if _, ok := place[o.string]; ok {
			continue
		}
		if _, ok := r.names[o.string]; ok {
			r.add(r.fail(o, 0, "the result %s is not computed: out: names equations of the body", o.string))
		} else {
			r.add(r.fail(o, 0, "unknown result %q%s", o.string, didYouMean(o.string, slices.Sorted(maps.Keys(place)))))
		}
	}
}

// unusedEquations reports those whose results neither another equation nor the output reads.
func (r *reader) unusedEquations() {
	results := map[string]bool{}
	for _, o := range r.f.out {
		results[o.string] = true
	}
	for _, eq := range r.f.body {
		used := false
		for _, n := range eq.names {
			used = used || r.f.used[n.string] || results[n.string]
		}
		if !used && len(eq.names) > 0 {
			r.f.late.add(r.fail(eq.names[0], 0, "the equation %s is never used: leave it out, or name its result in another "+
				"equation or under out:", eq.string))
		}
	}
}

// unusedParams reports parameters that neither the file nor a block that it
// repeats reads; one that says what its values are has a use in that.
func (f *File) unusedParams(es *errs, blocks []*File) {
	for _, p := range f.params {
		used := f.used[p.name.string] || p.name.src != nil || p.among != nil || p.length != nil
		for _, b := range blocks {
			used = used || b.param(p.name.string) != nil
		}
		if !used {
			es.add(f.fail(p.name, 0, "parameter %s is never used", p.name.string))
		}
	}
}
