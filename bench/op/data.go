package op

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
	"github.com/greta-project/greta/weights/synthetic"
)

// data makes the operands of a case, dense, the same on every machine; nil for
// one that is left out. Activations are normal numbers, norm weights lie around
// one, matrices keep the size of what they multiply: nothing is zero.
func (c *Case) data() ([][]byte, error) {
	seed := fnv.New64a()
	seed.Write([]byte(c.Name()))
	rng := rand.New(rand.NewPCG(seed.Sum64(), 1))
	all := make([][]byte, len(c.Node.In))
	for i, v := range c.Node.In {
		if v == nil {
			continue
		}
		var err error
		switch {
		case v.Type == tensor.I32:
			all[i] = c.integers(v, rng)
		case v.Kind == graph.Weight && v.Name != "factors":
			kind := synthetic.Matrix
			switch {
			case v.Name == "b":
				kind = synthetic.Bias
			case len(v.Shape) == 1:
				kind = synthetic.Norm
			}
			if kind == synthetic.Bias && v.Type.IsBlock() {
				return nil, fmt.Errorf("%s: a bias of %s", c.Name(), v.Type)
			}
			all[i] = make([]byte, v.Bytes())
			err = synthetic.FillKind(all[i], v.Type, v.Shape, v.Name, seed.Sum64(), kind)
		case c.Node.Op == ops.Log || c.Node.Op == ops.Sqrt || c.Node.Op == ops.Pow ||
			c.Node.Op == ops.Sinkhorn: // of positive numbers
			positive := *v
			positive.Name = "factors"
			all[i], err = optest.Random(&positive, rng)
		case v.Name == "shares": // top-p and min-p as they are usual
			all[i] = tensor.New(v.Type, v.Shape...).Data
			err = quant.Encode(v.Type, all[i], slices.Repeat([]float32{0, 0.95, 0.05}, v.Shape[0]), 3)
		default:
			all[i], err = optest.Random(v, rng)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: operand %s: %w", c.Name(), v, err)
		}
		if ops.SlotElems(c.Node) > 0 && v.Type == tensor.F32 {
			tame(c.Node, v, tensor.View[float32](all[i]))
		}
	}
	return all, nil
}

// tame makes of normal numbers, an operand of a recurrence, such as models have: decays of at most one, and what is
// added and taken off of such size that states do not grow however many tokens there are.
func tame(n *graph.Node, v *graph.Value, vals []float32) {
	f := func(x float64) float64 { return x }
	length := math.Sqrt(float64(v.Shape.Last()))
	switch n.Op.Name + " " + v.Name {
	case "scan a":
		f = func(x float64) float64 { return math.Exp(-math.Abs(x)) }
	case "ssm dt":
		f = math.Abs
	case "ssm a", "delta decays", "dplr decays":
		f = func(x float64) float64 { return -math.Abs(x) / 8 }
	case "delta keys", "dplr a", "dplr b":
		f = func(x float64) float64 { return x / length }
	case "delta beta":
		f = func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	}
	for i, x := range vals {
		vals[i] = float32(f(float64(x)))
	}
}

// integers makes positions, and indices into what they choose from: different
// ones for each repetition, so that other rows are read.
func (c *Case) integers(v *graph.Value, rng *rand.Rand) []byte {
	vals := make([]int32, v.Shape.Elems())
	switch v.Name {
	case "keys", "allowed": // bits
		for i := range vals {
			if vals[i] = -1; v.Name == "keys" {
				vals[i] = int32(rng.Uint32())
			}
		}
	case "most": // no limit
	case "tokens": // no two of a row are the same
		for i := range vals {
			vals[i] = int32(i % v.Shape.Last())
		}
	case "pos":
		for i := range vals {
			vals[i] = int32(c.First + i)
		}
	case "e": // the experts of a token are different ones
		count, each := c.Node.In[1].Shape[0], v.Shape.Last()
		for i := 0; i < len(vals); i += each {
			for j, e := range rng.Perm(count) {
				if j < each {
					vals[i+j] = int32(e)
				}
			}
			for j := count; j < each; j++ {
				vals[i+j] = int32(rng.IntN(count))
			}
		}
	case "slot": // each row's place in the pages, no two the same; rows of a recurrence are of one sequence
		if ops.SlotElems(c.Node) > 0 {
			break
		}
		copy(vals, firstOf(rng, c.Node.In[0].Shape[:2].Elems(), len(vals)))
	case "seq":
		for i := range vals {
			vals[i] = int32(i % operand(c.Node, "table").Shape[0])
		}
	case "table": // no two sequences share a page, where there are enough
		for i, page := range firstOf(rng, c.Node.In[1].Shape[0], len(vals)) {
			vals[i] = page
		}
	case "span": // one text
		for i := range vals {
			vals[i] = int32(i % 2 * (len(vals) / 2))
		}
	case "at":
		if len(v.Shape) == 2 { // ranges of rows
			rows := c.Node.In[0].Shape[0]
			for i := 0; i < len(vals); i += 2 {
				vals[i] = int32(rng.IntN(rows))
				vals[i+1] = vals[i] + 1 + int32(rng.IntN(rows-int(vals[i])))
			}
			break
		}
		fallthrough
	default: // ids choose rows of w, at chooses rows of x
		from := c.Node.In[0]
		if w := operand(c.Node, "w"); w != nil {
			from = w
		}
		for i := range vals {
			vals[i] = int32(rng.IntN(from.Shape[0]))
		}
	}
	return tensor.Bytes(vals)
}

// firstOf gives k of the numbers below n in random order, all of them again and again where k is more.
func firstOf(rng *rand.Rand, n, k int) []int32 {
	vals := make([]int32, k)
	for i := 0; i < k; i += n {
		for j, v := range rng.Perm(n) {
			if i+j < k {
				vals[i+j] = int32(v)
			}
		}
	}
	return vals
}

// again makes integer operand i anew for another repetition: positions stay.
func (c *Case) again(i int, data []byte, rng *rand.Rand) []byte {
	if v := c.Node.In[i]; v.Name != "pos" {
		return c.integers(v, rng)
	}
	return data
}
