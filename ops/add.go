package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Operators of two tensors, element by element: x [..., N], and y of the same shape, of as many dimensions
// where some are 1 in one of both, which then serve all of the other's, or [N] or [1], added to every row.
var (
	// Add sums.
	Add = binary("add", "z = x + y", func(a, b float64) float64 { return a + b })
	// Mul multiplies.
	Mul = binary("mul", "z = x · y", func(a, b float64) float64 { return a * b })
	// Sub takes y off.
	Sub = binary("sub", "z = x - y", func(a, b float64) float64 { return a - b })
	// Div divides.
	Div = binary("div", "z = x / y", func(a, b float64) float64 { return a / b })
	// Min is the smaller of both.
	Min = binary("min", "z = min(x, y)", math.Min)
	// Max is the larger of both.
	Max = binary("max", "z = max(x, y)", math.Max)
	// Greater is 1 where x is the larger, else 0: a mask to multiply by.
	Greater = binary("greater", "z = 1 where x > y, else 0", func(a, b float64) float64 {
		if a > b {
			return 1
		}
		return 0
	})
)

// binaryFuncs are the functions of the operators above, by name.
var binaryFuncs = map[string]func(a, b float64) float64{}

// BinaryFunc gives the function of an operator of two tensors, nil where it is none.
func BinaryFunc(op *graph.Op) func(a, b float64) float64 { return binaryFuncs[op.Name] }

func binary(name, doc string, f func(a, b float64) float64) *graph.Op {
	binaryFuncs[name] = f
	return &graph.Op{
		Name:    name,
		Doc:     doc + "; sizes that are 1 in one serve all of the other's, y [N] every row",
		Sig:     graph.MustSig("(x: T[*A, N], y: U[*B, N?]) -> (z: float[*A, N])"),
		RowWise: true,
		Results: func(n *graph.Node) ([]graph.Result, error) {
			shape, ok := Broadcast(n.In[0].Shape, n.In[1].Shape)
			if !ok {
				return nil, fmt.Errorf("%s must have the shape of %s, only its last dimension, or as many dimensions of "+
					"which some are 1", n.In[1], n.In[0])
			}
			return []graph.Result{{Type: floatOf(n), Shape: shape}}, nil
		},
		Check: func(n *graph.Node) error { return plainFloat("y", n.In[1]) },
		Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
			x, y, z := in[0].F64(), in[1].F64(), out[0].F64()
			ix, iy := NewIndexer(in[0].Shape, out[0].Shape), NewIndexer(in[1].Shape, out[0].Shape)
			for i := range z {
				z[i] = f(x[ix.At(i)], y[iy.At(i)])
			}
			return nil
		},
		Cost: perElement(1),
	}
}

// Broadcast gives the shape of what comes of two tensors, and whether they fit.
func Broadcast(x, y tensor.Shape) (tensor.Shape, bool) {
	if len(y) == 1 && len(x) > 1 && (y[0] == 1 || y[0] == x.Last()) {
		return x, true
	}
	if len(x) != len(y) {
		return nil, false
	}
	z := make(tensor.Shape, len(x))
	for i := range x {
		switch {
		case x[i] == y[i] || y[i] == 1:
			z[i] = x[i]
		case x[i] == 1:
			z[i] = y[i]
		default:
			return nil, false
		}
	}
	return z, true
}

// PlainBinary says whether a node of two tensors is one of equal shapes, or of rows and one row.
func PlainBinary(n *graph.Node) bool {
	x, y, z := n.In[0].Shape, n.In[1].Shape, n.Out[0].Shape
	return x.Equal(z) && (y.Equal(x) || len(y) == 1 && y[0] == x.Last())
}

// Indexer finds elements of a tensor that is spread to a larger shape.
type Indexer struct{ sizes, strides []int }

// NewIndexer spreads a tensor of shape from to shape to, as Broadcast allows.
func NewIndexer(from, to tensor.Shape) Indexer {
	x := Indexer{sizes: to, strides: make([]int, len(to))}
	stride := 1
	for i := len(from) - 1; i >= 0; i-- {
		at := len(to) - len(from) + i
		if from[i] > 1 {
			x.strides[at] = stride
		}
		stride *= from[i]
	}
	return x
}

// At gives the place in the tensor of element i of the larger shape.
func (x Indexer) At(i int) int {
	at := 0
	for d := len(x.sizes) - 1; d >= 0; d-- {
		at += i % x.sizes[d] * x.strides[d]
		i /= x.sizes[d]
	}
	return at
}
