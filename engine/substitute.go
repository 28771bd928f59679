package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// A block format that the device has no kernels for is computed as f16, into which it is decoded while it is loaded: it
// takes the memory of f16 then, which the report says.

// substitute makes the first graph anew with f16 instead of such formats. Where that does not help, the error is cause.
func (e *Engine) substitute(g *graph.Graph, cause error) (*graph.Graph, selection, error) {
	if e.opt.Source == nil || e.opt.DType != tensor.Invalid {
		return nil, nil, cause
	}
	instead := map[tensor.Type]tensor.Type{}
	for _, n := range g.Nodes {
		if _, err := e.dev.Kernel(n); err == nil || n.Op.Kind == graph.View {
			continue
		}
		for _, v := range n.In {
			if v != nil && v.Kind == graph.Weight && v.Type.IsBlock() {
				instead[v.Type] = tensor.F16
			}
		}
	}
	if len(instead) == 0 {
		return nil, nil, cause
	}
	e.instead = instead
	g, err := e.Graph(1, 1)
	if err == nil {
		var sel selection
		if sel, err = e.selectKernels(g); err == nil {
			e.first = g
			return g, sel, nil
		}
	}
	e.instead = nil
	return nil, nil, cause
}

// Stored says what weights are computed as that are stored as something else: "gptq int4 as q4_0 (21)"; empty: none.
func (e *Engine) Stored() string {
	var parts []string
	if s, ok := e.opt.Source.(interface{ Stored() string }); ok && s.Stored() != "" {
		parts = append(parts, s.Stored())
	}
	var types []string
	for from, to := range e.instead {
		types = append(types, fmt.Sprintf("%s as %s (no kernels of %s for %s)", from, to, e.dev.Info().Backend, from))
	}
	if t := e.narrow(); t != "" {
		types = append(types, t)
	}
	slices.Sort(types)
	return strings.Join(append(parts, types...), ", ")
}

// narrow says which matrices are not of the type that was asked for, since no whole number of its blocks is a row.
func (e *Engine) narrow() string {
	if e.first == nil || !e.opt.DType.IsBlock() {
		return ""
	}
	as := map[tensor.Type][]string{}
	for _, v := range e.first.Weights {
		if len(v.Shape) > 1 && e.opt.DType.CheckRow(v.Shape.Last()) != nil && v.Type != tensor.F32 {
			as[v.Type] = append(as[v.Type], v.Name)
		}
	}
	var parts []string
	for t, names := range as {
		text := strings.Join(names[:min(len(names), narrowNamed)], ", ")
		if more := len(names) - narrowNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, fmt.Sprintf("%s as %s", text, t))
	}
	if len(as) == 0 {
		return ""
	}
	slices.Sort(parts)
	block, _ := e.opt.DType.Block()
	return fmt.Sprintf("%s (rows are no blocks of %d, as %s wants them)", strings.Join(parts, ", "), block, e.opt.DType)
}

// narrowNamed is how many narrow matrices are named.
const narrowNamed = 4
