package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Functions of single elements that have no attributes and no fast form of their own. A backend can take
// them all by one kernel, with UnaryFunc or by name.
var (
	// ReLU is y = max(x, 0).
	ReLU = unary("relu", "y = max(x, 0)", 1, func(v float64) float64 { return math.Max(v, 0) })
	// ReLU2 is y = max(x, 0)² (So et al., arXiv 2109.08668).
	ReLU2 = unary("relu2", "y = max(x, 0)²", 2, func(v float64) float64 { return math.Max(v, 0) * math.Max(v, 0) })
	// Exp is y = e^x.
	Exp = unary("exp", "y = exp(x)", 1, math.Exp)
	// Log is y = ln x.
	Log = unary("log", "y = ln(x)", 1, math.Log)
	// Tanh is y = tanh x.
	Tanh = unary("tanh", "y = tanh(x)", 1, math.Tanh)
	// Softplus is y = ln(1 + e^x).
	Softplus = unary("softplus", "y = ln(1 + exp(x))", 3, func(v float64) float64 {
		return math.Max(v, 0) + math.Log1p(math.Exp(-math.Abs(v)))
	})
	// Sqrt is the square root.
	Sqrt = unary("sqrt", "y = √x", 1, math.Sqrt)
	// Reciprocal is y = 1/x.
	Reciprocal = unary("reciprocal", "y = 1/x", 1, func(v float64) float64 { return 1 / v })
	// Abs is |x|.
	Abs = unary("abs", "y = |x|", 1, math.Abs)
	// Floor rounds down.
	Floor = unary("floor", "y = ⌊x⌋", 1, math.Floor)
)

// unaryFuncs are the functions of the operators above, by name.
var unaryFuncs = map[string]func(float64) float64{}

func unary(name, doc string, cost float64, f func(float64) float64) *graph.Op {
	unaryFuncs[name] = f
	return &graph.Op{
		Name:    name,
		Doc:     doc,
		Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
		RowWise: true,
		Ref:     elementwise(f),
		Cost:    perElement(cost),
	}
}

// function is what the attributes of an operator of single elements give, where it has some: these make it one that
// UnaryFunc knows.
type function interface {
	of() func(float64) float64
	params() (p, q float64) // the numbers that kernels are given
}

// UnaryFunc gives the function of a node that is one of single elements: of the operators above, and of
// those with attributes but no other operands (affine, clamp, pow). Nil: it is none.
func UnaryFunc(n *graph.Node) func(float64) float64 {
	if a, ok := n.Attr.(function); ok {
		return a.of()
	}
	return unaryFuncs[n.Op.Name]
}

// UnaryParams gives the numbers that the function of affine (by, plus), clamp (low, high) or pow (p) has beside x,
// for kernels that take all of these functions; zeros for those without.
func UnaryParams(n *graph.Node) (p, q float64) {
	if a, ok := n.Attr.(function); ok {
		return a.params()
	}
	return 0, 0
}

// Functions names the operators that UnaryFunc knows.
func Functions() []string {
	var names []string
	for _, op := range basic {
		known := unaryFuncs[op.Name] != nil
		if op.Attr != nil {
			_, known = op.Attr().(function)
		}
		if known {
			names = append(names, op.Name)
		}
	}
	return names
}

// withFunc is the reference of an operator whose attributes are a function.
func withFunc(n *graph.Node, in, out []tensor.Tensor) error {
	return elementwise(UnaryFunc(n))(n, in, out)
}

// AffineAttr are the attributes of affine.
type AffineAttr struct {
	By   float64 `attr:"by"`
	Plus float64 `attr:"plus"`
}

func (a *AffineAttr) of() func(float64) float64 {
	return func(v float64) float64 { return a.By*v + a.Plus }
}

func (a *AffineAttr) params() (p, q float64) { return a.By, a.Plus }

// Affine is y = by·x + plus; model files write it x + 1, 1 - x.
var Affine = &graph.Op{
	Name:    "affine",
	Doc:     "y = by · x + plus",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Attr:    func() any { return &AffineAttr{By: 1} },
	Check: func(n *graph.Node) error {
		a := graph.Attr[AffineAttr](n)
		for _, v := range []float64{a.By, a.Plus} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("by=%g and plus=%g must be finite numbers", a.By, a.Plus)
			}
		}
		return nil
	},
	Ref:  withFunc,
	Cost: perElement(2),
}

// ClampAttr are the attributes of clamp.
type ClampAttr struct {
	Low  float64 `attr:"low"`
	High float64 `attr:"high"`
}

func (a *ClampAttr) of() func(float64) float64 {
	return func(v float64) float64 { return math.Min(math.Max(v, a.Low), a.High) }
}

func (a *ClampAttr) params() (p, q float64) { return a.Low, a.High }

// Clamp bounds x: y = min(max(x, low), high).
var Clamp = &graph.Op{
	Name:    "clamp",
	Doc:     "y = min(max(x, low), high)",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Attr:    func() any { return &ClampAttr{Low: -math.MaxFloat32, High: math.MaxFloat32} },
	Check: func(n *graph.Node) error {
		if a := graph.Attr[ClampAttr](n); !(a.Low <= a.High) {
			return fmt.Errorf("low=%g must not be above high=%g", a.Low, a.High)
		}
		return nil
	},
	Ref:  withFunc,
	Cost: perElement(2),
}

// PowAttr is the attribute of pow.
type PowAttr struct {
	P float64 `attr:"p,required"`
}

func (a *PowAttr) of() func(float64) float64 {
	return func(v float64) float64 { return math.Pow(v, a.P) }
}

func (a *PowAttr) params() (p, q float64) { return a.P, 0 }

// Pow is y = x^p; model files write it x**p.
var Pow = &graph.Op{
	Name:    "pow",
	Doc:     "y = x^p",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Attr:    func() any { return &PowAttr{} },
	Check: func(n *graph.Node) error {
		if p := graph.Attr[PowAttr](n).P; math.IsNaN(p) || math.IsInf(p, 0) {
			return fmt.Errorf("p=%g must be a finite number", p)
		}
		return nil
	},
	Ref:  withFunc,
	Cost: perElement(4),
}

// XIELUAttr are the attributes of xielu.
type XIELUAttr struct {
	Beta float64 `attr:"beta"`
	Eps  float64 `attr:"eps"`
}

// XIELU is the expanded integral of ELU with trained slopes p and n, each of one element, as beta
// and eps are where they are operands (Huang et al., arXiv 2411.13010): with a = softplus(p) and b
// = beta + softplus(n),
//
//	y = a x² + beta x                           for x > 0
//	y = b (e^min(x, eps) - 1 - x) + beta x      else
var XIELU = &graph.Op{
	Name: "xielu",
	Doc: "y = a·x² + beta·x for x > 0, else b·(exp(min(x, eps)) - 1 - x) + beta·x; a = softplus(p), b = beta " +
		"+ softplus(n)",
	Sig:     graph.MustSig("(x: T[*], p: P[1], n: N[1], beta?: B[1], eps?: E[1]) -> (y: float[*])"),
	RowWise: true,
	Attr:    func() any { return &XIELUAttr{Beta: 0.5, Eps: -1e-6} },
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		a := *graph.Attr[XIELUAttr](n)
		for i, to := range []*float64{&a.Beta, &a.Eps} {
			if v := floats(in, 3+i); v != nil {
				*to = v[0]
			}
		}
		return elementwise(XIELUFunc(&a, in[1].F64()[0], in[2].F64()[0]))(n, in, out)
	},
	Cost: perElement(5),
}

// XIELUFunc is xielu's function for slopes p and n.
func XIELUFunc(a *XIELUAttr, p, n float64) func(float64) float64 {
	up, down := unaryFuncs["softplus"](p), a.Beta+unaryFuncs["softplus"](n)
	return func(x float64) float64 {
		if x > 0 {
			return up*x*x + a.Beta*x
		}
		return down*(math.Expm1(math.Min(x, a.Eps))-x) + a.Beta*x
	}
}
