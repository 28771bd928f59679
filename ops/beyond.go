package ops

import (
	"slices"

	"github.com/greta-project/greta/graph"
)

// BesideSinks is what of an attention goes beyond its plain form beside sinks: "" where nothing does.
func BesideSinks(n *graph.Node) string {
	if named(n, "sinks") == nil {
		return Beyond(n)
	}
	m := *n
	m.In = slices.Clone(n.In)
	m.In[Place(n, "sinks")] = nil
	return Beyond(&m)
}

// Beyond says what of a node goes beyond the plain form of its operator, which is all that some backends have a kernel
// for: "" where nothing does.
func Beyond(n *graph.Node) string {
	switch a := n.Attr.(type) {
	case *AttentionAttr:
		switch {
		case named(n, "sinks") != nil:
			return "attention with sinks"
		case Spans(n):
			return "attention of texts side by side"
		case Spaced(n):
			return "attention with parts for distances (bias, far_k, far_q)"
		case a.Chunk > 0:
			return "attention in chunks"
		case a.ALiBi > 0:
			return "attention with slopes on distances (alibi)"
		case a.Both:
			return "attention that is not causal"
		}
	case *TopKAttr:
		if a.Groups > 1 {
			return "a choice in groups"
		}
	case *RoPEAttr:
		if a.Scaling == "over_head" {
			return "rope with scaling=over_head"
		}
	}
	if BinaryFunc(n.Op) != nil && !PlainBinary(n) {
		return "tensors of different shapes that are spread over each other"
	}
	return ""
}

// Spans says whether a node is attention of texts side by side, each row of which sees its own text alone.
func Spans(n *graph.Node) bool { return named(n, "span") != nil }

// named gives a node's operand by its name in the signature; nil: the node has none.
func named(n *graph.Node, name string) *graph.Value {
	if i := Place(n, name); i >= 0 {
		return operand(n, i)
	}
	return nil
}

// Place is where among a node's operands the one of that name stands, -1 where its operator has none.
func Place(n *graph.Node, name string) int {
	return slices.IndexFunc(n.Op.Sig.In, func(o graph.Operand) bool { return o.Name == name })
}
