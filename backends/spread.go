package backends

import (
	"fmt"

	"github.com/greta-project/greta/tensor"
)

// Spread is how four nested loops go through the elements of a dense tensor and, at the same time, of others that are
// spread over it: how many elements each loop has, from the outermost, and how far it takes a tensor on, in elements,
// 0 where the tensor has one element for all.
type Spread struct {
	Sizes [4]int
}

// SpreadOver gives the loops through a shape of at most four dimensions.
func SpreadOver(s tensor.Shape) (Spread, error) {
	if len(s) > 4 {
		return Spread{}, fmt.Errorf("%v has more than four dimensions", s)
	}
	x := Spread{[4]int{1, 1, 1, 1}}
	copy(x.Sizes[4-len(s):], s)
	return x, nil
}

// Elems is the number of elements.
func (x Spread) Elems() int { return x.Sizes[0] * x.Sizes[1] * x.Sizes[2] * x.Sizes[3] }

// Steps is how far each loop takes an operand on whose shape is spread as ops.Broadcast allows: dimensions count from
// the last, those of size 1 stay.
func (x Spread) Steps(o *Operand) [4]int {
	var steps [4]int
	_, size := o.Type.Block()
	step := 1
	for i := len(o.Shape) - 1; i >= 0; i-- {
		at := 4 - len(o.Shape) + i
		if i == 0 && len(o.Shape) > 1 {
			step = o.Stride / size
		}
		if o.Shape[i] > 1 {
			steps[at] = step
		}
		step *= o.Shape[i]
	}
	return steps
}
