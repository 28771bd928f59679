package ops

import "github.com/greta-project/greta/graph"

// Sigmoid is y = 1 / (1 + exp(-x)).
var Sigmoid = &graph.Op{
	Name:    "sigmoid",
	Doc:     "y = 1 / (1 + exp(-x))",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Ref:     elementwise(sigmoid),
	Cost:    perElement(3),
}
