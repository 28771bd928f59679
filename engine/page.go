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
	slots   int  // of states of one size however long a sequence is
}

// width is the number of pages that a sequence has at most.
func (p *poolSize) width(context int) int { return (context + p.page - 1) / p.page }

// The names of what a batch has beside a model's own inputs.
const (
	slotInput  = "batch.slot"  // of each row: where its keys and values go, −1 nowhere
	seqInput   = "batch.seq"   // of each row: its line of the table, −1 none
	stateInput = "batch.state" // of each row: the slot of its sequence's recurrences, −1 none
	tableState = "batch.table" // of each line: the pages of a sequence
)

// isPaged says whether a state of a model's graph is one of rows for each position. Others are recurrences'.
func (e *Engine) isPaged(v *graph.Value) bool {
	return len(v.Shape) == 3 && v.Shape[0] == e.opt.Context
}

// slotBytes is what all states of one size take for a sequence; 0 where the model has none.
func (e *Engine) slotBytes() int {
	sum := 0
	for _, v := range e.first.States {
		if !e.isPaged(v) {
			sum += v.Bytes() / v.Shape[0]
		}
	}
	return sum
}

// page makes the graph of a step one of a batch, before it is lowered. A state whose first size is the context is
// paged; that of a recurrence has a slot a sequence. r is the number of rows of logits; where it is
// that of the step's rows, row i of the logits is that of row i.
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
	whole := func(v *graph.Value) tensor.Shape { return append(tensor.Shape{in.pages, in.page}, v.Shape[1:]...) }
	slot := g.AddValue(&graph.Value{Name: slotInput, Kind: graph.Input, Type: tensor.I32, Shape: tensor.Shape{rows}})
	seq := g.AddValue(&graph.Value{Name: seqInput, Kind: graph.Input, Type: tensor.I32, Shape: tensor.Shape{rows}})
	states := slices.Clone(g.States)
	table := g.AddValue(&graph.Value{Name: tableState, Kind: graph.State, Type: tensor.I32,
		Shape: tensor.Shape{in.lines, in.width(e.opt.Context)}})
	paged, slotted := map[*graph.Value]bool{}, map[*graph.Value]bool{}
	var state *graph.Value
	for _, v := range states {
		if e.isPaged(v) {
			paged[v], v.Shape = true, whole(v)
			continue
		}
		if state == nil {
			state = g.AddValue(&graph.Value{Name: stateInput, Kind: graph.Input, Type: tensor.I32, Shape: tensor.Shape{rows}})
		}
		slotted[v], v.Shape = true, append(tensor.Shape{in.slots}, v.Shape[1:]...)
	}
	for _, n := range g.Nodes {
		switch {
		case n.Op == ops.Push && paged[n.In[0]] && n.In[2] == pos:
			n.Op, n.In[2] = ops.PagedPush, slot
			n.Out[0].Shape = n.In[0].Shape
			paged[n.Out[0]] = true
		case n.Op == ops.Attention && paged[n.In[1]] && paged[n.In[2]] && n.In[3] == pos && !ops.Spans(n):
			toPages(n, seq, table)
		case slotted[n.In[0]] && toSlots(n, pos, state):
			n.Out[0].Shape = n.In[0].Shape
		case slices.ContainsFunc(n.In, func(v *graph.Value) bool { return paged[v] || slotted[v] }):
			return fmt.Errorf("%v: it reads or writes a state in a way that has no meaning in pages; "+
				"%s runs one sequence at a time", n, name)
		}
	}
	g.Prune()
	return g.Verify()
}

// toPages makes an attention one over pages.
func toPages(n *graph.Node, seq, table *graph.Value) {
	from := *n
	n.Op = ops.PagedAttention
	n.In = slices.Concat(from.In[:4], []*graph.Value{seq, table})
	for _, o := range n.Op.Sig.In[6:] {
		var v *graph.Value
		if i := ops.Place(&from, o.Name); i < len(from.In) {
			v = from.In[i]
		}
		n.In = append(n.In, v)
	}
	for n.In[len(n.In)-1] == nil {
		n.In = n.In[:len(n.In)-1]
	}
}

// toSlots lets a recurrence at positions pos find each row's state in a slot. It says false where the node is none.
func toSlots(n *graph.Node, pos, slot *graph.Value) bool {
	operands := n.Op.Sig.In
	at := slices.IndexFunc(operands, func(o graph.Operand) bool { return o.Name == "pos" })
	if ops.SlotElems(n) == 0 || at < 0 || n.In[at] != pos {
		return false
	}
	for len(n.In) < len(operands) {
		n.In = append(n.In, nil)
	}
	n.In[len(operands)-1] = slot
	return true
}
