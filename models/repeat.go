package models

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/tensor"
)

// repetition is a repeat(…) that is being built.
type repetition struct {
	*instance
	eq   *equation
	args []*graph.Value // of the next block; nil where they are made for each
}

func (r *repetition) fail(at int, format string, args ...any) bool {
	r.scope.add(r.f.fail(r.eq.rhs.text, at, "%s: %s", r.eq.string, fmt.Sprintf(format, args...)))
	return false
}

// repeat builds blocks several times: their results are the first operands of the next. Blocks are numbered through the
// whole model; those of a group share a number.
func (in *instance) repeat(eq *equation) bool {
	r := &repetition{instance: in, eq: eq}
	rep := eq.repeat
	v, ok := in.eval(eq.rhs.text, rep.count, eq.string+": ")
	if !ok {
		return false
	}
	count, whole := lang.Int(v)
	if !whole || count < 0 || count > maxRepeat {
		return r.fail(rep.count.Pos(), "a block is repeated 0 to %d times, not %s", maxRepeat, lang.Format(v))
	}
	if !r.checkNamed() {
		return false
	}
	r.args = make([]*graph.Value, len(rep.args))
	for k := range rep.args {
		if k < len(eq.names) || !in.f.varies(rep.args[k]) {
			if !r.arg(k) {
				return false
			}
		}
	}
	for range count {
		number := in.g.Blocks
		in.g.Blocks++
		for k, a := range rep.args {
			ok := true
			if k >= len(eq.names) && in.f.varies(a) {
				r.inBlock(number, func() { ok = r.arg(k) })
			}
			if !ok {
				return false
			}
		}
		for c := range rep.blocks {
			if !r.block(&rep.blocks[c], number) {
				return false
			}
		}
	}
	for k, n := range eq.names {
		in.vals[n.string] = r.args[k]
	}
	return true
}

// arg builds an operand.
func (r *repetition) arg(k int) bool {
	name := fmt.Sprintf("%s.%d", r.eq.names[0].string, k)
	for _, b := range r.f.blocks() {
		if k < len(b.in) {
			name = r.eq.names[0].string + "." + b.in[k].name.string
			break
		}
	}
	vals, ok := r.equation(r.eq, []string{name}, r.eq.repeat.args[k])
	if ok {
		r.args[k] = vals[0]
	}
	return ok
}

// checkNamed checks that each param= belongs to a block.
func (r *repetition) checkNamed() bool {
	ok := true
	for _, n := range r.eq.repeat.named {
		var known []string
		for _, c := range r.eq.repeat.blocks {
			for _, name := range c.names {
				for _, p := range c.files[name].params {
					known = append(known, p.name.string)
				}
			}
		}
		if !slices.Contains(known, n.Name) {
			name := r.eq.repeat.blocks[0].names[0] // which of them does not matter
			ok = r.fail(n.Pos(), "%s has no parameter %s%s", name, n.Name, didYouMean(n.Name, known))
		}
	}
	return ok
}

// choose gives the block that a condition chooses, and where its name stands.
func (r *repetition) choose(c *choice, number int) (b *File, at int, ok bool) {
	e := c.tree
	for {
		switch x := e.(type) {
		case lang.Name:
			return c.files[x.Name], x.Pos(), true // nil: none
		case lang.Str:
			return c.files[x.V], x.Pos(), true
		case lang.Cond:
			var v lang.Val
			r.inBlock(number, func() {
				v, ok = r.eval(r.eq.rhs.text, x.If, fmt.Sprintf("%s: block %d: ", r.eq.string, number))
			})
			yes, is := v.(bool)
			if ok && !is {
				ok = r.fail(x.If.Pos(), "block %d: a condition is wanted here, not %s", number, lang.Format(v))
			}
			if !ok {
				return nil, 0, false
			}
			if e = x.Else; yes {
				e = x.Then
			}
		default:
			return nil, e.Pos(), r.fail(e.Pos(), "the name of a block is wanted here")
		}
	}
}

// block builds one block; r.args are its operands, and then its results and the other operands.
func (r *repetition) block(c *choice, number int) bool {
	b, at, ok := r.choose(c, number)
	if !ok || b == nil {
		return ok
	}
	rep, name := r.eq.repeat, b.stem()
	alone := len(rep.blocks) == 1 && len(c.names) == 1
	switch {
	case len(rep.args) < len(b.in) || alone && len(rep.args) > len(b.in):
		return r.fail(at, "%s takes %d operands (%s), %d are given", name, len(b.in), b.inputNames(), len(rep.args))
	case len(b.out) > len(b.in):
		return r.fail(at, "%s gives %d results for %d operands, so it cannot be repeated", name, len(b.out), len(b.in))
	case len(r.eq.names) != len(b.out) && (alone || len(r.eq.names) > len(b.out)): // a group hands on more than is named
		return r.fail(at, "%s gives %d results, %d names are given", name, len(b.out), len(r.eq.names))
	}
	before := len(r.builder.list)
	over := r.inherit(r.eq, b, number)
	own := len(r.builder.list)
	s := newScope(&r.builder.errs, b, r.o(), number, over)
	inner := r.builder.instance(b, s, fmt.Sprintf("blk.%d.", number))
	for k, d := range b.in {
		shape, known := inner.shape(d.name.string, d.dims, tensor.F32)
		v := r.args[k]
		if t := inputType(d.typ, r.o().Float); known && (!v.Shape.Equal(shape) || v.Type != t) {
			ok = r.fail(rep.args[k].Pos(), "%s of %s must be %s%v, but it is %s", d.name.string, name, t, shape, v)
		}
		inner.vals[d.name.string] = v
	}
	if ok {
		inner.run()
	}
	for _, e := range r.builder.list[own:] {
		if number > 0 { // the blocks before have none of these mistakes
			e.Msg = fmt.Sprintf("block %d: %s", number, e.Msg)
		}
	}
	for k, name := range b.out {
		if r.args[k] = inner.vals[name.string]; r.args[k] == nil {
			return false // its equation failed, which is reported
		}
	}
	return len(r.builder.list) == before // the next would make the same mistakes
}
