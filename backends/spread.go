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

// Copy is a copy of some of a tensor into some of another: how far the loops of Over take each on, from its elements
// From and To.
type Copy struct {
	Over           Spread
	From, To       int
	XSteps, ZSteps [4]int
}

// ConcatCopy puts x into z from index at of z's dimension axis on.
func ConcatCopy(x, z *Operand, axis, at int) (Copy, error) {
	over, err := SpreadOver(x.Shape)
	return Copy{Over: over, To: at * z.Shape[axis+1:].Elems(), XSteps: over.Steps(x), ZSteps: over.Steps(z)}, err
}

// SliceCopy takes z out of x from index at of dimension axis on.
func SliceCopy(x, z *Operand, axis, at int) (Copy, error) {
	over, err := SpreadOver(z.Shape)
	return Copy{Over: over, From: at * x.Shape[axis+1:].Elems(), XSteps: over.Steps(x), ZSteps: over.Steps(z)}, err
}

// ExpandCopy repeats the heads of x [S, G, N] in z [S, H, N]: a head's copies beside it, or all heads again behind all.
func ExpandCopy(x, z *Operand, behind bool) Copy {
	_, xsize := x.Type.Block()
	_, zsize := z.Type.Block()
	heads, n, token, row := x.Shape[1], x.Shape[2], x.Stride/xsize, z.Stride/zsize
	copies := z.Shape[1] / heads
	if behind {
		return Copy{Over: Spread{[4]int{x.Shape[0], copies, heads, n}}, XSteps: [4]int{token, 0, n, 1},
			ZSteps: [4]int{row, heads * n, n, 1}}
	}
	return Copy{Over: Spread{[4]int{x.Shape[0], heads, copies, n}}, XSteps: [4]int{token, n, 0, 1},
		ZSteps: [4]int{row, copies * n, n, 1}}
}

// Axis is a dimension of a shape by its number, which may count from the last.
func Axis(at int, s tensor.Shape) int {
	if at < 0 {
		return at + len(s)
	}
	return at
}
