package models

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Checkpoints in 8-bit floats, and in integers as weights/packed presents them, keep a
// factor beside a matrix, by which its numbers are to be multiplied: for "q_proj.weight"
// the tensor "q_proj.weight_scale" (compressed-tensors, FBGEMM, ModelOpt, vLLM), of one
// element or of one for each row, or "q_proj.weight_scale_inv" (DeepSeek), where it has
// that form too. It is not part of the weight but a factor of the product's columns, so
// the bytes stay as they are.

// scaleSuffixes follow a matrix's name.
var scaleSuffixes = []string{"_scale", "_scale_inv"}

// scaleOf finds the factor of a tensor of 8-bit floats with rows rows; nil: it has none.
func scaleOf(src Weights, tname string, t tensor.Type, rows int) (*graph.Load, error) {
	if !isF8(t) && !t.IsBlock() { // blocks: of those that weights/packed presents
		return nil, nil
	}
	for _, suffix := range scaleSuffixes {
		typ, shape, ok := src.Lookup(tname + suffix)
		if !ok {
			continue
		}
		n := shape.Elems()
		if len(shape) > 2 || len(shape) == 2 && shape[1] != 1 || n != 1 && n != rows {
			return nil, fmt.Errorf("tensor %s of %s has factors %v in %s: one for the whole matrix or one for each of its %d "+
				"rows can be applied, not one for each block; take the checkpoint in bf16 or f16", tname, src.Path(), shape,
				tname+suffix, rows)
		}
		if !typ.IsFloat() || isF8(typ) {
			return nil, fmt.Errorf("tensor %s of %s, factors of %s, holds %s: f32, f16 or bf16 is wanted", tname+suffix,
				src.Path(), tname, typ)
		}
		return &graph.Load{Tensors: []string{tname + suffix}, Type: typ, Spread: n == 1}, nil
	}
	if !isF8(t) {
		return nil, nil
	}
	// Factors under another name would be left out without a word.
	stem := strings.TrimSuffix(tname, "weight")
	for _, name := range src.Names() {
		if rest, ok := strings.CutPrefix(name, stem); ok && strings.Contains(rest, "scale") && !ofActivations(rest) {
			return nil, fmt.Errorf("tensor %s of %s holds %s and has %s beside it, which may be its factors: they are known "+
				"as %s only; take the checkpoint in bf16 or f16", tname, src.Path(), t, name, tname+scaleSuffixes[0])
		}
	}
	return nil, nil
}

// ofActivations says whether a factor is one by which a checkpoint's maker rounds
// activations or caches, which stay as they are here.
func ofActivations(name string) bool {
	for _, part := range []string{"input", "output", "act", "k_scale", "v_scale", "q_scale", "prob"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

func isF8(t tensor.Type) bool { return t >= tensor.F8E4M3 && t <= tensor.F8E5M2FNUZ }

// applyScales multiplies the products of scaled matrices: linear(x, w, b) becomes
// linear(x, w) · scale + b.
func (b *builder) applyScales() error {
	if len(b.scales) == 0 {
		return nil
	}
	factors := map[*graph.Value]*graph.Value{}
	var nodes []*graph.Node
	add := func(n *graph.Node) {
		n.ID = len(nodes)
		nodes = append(nodes, n)
	}
	// then gives a node behind n that takes n's result over and reads it and by.
	then := func(n *graph.Node, op *graph.Op, name string, by *graph.Value) *graph.Node {
		y := n.Out[0]
		part := b.g.AddValue(&graph.Value{Name: b.unique(y.Name + name), Type: y.Type, Shape: y.Shape, Def: n})
		n.Out[0] = part
		next := &graph.Node{Op: op, In: []*graph.Value{part, by}, Out: []*graph.Value{y}, Float: n.Float, Name: n.Name,
			Block: n.Block, Place: n.Place}
		y.Def = next
		return next
	}
	for _, n := range b.g.Nodes {
		var load *graph.Load
		for i, v := range n.In {
			if v == nil || b.scales[v] == nil {
				continue
			}
			if n.Op != ops.Linear || i != 1 {
				return fmt.Errorf("%s: %v reads %s, whose numbers are to be multiplied by %s: only linear can do so, take the "+
					"checkpoint in bf16 or f16", n.Place, n, v.Load.Tensors[0], b.scales[v].Tensors[0])
			}
			load = b.scales[v]
		}
		add(n)
		if load == nil {
			continue
		}
		w := n.In[1]
		s := factors[w]
		if s == nil {
			s = b.g.AddValue(&graph.Value{Name: b.unique(w.Name + ".scale"), Kind: graph.Weight, Type: tensor.F32,
				Shape: tensor.Shape{w.Shape[0]}, Load: load})
			factors[w] = s
		}
		var bias *graph.Value
		if len(n.In) > 2 {
			n.In, bias = n.In[:2:2], n.In[2]
		}
		n = then(n, ops.Mul, ".unscaled", s)
		add(n)
		if bias != nil {
			add(then(n, ops.Add, ".unbiased", bias))
		}
	}
	b.g.Nodes = nodes
	return nil
}
