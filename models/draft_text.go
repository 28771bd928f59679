package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
)

// drafting writes a draft.
type drafting struct {
	*Draft
	w      Weights
	name   string
	from   *draftSource
	keys   map[string]bool // of the configuration, that something reads
	guards []string        // what the configuration says and the choices took for granted: lines of params, then
	needs  []string        // of require
	named  map[string]bool // names of guards
}

// draftFile is a file in the making.
type draftFile struct {
	*folding
	d       *drafting
	layers  *folding               // of a model: its places in the blocks that it repeats
	repeats map[*equation]*folding // of a model: those of one repeat
	body    []folded
	params  map[string]bool // that are kept
	weights map[string]bool
	states  map[string]bool
	needs   []lang.Expr // what it requires
}

// write folds the model and its blocks and writes their text.
func (d *drafting) write() error {
	f, o := d.from.f, d.from.options(d.w)
	read := map[string]bool{}
	o.Seen = func(l *graph.Load, _ string) {
		for _, t := range l.Tensors {
			read[t] = true
		}
	}
	_, _ = f.Build(o) // for what it reads
	d.unplacedTensors(read)
	var scratch errs
	top := newScope(&scratch, f, &o, -1, nil)
	d.keys, d.named = map[string]bool{}, map[string]bool{}
	model := &draftFile{folding: &folding{f: f, places: []place{{top, -1}}, subst: map[string]lang.Expr{}}, d: d}
	model.layers, model.repeats = &folding{f: f, subst: model.subst}, map[*equation]*folding{}
	blocks := map[*File]*draftFile{}
	var order []*draftFile
	for i := range f.body {
		eq := &f.body[i]
		if eq.repeat == nil {
			continue
		}
		v, _ := model.constant(eq.repeat.count)
		n, whole := lang.Int(v)
		if !whole || n < 0 || n > maxRepeat {
			return fmt.Errorf("%s: the number of layers is not known: %s", d.w.Path(), lang.Format(v))
		}
		before := len(model.layers.places) // blocks are numbered through the whole model
		for number := before; number < before+n; number++ {
			model.layers.places = append(model.layers.places, place{top, number})
			for c := range eq.repeat.blocks {
				b := d.chosen(&eq.repeat.blocks[c], place{top, number})
				if b == nil {
					continue
				}
				if blocks[b] == nil {
					blocks[b] = &draftFile{folding: &folding{f: b, subst: map[string]lang.Expr{}}, d: d}
					order = append(order, blocks[b])
				}
				s := newScope(&scratch, b, &o, number, top.inherit(eq, b, number))
				blocks[b].places = append(blocks[b].places, place{s, number})
			}
		}
		model.repeats[eq] = &folding{f: f, places: model.layers.places[before:], subst: model.subst}
	}
	if len(order) == 0 {
		return fmt.Errorf("%s: no file has layers for these weights", d.w.Path())
	}
	for _, b := range order {
		b.body = b.folding.body(nil)
		b.keep(nil)
	}
	model.body = model.folding.body(func(eq *equation) folded { return d.repeat(eq, model.repeats[eq], blocks) })
	model.keep(order)
	for _, b := range order {
		b.guard()
	}
	model.guard()
	d.unusedKeys()
	texts := []string{model.text()}
	for _, b := range order {
		texts = append(texts, b.text())
	}
	for i, b := range append([]*draftFile{model}, order...) {
		d.Files = append(d.Files, DraftFile{d.blockName(b.f) + ".yaml", texts[i]})
	}
	return nil
}

// chosen gives the block that a choice gives at a place; nil: none.
func (d *drafting) chosen(c *choice, p place) *File {
	e := c.tree
	for {
		switch x := e.(type) {
		case lang.Name:
			return c.files[x.Name]
		case lang.Str:
			return c.files[x.V]
		case lang.Cond:
			v, _ := p.eval(x.If)
			if e = x.Else; v == true {
				e = x.Then
			}
		default:
			return nil
		}
	}
}

// repeat folds a repeat: blocks under their new names, and of the parameters those that a block has kept.
func (d *drafting) repeat(eq *equation, in *folding, blocks map[*File]*draftFile) folded {
	rep := eq.repeat
	c := lang.Call{Func: "repeat", Args: []lang.Expr{in.fold(rep.count)}}
	var group []lang.Expr
	operands := 0 // that one of the blocks takes: those that are left out may have taken more
	for k := range rep.blocks {
		choice := rep.blocks[k]
		var rename func(e lang.Expr) lang.Expr
		rename = func(e lang.Expr) lang.Expr {
			switch x := e.(type) {
			case lang.Name:
				if b := choice.files[x.Name]; b != nil && blocks[b] != nil { // one that is chosen somewhere
					operands = max(operands, len(b.in))
					return lang.Name{Name: d.blockName(b)}
				}
				return lang.Name{Name: noBlock}
			case lang.Str:
				return rename(lang.Name{Name: x.V})
			case lang.Cond:
				if yes, ok := in.truthOf(x.If); ok {
					if yes {
						return rename(x.Then)
					}
					return rename(x.Else)
				}
				x.If, x.Then, x.Else = in.fold(x.If), rename(x.Then), rename(x.Else)
				return x
			}
			return e
		}
		tree := rename(choice.tree)
		if n, ok := tree.(lang.Name); !ok || n.Name != noBlock {
			group = append(group, tree)
		}
	}
	if len(group) == 1 {
		c.Args = append(c.Args, group[0])
	} else {
		c.Args = append(c.Args, lang.List{Elems: group})
	}
	c.Args = append(c.Args, in.each(rep.args[:min(operands, len(rep.args))])...)
	for _, n := range rep.named {
		kept := false
		for _, b := range blocks {
			kept = kept || b.params[n.Name]
		}
		if n.X = in.fold(n.X); !kept {
			continue
		}
		names := false
		walk(n.X, func(lang.Name) { names = true })
		if _, own := in.constant(n.X); !names && own && d.from.f.param(n.Name) == nil {
			continue // the block's own file says it
		}
		c.Named = append(c.Named, n)
	}
	f := folded{tree: c}
	for _, n := range eq.names {
		f.names = append(f.names, n.string)
	}
	return f
}

// keep finds what the equations need of parameters, weights and states.
func (f *draftFile) keep(blocks []*draftFile) {
	f.params, f.weights, f.states = map[string]bool{}, map[string]bool{}, map[string]bool{}
	var need func(e lang.Expr)
	need = func(e lang.Expr) {
		walk(e, func(n lang.Name) { f.need(n.Name, need) })
	}
	for _, eq := range f.body {
		need(eq.tree)
	}
	for _, b := range blocks {
		for name := range b.params {
			p := f.f.param(name)
			if p == nil {
				continue
			}
			names := false
			if e := f.paramExpr(p); e != nil && f.f.perBlock[name] {
				walk(e, func(lang.Name) { names = true })
				if _, same := f.layers.constant(e); same && !names {
					continue // the block's own file says it
				}
			}
			f.need(name, need)
		}
	}
	for _, d := range f.f.in {
		for _, e := range d.dims {
			need(e.tree)
		}
	}
	for _, e := range f.f.require {
		if yes, ok := f.truthOf(e.tree); ok && yes {
			continue
		}
		tree := f.fold(e.tree)
		if n, ok := tree.(lang.Name); ok && n.Name == "true" {
			continue
		}
		need(tree)
		f.needs = append(f.needs, tree)
	}
}

func (f *draftFile) need(name string, need func(lang.Expr)) {
	if p := f.f.param(name); p != nil && !f.params[name] {
		f.params[name] = true
		if e := f.paramExpr(p); e != nil {
			need(e)
		}
	}
	if w := f.f.weight(name); w != nil && !f.weights[name] {
		f.weights[name] = true
		for _, e := range w.shape {
			if f.f.read[name] {
				need(f.fold(e.tree))
			}
		}
		if w.numbers != nil {
			need(f.fold(w.numbers.tree))
		}
		if e := f.whenOf(w); e != nil {
			need(e)
		}
	}
	for _, s := range f.f.state {
		if s.name.string == name && !f.states[name] {
			f.states[name] = true
			for _, e := range s.dims {
				need(f.fold(e.tree))
			}
			if s.of != nil {
				need(f.fold(s.of.tree))
			}
		}
	}
}

// whenOf gives the condition of a weight where it differs from place to place.
func (f *draftFile) whenOf(w *weightDecl) lang.Expr {
	if w.when == nil {
		return nil
	}
	if _, ok := f.truthOf(w.when.tree); ok {
		return nil
	}
	return f.fold(w.when.tree)
}

// of gives the places at which a parameter has its values.
func (f *draftFile) of(p *param) *folding {
	if f.f.perBlock[p.name.string] {
		return f.layers
	}
	return f.folding
}

// origin says where a parameter has its value from; own: not from the model or its repeat. It is asked at the first
// place, or at the first where the tensor is there that it is a size of.
func (f *draftFile) origin(p *param) (r *resolved, own bool) {
	places := f.of(p).places
	_, over := places[0].s.over[p.name.string]
	if r = places[0].resolve(p); r.origin != "default" || p.from.string == "" {
		return r, !over
	}
	for _, at := range places[1:] {
		if other := at.resolve(p); strings.HasPrefix(other.origin, "shape of ") {
			return other, !over
		}
	}
	return r, !over
}

// paramExpr gives the expression under which a parameter stands in the draft, nil where it is a value.
func (f *draftFile) paramExpr(p *param) lang.Expr {
	r, own := f.origin(p)
	if own && r.origin == "default" && p.is != nil {
		return f.of(p).fold(p.is.tree)
	}
	return nil
}

// param writes a parameter.
func (f *draftFile) param(p *param) string {
	r, own := f.origin(p)
	value := ""
	if r.val != nil {
		value = lang.Print(literal(r.val))
	}
	key, fromKey := strings.CutPrefix(r.origin, "hf ")
	key = strings.TrimSuffix(key, " null")
	usual, fromClass := strings.CutPrefix(r.origin, usualOrigin)
	weight, fromShape := strings.CutPrefix(r.origin, "shape of ")
	_, list := r.val.([]lang.Val)
	switch {
	case own && fromKey && (list || value == ""):
		return fmt.Sprintf("{hf: %s}", key)
	case own && fromKey:
		return fmt.Sprintf("{hf: %s, is: %s}", key, quoted(value, true))
	case own && fromClass:
		return fmt.Sprintf("{hf: %s, is: %s}   # transformers' default", usual, quoted(value, true))
	case own && fromShape && f.weights[weight]:
		return fmt.Sprintf("{from: %s, is: %s}", weight, quoted(value, true))
	case own && r.origin == "absent":
		return fmt.Sprintf("{hf: %s}", strings.Join(p.hf, " | "))
	case own && r.origin == "--set":
		return quoted(value, false) + "   # guess"
	case own && r.origin == "default":
		text := quoted(lang.Print(f.of(p).fold(p.is.tree)), false)
		if len(p.hf) == 0 {
			return text
		}
		f.d.Guesses = append(f.d.Guesses, fmt.Sprintf("%s: %s, because config.json has none of %s", p.name.string, text,
			strings.Join(p.hf, ", ")))
		return text + "   # guess: config.json does not say"
	}
	if value == "" {
		value = "0"
	}
	return quoted(value, false)
}

// guard keeps what the configuration says and a choice has taken for granted, as a condition of the model.
func (f *draftFile) guard() {
	for i := range f.f.params {
		p := &f.f.params[i]
		r, own := f.origin(p)
		key, ok := strings.CutPrefix(r.origin, "hf ")
		if ok {
			key = strings.TrimSuffix(key, " null")
			f.d.keys[key] = true
		}
		name := p.name.string
		if !ok || !own || f.params[name] || f.d.named[name] || r.val == nil || strings.Contains(key, "$i") ||
			f.d.from.f.weight(name) != nil {
			continue
		}
		if x, number := r.val.(float64); number && x != 0 && x != 1 || key == "model_type" ||
			slices.Contains(hintFile.Idle, key) { // a size, which another model of the family may have otherwise
			continue
		}
		if _, list := r.val.([]lang.Val); list {
			continue
		}
		f.d.named[name] = true
		value := lang.Print(literal(r.val))
		f.d.guards = append(f.d.guards, fmt.Sprintf("  %s: {hf: %s, is: %s}\n", name, key, quoted(value, true)))
		f.d.needs = append(f.d.needs, quoted(fmt.Sprintf("%s == %s", name, value), false))
	}
}

// quoted puts an expression into quotes where YAML wants them.
func quoted(s string, flow bool) string {
	plain := s != "" && !strings.ContainsAny(s[:1], `'"[{&*!|>%@,#?-`) && !strings.Contains(s, ": ") &&
		!strings.Contains(s, " #") && !strings.ContainsAny(s, "\n")
	if flow {
		plain = plain && !strings.ContainsAny(s, "[]{},:")
	}
	switch {
	case plain || isNumber(s):
		return s
	case !strings.Contains(s, `"`):
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

func isNumber(s string) bool {
	e, err := lang.Parse(s)
	if u, ok := e.(lang.Unary); ok && err == nil {
		e = u.X
	}
	_, ok := e.(lang.Num)
	return ok && err == nil
}

// found gives the names under which a weight was found, at any place.
func (f *draftFile) found(w *weightDecl, places []place) (all []pattern, everywhere bool) {
	everywhere = true
	for _, p := range places {
		if !f.present(w, p) {
			everywhere = false
			continue
		}
		if q, ok := w.find(f.d.w, max(0, p.block)); ok && !slices.Contains(all, q) {
			all = append(all, q)
		}
	}
	return all, everywhere
}

// weightLine writes a weight; prefix is what names: puts before its name.
func (f *draftFile) weightLine(w *weightDecl, places []place, prefix string) string {
	patterns, everywhere := f.found(w, places)
	note := ""
	if len(patterns) == 0 && w.numbers == nil {
		if all := w.sources["hf"]; len(all) > 0 {
			patterns = all[:1]
		}
		note = "   # guess: there is no such tensor"
		f.d.Guesses = append(f.d.Guesses, fmt.Sprintf("%s: no tensor was found for weight %s", f.d.blockName(f.f),
			w.name.string))
	}
	dims := []string{"1"}
	if f.f.read[w.name.string] {
		dims = nil
		for _, e := range w.shape {
			dims = append(dims, quoted(lang.Print(f.fold(e.tree)), true))
		}
	}
	parts := []string{"shape: [" + strings.Join(dims, ", ") + "]"}
	var names []string
	for _, p := range patterns {
		name := p.name
		rest, short := strings.CutPrefix(name, prefix)
		stem, weight := strings.CutSuffix(rest, ".weight")
		switch {
		case prefix != "" && short && weight:
			name = stem
		case prefix != "":
			name = "/" + name
		}
		if p.transpose {
			name += ".T"
		}
		if p.add != 0 {
			name += fmt.Sprintf(" %+g", p.add)
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		parts = append(parts, "hf: "+strings.Join(names, " | "))
	}
	if w.numbers != nil {
		parts = append(parts, "numbers: "+quoted(lang.Print(f.fold(w.numbers.tree)), true))
	}
	if e := f.whenOf(w); e != nil {
		parts = append(parts, "if: "+quoted(lang.Print(e), true))
	}
	if !everywhere && note == "" && (w.optional || w.when == nil) {
		parts = append(parts, "optional: true")
	}
	return fmt.Sprintf("  %s: {%s}%s\n", w.name.string, strings.Join(parts, ", "), note)
}

func (f *draftFile) decl(d decl) string {
	var dims []string
	for _, e := range d.dims {
		dims = append(dims, lang.Print(f.fold(e.tree)))
	}
	return fmt.Sprintf("%s[%s]", d.typ, strings.Join(dims, ", "))
}

// prefix gives what most of a block's weights' names begin with, up to the number of the layer.
func (f *draftFile) prefix() string {
	counts, best := map[string]int{}, ""
	for i := range f.f.weights {
		w := &f.f.weights[i]
		if !f.weights[w.name.string] {
			continue
		}
		patterns, _ := f.found(w, f.places)
		for _, p := range patterns {
			if before, _, ok := strings.Cut(p.name, "$i."); ok {
				counts[before+"$i."]++
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		if counts[k] > counts[best] {
			best = k
		}
	}
	return best
}

// text writes a file.
// It is in one piece: one part of the file after the other.
func (f *draftFile) text() string {
	var b strings.Builder
	kind, model := "block", f.layers != nil
	if model {
		kind = "model"
	}
	fmt.Fprintf(&b, "# A first guess by greta new, after %s.\n# What config.json and tensors do not say is marked as "+
		"a guess.\n%s: %s\n", f.d.From, kind, f.d.blockName(f.f))
	if model {
		if archs := architectures(f.d.w); len(archs) > 0 {
			fmt.Fprintf(&b, "match: {hf: [%s]}\n", strings.Join(archs, ", "))
		}
	}
	section := func(key string, lines ...string) {
		if len(lines) > 0 {
			fmt.Fprintf(&b, "%s:\n%s", key, strings.Join(lines, ""))
		}
	}
	var lines []string
	for _, d := range f.f.in {
		lines = append(lines, fmt.Sprintf("  %s: %s\n", d.name.string, f.decl(d)))
	}
	section("in", lines...)
	lines = nil
	for i := range f.f.params {
		if p := &f.f.params[i]; f.params[p.name.string] {
			lines = append(lines, fmt.Sprintf("  %s: %s\n", p.name.string, f.param(p)))
		}
	}
	var needs []string
	for _, e := range f.needs {
		needs = append(needs, fmt.Sprintf("  - %s\n", quoted(lang.Print(e), false)))
	}
	if model {
		if len(f.d.guards) > 0 {
			lines = append(lines, "  # The equations stand for these:\n")
			lines = append(lines, f.d.guards...)
		}
		for _, n := range f.d.needs {
			needs = append(needs, fmt.Sprintf("  - %s\n", n))
		}
	}
	section("params", lines...)
	section("require", needs...)
	prefix := ""
	if !model {
		if prefix = f.prefix(); prefix != "" {
			fmt.Fprintf(&b, "names: {hf: %s*.weight}\n", prefix)
		}
	}
	lines = nil
	for i := range f.f.weights {
		w := &f.f.weights[i]
		if !f.weights[w.name.string] {
			continue
		}
		places := f.places
		if model && slices.ContainsFunc(w.sources["hf"], func(p pattern) bool { return strings.Contains(p.name, "$i") }) {
			places = f.layers.places
		}
		lines = append(lines, f.weightLine(w, places, prefix))
	}
	section("weights", lines...)
	lines = nil
	for _, s := range f.f.state {
		if !f.states[s.name.string] {
			continue
		}
		text := f.decl(s)
		if s.of != nil {
			text = fmt.Sprintf(`{shape: "%s", of: %s}`, text, quoted(lang.Print(f.fold(s.of.tree)), true))
		}
		lines = append(lines, fmt.Sprintf("  %s: %s\n", s.name.string, text))
	}
	section("state", lines...)
	lines = nil
	for _, eq := range f.body {
		lines = append(lines, fmt.Sprintf("  %s: %s\n", strings.Join(eq.names, ", "), quoted(lang.Print(eq.tree), false)))
	}
	section("body", lines...)
	var out []string
	for _, o := range f.f.out {
		out = append(out, o.string)
	}
	fmt.Fprintf(&b, "out: %s\n", strings.Join(out, ", "))
	return b.String()
}
