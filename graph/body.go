package graph

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/tensor"
)

// equationOf is one line of a fused operator's body.
type equationOf struct {
	names []string
	expr  lang.Expr
}

var bodies sync.Map // *Op -> []equationOf

// equations parses a body once. The body is the project's own source, so a
// mistake in it panics; a test expands every fused operator.
func (op *Op) equations() []equationOf {
	if eqs, ok := bodies.Load(op); ok {
		return eqs.([]equationOf)
	}
	var eqs []equationOf
	for line := range strings.SplitSeq(strings.TrimSpace(op.Body), "\n") {
		lhs, rhs, ok := strings.Cut(line, ":")
		e, err := lang.Parse(rhs)
		if !ok || err != nil {
			panic(fmt.Sprintf("body of %s: %q: %v", op.Name, line, err))
		}
		var names []string
		for n := range strings.SplitSeq(lhs, ",") {
			names = append(names, strings.TrimSpace(n))
		}
		eqs = append(eqs, equationOf{names, e})
	}
	bodies.Store(op, eqs)
	return eqs
}

// inline builds the body of fused node n with b and gives its results. An
// attribute that an inner operator shares with the fused one by name, and
// that the body does not set, is handed on.
func (n *Node) inline(b *Builder, operands map[string]*Value) ([]*Value, error) {
	sizes := n.sizes()
	sc := Scope{Values: operands, Env: func(name string) (lang.Val, bool) {
		if size, ok := sizes[name]; ok {
			return float64(size), true
		}
		return AttrVal(n.Attr, name)
	}}
	for _, eq := range n.Op.equations() {
		first := len(b.Graph.Nodes)
		vals, err := b.Equation(eq.names, handOn(eq.expr, n, b.Ops), sc)
		if err != nil {
			return nil, fmt.Errorf("body of %s: %w", n.Op.Name, err)
		}
		for _, inner := range b.Graph.Nodes[first:] {
			inner.Block, inner.Place = n.Block, n.Place
		}
		for i, name := range eq.names {
			operands[name] = vals[i]
		}
	}
	out := make([]*Value, len(n.Op.Sig.Out))
	for i, o := range n.Op.Sig.Out {
		out[i] = operands[o.Name]
		if out[i] == nil {
			return nil, fmt.Errorf("body of %s does not define its result %s", n.Op.Name, o.Name)
		}
	}
	return out, nil
}

// sizes are what the letters of the operands' shapes stand for.
func (n *Node) sizes() map[string]int {
	sizes := map[string]int{}
	for i, o := range n.Op.Sig.In {
		if i >= len(n.In) || n.In[i] == nil || len(n.In[i].Shape) != len(o.Dims) {
			continue
		}
		for d, name := range o.Dims {
			sizes[name] = n.In[i].Shape[d]
		}
	}
	return sizes
}

// handOn adds name=name to calls for the attributes that n shares with them.
func handOn(e lang.Expr, n *Node, ops Table) lang.Expr {
	return lang.MapCalls(e, func(c lang.Call) lang.Call {
		if inner := ops.Lookup(c.Func); inner != nil {
			for _, a := range inner.Attrs() {
				if _, has := AttrVal(n.Attr, a.Name); has && !c.Sets(a.Name) {
					c.Named = append(c.Named, lang.Named{At: c.At, Name: a.Name, X: lang.Name{At: c.At, Name: a.Name}})
				}
			}
		}
		return c
	})
}

// Expand gives the body of a fused node as a graph of its own, with the
// node's operands as inputs (an absent one is left out; operand 0 of an Update is
// a state) and its results as outputs.
func (n *Node) Expand(ops Table) (*Graph, error) {
	g := &Graph{Name: n.Op.Name}
	b := &Builder{Graph: g, Ops: ops, Float: n.Float, Block: n.Block}
	operands := map[string]*Value{}
	for i, o := range n.Op.Sig.In {
		operands[o.Name] = nil
		if i < len(n.In) && n.In[i] != nil {
			v := &Value{Name: o.Name, Kind: Input, Type: n.In[i].Type, Shape: n.In[i].Shape}
			if i == 0 && n.Op.Kind == Update {
				v.Kind = State
			}
			operands[o.Name] = g.AddValue(v)
		}
	}
	out, err := n.inline(b, operands)
	if err != nil {
		return nil, err
	}
	g.Outputs = out
	return g, g.Verify()
}

// Lower replaces every fused node for which keep says no by its body, and so those of a body, which may have its own
// operator in it. The graph is verified again by the caller.
func (g *Graph) Lower(ops Table, keep func(*Node) bool) error {
	for again := true; again; {
		if err := g.lower(ops, keep); err != nil {
			return err
		}
		again = slices.ContainsFunc(g.Nodes, func(n *Node) bool { return n.Op.Body != "" && !keep(n) })
	}
	return nil
}

// lower is one pass of Lower.
func (g *Graph) lower(ops Table, keep func(*Node) bool) error {
	old := g.Nodes
	g.Nodes = nil
	b := &Builder{Graph: g, Ops: ops}
	moved := map[*Value]*Value{}
	for _, n := range old {
		for i, v := range n.In {
			if w := moved[v]; w != nil {
				n.In[i] = w
			}
		}
		if n.Op.Body == "" || keep(n) {
			n.ID = len(g.Nodes)
			g.Nodes = append(g.Nodes, n)
			continue
		}
		operands := map[string]*Value{}
		for i, o := range n.Op.Sig.In {
			operands[o.Name] = nil
			if i < len(n.In) {
				operands[o.Name] = n.In[i]
			}
		}
		b.Float, b.Prefix, b.Block, b.Place = n.Float, n.Name+".", n.Block, n.Place
		out, err := n.inline(b, operands)
		if err != nil {
			return fmt.Errorf("%v: %w", n, err)
		}
		for i, v := range n.Out {
			moved[v] = out[i]
			v.Name, out[i].Name = out[i].Name, v.Name
		}
	}
	for i, v := range g.Outputs {
		if w := moved[v]; w != nil {
			g.Outputs[i] = w
		}
	}
	g.Prune()
	return nil
}

// RefBody computes a fused node by the references of its body's operators.
// in and out are as for Op.Ref.
func (n *Node) RefBody(ops Table, in, out []tensor.Tensor) error {
	g, err := n.Expand(ops)
	if err != nil {
		return err
	}
	vals := make([]tensor.Tensor, len(g.Values))
	k := 0
	for i, v := range n.In {
		if v != nil {
			vals[k] = in[i]
			k++
		}
	}
	for i, v := range g.Outputs {
		if v.Root().Kind == Computed {
			vals[v.ID] = out[i]
		}
	}
	if n.Op.Kind == Update {
		vals[0] = out[0]
	}
	for _, m := range g.Nodes {
		args := make([]tensor.Tensor, len(m.In))
		for i, v := range m.In {
			if v != nil {
				args[i] = vals[v.ID]
			}
		}
		results := make([]tensor.Tensor, len(m.Out))
		for i, v := range m.Out {
			switch {
			case m.Op.Kind == Update:
				vals[v.ID] = args[0]
			case vals[v.ID].Data == nil:
				vals[v.ID] = tensor.New(refType(v.Type), v.Shape...)
			}
			results[i] = vals[v.ID]
		}
		if err := m.Reference(ops, args, results); err != nil {
			return err
		}
	}
	return nil
}

// refType is the type in which references compute: F64 for floats, I32 for integers.
func refType(t tensor.Type) tensor.Type {
	if t.IsInt() {
		return tensor.I32
	}
	return tensor.F64
}

// Reference computes a node in float64: by its operator's Ref, or by its body.
func (n *Node) Reference(ops Table, in, out []tensor.Tensor) error {
	if n.Op.Ref != nil {
		return n.Op.Ref(n, in, out)
	}
	if n.Op.Body == "" {
		return fmt.Errorf("%s has neither a reference nor a body", n.Op.Name)
	}
	return n.RefBody(ops, in, out)
}
