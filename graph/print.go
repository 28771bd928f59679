package graph

import (
	"fmt"
	"strings"
)

// Text prints a graph, one value or node a line, in a form that is stable and
// made for diffs.
func (g *Graph) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph %s\n", g.Name)
	for _, v := range g.Inputs {
		fmt.Fprintf(&b, "in     %s\n", v)
	}
	for _, v := range g.Weights {
		fmt.Fprintf(&b, "weight %s%s\n", v, v.Load.text(v))
	}
	for _, v := range g.States {
		fmt.Fprintf(&b, "state  %s\n", v)
	}
	for _, n := range g.Nodes {
		b.WriteString(n.Text())
		b.WriteByte('\n')
	}
	for _, v := range g.Outputs {
		fmt.Fprintf(&b, "out    %s\n", v)
	}
	return b.String()
}

// Text prints a node: "blk.0.q f32[1, 32, 128] = rope(blk.0.q.view, pos; base=10000)".
func (n *Node) Text() string {
	var b strings.Builder
	for i, v := range n.Out {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(v.String())
	}
	b.WriteString(" = " + n.Op.Name + "(")
	for i, v := range n.In {
		if i > 0 {
			b.WriteString(", ")
		}
		if v == nil {
			b.WriteByte('_')
		} else {
			b.WriteString(v.Name)
		}
	}
	if a := n.AttrText(); a != "" {
		b.WriteString("; " + a)
	}
	b.WriteByte(')')
	return b.String()
}

func (l *Load) text(v *Value) string {
	if l == nil {
		return ""
	}
	var b strings.Builder
	switch len(l.Tensors) {
	case 0:
	case 1:
		b.WriteString(" <- " + l.Tensors[0])
	default:
		fmt.Fprintf(&b, " <- %s … %s (%d)", l.Tensors[0], l.Tensors[len(l.Tensors)-1], len(l.Tensors))
	}
	if l.Type != v.Type && len(l.Tensors) > 0 {
		b.WriteString(" " + l.Type.String())
	}
	if l.Transpose {
		b.WriteString(" .T")
	}
	if l.Add != 0 {
		fmt.Fprintf(&b, " %+g", l.Add)
	}
	return b.String()
}

// Dot draws a graph in Graphviz's language.
func (g *Graph) Dot() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  node [fontname=\"sans-serif\", shape=box];\n", g.Name)
	shapes := map[Kind]string{Input: "ellipse", Weight: "note", State: "cylinder"}
	for _, v := range g.Values {
		if shape, ok := shapes[v.Kind]; ok {
			fmt.Fprintf(&b, "  v%d [shape=%s, label=%q];\n", v.ID, shape, v.String())
		}
	}
	from := func(v *Value) string {
		if v.Def == nil {
			return fmt.Sprintf("v%d", v.ID)
		}
		return fmt.Sprintf("n%d", v.Def.ID)
	}
	for _, n := range g.Nodes {
		label := n.Op.Name
		if a := n.AttrText(); a != "" {
			label += "\n" + a
		}
		fmt.Fprintf(&b, "  n%d [style=rounded, label=%q];\n", n.ID, n.Name+"\n"+label)
		for _, v := range n.In {
			if v != nil {
				fmt.Fprintf(&b, "  %s -> n%d [label=%q];\n", from(v), n.ID, v.Shape.String())
			}
		}
	}
	for i, v := range g.Outputs {
		fmt.Fprintf(&b, "  o%d [shape=ellipse, label=%q];\n  %s -> o%d;\n", i, v.String(), from(v), i)
	}
	b.WriteString("}\n")
	return b.String()
}
