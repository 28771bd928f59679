package models

import (
	"strings"

	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
)

// spread replaces the "..." that closes a call by the attributes that are
// handed on: those that the call does not give and that the file has a
// parameter for, of the same name. f(x, a=1, ...) becomes f(x, a=1, b=b, c=c).
func (r *reader) spread(e *expr, name string) bool {
	ok := true
	fail := func(c lang.Call, format string, args ...any) {
		r.add(r.fail(e.text, c.Rest.Pos(), name+": "+format, args...))
		ok = false
	}
	e.tree = lang.MapCalls(e.tree, func(c lang.Call) lang.Call {
		op := ops.Table.Lookup(c.Func)
		switch {
		case c.Rest == nil:
			return c
		case c.Func == "repeat":
			fail(c, "repeat hands on every parameter that the block has too by itself: leave the \"...\" out")
			return c
		case op == nil: // unknown, which is reported where it is built
			c.Rest = nil
			return c
		}
		var names []string
		given := len(c.Named)
		for _, a := range op.Attrs() {
			names = append(names, a.Name)
			if r.f.param(a.Name) != nil && !c.Sets(a.Name) {
				c.Named = append(c.Named, lang.Named{At: *c.Rest, Name: a.Name, X: lang.Name{At: *c.Rest, Name: a.Name}})
			}
		}
		switch {
		case len(names) == 0:
			fail(c, "\"...\" hands on attributes, and %s has none", op.Name)
		case len(c.Named) == given:
			fail(c, "\"...\" hands on nothing: %s has the attributes %s, and no parameter has the name of one that is not given",
				op.Name, strings.Join(names, ", "))
		}
		c.Rest = nil
		return c
	})
	return ok
}
