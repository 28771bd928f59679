// Package graph is greta's one representation of a network: values, and nodes
// that compute them, in an order in which they can run. Every size is
// concrete; a network has one graph per step size. What an operator means is
// said in ops, how it runs in backends.
package graph

import (
	"fmt"

	"github.com/greta-project/greta/tensor"
)

// Kind says where a value comes from.
type Kind uint8

// The kinds of value.
const (
	Computed Kind = iota // a node's result
	Input                // written by the caller before each step
	Weight               // read from the weights, constant
	State                // survives from step to step
)

func (k Kind) String() string { return [...]string{"computed", "input", "weight", "state"}[k] }

// Value is a tensor of the graph.
type Value struct {
	ID    int    // index in Graph.Values
	Name  string // unique in the graph: "blk.3.q", "blk.3.q.linear"
	Kind  Kind
	Type  tensor.Type
	Shape tensor.Shape
	Def   *Node // what computes it; nil unless Computed
	Index int   // which of Def's results it is
	Load  *Load // where a Weight comes from
}

// String prints a value as errors and dumps do: wo f16[4096, 11008].
func (v *Value) String() string { return fmt.Sprintf("%s %s%v", v.Name, v.Type, v.Shape) }

// Root follows updates and views back to the value that owns the memory. Of an update's results the first alone is
// the state; others are computed.
func (v *Value) Root() *Value {
	for v.Def != nil && v.Def.Op.Kind != Compute && (v.Def.Op.Kind == View || v.Index == 0) {
		v = v.Def.In[0]
	}
	return v
}

// Load says how a weight is read from its source.
type Load struct {
	Tensors   []string    // names in the source; several are stacked along a new first dimension
	Add       float64     // added to each element after reading
	Transpose bool        // the source holds [K, N] for our [N, K]
	Norm      bool        // a norm's weight: synthetic values lie around one
	Numbers   []float64   // the elements themselves, where no tensor of the source holds them
	Spread    bool        // the source holds one number for all elements
	Type      tensor.Type // the type in the source, before conversion to the value's
}

// Node applies an operator.
type Node struct {
	ID    int // index in Graph.Nodes
	Op    *Op
	In    []*Value // an optional operand that is left out is nil
	Out   []*Value
	Float tensor.Type // what "float" in the signature is; F32 unless set
	Attr  any         // pointer to the operator's attribute struct, or nil
	Name  string      // the equation that it came from: "blk.3.q"
	Block int         // number of the repeated block that it belongs to, -1 outside
	Place string      // file:line:column of the equation, for messages
	// Pinned: it goes into no fused operator, as a kernel is for it as it stands.
	Pinned bool
}

// String names a node for messages: blk.3.q (linear).
func (n *Node) String() string { return n.Name + " (" + n.Op.Name + ")" }

// Graph is a network at one step size. Nodes are in an order in which each
// comes after what it reads, and a state's update after the reads of the
// version before it.
type Graph struct {
	Name    string
	Values  []*Value
	Nodes   []*Node
	Inputs  []*Value
	Weights []*Value
	States  []*Value
	Outputs []*Value
	Blocks  int // how often the block is repeated, 0 without repetition
}

// AddValue appends a value and numbers it. Names are made unique by a number behind.
func (g *Graph) AddValue(v *Value) *Value {
	v.ID = len(g.Values)
	g.Values = append(g.Values, v)
	switch v.Kind {
	case Input:
		g.Inputs = append(g.Inputs, v)
	case Weight:
		g.Weights = append(g.Weights, v)
	case State:
		g.States = append(g.States, v)
	}
	return v
}

// Input gives the input of that name, or nil.
func (g *Graph) Input(name string) *Value {
	for _, v := range g.Inputs {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Uses lists, by value ID, the nodes that read each value; an output of the
// graph counts as used by a nil node.
func (g *Graph) Uses() [][]*Node {
	uses := make([][]*Node, len(g.Values))
	for _, n := range g.Nodes {
		for _, v := range n.In {
			if v != nil {
				uses[v.ID] = append(uses[v.ID], n)
			}
		}
	}
	for _, v := range g.Outputs {
		uses[v.ID] = append(uses[v.ID], nil)
	}
	return uses
}

// Verify checks what every pass must keep: single assignment, order, numbering,
// shapes that the operators' signatures agree with, and states that are
// updated at most once per version. It names the first node at fault.
func (g *Graph) Verify() error {
	defined := make([]bool, len(g.Values))
	updated := map[*Value]*Node{}
	for i, v := range g.Values {
		if v.ID != i {
			return fmt.Errorf("graph %s: value %s has number %d at place %d", g.Name, v.Name, v.ID, i)
		}
		defined[i] = v.Kind != Computed
	}
	for i, n := range g.Nodes {
		if n.ID != i {
			return fmt.Errorf("graph %s: node %v has number %d at place %d", g.Name, n, n.ID, i)
		}
		for _, v := range n.In {
			if v == nil {
				continue
			}
			if v.ID >= len(g.Values) || g.Values[v.ID] != v {
				return fmt.Errorf("graph %s: %v reads %s, which is not in the graph", g.Name, n, v.Name)
			}
			if !defined[v.ID] {
				return fmt.Errorf("graph %s: %v reads %s before it is computed", g.Name, n, v.Name)
			}
			if by := updated[v]; by != nil && n.Op.Kind == Update && v == n.In[0] {
				return fmt.Errorf("graph %s: %v updates %s, which %v has updated already: use the version that it gives", g.Name, n,
					v.Name, by)
			} else if by != nil {
				return fmt.Errorf("graph %s: %v reads %s after %v has updated it: use the version that it gives", g.Name, n, v.Name,
					by)
			}
		}
		if n.Op.Kind == Update {
			updated[n.In[0]] = n
		}
		results, err := n.Op.Infer(n)
		if err != nil {
			return fmt.Errorf("graph %s: %w", g.Name, err)
		}
		if len(results) != len(n.Out) {
			return fmt.Errorf("graph %s: %v has %d results, its operator gives %d", g.Name, n, len(n.Out), len(results))
		}
		for j, v := range n.Out {
			if v.Def != n || v.Index != j || v.ID >= len(g.Values) || g.Values[v.ID] != v {
				return fmt.Errorf("graph %s: result %d of %v is not its own", g.Name, j, n)
			}
			if defined[v.ID] {
				return fmt.Errorf("graph %s: %s is computed twice", g.Name, v.Name)
			}
			defined[v.ID] = true
			if v.Type != results[j].Type || !v.Shape.Equal(results[j].Shape) {
				return fmt.Errorf("graph %s: %v gives %s%v for %s", g.Name, n, results[j].Type, results[j].Shape, v)
			}
		}
	}
	for _, v := range g.Outputs {
		if !defined[v.ID] {
			return fmt.Errorf("graph %s: the output %s is never computed", g.Name, v.Name)
		}
	}
	return nil
}

// Prune removes nodes whose results nothing reads, and values that no node
// touches, and renumbers. Updates of states are kept: a later step reads them.
func (g *Graph) Prune() {
	needed := make([]bool, len(g.Values))
	for _, v := range g.Outputs {
		needed[v.ID] = true
	}
	keep := make([]bool, len(g.Nodes))
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		keep[i] = n.Op.Kind == Update
		for _, v := range n.Out {
			keep[i] = keep[i] || needed[v.ID]
		}
		if keep[i] {
			for _, v := range n.In {
				if v != nil {
					needed[v.ID] = true
				}
			}
			for _, v := range n.Out {
				needed[v.ID] = true
			}
		}
	}
	var nodes []*Node
	for i, n := range g.Nodes {
		if keep[i] {
			n.ID = len(nodes)
			nodes = append(nodes, n)
		}
	}
	g.Nodes = nodes
	old := g.Values
	g.Values, g.Weights = nil, nil
	inputs, states := g.Inputs, g.States
	g.Inputs, g.States = nil, nil
	for _, v := range old {
		if needed[v.ID] || v.Kind == Input || v.Kind == State {
			g.AddValue(v)
		}
	}
	g.Inputs, g.States = inputs, states
}
