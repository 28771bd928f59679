package backends

import (
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Invariant says whether a device was opened such that a row's results do not depend on the rows beside it.
func Invariant(dev Device) bool {
	d, ok := dev.(interface{ Invariant() bool })
	return ok && d.Invariant()
}

// InvariantRows is for how many rows devices whose kernels follow the rows of a step choose those of all products once
// they are invariant: one kernel then serves every step, which sums a row up in the same order wherever it stands. With
// as many the smallest tiles are taken, of which a step of one row wastes least.
const InvariantRows = 64

// WithRows is a product by a matrix, n's second operand, of so many rows of activations in place of its own, for asking
// what runs it; n itself where it has as many.
func WithRows(n *graph.Node, rows int) *graph.Node {
	have := n.In[0].Shape.Rows()
	if have == rows {
		return n
	}
	with := func(list []*graph.Value, but int) []*graph.Value {
		list = slices.Clone(list)
		for i, v := range list {
			if i == but || v == nil || len(v.Shape) < 2 {
				continue
			}
			one := *v
			one.Shape = tensor.Shape{rows, v.Shape.Last()}
			list[i] = &one
		}
		return list
	}
	one := *n
	one.In, one.Out = with(n.In, 1), with(n.Out, -1)
	return &one
}
