package graph

import (
	"fmt"

	"github.com/greta-project/greta/tensor"
)

// OpKind says what an operator does to memory.
type OpKind uint8

const (
	// Compute gives new tensors.
	Compute OpKind = iota
	// View gives other shapes, or ranges of the last dimension, of operand 0's memory.
	View
	// Update writes into operand 0, a state, and gives its new version.
	Update
)

// Op is what an operator means: everything but how a device runs it. Package
// ops holds the values.
type Op struct {
	Name string
	Doc  string // one line: the formula
	Sig  Sig    // does shape inference by unifying names
	Kind OpKind
	// RowWise: row i of each result depends only on row i of the operands whose
	// first dimension is the step's tokens, so rows can be selected before it.
	RowWise bool
	// Attr makes a pointer to the attribute struct with its defaults; nil: no attributes.
	Attr func() any
	// Check says what the signature cannot; shapes are already inferred.
	Check func(n *Node) error
	// Results infers results where a signature cannot (view, split); nil: Sig does.
	Results func(n *Node) ([]Result, error)
	// Ref computes the results in float64, in the obvious way. Float operands
	// and results are F64 tensors, integers I32; an operand left out has no Data.
	// An Update's out[0] holds the state before the step and is changed in place.
	Ref func(n *Node, in, out []tensor.Tensor) error
	// Body defines a fused operator in simpler ones, as equations "name: expr"
	// divided by newlines over the signature's operands and the attributes: it is the
	// reference, the fallback and the pattern at once.
	Body string
	// Cost counts the operations and bytes of one execution; kv is the number
	// of cache positions that an attention may look at.
	Cost func(n *Node, kv int) Cost
}

// Result is the type and shape of one result.
type Result struct {
	Type  tensor.Type
	Shape tensor.Shape
}

// Cost is what an execution needs at least: the roofline's input.
type Cost struct {
	Flops float64 // multiplications and additions
	Read  float64 // bytes, each operand once
	Write float64 // bytes
}

// Plus adds two costs.
func (c Cost) Plus(d Cost) Cost {
	return Cost{c.Flops + d.Flops, c.Read + d.Read, c.Write + d.Write}
}

// Infer gives the types and shapes of a node's results, or says what does not
// agree: names of the dimension and of both operands, and both sizes.
func (op *Op) Infer(n *Node) ([]Result, error) {
	results, err := op.Sig.infer(n)
	if err == nil && op.Results != nil {
		results, err = op.Results(n)
	}
	if err == nil && op.Check != nil {
		err = op.Check(n)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op.Name, err)
	}
	return results, nil
}

// Bytes is the size of a value in memory, 0 for nil.
func (v *Value) Bytes() int {
	if v == nil {
		return 0
	}
	return v.Type.RowBytes(v.Shape.Elems())
}

// Table finds operators by name.
type Table interface {
	Lookup(name string) *Op
	Names() []string
}
