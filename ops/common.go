package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// What several operators share: access to operands, checks, counting.

// floats gives operand i's elements, nil where it is left out.
func floats(in []tensor.Tensor, i int) []float64 {
	if i >= len(in) || in[i].Data == nil {
		return nil
	}
	return in[i].F64()
}

// elementwise is the reference of y = f(x).
func elementwise(f func(float64) float64) func(*graph.Node, []tensor.Tensor, []tensor.Tensor) error {
	return func(_ *graph.Node, in, out []tensor.Tensor) error {
		y := out[0].F64()
		for i, v := range in[0].F64() {
			y[i] = f(v)
		}
		return nil
	}
}

// inRange says by an error that an index lies outside [0, n).
func inRange(what string, i int, v int32, n int) error {
	if v < 0 || int(v) >= n {
		return fmt.Errorf("%s[%d] is %d, it must lie in [0, %d)", what, i, v, n)
	}
	return nil
}

func dot(a, b []float64) float64 {
	s := 0.0
	for i, v := range a {
		s += v * b[i]
	}
	return s
}

// softmax replaces x by exp(x - max x) / sum; an empty x stays as it is.
func softmax(x []float64) {
	if len(x) == 0 {
		return
	}
	top := x[0]
	for _, v := range x {
		top = math.Max(top, v)
	}
	sum := 0.0
	for i, v := range x {
		x[i] = math.Exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

// nonNegative and positive check a number that an attribute gives.
func nonNegative(name string, v float64) error {
	if !(v >= 0) || math.IsInf(v, 1) {
		return fmt.Errorf("%s=%g must be zero or positive", name, v)
	}
	return nil
}

func positive(name string, v float64) error {
	if !(v > 0) || math.IsInf(v, 1) {
		return fmt.Errorf("%s=%g must be positive", name, v)
	}
	return nil
}

// whole is the cost of a node that reads every operand and writes every
// result once. Of the functions, each exp, tanh, sqrt counts as one operation.
func whole(n *graph.Node, flops float64) graph.Cost {
	c := graph.Cost{Flops: flops}
	for _, v := range n.In {
		c.Read += float64(v.Bytes())
	}
	for _, v := range n.Out {
		c.Write += float64(v.Bytes())
	}
	return c
}

// perElement is the cost of k operations per element of the first result.
func perElement(k float64) func(*graph.Node, int) graph.Cost {
	return func(n *graph.Node, _ int) graph.Cost { return whole(n, k*elems(n.Out[0])) }
}

func elems(v *graph.Value) float64 { return float64(v.Shape.Elems()) }

// rowBytes is the size of one index of a value's first dimension.
func rowBytes(v *graph.Value) float64 {
	return float64(v.Type.RowBytes(v.Shape[1:].Elems()))
}

// operand gives operand i of a node, nil where it is left out.
func operand(n *graph.Node, i int) *graph.Value {
	if i >= len(n.In) {
		return nil
	}
	return n.In[i]
}
