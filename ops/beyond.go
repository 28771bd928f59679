package ops

import "github.com/greta-project/greta/graph"

// Beyond says what of a node goes beyond the plain form of its operator, which is all that some backends have a kernel
// for: "" where nothing does.
func Beyond(n *graph.Node) string {
	switch a := n.Attr.(type) {
	case *AttentionAttr:
		switch {
		case operand(n, len(n.Op.Sig.In)-1) != nil && n.Op.Sig.In[len(n.Op.Sig.In)-1].Name == "sinks":
			return "attention with sinks"
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
