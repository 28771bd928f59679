package models

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// use: names files whose parameters, conditions and weights a file takes over. What the file itself declares under
// the same name stands instead, and what it does not mention is not read.

// use reads the files that a file uses.
func (r *reader) use(v *yaml.Node) {
	nodes := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		nodes = v.Content
	}
	for _, n := range nodes {
		t, ok := r.scalar(n, "the name of a file to use")
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(t.string, ",") {
			r.useFile(t, strings.TrimSpace(name))
		}
	}
}

func (r *reader) useFile(t text, name string) {
	if name == "" || strings.ContainsAny(name, `/\\`) {
		r.add(r.fail(t, 0, "use: %q: a file's name without folder and ending is wanted", name))
		return
	}
	if r.read == nil {
		r.add(r.fail(t, 0, "use: files cannot be read here"))
		return
	}
	path, data, err := r.read(name)
	if err != nil {
		r.add(r.fail(t, 0, "use: %s: %v", name, err))
		return
	}
	// A used file uses none itself, so that no circle can be.
	p, err := parse(path, data, nil)
	if err != nil {
		for _, e := range err.(Errors) {
			r.add(e)
		}
		return
	}
	r.f.uses = append(r.f.uses, text{string: name, node: t.node, from: t.from})
	r.take(t, p)
}

// take adds what a used file declares.
func (r *reader) take(t text, p *File) {
	mark := func(t text) text {
		t.src = p.source
		return t
	}
	claim := func(name text) bool {
		if old, ok := r.names[name.string]; ok && old.src != nil {
			r.add(r.fail(t, 0, "use: %s and %s both have %s", p.path, old.src.path, name.string))
			return false
		}
		r.names[name.string] = name
		return true
	}
	for _, q := range p.params {
		q.name, q.from = mark(q.name), mark(q.from)
		for _, e := range []**expr{&q.is, &q.null, &q.among, &q.length} {
			if *e != nil {
				own := **e
				own.text = mark(own.text)
				*e = &own
			}
		}
		if claim(q.name) {
			r.f.params = append(r.f.params, q)
		}
	}
	for _, w := range p.weights {
		w.name = mark(w.name)
		shape := make([]expr, len(w.shape))
		for i, e := range w.shape {
			e.text = mark(e.text)
			shape[i] = e
		}
		w.shape = shape
		for _, e := range []**expr{&w.numbers, &w.when} {
			if *e != nil {
				own := **e
				own.text = mark(own.text)
				*e = &own
			}
		}
		if claim(w.name) {
			r.f.weights = append(r.f.weights, w)
		}
	}
	for _, e := range p.require {
		e.text = mark(e.text)
		r.f.require = append(r.f.require, e)
	}
}

// replaces takes out what a used file declares under a name that the file itself gives a meaning.
func (r *reader) replaces(name string) {
	keep := r.f.params[:0:0]
	for _, p := range r.f.params {
		if p.name.string != name {
			keep = append(keep, p)
		}
	}
	r.f.params = keep
	weights := r.f.weights[:0:0]
	for _, w := range r.f.weights {
		if w.name.string != name {
			weights = append(weights, w)
		}
	}
	r.f.weights = weights
	delete(r.names, name)
}

// state reads "type[dims]", or a mapping that also says whose state it is.
func (r *reader) state(name text, v *yaml.Node) {
	if v.Kind != yaml.MappingNode {
		if d, ok := r.decl(name, v, "f32", "float"); ok {
			r.f.state = append(r.f.state, d)
		}
		return
	}
	var shape *yaml.Node
	var of *expr
	ok := true
	r.pairs(v, "", func(key text, v *yaml.Node) {
		switch key.string {
		case "shape":
			shape = v
		case "of":
			t, is := r.scalar(v, "the number of a block")
			if !is {
				ok = false
				return
			}
			e, is := r.expr(t)
			of, ok = &e, ok && is
		default:
			r.add(r.fail(key, 0, "unknown key %s%s", key.string, didYouMean(key.string, []string{"shape", "of"})))
			ok = false
		}
	})
	if shape == nil {
		r.failNode(v, "%s: shape: is missing, such as shape: float[C, G, Dh]", name.string)
		return
	}
	if d, is := r.decl(name, shape, "f32", "float"); is && ok {
		d.of = of
		r.f.state = append(r.f.state, d)
	}
}
