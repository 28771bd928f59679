package ops

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Pool makes one row of several: x [S, D], at i32[R, 2] gives y [R, D], where y[r] is the mean of the rows
// [at[r,0], at[r,1]) of x. A range of one row picks it; a range is never empty.
//
//	y[r] = Σs x[s] / (at[r,1] - at[r,0])
var Pool = &graph.Op{
	Name: "pool",
	Doc:  "y[r] = mean of x[s], at[r,0] ≤ s < at[r,1]",
	Sig:  graph.MustSig("(x: T[S, D], at: i32[R, B]) -> (y: float[R, D])"),
	Check: func(n *graph.Node) error {
		if at := n.In[1]; at.Shape[1] != 2 {
			return fmt.Errorf("%s must hold two rows for each result, the first and that behind the last", at)
		}
		return nil
	},
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, y, at := in[0].F64(), out[0].F64(), in[1].I32()
		s, d := in[0].Shape[0], in[0].Shape[1]
		for r := range len(at) / 2 {
			if err := CheckRange(r, at[2*r], at[2*r+1], s); err != nil {
				return err
			}
			row := y[r*d : (r+1)*d]
			clear(row)
			for i := at[2*r]; i < at[2*r+1]; i++ {
				for c := range row {
					row[c] += x[int(i)*d+c]
				}
			}
			for c := range row {
				row[c] /= float64(at[2*r+1] - at[2*r])
			}
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost { return whole(n, elems(n.In[0])) },
}

// CheckRange says by an error that [from, to) is no range of rows, or empty.
func CheckRange(r int, from, to int32, rows int) error {
	if from < 0 || from >= to || int(to) > rows {
		return fmt.Errorf("at[%d] is [%d, %d): it must hold a row and lie in the %d rows of x", r, from, to, rows)
	}
	return nil
}
