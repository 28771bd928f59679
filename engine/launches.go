package engine

import "github.com/greta-project/greta/graph"

// Shape is a launch of a step as a device would run it: the node after fusion,
// and how its operands lie in memory.
type Shape struct {
	Node *graph.Node
	// Strides are the bytes from one row of each operand to the next, 0 where it
	// is left out. A split's ranges lie in wider rows.
	Strides []int
}

// Shapes lists the launches of a step of s tokens with r rows of logits, in
// order, for the device of opt. It loads nothing; views that need no kernel are
// left out. The error lists what the device lacks.
func Shapes(opt Options, s, r int) ([]Shape, error) {
	opt.fill()
	e := &Engine{opt: opt, dev: opt.Device}
	g, err := e.Graph(s, r)
	if err != nil {
		return nil, err
	}
	locs := place(g)
	var all []Shape
	for _, n := range g.Nodes {
		if n.Op.Kind == graph.View && locs.aliased(n) {
			continue
		}
		sh := Shape{n, make([]int, len(n.In))}
		for i, v := range n.In {
			if v != nil {
				sh.Strides[i] = locs[v.ID].stride
			}
		}
		all = append(all, sh)
	}
	return all, nil
}
