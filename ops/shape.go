package ops

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Operators that move elements or sum over them.

// ConcatAttr is the attribute of concat.
type ConcatAttr struct {
	Axis int `attr:"axis"` // the dimension that grows; negative ones count from the last
}

// axisOf gives a dimension of a tensor by its number, which may count from the end. The first dimension
// is the step's tokens, which are never joined or cut.
func axisOf(axis int, x *graph.Value) (int, error) {
	at := axis
	if at < 0 {
		at += len(x.Shape)
	}
	if at < 1 && len(x.Shape) > 1 || at < 0 || at >= len(x.Shape) {
		return 0, fmt.Errorf("axis=%d: %s has dimensions 1 to %d behind that of the tokens", axis, x, len(x.Shape)-1)
	}
	return at, nil
}

// Concat joins up to six tensors along a dimension other than the first.
var Concat = &graph.Op{
	Name:    "concat",
	Doc:     "y = x, x1, … behind each other in dimension axis, the last where none is said",
	Sig:     graph.MustSig("(x: T[*A], x1: U[*B], x2?: V[*C], x3?: W[*D], x4?: X[*E], x5?: Y[*F]) -> (y: float[*A])"),
	RowWise: true,
	Attr:    func() any { return &ConcatAttr{Axis: -1} },
	Results: func(n *graph.Node) ([]graph.Result, error) {
		axis, err := axisOf(graph.Attr[ConcatAttr](n).Axis, n.In[0])
		if err != nil {
			return nil, err
		}
		shape := append(tensor.Shape(nil), n.In[0].Shape...)
		for _, v := range n.In[1:] {
			if v == nil {
				continue
			}
			for d := range shape {
				if len(v.Shape) != len(shape) || d != axis && v.Shape[d] != shape[d] {
					return nil, fmt.Errorf("%s and %s may differ in dimension %d only", n.In[0], v, axis)
				}
			}
			shape[axis] += v.Shape[axis]
		}
		return []graph.Result{{Type: floatOf(n), Shape: shape}}, nil
	},
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		axis, err := axisOf(graph.Attr[ConcatAttr](n).Axis, n.In[0])
		if err != nil {
			return err
		}
		y, row := out[0].F64(), out[0].Shape[axis:].Elems()
		at := 0
		for i := range in {
			if in[i].Data == nil {
				continue
			}
			x, part := in[i].F64(), in[i].Shape[axis:].Elems()
			for r := 0; r*row < len(y); r++ {
				copy(y[r*row+at:][:part], x[r*part:])
			}
			at += part
		}
		return nil
	},
	Cost: perElement(0),
}

// floatOf is the type of a node's float results.
func floatOf(n *graph.Node) tensor.Type {
	if n.Float == tensor.Invalid {
		return tensor.F32
	}
	return n.Float
}

// SliceAttr are the attributes of slice.
type SliceAttr struct {
	From int `attr:"from"`
	To   int `attr:"to,required"`
	Axis int `attr:"axis"`
}

// Slice cuts indices from … to-1 out of a dimension other than the first.
var Slice = &graph.Op{
	Name:    "slice",
	Doc:     "y = indices from … to-1 of x's dimension axis, the last where none is said",
	Sig:     graph.MustSig("(x: T[*]) -> (y: float[*])"),
	RowWise: true,
	Attr:    func() any { return &SliceAttr{Axis: -1} },
	Results: func(n *graph.Node) ([]graph.Result, error) {
		a := graph.Attr[SliceAttr](n)
		axis, err := axisOf(a.Axis, n.In[0])
		if err != nil {
			return nil, err
		}
		shape := append(tensor.Shape(nil), n.In[0].Shape...)
		if a.From < 0 || a.To <= a.From || a.To > shape[axis] {
			return nil, fmt.Errorf("from=%d, to=%d must be a range of the %d of %s", a.From, a.To, shape[axis], n.In[0])
		}
		shape[axis] = a.To - a.From
		return []graph.Result{{Type: floatOf(n), Shape: shape}}, nil
	},
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		a := graph.Attr[SliceAttr](n)
		axis, err := axisOf(a.Axis, n.In[0])
		if err != nil {
			return err
		}
		x, y := in[0].F64(), out[0].F64()
		row, part := in[0].Shape[axis:].Elems(), out[0].Shape[axis:].Elems()
		at := a.From * in[0].Shape[axis+1:].Elems()
		for r := 0; r*part < len(y); r++ {
			copy(y[r*part:(r+1)*part], x[r*row+at:])
		}
		return nil
	},
	Cost: perElement(0),
}

// ExpandAttr are the attributes of expand.
type ExpandAttr struct {
	To   int    `attr:"to,required"`
	Copy string `attr:"copy" words:"beside|behind"` // a head's copies beside it, or all heads again behind all
}

// Expand repeats heads: x [S, G, N] gives y [S, to, N]. With copies beside each other y[s,h] = x[s, h/(to/G)],
// behind each other x[s, h%G].
var Expand = &graph.Op{
	Name:    "expand",
	Doc:     "y[s,h] = x[s, h/(to/G)]; copy=behind: x[s, h%G]",
	Sig:     graph.MustSig("(x: T[S, G, N]) -> (y: float[S, @to, N])"),
	RowWise: true,
	Attr:    func() any { return &ExpandAttr{Copy: "beside"} },
	Check: func(n *graph.Node) error {
		if to, x := graph.Attr[ExpandAttr](n).To, n.In[0]; x.Shape[1] == 0 || to%x.Shape[1] != 0 {
			return fmt.Errorf("to=%d must be a multiple of the %d heads of %s", to, x.Shape[1], x)
		}
		return nil
	},
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		x, y, g, d := in[0].F64(), out[0].F64(), in[0].Shape[1], in[0].Shape[2]
		a := graph.Attr[ExpandAttr](n)
		for i := 0; i*d < len(y); i++ {
			from := a.Source(i, g)
			copy(y[i*d:(i+1)*d], x[from*d:])
		}
		return nil
	},
	Cost: perElement(0),
}

// Source gives the row of x [S, g] that row i of y [S, to] copies.
func (a *ExpandAttr) Source(i, g int) int {
	s, h := i/a.To, i%a.To
	if a.Copy == "behind" {
		return s*g + h%g
	}
	return s*g + h/(a.To/g)
}

// Gather picks elements of rows: x [..., E], e i32[..., U] gives y [..., U] with y[u] = x[e[u]]. An index outside
// [0, E) is an error.
var Gather = &graph.Op{
	Name:    "gather",
	Doc:     "y[u] = x[e[u]] in each row",
	Sig:     graph.MustSig("(x: T[*, E], e: i32[*, U]) -> (y: float[*, U])"),
	RowWise: true,
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, y := in[0].F64(), out[0].F64()
		n, u := in[0].Shape.Last(), in[1].Shape.Last()
		for i, e := range in[1].I32() {
			if err := inRange("e", i, e, n); err != nil {
				return err
			}
			y[i] = x[i/u*n+int(e)]
		}
		return nil
	},
	Cost: perElement(0),
}

// reduce makes an operator over the last dimension, which becomes 1.
func reduce(name, doc string, f func(row []float64) float64) *graph.Op {
	return &graph.Op{
		Name:    name,
		Doc:     doc,
		Sig:     graph.MustSig("(x: T[*, N]) -> (y: float[*, 1])"),
		RowWise: true,
		Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
			x, y, n := in[0].F64(), out[0].F64(), in[0].Shape.Last()
			for i := range y {
				y[i] = f(x[i*n : (i+1)*n])
			}
			return nil
		},
		Cost: func(n *graph.Node, _ int) graph.Cost { return whole(n, elems(n.In[0])) },
	}
}

var (
	// Sum adds up each row.
	Sum = reduce("sum", "y = Σ x of the last dimension, which becomes 1", total)
	// Mean is the mean of each row.
	Mean = reduce("mean", "y = Σ x / N of the last dimension, which becomes 1", func(row []float64) float64 {
		return total(row) / float64(len(row))
	})
	// Largest is the largest of each row.
	Largest = reduce("largest", "y = max x of the last dimension, which becomes 1", func(row []float64) float64 {
		top := row[0]
		for _, v := range row {
			top = max(top, v)
		}
		return top
	})
)

func total(row []float64) float64 {
	s := 0.0
	for _, v := range row {
		s += v
	}
	return s
}

// Cumsum is the sum of each row's elements up to each: y[i] = x[0] + … + x[i].
var Cumsum = &graph.Op{
	Name:    "cumsum",
	Doc:     "y[i] = x[0] + … + x[i] in each row",
	Sig:     graph.MustSig("(x: T[*, N]) -> (y: float[*, N])"),
	RowWise: true,
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, y, n := in[0].F64(), out[0].F64(), in[0].Shape.Last()
		s := 0.0
		for i, v := range x {
			if i%n == 0 {
				s = 0
			}
			s += v
			y[i] = s
		}
		return nil
	},
	Cost: perElement(1),
}

// ShiftAttr is the attribute of shift.
type ShiftAttr struct {
	By int `attr:"by,required"`
}

// Shift adds to integers, as tables of positions that begin at some row want it.
var Shift = &graph.Op{
	Name:    "shift",
	Doc:     "y[s] = pos[s] + by",
	Sig:     graph.MustSig("(pos: i32[S]) -> (y: i32[S])"),
	RowWise: true,
	Attr:    func() any { return &ShiftAttr{} },
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		y, by := out[0].I32(), graph.Attr[ShiftAttr](n).By
		for i, v := range in[0].I32() {
			y[i] = v + int32(by)
		}
		return nil
	},
	Cost: perElement(1),
}

// Real gives integers as numbers: pos i32[S] gives y [S, 1].
var Real = &graph.Op{
	Name:    "real",
	Doc:     "y[s,0] = pos[s], as a number",
	Sig:     graph.MustSig("(pos: i32[S]) -> (y: float[S, 1])"),
	RowWise: true,
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		y := out[0].F64()
		for i, v := range in[0].I32() {
			y[i] = float64(v)
		}
		return nil
	},
	Cost: perElement(0),
}

// PerHead multiplies each head by a matrix of its own: x [S, H, K], w [H, N, K], b [H, N] gives y [S, H, N].
var PerHead = &graph.Op{
	Name:    "per_head",
	Doc:     "y[s,h] = w[h]·x[s,h] + b[h]",
	Sig:     graph.MustSig("(x: T[S, H, K], w: W[H, N, K], b?: V[H, N]) -> (y: float[S, H, N])"),
	RowWise: true,
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, w, b, y := in[0].F64(), in[1].F64(), floats(in, 2), out[0].F64()
		h, n, k := in[1].Shape[0], in[1].Shape[1], in[1].Shape[2]
		for i := range y {
			at := i % (h * n) // h·n + the output
			y[i] = dot(w[at*k:(at+1)*k], x[i/n*k:][:k])
			if b != nil {
				y[i] += b[at]
			}
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost {
		return whole(n, 2*elems(n.Out[0])*float64(n.In[1].Shape[2]))
	},
}
