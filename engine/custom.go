package engine

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
)

// CustomChooser chooses kernels of the user's own. It is asked whenever a graph is lowered and its kernels are chosen.
type CustomChooser interface {
	// Custom gives the user's kernel of a node; nil: the device's own runs it.
	Custom(n *graph.Node) backends.Kernel
	// Pins says whether a user's kernel is for a node of a graph that is not fused yet: it goes into no fused operator.
	Pins(n *graph.Node) bool
	// Not says in a sentence why a node that a user's kernel is for is run by the device's own; "" where none is for it.
	Not(n *graph.Node) string
}

// custom gives the user's kernel of a node, nil where there is none or its operands do not lie as such kernels take
// them: rows without gaps, where bindings can begin, packed ones whole weights.
func (e *Engine) custom(n *graph.Node, places locations) backends.Kernel {
	if e.opt.Custom == nil {
		return nil
	}
	k := e.opt.Custom.Custom(n)
	if k == nil {
		return nil
	}
	for i, v := range n.In {
		if v == nil {
			continue
		}
		at := places[v.ID]
		if at.offset%align != 0 || len(v.Shape) > 0 && v.Shape[0] > 1 && at.stride != rowBytes(v) ||
			k.Packing(i) != nil && v.Kind != graph.Weight {
			return nil
		}
	}
	return k
}
