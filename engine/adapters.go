package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/lora"
	"github.com/greta-project/greta/weights/quant"
)

// Adapters of which each row of a batch may have another, or none: beside y = linear(x, w) a step computes
// linear_id(linear_id(x, A), B) and adds it, where A [Q, R, K] and B [Q, N, R] hold all adapters'
// pairs for w and a row's number says which is its own. Number 0 is none: zeros. Ranks are filled
// up with zeros to that of the largest.

// Adapter is a LoRA under the name by which requests ask for it.
type Adapter struct {
	Name string
	*lora.Adapter
}

// adapterInput is the number of each row's adapter.
const adapterInput = "batch.adapter"

// rankUnit is what ranks are filled up to a multiple of.
const rankUnit = 16

// adapterSet is all adapters of an engine.
type adapterSet struct {
	list    []Adapter
	numbers map[string]int32 // by name, from 1
	hashes  []string         // by number: of the content
	all     string           // of all contents
	rank    int
	targets map[string]tensor.Shape // the base's tensors that one of them changes
}

// newAdapterSet checks that adapters fit a source and have names of their own.
func newAdapterSet(list []Adapter, src weights.Source) (*adapterSet, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if src == nil {
		return nil, fmt.Errorf("adapter %s: synthetic weights are no base of an adapter", list[0].Name)
	}
	s := &adapterSet{list: list, numbers: map[string]int32{}, hashes: []string{""}, targets: map[string]tensor.Shape{}}
	for i, a := range list {
		if a.Name == "" || s.numbers[a.Name] != 0 {
			return nil, fmt.Errorf("adapter %d is named %q: each must have a name of its own", i, a.Name)
		}
		if err := a.Fits(src); err != nil {
			return nil, err
		}
		s.numbers[a.Name] = int32(i + 1)
		s.rank = max(s.rank, a.Rank())
		h := sha256.New()
		for _, p := range a.Pairs {
			s.targets[p.Name] = tensor.Shape{p.Out, p.In}
			fmt.Fprint(h, p.Name, p.Rank, p.Scale)
			_ = binary.Write(h, binary.LittleEndian, p.A) // a hash takes everything
			_ = binary.Write(h, binary.LittleEndian, p.B)
		}
		s.hashes = append(s.hashes, hex.EncodeToString(h.Sum(nil)))
	}
	s.rank = (s.rank + rankUnit - 1) / rankUnit * rankUnit
	all := sha256.Sum256([]byte(strings.Join(s.hashes, " ")))
	s.all = hex.EncodeToString(all[:8])
	return s, nil
}

// find gives an adapter's number, 0 for "".
func (s *adapterSet) find(name string) (int32, error) {
	if name == "" {
		return 0, nil
	}
	if s == nil {
		return 0, fmt.Errorf("the adapter %q is not loaded: there are none", name)
	}
	n, ok := s.numbers[name]
	if !ok {
		return 0, fmt.Errorf("the adapter %q is not loaded, there are %s", name,
			strings.Join(slices.Sorted(maps.Keys(s.numbers)), ", "))
	}
	return n, nil
}

// adaptedSource has the stacked matrices of adapters beside the base's tensors, under names that say of which
// adapters they are.
type adaptedSource struct {
	weights.Source
	set *adapterSet
}

// stackName names the A or B of all adapters for a tensor.
func (s *adapterSet) stackName(which, name string) string {
	return "lora " + s.all + " " + which + " " + name
}

// Data gives a tensor's bytes; stacks are f16.
func (a adaptedSource) Data(name string) ([]byte, error) {
	rest, ok := strings.CutPrefix(name, "lora "+a.set.all+" ")
	if !ok {
		return a.Source.Data(name)
	}
	which, target, _ := strings.Cut(rest, " ")
	s, shape := a.set, a.set.targets[target]
	rows, cols := s.rank, shape[1]
	if which == "B" {
		rows, cols = shape[0], s.rank
	}
	x := make([]float32, (len(s.list)+1)*rows*cols)
	for i, ad := range s.list {
		p := ad.Find(target)
		if p == nil {
			continue
		}
		to := x[(i+1)*rows*cols:]
		if which == "A" {
			copy(to, p.A)
			continue
		}
		for o := range p.Out {
			for r := range p.Rank {
				to[o*cols+r] = p.B[o*p.Rank+r] * p.Scale
			}
		}
	}
	out := make([]byte, 2*len(x))
	if err := quant.EncodeParallel(tensor.F16, out, x, cols, 0); err != nil {
		return nil, fmt.Errorf("adapters of %s in f16: %w", target, err)
	}
	return out, nil
}

// adapt adds the adapters to the products of a batch's graph, before it is lowered.
func (e *Engine) adapt(g *graph.Graph) error {
	s := e.adapters
	tokens := g.Input("tokens").Shape[0]
	which := g.AddValue(&graph.Value{Name: adapterInput, Kind: graph.Input, Type: tensor.I32,
		Shape: tensor.Shape{tokens, 1}})
	found := map[string]bool{}
	var nodes []*graph.Node
	for _, n := range slices.Clone(g.Nodes) {
		nodes = append(nodes, n)
		if n.Op != ops.Linear || n.Block < 0 || n.In[1].Load == nil || len(n.In[1].Load.Tensors) != 1 {
			continue
		}
		target := n.In[1].Load.Tensors[0]
		if s.targets[target] == nil || n.In[1].Load.Transpose {
			continue
		}
		found[target] = true
		var err error
		if nodes, err = s.beside(g, nodes, n, target, which); err != nil {
			return err
		}
	}
	for target := range s.targets {
		if !found[target] {
			return fmt.Errorf("an adapter changes %s, which %s does not multiply by in a block: "+
				"such an adapter can only be merged into the weights", target, e.opt.Model.Name())
		}
	}
	g.Nodes = nodes
	g.Prune()
	return g.Verify()
}

// beside appends to nodes what is computed beside product n, and lets its readers read the sum.
func (s *adapterSet) beside(g *graph.Graph, nodes []*graph.Node, n *graph.Node, target string,
	which *graph.Value) ([]*graph.Node, error) {
	x, y := n.In[0], n.Out[0]
	rows, in, out := x.Shape.Rows(), x.Shape.Last(), y.Shape.Last()
	weight := func(part string, shape ...int) *graph.Value {
		name := "lora_" + part + "." + n.In[1].Name
		for _, v := range g.Weights {
			if v.Name == name {
				return v
			}
		}
		return g.AddValue(&graph.Value{Name: name, Kind: graph.Weight, Type: tensor.F16, Shape: shape,
			Load: &graph.Load{Tensors: []string{s.stackName(part, target)}, Type: tensor.F16}})
	}
	node := func(op *graph.Op, attr any, ends string, operands ...*graph.Value) (*graph.Value, error) {
		k := &graph.Node{Op: op, In: operands, Attr: attr, Float: n.Float, Name: n.Name + ".lora" + ends, Block: n.Block,
			Place: n.Place}
		results, err := op.Infer(k)
		if err != nil {
			return nil, fmt.Errorf("the adapters of %s: %w", target, err)
		}
		v := g.AddValue(&graph.Value{Name: k.Name, Type: results[0].Type, Shape: results[0].Shape, Def: k})
		k.Out = []*graph.Value{v}
		nodes = append(nodes, k)
		return v, nil
	}
	q := len(s.list) + 1
	row, err := node(ops.View, &ops.ViewAttr{Shape: []int{rows, 1, in}}, ".x", x)
	if err != nil {
		return nil, err
	}
	down, err := node(ops.LinearID, nil, ".a", row, weight("A", q, s.rank, in), which, nil)
	if err != nil {
		return nil, err
	}
	up, err := node(ops.LinearID, nil, ".b", down, weight("B", q, out, s.rank), which, nil)
	if err != nil {
		return nil, err
	}
	flat, err := node(ops.View, &ops.ViewAttr{Shape: y.Shape}, ".y", up)
	if err != nil {
		return nil, err
	}
	sum, err := node(ops.Add, nil, "", y, flat)
	if err != nil {
		return nil, err
	}
	redirect(g, y, sum)
	return nodes, nil
}
