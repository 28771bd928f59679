package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
)

// place is a file at one number of a block, where its expressions have values.
type place struct {
	s     *scope
	block int
}

// eval computes an expression, where it can be.
func (p place) eval(e lang.Expr) (lang.Val, bool) {
	outer := p.s.block
	p.s.block, p.s.bad = p.block, false
	v, err := lang.Eval(e, p.s.lookup)
	ok := err == nil && !p.s.bad
	p.s.block, p.s.bad = outer, false
	return v, ok
}

// resolve gives a parameter's value at the place.
func (p place) resolve(q *param) (r *resolved) {
	p.s.inBlock(p.block, func() { r = p.s.resolve(q) })
	return r
}

// folding decides the choices of a file that are the same in every place where it stands.
type folding struct {
	f      *File
	places []place
	subst  map[string]lang.Expr // equations that only give another name
}

// depends says whether an expression's value depends on the step: on S, C or R.
func (fo *folding) depends(e lang.Expr) bool {
	seen := map[string]bool{}
	found := false
	var look func(e lang.Expr)
	look = func(e lang.Expr) {
		walk(e, func(n lang.Name) {
			switch {
			case n.Name == "S" || n.Name == "C" || n.Name == "R":
				found = true
			case seen[n.Name]:
				return
			}
			seen[n.Name] = true
			if p := fo.f.param(n.Name); p != nil && p.is != nil && len(fo.places) > 0 {
				if r := fo.places[0].resolve(p); r.origin == "default" {
					look(p.is.tree)
				}
			}
		})
	}
	look(e)
	return found
}

// constant gives an expression's value where it is the same everywhere and in every step.
func (fo *folding) constant(e lang.Expr) (lang.Val, bool) {
	if len(fo.places) == 0 || fo.depends(e) {
		return nil, false
	}
	first, ok := fo.places[0].eval(e)
	for _, p := range fo.places[1:] {
		v, same := p.eval(e)
		ok = ok && same && lang.Format(v) == lang.Format(first)
	}
	return first, ok
}

// literal writes a value as an expression.
func literal(v lang.Val) lang.Expr {
	switch v := v.(type) {
	case bool:
		return lang.Name{Name: fmt.Sprint(v)}
	case string:
		if words()[v] {
			return lang.Name{Name: v}
		}
		return lang.Str{V: v}
	case float64:
		return lang.Num{V: v}
	case []lang.Val:
		l := lang.List{}
		for _, x := range v {
			l.Elems = append(l.Elems, literal(x))
		}
		return l
	}
	return lang.Name{Name: "null"}
}

// truthOf gives a condition's value where it is the same everywhere.
func (fo *folding) truthOf(e lang.Expr) (yes, known bool) {
	v, ok := fo.constant(e)
	b, is := v.(bool)
	return b, ok && is
}

func isNum(e lang.Expr, v float64) bool {
	n, ok := e.(lang.Num)
	return ok && n.V == v
}

func (fo *folding) each(list []lang.Expr) []lang.Expr {
	out := make([]lang.Expr, len(list))
	for i, x := range list {
		out[i] = fo.fold(x)
	}
	return out
}

// fold gives the expression without the choices that are decided.
func (fo *folding) fold(e lang.Expr) lang.Expr {
	switch e := e.(type) {
	case lang.Name:
		if to, ok := fo.subst[e.Name]; ok {
			return to
		}
		if fo.f.param(e.Name) != nil {
			switch v, ok := fo.constant(e); v.(type) {
			case bool, string:
				if ok {
					return literal(v)
				}
			}
		}
		return e
	case lang.List:
		e.Elems = fo.each(e.Elems)
		return e
	case lang.Unary:
		if yes, ok := fo.truthOf(e); ok && e.Op == "not" {
			return literal(yes)
		}
		e.X = fo.fold(e.X)
		return e
	case lang.Binary:
		return fo.binary(e)
	case lang.Cond:
		if yes, ok := fo.truthOf(e.If); ok {
			if yes {
				return fo.fold(e.Then)
			}
			return fo.fold(e.Else)
		}
		e.If, e.Then, e.Else = fo.fold(e.If), fo.fold(e.Then), fo.fold(e.Else)
		return e
	case lang.Index:
		e.X, e.I = fo.fold(e.X), fo.fold(e.I)
		return e
	case lang.Slice:
		e.X = fo.fold(e.X)
		if e.Lo != nil {
			e.Lo = fo.fold(e.Lo)
		}
		if e.Hi != nil {
			e.Hi = fo.fold(e.Hi)
		}
		return e
	case lang.As:
		e.X, e.Dims = fo.fold(e.X), fo.each(e.Dims)
		return e
	case lang.Call:
		return fo.call(e)
	}
	return e
}

func (fo *folding) binary(e lang.Binary) lang.Expr {
	if binary := e.Op; binary != "+" && binary != "-" && binary != "*" && binary != "/" && binary != "**" &&
		binary != "//" && binary != "%" {
		if yes, ok := fo.truthOf(e); ok {
			return literal(yes)
		}
	}
	if v, ok := fo.constant(e.X); ok && e.Op == "or" { // a value in the place of an absent one
		switch v.(type) {
		case nil:
			return fo.fold(e.Y)
		case float64, string, []lang.Val:
			return fo.fold(e.X)
		}
	}
	for _, side := range [][2]lang.Expr{{e.X, e.Y}, {e.Y, e.X}} {
		yes, ok := fo.truthOf(side[0])
		switch {
		case !ok || e.Op != "and" && e.Op != "or":
		case yes == (e.Op == "and"):
			return fo.fold(side[1])
		default:
			return literal(yes)
		}
	}
	e.X, e.Y = fo.fold(e.X), fo.fold(e.Y)
	switch {
	case e.Op == "*" && isNum(e.X, 1):
		return e.Y
	case (e.Op == "*" || e.Op == "/") && isNum(e.Y, 1):
		return e.X
	}
	return e
}

// call leaves out operands that are not there and attributes that are as they are without being given.
func (fo *folding) call(e lang.Call) lang.Expr {
	if v, ok := fo.constant(e); ok && e.Func == "has" {
		return literal(v)
	}
	if e.Func == "has" {
		return e
	}
	if e.Func == graph.Activation && len(e.Args) == 2 {
		if word, _ := fo.constant(e.Args[1]); word != nil {
			if of, ok := graph.ActivationOf(fmt.Sprint(word)).(lang.Call); ok && len(of.Args) == 1 {
				of.Args = []lang.Expr{fo.fold(e.Args[0])}
				return of
			}
		}
	}
	op := ops.Table.Lookup(e.Func)
	var args []lang.Expr
	var named []lang.Named
	left := false
	for k, a := range e.Args {
		a = fo.fold(a)
		if n, ok := a.(lang.Name); ok && op != nil && fo.absent(n.Name) {
			left = true
			continue
		}
		if left && op != nil && k < len(op.Sig.In) {
			named = append(named, lang.Named{Name: op.Sig.In[k].Name, X: a})
			continue
		}
		args = append(args, a)
	}
	for _, n := range e.Named {
		if op != nil {
			if n.X = fo.fold(n.X); fo.isDefault(op.Name, n) {
				continue
			}
		}
		named = append(named, n)
	}
	e.Args, e.Named = args, named
	return e
}

// isDefault says whether an attribute has the value that it has where it is not given.
// Which elements of a head turn together is always written: it is a guess that nothing but a comparison shows wrong.
func (fo *folding) isDefault(op string, n lang.Named) bool {
	if op == ops.RoPE.Name && n.Name == "layout" {
		return false
	}
	v, ok := fo.constant(n.X)
	if name, is := n.X.(lang.Name); is && !ok && words()[name.Name] && fo.f.param(name.Name) == nil {
		v, ok = name.Name, true
	}
	if x, number := v.(float64); !ok || v == nil || number && x != 0 && fo.told(n.X) {
		return false
	}
	for _, a := range ops.Table.Lookup(op).Attrs() {
		if a.Name == n.Name {
			return !a.Required && fmt.Sprint(a.Default) == lang.Format(v)
		}
	}
	return false
}

// told says whether the configuration, or what repeats the block, may say another number.
func (fo *folding) told(e lang.Expr) bool {
	found := false
	walk(e, func(n lang.Name) {
		if p := fo.f.param(n.Name); p != nil {
			origin := fo.places[0].resolve(p).origin
			found = found || origin == "repeat" || strings.HasPrefix(origin, "hf ")
		}
	})
	return found
}

// absent says whether a name is a weight that is nowhere there.
func (fo *folding) absent(name string) bool {
	w := fo.f.weight(name)
	if w == nil {
		return false
	}
	for _, p := range fo.places {
		if fo.present(w, p) {
			return false
		}
	}
	if w.when != nil {
		if yes, ok := fo.truthOf(w.when.tree); ok && !yes {
			return true
		}
	}
	return w.optional
}

// present says whether a weight is there at a place.
func (fo *folding) present(w *weightDecl, p place) bool {
	v, ok := p.eval(lang.Name{Name: w.name.string})
	return ok && v == true
}

// folded is an equation whose choices are decided.
type folded struct {
	names []string
	tree  lang.Expr
}

// body folds the equations, gives those that only rename another no line of their own, and leaves
// out what nothing reads. A repeat is left to more.
func (fo *folding) body(more func(eq *equation) folded) []folded {
	out := map[string]bool{}
	for _, o := range fo.f.out {
		out[o.string] = true
	}
	var all []folded
	add := func(name string, tree lang.Expr) {
		n, is := tree.(lang.Name)
		if is && !out[name] && fo.f.param(n.Name) == nil {
			fo.subst[name] = n
			return
		}
		all = append(all, folded{[]string{name}, tree})
	}
	for i := range fo.f.body {
		eq := &fo.f.body[i]
		if eq.repeat != nil {
			if v, ok := fo.constant(eq.repeat.count); ok && v == float64(0) { // what it would begin with
				for k, n := range eq.names {
					add(n.string, fo.fold(eq.repeat.args[k]))
				}
				continue
			}
			all = append(all, more(eq))
			continue
		}
		tree := fo.fold(eq.rhs.tree)
		list, is := tree.(lang.List)
		switch {
		case len(eq.names) == 1:
			add(eq.names[0].string, tree)
		case is && len(list.Elems) == len(eq.names):
			for k, n := range eq.names {
				add(n.string, list.Elems[k])
			}
		default:
			f := folded{tree: tree}
			for _, n := range eq.names {
				f.names = append(f.names, n.string)
			}
			all = append(all, f)
		}
	}
	used := out
	var kept []folded
	for _, f := range slices.Backward(all) {
		if !slices.ContainsFunc(f.names, func(n string) bool { return used[n] }) {
			continue
		}
		walk(f.tree, func(n lang.Name) { used[n.Name] = true })
		kept = append(kept, f)
	}
	slices.Reverse(kept)
	return kept
}
