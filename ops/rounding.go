package ops

import (
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Rounding is how a device rounds activations on its way to products and attention: by the weights that they meet.
type Rounding struct {
	Quant bool // with block formats to eight bits, in blocks of 32 with a scale each
	BF16  bool // with bf16 to bf16
	F16   bool // with what is narrower than f32 to f16
	// F8 are the types with which activations of several rows become 8-bit floats.
	F8 []tensor.Type
}

// What rounding costs, as a relative L2 error of a result.
//
// The largest of 32 normal numbers is near 2.2, so that the step of rounding to eight bits is 2.2/127 and its error
// 2.2/127/√12 = 0.005 of a number; sums of independent products keep that ratio. One in a thousand is 3.3 times as far
// off. A number of bf16 is off by 2^-8 at most and 0.0016 at the mean; of results of 19 numbers one in a thousand is
// twice as far off. One of f16 is off by 2^-11 at most, to which that of a rounded weight and of sums in halves may
// come. One of e4m3 has four bits: half a step of the last is 2^-4 of it at most and 2^-4/√3 at the mean, of
// numbers whose own mean square is 2.3 that of the least: 0.024.
const QuantTolerance, BF16Tolerance, F16Tolerance, F8Tolerance = 1e-2, 4e-3, 2e-3, 5e-2

// Tolerance gives the relative L2 error that a kernel of a node may have because the device rounds activations, 0 if it
// does not.
func (r *Rounding) Tolerance(n *graph.Node) float64 {
	switch {
	case IsProduct(n.Op):
		switch w := n.In[1].Type; {
		case w.IsBlock() && r.Quant:
			return QuantTolerance
		case slices.Contains(r.F8, w) && n.Op != LinearID && n.In[0].Shape.Rows() > 1:
			return F8Tolerance
		case w == tensor.BF16 && r.BF16:
			return BF16Tolerance
		case w != tensor.F32 && w != tensor.F64 && r.F16:
			return F16Tolerance
		}
	case n.Op == Attention: // rounds queries and weights where the caches are narrow
		if n.In[1].Type == tensor.F16 && r.F16 {
			return F16Tolerance
		}
	}
	return 0
}
