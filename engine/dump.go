package engine

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
)

// Stages are the forms of a model between file and launches that Dump prints.
var Stages = []string{"spec", "graph", "fused", "plan", "program"}

// Dump prints a step of s tokens at a stage, without loading weights: the
// parameters as they were resolved, the graph as the file says it, the graph
// as lowered for the device, the memory plan, or the program.
func Dump(opt Options, stage string, s int) (string, error) {
	if stage == "spec" {
		return dumpSpec(opt, s)
	}
	g, e, err := dumpGraph(opt, stage, s)
	if err != nil {
		return "", err
	}
	if stage == "graph" || stage == "fused" {
		return g.Text(), nil
	}
	sel, err := e.selectKernels(g)
	if err != nil {
		return "", err
	}
	p := planMemory(g, sel, e.dev.Info().Window)
	if stage == "plan" {
		return p.text(g) + choicesText(g, sel, opt.Custom), nil
	}
	return programText(g, sel, p), nil
}

// choicesText says which kernel runs each node, and why.
func choicesText(g *graph.Graph, sel selection, custom CustomChooser) string {
	b := strings.Builder{}
	b.WriteString("kernels\n")
	for i, n := range g.Nodes {
		if sel[i] == nil {
			fmt.Fprintf(&b, "%3d %s: nothing runs, it is a view of its operand\n", i, n.Out[0].Name)
		} else {
			why := sel[i].Traits().Why
			if custom != nil && backends.CustomOf(sel[i]) == nil {
				if not := custom.Not(n); not != "" {
					why += "; " + not
				}
			}
			fmt.Fprintf(&b, "%3d %s: %s (%s)\n", i, n.Out[0].Name, sel[i].Name(), why)
		}
	}
	return b.String()
}

// DumpDot draws the graph of stage "graph" or "fused" in Graphviz's language.
func DumpDot(opt Options, stage string, s int) (string, error) {
	if stage != "graph" && stage != "fused" {
		return "", fmt.Errorf("stage %q cannot be drawn; graph and fused can", stage)
	}
	g, _, err := dumpGraph(opt, stage, s)
	if err != nil {
		return "", err
	}
	return g.Dot(), nil
}

func dumpGraph(opt Options, stage string, s int) (*graph.Graph, *Engine, error) {
	opt.fill()
	e := &Engine{opt: opt, dev: opt.Device}
	switch stage {
	case "graph":
		g, err := e.build(s, 1)
		if err != nil && e.keepForOperators() {
			g, err = e.build(s, 1)
		}
		return g, e, err
	case "fused", "plan", "program":
		_, _, _ = e.firstGraph() // for the types of weights; what fails there fails again
		g, err := e.Graph(s, 1)
		return g, e, err
	}
	return nil, nil, fmt.Errorf("unknown stage %q; there are %v", stage, Stages)
}

func dumpSpec(opt Options, s int) (string, error) {
	opt.fill()
	e := &Engine{opt: opt, dev: opt.Device}
	params, err := opt.Model.Params(e.modelOptions(s, 1))
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("model %s (%s)\n", opt.Model.Name(), opt.Model.Path())
	for _, p := range params {
		text += p.String() + "\n"
	}
	return text, nil
}
