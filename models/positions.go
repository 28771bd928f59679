package models

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// Positions gives how many positions a model can compute because it looks them up in a table, from whose rows that
// follows; 0 where it has none, or where the graph cannot be built with these options, whose sizes count for nothing.
func (f *File) Positions(o Options) int {
	o.S, o.C, o.R = 1, 1, 1
	g, err := f.Build(o)
	if err != nil {
		return 0
	}
	rows, _ := tabled(g)
	return rows
}

// tabled gives the table with the fewest rows among those that a graph looks positions up in, and how many positions
// it has rows for; 0 and nil where there is none.
func tabled(g *graph.Graph) (rows int, table *graph.Value) {
	for _, n := range g.Nodes {
		if n.Op != ops.Embed {
			continue
		}
		at, t, by := n.In[0], n.In[1], 0
		if at.Def != nil && at.Def.Op == ops.Shift {
			at, by = at.Def.In[0], graph.Attr[ops.ShiftAttr](at.Def).By
		}
		if at.Kind != graph.Input || at.Name != "pos" {
			continue
		}
		if have := t.Shape[0] - by; table == nil || have < rows {
			rows, table = have, t
		}
	}
	return rows, table
}

// reaches refuses a context of more positions than a table of them has rows for. Files of texts have limits of their
// own.
func (f *File) reaches(b *builder) error {
	rows, table := tabled(b.g)
	if table == nil || f.task != "" || b.o.C <= rows {
		return nil
	}
	name := table.Name
	if table.Load != nil && len(table.Load.Tensors) > 0 {
		name = table.Load.Tensors[0]
	}
	return fmt.Errorf("%s: positions are rows of %s, a table of %d: a context of %d is more than the %d that it has rows "+
		"for; ask for at most so many", f.path, name, table.Shape[0], b.o.C, rows)
}
