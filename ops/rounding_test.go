package ops_test

import (
	"testing"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// TestRounding: which products may be further off, by what a device rounds and their weights.
func TestRounding(t *testing.T) {
	node := func(op *graph.Op, w tensor.Type) *graph.Node {
		return &graph.Node{Op: op, In: []*graph.Value{{Type: tensor.F32, Shape: tensor.Shape{9, 64}}, {Type: w}}}
	}
	one := func(n *graph.Node) *graph.Node {
		n.In[0].Shape = tensor.Shape{1, 64}
		return n
	}
	exact, all := ops.Rounding{}, ops.Rounding{Quant: true, BF16: true, F16: true}
	f8 := ops.Rounding{F16: true, F8: []tensor.Type{tensor.F8E4M3}}
	for _, c := range []struct {
		rounding ops.Rounding
		node     *graph.Node
		want     float64
	}{
		{exact, node(ops.Linear, tensor.Q4_0), 0},
		{exact, node(ops.Linear, tensor.BF16), 0},
		{all, node(ops.Linear, tensor.F32), 0},
		{all, node(ops.Linear, tensor.F64), 0},
		{all, node(ops.LinearScaledResidual, tensor.Q4_0), 1e-2},
		{all, node(ops.LinearID, tensor.Q6_K), 1e-2},
		{all, node(ops.LinearBias, tensor.BF16), 4e-3},
		{all, node(ops.LinearResidual, tensor.F16), 2e-3},
		{ops.Rounding{F16: true}, node(ops.Linear, tensor.Q4_0), 2e-3},
		{ops.Rounding{Quant: true}, node(ops.Linear, tensor.F16), 0},
		{all, node(ops.Linear, tensor.F8E4M3), 2e-3},
		{f8, node(ops.Linear, tensor.F8E4M3), 5e-2},
		{f8, node(ops.Linear, tensor.F8E5M2), 2e-3},
		{f8, one(node(ops.Linear, tensor.F8E4M3)), 2e-3},
		{f8, node(ops.LinearID, tensor.F8E4M3), 2e-3},
		{all, node(ops.Attention, tensor.F16), 2e-3},
		{all, node(ops.Attention, tensor.BF16), 0},
		{all, node(ops.Embed, tensor.Q4_0), 0},
	} {
		if got := c.rounding.Tolerance(c.node); got != c.want {
			t.Errorf("%s of %s, %+v: %g, want %g", c.node.Op.Name, c.node.In[1].Type, c.rounding, got, c.want)
		}
	}
}
