package tune

import (
	"encoding/json"
	"fmt"

	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// wireCase is a case on its way to a child process.
type wireCase struct {
	Op      string            `json:"op"`
	Float   string            `json:"float"`
	Attr    json.RawMessage   `json:"attr,omitempty"`
	In      []*wireValue      `json:"in"` // null: left out
	Out     []*wireValue      `json:"out"`
	Strides []int             `json:"strides"`
	First   int               `json:"first"`
	Params  map[string]string `json:"params"`
}

type wireValue struct {
	Name  string `json:"name"`
	Kind  int    `json:"kind"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
}

func toWire(c *op.Case) (*wireCase, error) {
	n := c.Node
	w := &wireCase{Op: n.Op.Name, Float: n.Float.String(), Strides: c.Strides, First: c.First, Params: c.Params}
	if n.Attr != nil {
		var err error
		if w.Attr, err = json.Marshal(n.Attr); err != nil {
			return nil, fmt.Errorf("%s: attributes: %w", n.Op.Name, err)
		}
	}
	value := func(v *graph.Value) *wireValue {
		if v == nil {
			return nil
		}
		return &wireValue{v.Name, int(v.Kind), v.Type.String(), v.Shape}
	}
	for _, v := range n.In {
		w.In = append(w.In, value(v))
	}
	for _, v := range n.Out {
		w.Out = append(w.Out, value(v))
	}
	return w, nil
}

func (w *wireCase) toCase() (*op.Case, error) {
	o := ops.Table.Lookup(w.Op)
	if o == nil {
		return nil, fmt.Errorf("no operator %q", w.Op)
	}
	float, ok := tensor.ParseType(w.Float)
	if !ok {
		return nil, fmt.Errorf("no type %q", w.Float)
	}
	g := &graph.Graph{Name: o.Name}
	n := &graph.Node{Op: o, Float: float, Name: o.Name, Block: -1}
	if o.Attr != nil {
		n.Attr = o.Attr()
		if err := json.Unmarshal(w.Attr, n.Attr); err != nil {
			return nil, fmt.Errorf("%s: attributes: %w", w.Op, err)
		}
	}
	value := func(v *wireValue) (*graph.Value, error) {
		if v == nil {
			return nil, nil
		}
		t, ok := tensor.ParseType(v.Type)
		if !ok {
			return nil, fmt.Errorf("no type %q", v.Type)
		}
		return g.AddValue(&graph.Value{Name: v.Name, Kind: graph.Kind(v.Kind), Type: t, Shape: v.Shape}), nil
	}
	for _, v := range w.In {
		x, err := value(v)
		if err != nil {
			return nil, err
		}
		n.In = append(n.In, x)
	}
	for i, v := range w.Out {
		x, err := value(v)
		if err != nil {
			return nil, err
		}
		x.Def, x.Index = n, i
		n.Out = append(n.Out, x)
	}
	g.Nodes = []*graph.Node{n}
	return &op.Case{Node: n, Strides: w.Strides, First: w.First, Params: w.Params}, nil
}
