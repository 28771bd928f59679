package graph

import (
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/graph/lang"
)

// Fuse replaces every place where the body of op stands in the graph by one
// node of op, if accept agrees to that node. It gives the number of places.
//
// A body's names that no equation defines are its operands. An attribute of an
// inner operator matches when the body sets it to the same value, when the body
// or the shared name hands on the fused operator's own (which then takes the
// value found), or when it has its default.
func (g *Graph) Fuse(op *Op, ops Table, accept func(*Node) bool) int {
	p := compile(op, ops)
	reads := map[*Value]int{}
	for _, n := range g.Nodes {
		count(reads, n, 1)
	}
	found := 0
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		if i >= len(g.Nodes) {
			continue
		}
		m := g.match(p, g.Nodes[i], reads)
		if m == nil || !accept(m.fused) {
			continue
		}
		if g.replace(m, reads) {
			found++
		}
	}
	if found > 0 {
		g.Prune()
	}
	return found
}

// count adds to the number of times that each value is read what a node reads.
func count(reads map[*Value]int, n *Node, times int) {
	for _, v := range n.In {
		if v != nil {
			reads[v] += times
		}
	}
}

// pattern is a body as a tree of nodes, shared where a name is used twice.
type pattern struct {
	op    *Op
	outs  []*patternNode // per result of op
	root  *patternNode   // the last equation's node, where a match starts
	nodes int
}

type patternNode struct {
	op      *Op // nil: an operand
	operand int
	args    []*patternNode
	attrs   map[string]lang.Expr
}

func compile(op *Op, ops Table) *pattern {
	p := &pattern{op: op}
	names := map[string]*patternNode{}
	for i, o := range op.Sig.In {
		names[o.Name] = &patternNode{operand: i}
	}
	for _, eq := range op.equations() {
		n := p.compile(eq.expr, names, ops)
		if len(eq.names) != 1 {
			panic("body of " + op.Name + ": an inner operator with several results cannot be matched")
		}
		names[eq.names[0]] = n
		p.root = n
	}
	for _, o := range op.Sig.Out {
		p.outs = append(p.outs, names[o.Name])
	}
	return p
}

func (p *pattern) compile(e lang.Expr, names map[string]*patternNode, ops Table) *patternNode {
	call := func(name string, attrs map[string]lang.Expr, args ...lang.Expr) *patternNode {
		n := &patternNode{op: ops.Lookup(name), attrs: attrs}
		for _, a := range args {
			n.args = append(n.args, p.compile(a, names, ops))
		}
		p.nodes++
		return n
	}
	switch e := e.(type) {
	case lang.Name:
		if n := names[e.Name]; n != nil {
			return n
		}
	case lang.Binary:
		switch e.Op {
		case "+":
			return call("add", nil, e.X, e.Y)
		case "*":
			return call("mul", nil, e.X, e.Y)
		}
	case lang.Call:
		attrs := map[string]lang.Expr{}
		args := e.Args
		for _, a := range e.Named {
			attrs[a.Name] = a.X
		}
		if ops.Lookup(e.Func) != nil {
			return call(e.Func, attrs, args...)
		}
	}
	panic(fmt.Sprintf("body of %s: %T cannot be matched", p.op.Name, e))
}

// matched is one place in a graph where a pattern stands.
type matched struct {
	fused *Node
	inner map[*patternNode]*Node
}

// match gives the place whose last equation is at, or nil. reads says how many
// times each value is read.
func (g *Graph) match(p *pattern, at *Node, reads map[*Value]int) *matched {
	m := &matched{inner: map[*patternNode]*Node{}}
	m.fused = &Node{Op: p.op, In: make([]*Value, len(p.op.Sig.In)), Float: at.Float, Name: at.Name, Block: at.Block,
		Place: at.Place}
	if p.op.Attr != nil {
		m.fused.Attr = p.op.Attr()
	}
	set := map[string]bool{}
	if at.Op != p.root.op || !m.node(p.root, at, set) || len(m.inner) != p.nodes {
		return nil
	}
	for len(m.fused.In) > p.op.Sig.Required() && m.fused.In[len(m.fused.In)-1] == nil {
		m.fused.In = m.fused.In[:len(m.fused.In)-1]
	}
	for _, out := range p.outs {
		n := m.inner[out]
		if n == nil {
			return nil // a result that is an operand handed through
		}
		m.fused.Out = append(m.fused.Out, n.Out[0])
	}
	if results, err := p.op.Infer(m.fused); err != nil || len(results) != len(m.fused.Out) {
		return nil
	}
	if !m.closed(g, reads) {
		return nil
	}
	return m
}

func (m *matched) node(p *patternNode, n *Node, set map[string]bool) bool {
	if have, ok := m.inner[p]; ok {
		return have == n
	}
	if n.Op != p.op || n.Pinned || !m.attrs(p, n, set) {
		return false
	}
	m.inner[p] = n
	if m.args(p, n.In, set) {
		return true
	}
	if (n.Op.Name == "add" || n.Op.Name == "mul") && len(n.In) == 2 { // operands in the other order
		return m.args(p, []*Value{n.In[1], n.In[0]}, set)
	}
	return false
}

// args matches operands; on failure it undoes what it has bound.
func (m *matched) args(p *patternNode, in []*Value, set map[string]bool) bool {
	saved := append([]*Value(nil), m.fused.In...)
	var inner []*patternNode
	for q := range m.inner {
		inner = append(inner, q)
	}
	ok := len(in) <= len(p.args)
	for i := 0; ok && i < len(p.args); i++ {
		var v *Value
		if i < len(in) {
			v = in[i]
		}
		ok = m.value(p.args[i], v, set)
	}
	if !ok {
		copy(m.fused.In, saved)
		kept := map[*patternNode]*Node{}
		for _, q := range inner {
			kept[q] = m.inner[q]
		}
		m.inner = kept
	}
	return ok
}

func (m *matched) value(p *patternNode, v *Value, set map[string]bool) bool {
	if p.op == nil {
		if v == nil {
			return m.fused.Op.Sig.In[p.operand].Optional && m.fused.In[p.operand] == nil
		}
		if have := m.fused.In[p.operand]; have != nil {
			return have == v
		}
		m.fused.In[p.operand] = v
		return true
	}
	return v != nil && v.Def != nil && v.Index == 0 && m.node(p, v.Def, set)
}

func (m *matched) attrs(p *patternNode, n *Node, set map[string]bool) bool {
	for _, a := range n.Op.Attrs() {
		have, _ := AttrVal(n.Attr, a.Name)
		own := "" // attribute of the fused operator that this one is
		if e, ok := p.attrs[a.Name]; ok {
			name, isName := e.(lang.Name)
			if _, has := AttrVal(m.fused.Attr, name.Name); isName && has {
				own = name.Name
			} else {
				want, err := lang.Eval(e, func(string) (lang.Val, bool) { return nil, false })
				if isName {
					want, err = name.Name, nil // a word
				}
				if err != nil || lang.Format(want) != lang.Format(have) {
					return false
				}
				continue
			}
		} else if _, has := AttrVal(m.fused.Attr, a.Name); has {
			own = a.Name
		}
		if own == "" {
			def, _ := AttrVal(n.Op.Attr(), a.Name)
			if lang.Format(def) != lang.Format(have) {
				return false
			}
			continue
		}
		if old, _ := AttrVal(m.fused.Attr, own); set[own] && lang.Format(old) != lang.Format(have) {
			return false
		}
		if m.fused.Op.SetAttr(m.fused.Attr, own, have) != nil {
			return false
		}
		set[own] = true
	}
	return true
}

// nodes gives the inner nodes, and the places of the first and the last of them.
func (m *matched) nodes() (inside map[*Node]bool, first, last int) {
	inside, first = map[*Node]bool{}, math.MaxInt
	for _, n := range m.inner {
		inside[n] = true
		first, last = min(first, n.ID), max(last, n.ID)
	}
	return inside, first, last
}

// closed says whether nothing outside the match needs a value that the fused
// node does not give, nor lies between its results and its operands, and whether no
// operand is computed inside, as both terms of a sum may be one product.
func (m *matched) closed(g *Graph, reads map[*Value]int) bool {
	inside, first, last := m.nodes()
	if len(inside) != len(m.inner) {
		return false
	}
	within := map[*Value]int{} // reads by inner nodes
	for n := range inside {
		count(within, n, 1)
	}
	gives := map[*Value]bool{}
	for _, v := range m.fused.Out {
		gives[v] = true
	}
	for n := range inside {
		for _, v := range n.Out {
			if !gives[v] && reads[v] != within[v] {
				return false
			}
		}
	}
	for _, v := range g.Outputs {
		if v.Def != nil && inside[v.Def] && !gives[v] {
			return false
		}
	}
	behind := map[*Node]bool{} // depends on a result of the match; the operands are computed before its last node
	for _, n := range g.Nodes[first:last] {
		for _, v := range n.In {
			if !inside[n] && v != nil && v.Def != nil && (inside[v.Def] || behind[v.Def]) {
				behind[n] = true
			}
		}
	}
	for _, v := range m.fused.In {
		if v != nil && v.Def != nil && (inside[v.Def] || behind[v.Def]) {
			return false
		}
	}
	return true
}

// replace puts the fused node at the place of the match's last node and sorts the nodes from the
// match's first to there, as all others stay in order: what a model of many blocks takes grows with
// their number, not with its square. False, with the graph as it was, where no order exists.
func (g *Graph) replace(m *matched, reads map[*Value]int) bool {
	inside, first, last := m.nodes()
	var nodes []*Node
	for _, n := range g.Nodes[first:last] {
		if !inside[n] {
			nodes = append(nodes, n)
		}
	}
	nodes = append(nodes, m.fused)
	type def struct {
		n *Node
		i int
	}
	saved := make([]def, len(m.fused.Out))
	for i, v := range m.fused.Out {
		saved[i] = def{v.Def, v.Index}
		v.Def, v.Index = m.fused, i
	}
	nodes, ok := sorted(nodes)
	if !ok {
		for i, v := range m.fused.Out {
			v.Def, v.Index = saved[i].n, saved[i].i
		}
		return false
	}
	for n := range inside {
		count(reads, n, -1)
	}
	count(reads, m.fused, 1)
	g.Nodes = slices.Replace(g.Nodes, first, last+1, nodes...)
	for i, n := range g.Nodes[first:] {
		n.ID = first + i
	}
	return true
}

// sorted brings nodes that follow each other into an order in which each comes after what it reads
// and an update after the other readers of the version before, keeping the
// present order otherwise. It reports whether there is such an order.
func sorted(nodes []*Node) ([]*Node, bool) {
	const active, done = 1, 2
	mark := make(map[*Node]uint8, len(nodes)) // of those that are to be sorted
	readers := map[*Value][]*Node{}
	for _, n := range nodes {
		mark[n] = 0
		for _, v := range n.In {
			if v != nil {
				readers[v] = append(readers[v], n)
			}
		}
	}
	var order []*Node
	var visit func(n *Node) bool
	visit = func(n *Node) bool {
		state, ours := mark[n]
		if !ours || state != 0 {
			return state != active
		}
		mark[n] = active
		for _, v := range n.In {
			if v != nil && v.Def != nil && !visit(v.Def) {
				return false
			}
		}
		if n.Op.Kind == Update {
			for _, r := range readers[n.In[0]] {
				if r != n && !visit(r) {
					return false
				}
			}
		}
		mark[n] = done
		order = append(order, n)
		return true
	}
	for _, n := range nodes {
		if !visit(n) {
			return nil, false
		}
	}
	return order, true
}
