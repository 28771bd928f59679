package engine

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// lower rewrites a graph for a device that wants the named fused operators
// and has those nodes that has agrees to, and verifies the result.
func (e *Engine) lower(g *graph.Graph, fusions []string, has func(*graph.Node) bool) error {
	if !e.opt.NoFuse {
		dropRows(g)
		sinkRows(g)
		if e.opt.Custom != nil {
			for _, n := range g.Nodes {
				n.Pinned = e.opt.Custom.Pins(n)
			}
		}
		for _, name := range fusions {
			op := ops.Table.Lookup(name)
			if op == nil || op.Body == "" {
				return fmt.Errorf("the %s backend names %s, which is no fused operator", e.dev.Info().Backend, name)
			}
			g.Fuse(op, ops.Table, has)
		}
	}
	if err := g.Lower(ops.Table, has); err != nil {
		return err
	}
	return g.Verify()
}

// dropRows leaves out the selection of the rows whose logits are wanted from a value that has only one row: the engine
// says which they are, so that it is that row.
func dropRows(g *graph.Graph) {
	wanted := g.Input("last")
	for _, n := range g.Nodes {
		if n.Op == ops.Rows && n.In[1] == wanted && n.In[0].Shape[0] == 1 && wanted.Shape[0] == 1 &&
			!slices.Contains(g.Outputs, n.Out[0]) {
			redirect(g, n.Out[0], n.In[0])
		}
	}
	g.Prune()
}

// sinkRows selects rows before they are computed instead of after: rows(f(x))
// becomes f(rows(x)) where f works row by row and nothing else reads f(x). A
// prompt's last block then computes its second half for the wanted rows only.
func sinkRows(g *graph.Graph) {
	for sinkOnce(g) {
	}
}

func sinkOnce(g *graph.Graph) bool {
	uses := g.Uses()
	for i, r := range g.Nodes {
		if r.Op != ops.Rows {
			continue
		}
		x, at := r.In[0], r.In[1]
		f := x.Def
		if f == nil || !(f.Op.RowWise || f.Op == ops.View) || f.Op.Kind == graph.Update || len(f.Out) != 1 ||
			x.Shape[0] <= at.Shape[0] {
			continue
		}
		if !onlyRows(uses[x.ID], at) {
			continue
		}
		if sink(g, i, r, f, at, uses[x.ID]) {
			return true
		}
	}
	return false
}

// onlyRows says whether all readers of a value select the same rows of it.
func onlyRows(readers []*graph.Node, at *graph.Value) bool {
	for _, n := range readers {
		if n == nil || n.Op != ops.Rows || n.In[1] != at {
			return false
		}
	}
	return true
}

// redirect lets the readers of one value read another, which is computed earlier.
func redirect(g *graph.Graph, from, to *graph.Value) {
	for _, n := range g.Nodes {
		for i, v := range n.In {
			if v == from {
				n.In[i] = to
			}
		}
	}
	for i, v := range g.Outputs {
		if v == from {
			g.Outputs[i] = to
		}
	}
}

// sink moves r = rows(f(…), at) before f, where that can be. Its twins select the same; what reads them
// reads r then.
func sink(g *graph.Graph, i int, r, f *graph.Node, at *graph.Value, twins []*graph.Node) bool {
	tokens := f.Out[0].Shape[0]
	moved := &graph.Node{Op: f.Op, In: make([]*graph.Value, len(f.In)), Float: f.Float, Attr: f.Attr, Name: f.Name,
		Block: f.Block, Place: f.Place}
	if f.Op == ops.View {
		a := *graph.Attr[ops.ViewAttr](f)
		if len(a.Shape) == 0 || a.Shape[0] != tokens || f.In[0].Shape[0] != tokens {
			return false
		}
		a.Shape = append([]int{at.Shape[0]}, a.Shape[1:]...)
		moved.Attr = &a
	}
	var picks []*graph.Node
	for j, v := range f.In {
		moved.In[j] = v
		if v == nil || v.Kind == graph.Weight || !perToken(f.Op.Sig.In[j], v, tokens) {
			continue
		}
		pick := &graph.Node{Op: ops.Rows, In: []*graph.Value{v, at}, Float: f.Float, Name: v.Name + ".rows", Block: f.Block,
			Place: f.Place}
		results, err := pick.Op.Infer(pick)
		if err != nil {
			return false
		}
		out := &graph.Value{Name: fmt.Sprintf("%s.rows.%s", v.Name, f.Out[0].Name), Type: results[0].Type,
			Shape: results[0].Shape, Def: pick}
		pick.Out = []*graph.Value{out}
		moved.In[j] = out
		picks = append(picks, pick)
	}
	results, err := moved.Op.Infer(moved)
	if err != nil || len(picks) == 0 || !results[0].Shape.Equal(r.Out[0].Shape) || results[0].Type != r.Out[0].Type {
		return false
	}
	for _, twin := range twins {
		if twin != r {
			redirect(g, twin.Out[0], r.Out[0])
		}
	}
	for _, p := range picks {
		g.AddValue(p.Out[0])
	}
	moved.Out = r.Out
	moved.Out[0].Def = moved
	var nodes []*graph.Node
	nodes = append(nodes, g.Nodes[:i]...)
	nodes = append(nodes, picks...)
	nodes = append(nodes, moved)
	g.Nodes = append(nodes, g.Nodes[i+1:]...)
	g.Prune()
	return true
}

// perToken says whether an operand's first dimension is the step's tokens. An
// operand of one dimension behind a star is a row that all tokens share.
func perToken(o graph.Operand, v *graph.Value, tokens int) bool {
	if len(o.Dims) == 0 || len(v.Shape) == 0 || v.Shape[0] != tokens {
		return false
	}
	return o.Dims[0] == "S" || o.Dims[0][0] == '*' && (len(v.Shape) > 1 || len(o.Dims) == 1)
}
