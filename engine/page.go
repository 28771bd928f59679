package engine

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Lowering for batches: the caches of a model file's push and attention become pools of pages, in which the rows of
// a step find those of their own sequences. A model file does not know of it.

// poolSize is how caches of several sequences lie.
type poolSize struct {
	adapted bool // with the products of adapters
	pages   int  // in all
	page    int  // positions of a page
	lines   int  // sequences that a step sees
}

// width is the number of pages that a sequence has at most.
func (p *poolSize) width(context int) int { return (context + p.page - 1) / p.page }

// The names of what a batch has beside a model's own inputs.
const (
	slotInput  = "batch.slot"  // of each row: where its keys and values go, −1 nowhere
	seqInput   = "batch.seq"   // of each row: its line of the table, −1 none
	tableState = "batch.table" // of each line: the pages of a sequence
)

// page makes the graph of a step one of a batch, before it is lowered. A state whose first size is the context is
// paged. r is the number of rows of logits; where it is that of the step's rows, row i of the logits is that of row i.
func (e *Engine) page(g *graph.Graph, r int, in *poolSize) error {
	name := e.opt.Model.Name()
	pos, last := g.Input("pos"), g.Input("last")
	if pos == nil || last == nil || g.Input("tokens") == nil || !e.rows {
		return fmt.Errorf("%s has not the inputs tokens: i32[S], pos: i32[S] and last: i32[R], "+
			"which a batch of sequences needs", name)
	}
	rows := pos.Shape[0]
	if r == rows {
		for _, n := range g.Nodes {
			if n.Op == ops.Rows && n.In[1] == last {
				redirect(g, n.Out[0], n.In[0])
			}
		}
	}
	for _, v := range g.States {
		if len(v.Shape) != 3 || v.Shape[0] != e.opt.Context {
			return fmt.Errorf("%s: the state %s is not one of rows for each position; "+
				"models with other states run one sequence at a time", name, v)
		}
	}
	whole := func(v *graph.Value) tensor.Shape { return append(tensor.Shape{in.pages, in.page}, v.Shape[1:]...) }
	slot := g.AddValue(&graph.Value{Name: slotInput, Kind: graph.Input, Type: tensor.I32, Shape: tensor.Shape{rows}})
	seq := g.AddValue(&graph.Value{Name: seqInput, Kind: graph.Input, Type: tensor.I32, Shape: tensor.Shape{rows}})
	states := slices.Clone(g.States)
	table := g.AddValue(&graph.Value{Name: tableState, Kind: graph.State, Type: tensor.I32,
		Shape: tensor.Shape{in.lines, in.width(e.opt.Context)}})
	paged := map[*graph.Value]bool{}
	for _, v := range states {
		paged[v], v.Shape = true, whole(v)
	}
	for _, n := range g.Nodes {
		switch {
		case n.Op == ops.Push && paged[n.In[0]] && n.In[2] == pos:
			n.Op, n.In[2] = ops.PagedPush, slot
			n.Out[0].Shape = n.In[0].Shape
			paged[n.Out[0]] = true
		case n.Op == ops.Attention && paged[n.In[1]] && paged[n.In[2]] && n.In[3] == pos:
			n.Op = ops.PagedAttention
			n.In = slices.Concat(n.In[:4], []*graph.Value{seq, table}, n.In[4:])
		case slices.ContainsFunc(n.In, func(v *graph.Value) bool { return paged[v] }):
			return fmt.Errorf("%v: it reads or writes a cache in a way that has no meaning in pages; "+
				"%s runs one sequence at a time", n, name)
		}
	}
	g.Prune()
	return g.Verify()
}
