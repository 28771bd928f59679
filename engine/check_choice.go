package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Experts are chosen by logits, and two logits that are closer than what rounding does to
// them change places: everything behind is then of other experts, and as far from the
// reference as can be, though nothing is wrong.

// follow makes the reference of a topk, which has been launched on both sides, take the device's
// choice where that is what the operator chooses of the device's logits x [rows, E]; the
// reference's weights p are then those of its own logits y [rows, E] of these experts. Any other
// choice stays what it is, to be found.
func follow(a, b *Session, la, lb *backends.Launch, x, y []float64) error {
	e, err := readOperand(a.stream, &la.Out[1])
	if err != nil {
		return err
	}
	attr, count := graph.Attr[ops.TopKAttr](la.Node), la.In[0].Shape.Last()
	if lb.Out[0].Type != tensor.F64 {
		return fmt.Errorf("%v: the reference's weights are %s: this is a mistake of the engine", la.Node, lb.Out[0].Type)
	}
	choice, p := make([]int32, len(e)), make([]float64, len(e))
	order := make([]int32, count)
	for r := range len(x) / count {
		row := x[r*count : (r+1)*count]
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(i, j int32) int { return cmp.Compare(row[j], row[i]) })
		for i := range attr.K {
			at := r*attr.K + i
			if e[at] != float64(order[i]) {
				return nil
			}
			choice[at], p[at] = order[i], y[r*count+int(order[i])]
		}
		switch chosen := p[r*attr.K : (r+1)*attr.K]; attr.Softmax {
		case "before":
			softmaxOf(chosen, y[r*count:(r+1)*count])
		case "after":
			softmaxOf(chosen, slices.Clone(chosen))
		}
	}
	if err := writeOperand(b.stream, &lb.Out[0], p); err != nil {
		return err
	}
	return writeOperand(b.stream, &lb.Out[1], choice)
}

// softmaxOf turns logits, which are some of all, into their shares.
func softmaxOf(logits, all []float64) {
	most, sum := slices.Max(all), 0.0
	for _, v := range all {
		sum += math.Exp(v - most)
	}
	for i, v := range logits {
		logits[i] = math.Exp(v-most) / sum
	}
}

// writeOperand brings elements of the operand's type to a tensor.
func writeOperand[E any](s backends.Stream, o *backends.Operand, v []E) error {
	row := o.RowElems()
	for r := range o.Rows() {
		if err := s.Write(o.Buffer, o.Offset+r*o.Stride, tensor.Bytes(v[r*row:(r+1)*row])); err != nil {
			return err
		}
	}
	return nil
}
