// Package ops is what each operator means: its signature, attributes, float64
// reference and cost. One file an operator; this one lists them. How an operator
// runs is a backend's business.
package ops

import (
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/sorting"
)

// basic are the operators that model files are written in.
var basic = []*graph.Op{
	Abs, Add, Adjust, Affine, Attention, Clamp, Concat, Cumsum, Delta, Div, DPLR, Draw, Embed, Exp, Expand, Filter, Floor,
	Gather, GELU, Greater,
	Largest, LayerNorm, Linear, LinearID, Log, Logprob, Max, Mean, Min, Mix, Mul, PagedAttention, PagedPush, PerHead, Pool,
	Pow, Push,
	Real, Reciprocal, ReLU,
	ReLU2, RMSNorm, RoPE, Rows, Scale, Scan, Shift, ShortConv, Sigmoid, SiLU, Sinkhorn, Slice, Softcap, Softmax,
	Softplus, Split, Sqrt, SSM, Sub, Sum, Tanh, TopK, View, WKV, XIELU,
}

// fused are defined by their bodies. Their order is one in which they can be
// tried: an operator that takes in more comes before one that takes in less.
var fused = []*graph.Op{RoPEPush, LinearResidual, LinearBias, LinearScaledResidual, LinearScaledBias, LinearScaled,
	AddRMSNorm, SwiGLU, GeGLU}

// Table finds every operator by its name.
var Table graph.Table = newTable(basic, fused)

// All lists every operator, sorted by name.
func All() []*graph.Op {
	all := append(slices.Clone(basic), fused...)
	sorting.Sort(all, func(a, b *graph.Op) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Fused lists the operators that have a body, in an order in which a device
// can try them.
func Fused() []*graph.Op { return slices.Clone(fused) }

type table struct {
	ops   map[string]*graph.Op
	names []string
}

func newTable(lists ...[]*graph.Op) *table {
	t := &table{ops: map[string]*graph.Op{}}
	for _, list := range lists {
		for _, op := range list {
			t.ops[op.Name] = op
			t.names = append(t.names, op.Name)
		}
	}
	slices.Sort(t.names)
	return t
}

func (t *table) Lookup(name string) *graph.Op { return t.ops[name] }

func (t *table) Names() []string { return slices.Clone(t.names) }
