package optest

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// runGraph runs a graph launch by launch, each value in a buffer of its own,
// views in the memory that they look at. data holds what is not computed.
func runGraph(dev backends.Device, g *graph.Graph, data map[*graph.Value][]byte) ([]tensor.Tensor, error) {
	r, err := newRig(dev)
	if err != nil {
		return nil, err
	}
	defer r.close()
	at := map[*graph.Value]*placed{}
	kernels := make([]backends.Kernel, len(g.Nodes))
	for i, n := range g.Nodes {
		if n.Op.Kind == graph.View && viewable(n) {
			continue
		}
		if kernels[i], err = dev.Kernel(n); err != nil {
			return nil, err
		}
	}
	if err := placeGiven(r, g, kernels, data, at); err != nil {
		return nil, err
	}
	for i, n := range g.Nodes {
		if kernels[i] == nil {
			if err := alias(n, at); err != nil {
				return nil, err
			}
			continue
		}
		l := &backends.Launch{Node: n, Kernel: kernels[i]}
		for _, v := range n.In {
			l.In = append(l.In, operandOf(at[v]))
		}
		for j, v := range n.Out {
			if j == 0 && n.Op.Kind == graph.Update {
				at[v] = at[n.In[0]]
			} else if at[v], err = r.place(v.Type, v.Shape, 0, nil, backends.Arena); err != nil {
				return nil, err
			}
			l.Out = append(l.Out, operandOf(at[v]))
		}
		if size := kernels[i].Traits().Scratch; size > 0 {
			s, err := r.place(tensor.U8, tensor.Shape{size}, 0, nil, backends.Arena)
			if err != nil {
				return nil, err
			}
			l.Scratch = s.Operand
		}
		if err := r.stream.Launch(l); err != nil {
			return nil, err
		}
		for _, v := range n.Out {
			if err := r.unchanged(at[v], true); err != nil {
				return nil, fmt.Errorf("%v: %w", n, err)
			}
		}
	}
	results := make([]tensor.Tensor, len(g.Outputs))
	for i, v := range g.Outputs {
		bytes, err := r.dense(at[v])
		if err != nil {
			return nil, err
		}
		if results[i], err = Decode(v.Type, v.Shape, bytes); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// placeGiven puts inputs, weights and states in memory, weights packed as
// their readers want them.
func placeGiven(r *rig, g *graph.Graph, kernels []backends.Kernel, data map[*graph.Value][]byte,
	at map[*graph.Value]*placed) error {
	packing := map[*graph.Value]*backends.Packing{}
	for i, n := range g.Nodes {
		for j, v := range n.In {
			if v == nil || v.Kind != graph.Weight || kernels[i] == nil {
				continue
			}
			if k := kernels[i].Packing(j); k != nil {
				packing[v] = k
			}
		}
	}
	for _, v := range g.Values {
		if v.Kind == graph.Computed {
			continue
		}
		var err error
		if k := packing[v]; k != nil {
			at[v], err = r.pack(k, v.Type, v.Shape, data[v])
		} else {
			at[v], err = r.place(v.Type, v.Shape, 0, data[v], use(v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// viewable says whether a row stride can express a view of any operand.
func viewable(n *graph.Node) bool {
	x := n.In[0].Shape
	if n.Op == ops.Split {
		return len(x) == 2
	}
	return len(x) > 0 && len(n.Out[0].Shape) > 0 && x[0] == n.Out[0].Shape[0]
}

func alias(n *graph.Node, at map[*graph.Value]*placed) error {
	x := at[n.In[0]]
	offset := x.Offset
	for _, v := range n.Out {
		y := *x
		y.Shape, y.Offset = v.Shape, offset
		at[v] = &y
		offset += v.Type.RowBytes(y.RowElems())
	}
	return nil
}

// refGraph computes a graph's outputs in float64 throughout.
func refGraph(g *graph.Graph, data map[*graph.Value][]byte) ([]tensor.Tensor, error) {
	vals := map[*graph.Value]tensor.Tensor{}
	for v, bytes := range data {
		t, err := Decode(v.Type, v.Shape, bytes)
		if err != nil {
			return nil, err
		}
		vals[v] = t
	}
	for _, n := range g.Nodes {
		in, out := make([]tensor.Tensor, len(n.In)), make([]tensor.Tensor, len(n.Out))
		for i, v := range n.In {
			if v != nil {
				in[i] = vals[v]
			}
		}
		for i, v := range n.Out {
			switch {
			case i == 0 && n.Op.Kind == graph.Update:
				out[i] = in[0]
			case v.Type == tensor.I32:
				out[i] = tensor.New(tensor.I32, v.Shape...)
			default:
				out[i] = tensor.New(tensor.F64, v.Shape...)
			}
			vals[v] = out[i]
		}
		if err := n.Reference(ops.Table, in, out); err != nil {
			return nil, fmt.Errorf("%v: %w", n, err)
		}
	}
	results := make([]tensor.Tensor, len(g.Outputs))
	for i, v := range g.Outputs {
		results[i] = vals[v]
	}
	return results, nil
}
