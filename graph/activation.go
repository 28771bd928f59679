package graph

import (
	"maps"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph/lang"
)

// Activation is the name of the function that takes a tensor and the name of what is done to each element, as
// configurations give it: activation(g, act).
const Activation = "activation"

// activations are what such names stand for, of x.
var activations = func() map[string]lang.Expr {
	all := map[string]lang.Expr{}
	for text, names := range map[string]string{
		"x":                                   "linear",
		"relu(x)":                             "relu",
		"relu2(x)":                            "relu2",
		"sigmoid(x)":                          "sigmoid",
		"silu(x)":                             "silu swish",
		"tanh(x)":                             "tanh",
		"gelu(x)":                             "gelu_new gelu_fast gelu_accurate gelu_pytorch_tanh gelu_python_tanh",
		"gelu(x, form=erf)":                   "gelu gelu_python",
		"x * sigmoid(1.702*x)":                "quick_gelu",
		"x * tanh(softplus(x))":               "mish",
		"clamp(x, low=0, high=6)":             "relu6",
		"max(x, 0.01*x)":                      "leaky_relu",
		"x * clamp(x + 3, low=0, high=6) / 6": "hardswish",
		"clamp(gelu(x, form=erf), low=-10, high=10)": "gelu_10",
	} {
		e, err := lang.Parse(text)
		if err != nil {
			panic(err)
		}
		for _, name := range strings.Fields(names) {
			all[name] = e
		}
	}
	return all
}()

// ActivationOf gives what the name of an activation stands for, an expression of x; nil where it is none.
func ActivationOf(name string) lang.Expr { return activations[name] }

// activation builds activation(x, name).
func (q *equation) activation(e lang.Call, names []string) ([]*Value, *lang.Error) {
	if len(e.Args) != 2 || len(e.Named) > 0 {
		return nil, q.fail(e.Pos(), "activation takes a tensor and the name of an activation: activation(x, act)")
	}
	x, err := q.one(e.Args[0])
	if err != nil {
		return nil, err
	}
	name, err := q.number(e.Args[1])
	if err != nil {
		return nil, err
	}
	word, _ := name.(string)
	of := ActivationOf(word)
	if of == nil {
		return nil, q.fail(e.Args[1].Pos(), "no activation is called %s; there are %s", lang.Format(name),
			strings.Join(slices.Sorted(maps.Keys(activations)), ", "))
	}
	inner := &equation{q.Builder, Scope{map[string]*Value{"x": x}, func(string) (lang.Val, bool) { return nil, false }},
		q.name, map[int]bool{}}
	vals, err := inner.build(of, names)
	if err != nil {
		err.At = e.Pos()
	}
	return vals, err
}
