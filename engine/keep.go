package engine

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// Not every operator takes every type: most take floats alone, some have kernels for plain types alone. A weight that
// one of them reads keeps 16 bits (bf16 where it is stored so), or 32 where that is not taken either, whatever is asked
// for and however it is stored. The report names it.

// keptWeight says why a weight has a type of its own.
type keptWeight struct {
	from, to tensor.Type
	by       string // what does not take the one
}

// keepsType gives the type of a weight that has one of its own, by the tensor that it is read from, or Invalid.
func (e *Engine) keepsType(tensor string) tensor.Type { return e.wider[tensor].to }

// firstGraph makes the graph of a step of one token, finds its kernels, and the types that weights keep for both.
func (e *Engine) firstGraph() (g *graph.Graph, sel selection, err error) {
	defer func() {
		if err != nil {
			e.wider = nil
		}
	}()
	if err := e.sameTypes(); err != nil {
		return nil, nil, err
	}
	if g, err = e.Graph(1, 1); err != nil {
		if !e.keepForOperators() {
			return nil, nil, err
		}
		var again error
		if g, again = e.Graph(1, 1); again != nil {
			return nil, nil, err
		}
	}
	sel, cause := e.selectKernels(g)
	for err := cause; err != nil; sel, err = e.selectKernels(g) {
		if !e.keepForKernels(g) {
			return nil, nil, cause
		}
		if g, err = e.Graph(1, 1); err != nil {
			return nil, nil, cause
		}
	}
	return g, sel, nil
}

// sameTypes takes over the types of the engine whose lowering this one follows, or those that another device asks for.
func (e *Engine) sameTypes() error {
	switch other := e.opt.TypesOf; {
	case e.opt.like != nil:
		e.wider = e.opt.like.wider
	case other != nil && other != e.dev:
		of := bare(e.opt)
		of.dev, of.mutex, of.opt.Device, of.opt.TypesOf, of.opt.Custom = other, other.Mutex(), other, nil, nil
		of.mutex.Lock()
		defer of.mutex.Unlock()
		if _, _, err := of.firstGraph(); err != nil {
			return err
		}
		e.wider = of.wider
	}
	return nil
}

// keepForOperators finds, in a graph of weights of f32, those that are read as activations are, for which blocks are
// not taken. It says whether there are any.
func (e *Engine) keepForOperators() bool {
	o := e.modelOptions(1, 1)
	o.DType, o.Mix = tensor.F32, nil
	g, err := e.opt.Model.Build(o)
	if err != nil {
		return false
	}
	found := false
	for _, n := range g.Nodes {
		for i, v := range n.In {
			if v == nil || n.Op.Sig.In[i].Type != "T" && n.Op != ops.View || !convertible(v.Root()) {
				continue
			}
			v = v.Root()
			t := e.opt.DType
			switch {
			case e.opt.Mix != nil:
				t = tensor.Q8_0 // as of any format
			case t == tensor.Invalid:
				t = v.Load.Type
			case t.CheckRow(v.Shape.Last()) != nil:
				t = quant.Narrow(t, v.Load.Type, v.Shape.Last())
			}
			if t.IsBlock() {
				e.keep(v, t, n.Op.Name)
				found = true
			}
		}
	}
	return found
}

// keepForKernels finds the weights of the nodes that the device has no kernels for. It says whether there are any that
// can have a wider type; where products do not take the type that was asked for, there are none.
func (e *Engine) keepForKernels(g *graph.Graph) bool {
	found, places := false, place(g)
	for _, n := range g.Nodes {
		if n.Op.Kind == graph.View && places.aliased(n) || e.custom(n, places) != nil {
			continue
		}
		if _, err := e.dev.Kernel(n); err == nil {
			continue
		}
		if ops.IsProduct(n.Op) && (n.In[1].Type == e.opt.DType || e.opt.Mix != nil) {
			return false
		}
		for _, v := range n.In {
			if v == nil {
				continue
			}
			if v = v.Root(); convertible(v) && v.Type != tensor.F32 {
				e.keep(v, v.Type, n.Op.Name+" of "+e.dev.Info().Backend)
				found = true
			}
		}
	}
	return found
}

// convertible says whether a value is a weight of several dimensions that tensors hold.
func convertible(v *graph.Value) bool {
	return v.Kind == graph.Weight && len(v.Shape) > 1 && v.Load != nil && len(v.Load.Tensors) > 0
}

// keep notes the next wider type of a weight than t, which something does not take.
func (e *Engine) keep(v *graph.Value, t tensor.Type, by string) {
	to := tensor.F16
	switch {
	case t == tensor.F16 || t == tensor.BF16 || t == tensor.F64:
		to = tensor.F32
	case v.Load.Type == tensor.BF16:
		to = tensor.BF16
	}
	if e.wider == nil {
		e.wider = map[string]keptWeight{}
	}
	k := keptWeight{t, to, by}
	if before, ok := e.wider[v.Load.Tensors[0]]; ok {
		k.from = before.from
	}
	e.wider[v.Load.Tensors[0]] = k
}

// Stored says what weights are computed as that are stored or asked for as something else: "gptq int4 as q4_0 (21)";
// empty: none.
func (e *Engine) Stored() string {
	var parts []string
	if s, ok := e.opt.Source.(interface{ Stored() string }); ok && s.Stored() != "" {
		parts = append(parts, s.Stored())
	}
	var reasons []string // in the order of the weights
	names := map[string][]string{}
	for _, v := range e.first.Weights {
		if why := e.whyNot(v); why != "" {
			if names[why] == nil {
				reasons = append(reasons, why)
			}
			names[why] = append(names[why], v.Name)
		}
	}
	for _, why := range reasons {
		text := strings.Join(names[why][:min(len(names[why]), mostNamed)], ", ")
		if more := len(names[why]) - mostNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text+why)
	}
	return strings.Join(parts, ", ")
}

// mostNamed is how many weights are named for a reason.
const mostNamed = 4

// whyNot says as what a weight is computed that has not the type that is stored or was asked for, and why: something
// does not take that, or no whole number of its blocks is a row; empty: it has that type.
func (e *Engine) whyNot(v *graph.Value) string {
	if !convertible(v) {
		return ""
	}
	d := e.opt.DType
	if k := e.wider[v.Load.Tensors[0]]; k.to == v.Type {
		return fmt.Sprintf(" as %s (%s takes no %s)", k.to, k.by, k.from)
	}
	if d.IsBlock() && v.Type != tensor.F32 && d.CheckRow(v.Shape.Last()) != nil {
		block, _ := d.Block()
		return fmt.Sprintf(" as %s (rows are no blocks of %d, as %s wants them)", v.Type, block, d)
	}
	return ""
}
