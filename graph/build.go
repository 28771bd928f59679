package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/tensor"
)

// Builder adds the nodes of equations to a graph. It is used by the reader of
// model files and by the bodies of fused operators.
type Builder struct {
	Graph  *Graph
	Ops    Table
	Float  tensor.Type // element type of activations
	Prefix string      // before each value's name: "blk.3."
	Block  int         // number of the repeated block, -1 outside
	Place  string      // file:line:column of the equation at hand
	names  map[string]bool
	taken  map[string]int // the number that a name had behind it last
}

// Scope is what the names of an equation mean. Values holds tensors; a name
// that maps to nil is an optional weight that the source lacks.
type Scope struct {
	Values map[string]*Value
	Env    lang.Env // parameters
}

// Equation builds "names: e" and gives the values that the names stand for.
// Its error is a *lang.Error that points into e.
func (b *Builder) Equation(names []string, e lang.Expr, sc Scope) ([]*Value, error) {
	q := &equation{b, sc, strings.Join(names, ", "), map[int]bool{}}
	vals, err := q.build(e, names)
	if err == nil && len(vals) != len(names) {
		err = q.fail(e.Pos(), "%d names for %d results", len(names), len(vals))
	}
	if err != nil {
		return nil, err
	}
	return vals, nil
}

type equation struct {
	*Builder
	sc   Scope
	name string
	sums map[int]bool // where a binary expression has its operator: whether it is a number
}

func (q *equation) fail(at int, format string, args ...any) *lang.Error {
	return &lang.Error{At: at, Msg: q.name + ": " + fmt.Sprintf(format, args...)}
}

// build gives the tensors of an expression; names are for its results, nil inside.
func (q *equation) build(e lang.Expr, names []string) ([]*Value, *lang.Error) {
	switch e := e.(type) {
	case lang.Name:
		v, ok := q.sc.Values[e.Name]
		if !ok {
			return nil, q.unknown(e.Pos(), e.Name)
		}
		if v == nil {
			return nil, q.fail(e.Pos(), "the weights lack the optional %s, which is needed here", e.Name)
		}
		return []*Value{v}, nil
	case lang.As:
		x, err := q.one(e.X)
		if err != nil {
			return nil, err
		}
		dims := make([]lang.Val, len(e.Dims))
		for i, d := range e.Dims {
			if dims[i], err = q.number(d); err != nil {
				return nil, err
			}
		}
		return q.apply(e.Pos(), "view", []*Value{x}, []attr{{"shape", dims, e.Pos()}}, names)
	case lang.List:
		return q.several(e, names)
	case lang.Unary:
		if e.Op == "-" {
			return q.scaled(e.Pos(), e.X, -1, names)
		}
	case lang.Binary:
		return q.binary(e, names)
	case lang.Call:
		return q.call(e, names)
	case lang.Cond:
		x, err := q.chosen(e)
		if err != nil {
			return nil, err
		}
		return q.build(x, names)
	}
	return nil, q.fail(e.Pos(), "a tensor is wanted here")
}

// chosen gives the branch that a condition chooses.
func (q *equation) chosen(e lang.Cond) (lang.Expr, *lang.Error) {
	c, err := lang.Eval(e.If, q.sc.Env)
	if err != nil {
		return nil, q.wrap(err)
	}
	yes, ok := c.(bool)
	if c == nil {
		return nil, q.fail(e.If.Pos(), "a condition is wanted here, but this is absent: nothing says its value; ask has(…)")
	}
	if !ok {
		return nil, q.fail(e.If.Pos(), "a condition is wanted here, not %s", lang.Format(c))
	}
	if yes {
		return e.Then, nil
	}
	return e.Else, nil
}

func (q *equation) wrap(err error) *lang.Error {
	e := *err.(*lang.Error)
	if name, ok := strings.CutPrefix(e.Msg, "unknown name "); ok {
		if v := q.sc.Values[name]; v != nil {
			return q.fail(e.At, "%s is a tensor, a number is wanted here", name)
		}
		return q.unknown(e.At, name)
	}
	e.Msg = q.name + ": " + e.Msg
	return &e
}

func (q *equation) unknown(at int, name string) *lang.Error {
	v, ok := q.sc.Env(name)
	if word, is := v.(string); ok && !(is && word == name) { // a word that stands for itself may be a misspelt name
		return q.fail(at, "%s is the parameter %s, a tensor is wanted here", name, lang.Format(v))
	}
	known := make([]string, 0, len(q.sc.Values))
	for n := range q.sc.Values {
		known = append(known, n)
	}
	slices.Sort(known)
	if near := lang.Nearest(name, known); near != "" {
		return q.fail(at, "unknown name %s; did you mean %s?", name, near)
	}
	return q.fail(at, "unknown name %s", name)
}

func (q *equation) one(e lang.Expr) (*Value, *lang.Error) {
	vals, err := q.build(e, nil)
	if err == nil && len(vals) != 1 {
		err = q.fail(e.Pos(), "one tensor is wanted here, not %d", len(vals))
	}
	if err != nil {
		return nil, err
	}
	return vals[0], nil
}

func (q *equation) number(e lang.Expr) (lang.Val, *lang.Error) {
	v, err := lang.Eval(e, q.sc.Env)
	if err != nil {
		return nil, q.wrap(err)
	}
	return v, nil
}

// isNumber says whether an expression has no tensor in it.
func (q *equation) isNumber(e lang.Expr) bool {
	switch e := e.(type) {
	case lang.Num:
		return true
	case lang.Name:
		if _, ok := q.sc.Values[e.Name]; ok {
			return false
		}
		_, ok := q.sc.Env(e.Name)
		return ok
	case lang.Unary:
		return q.isNumber(e.X)
	case lang.Binary: // each is asked for once for every one around it
		number, ok := q.sums[e.Pos()]
		if !ok {
			number = q.isNumber(e.X) && q.isNumber(e.Y)
			q.sums[e.Pos()] = number
		}
		return number
	case lang.Cond:
		return q.isNumber(e.Then) && q.isNumber(e.Else)
	case lang.Str:
		return true
	case lang.Index:
		return q.isNumber(e.X)
	case lang.Call: // min, exp and others are both functions of numbers and operators
		if !lang.IsFunction(e.Func) {
			return false
		}
		both := q.Ops.Lookup(e.Func) != nil
		return !both || !slices.ContainsFunc(e.Args, func(x lang.Expr) bool { return !q.isNumber(x) })
	}
	return false
}

func (q *equation) binary(e lang.Binary, names []string) ([]*Value, *lang.Error) {
	nx, ny := q.isNumber(e.X), q.isNumber(e.Y)
	op := map[string]string{"+": "add", "*": "mul", "-": "sub", "/": "div", ">": "greater", "<": "greater"}[e.Op]
	switch {
	case nx == ny && op == "" || nx && ny:
		return nil, q.fail(e.Pos(), "%s works on numbers; on tensors there are + - * / < > **", e.Op)
	case !nx && !ny:
		return q.pair(e, op, names)
	case e.Op == "**" && nx:
		return nil, q.fail(e.Pos(), "a tensor cannot be an exponent")
	}
	x, by := e.X, e.Y
	if nx {
		x, by = e.Y, e.X
	}
	v, err := q.number(by)
	if err != nil {
		return nil, err
	}
	f, ok := v.(float64)
	if !ok || e.Op == "/" && ny && f == 0 {
		return nil, q.fail(by.Pos(), "a tensor cannot be combined by %s with %s", e.Op, lang.Format(v))
	}
	plus := func(factor, f float64) ([]*Value, *lang.Error) {
		v, err := q.one(x)
		if err != nil {
			return nil, err
		}
		return q.apply(e.Pos(), "affine", []*Value{v}, []attr{{"by", factor, e.Pos()}, {"plus", f, e.Pos()}}, names)
	}
	switch {
	case e.Op == "*":
		return q.scaled(e.Pos(), x, f, names)
	case e.Op == "/" && ny:
		return q.scaled(e.Pos(), x, 1/f, names)
	case e.Op == "/":
		v, err := q.function(e.Pos(), "reciprocal", x, nil)
		if err != nil {
			return nil, err
		}
		return q.apply(e.Pos(), "scale", v, []attr{{"by", f, e.Pos()}}, names)
	case e.Op == "+":
		return plus(1, f)
	case e.Op == "-" && ny:
		return plus(1, -f)
	case e.Op == "-":
		return plus(-1, f)
	case e.Op == "**":
		return q.power(e.Pos(), x, f, names)
	}
	return nil, q.fail(e.Pos(), "%s works on two tensors or two numbers", e.Op)
}

// pair applies an operator of two tensors. The larger one comes first where their order does not matter.
func (q *equation) pair(e lang.Binary, op string, names []string) ([]*Value, *lang.Error) {
	x, err := q.one(e.X)
	if err != nil {
		return nil, err
	}
	y, err := q.one(e.Y)
	if err != nil {
		return nil, err
	}
	if (e.Op == "+" || e.Op == "*") && spreads(x, y) || e.Op == "<" {
		x, y = y, x
	}
	return q.apply(e.Pos(), op, []*Value{x, y}, nil, names)
}

// spreads says whether x is a row of y's, or has one element for each of its rows.
func spreads(x, y *Value) bool {
	if len(x.Shape) < len(y.Shape) {
		return true
	}
	n := len(x.Shape)
	return n > 0 && n == len(y.Shape) && x.Shape[n-1] == 1 && y.Shape[n-1] > 1
}

// function applies an operator of one tensor.
func (q *equation) function(at int, op string, x lang.Expr, names []string) ([]*Value, *lang.Error) {
	v, err := q.one(x)
	if err != nil {
		return nil, err
	}
	return q.apply(at, op, []*Value{v}, nil, names)
}

// power gives x**p.
func (q *equation) power(at int, x lang.Expr, p float64, names []string) ([]*Value, *lang.Error) {
	v, err := q.build(x, nil)
	if err == nil && len(v) != 1 {
		err = q.fail(at, "one tensor is wanted here, not %d", len(v))
	}
	if err != nil {
		return nil, err
	}
	switch p {
	case 2:
		return q.apply(at, "mul", []*Value{v[0], v[0]}, nil, names)
	case 0.5:
		return q.apply(at, "sqrt", []*Value{v[0]}, nil, names)
	case -1:
		return q.apply(at, "reciprocal", []*Value{v[0]}, nil, names)
	}
	return q.apply(at, "pow", []*Value{v[0]}, []attr{{"p", p, at}}, names)
}

// several builds a list of tensors, for an equation of as many names.
func (q *equation) several(e lang.List, names []string) ([]*Value, *lang.Error) {
	if names == nil || len(names) != len(e.Elems) {
		return nil, q.fail(e.Pos(), "a list of %d tensors is for as many names: a, b: [x, y]", len(e.Elems))
	}
	var all []*Value
	for i, x := range e.Elems {
		own := names[i : i+1]
		if _, is := x.(lang.Name); is {
			own = nil
		}
		vals, err := q.build(x, own)
		if err != nil {
			return nil, err
		}
		if len(vals) != 1 {
			return nil, q.fail(x.Pos(), "one tensor is wanted here, not %d", len(vals))
		}
		all = append(all, vals[0])
	}
	return all, nil
}

func (q *equation) scaled(at int, x lang.Expr, by float64, names []string) ([]*Value, *lang.Error) {
	v, err := q.one(x)
	if err != nil {
		return nil, err
	}
	return q.apply(at, "scale", []*Value{v}, []attr{{"by", by, at}}, names)
}

type attr struct {
	name string
	val  lang.Val
	at   int
}

func (q *equation) call(e lang.Call, names []string) ([]*Value, *lang.Error) {
	if e.Rest != nil {
		return nil, q.fail(e.Rest.Pos(), "\"...\" has no meaning here: name the attributes")
	}
	if e.Func == Activation {
		return q.activation(e, names)
	}
	op := q.Ops.Lookup(e.Func)
	if op == nil {
		if near := lang.Nearest(e.Func, q.Ops.Names()); near != "" {
			return nil, q.fail(e.Pos(), "unknown operator %s; did you mean %s?", e.Func, near)
		}
		return nil, q.fail(e.Pos(), "unknown operator %s; `greta ops` lists them", e.Func)
	}
	if clamped, ok := q.clamp(e); ok {
		return q.call(clamped, names)
	}
	if len(e.Args) > len(op.Sig.In) {
		return nil, q.fail(e.Args[len(op.Sig.In)].Pos(), "%s takes at most %d operands, %d are given: %s", op.Name,
			len(op.Sig.In), len(e.Args), op.Sig.String())
	}
	in := make([]*Value, len(e.Args), len(op.Sig.In)+1)
	for i, a := range e.Args {
		v, err := q.operand(a, op.Sig.In[i].Optional)
		if err != nil {
			return nil, err
		}
		in[i] = v
	}
	var attrs []attr
	for _, n := range e.Named {
		if k := slices.IndexFunc(op.Sig.In, func(o Operand) bool { return o.Name == n.Name }); k >= 0 {
			if k < len(in) && in[k] != nil {
				return nil, q.fail(n.Pos(), "operand %s of %s is given twice", n.Name, op.Name)
			}
			v, err := q.operand(n.X, op.Sig.In[k].Optional)
			if err != nil {
				return nil, err
			}
			for len(in) <= k {
				in = append(in, nil)
			}
			in[k] = v
			continue
		}
		v, err := q.attribute(op, n)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, attr{n.Name, v, n.Pos()})
	}
	for len(in) > op.Sig.Required() && in[len(in)-1] == nil {
		in = in[:len(in)-1]
	}
	return q.apply(e.Pos(), op.Name, in, attrs, names)
}

// clamp turns min(x, 3) and max(x, 3) of a tensor and a number into clamp(x, high=3) and clamp(x, low=3).
func (q *equation) clamp(e lang.Call) (lang.Call, bool) {
	side := map[string]string{"min": "high", "max": "low"}[e.Func]
	if side == "" || len(e.Args) != 2 || len(e.Named) > 0 || q.isNumber(e.Args[0]) == q.isNumber(e.Args[1]) {
		return e, false
	}
	x, by := e.Args[0], e.Args[1]
	if q.isNumber(x) {
		x, by = by, x
	}
	return lang.Call{At: e.At, Func: "clamp", Args: []lang.Expr{x}, Named: []lang.Named{{At: e.At, Name: side, X: by}}},
		true
}

// operand builds an operand; an optional weight that is absent gives nil
// where the operator can do without, chosen by a condition or not.
func (q *equation) operand(e lang.Expr, optional bool) (*Value, *lang.Error) {
	for c, is := e.(lang.Cond); is; c, is = e.(lang.Cond) {
		var err *lang.Error
		if e, err = q.chosen(c); err != nil {
			return nil, err
		}
	}
	if n, ok := e.(lang.Name); ok && optional {
		if v, ok := q.sc.Values[n.Name]; ok && v == nil {
			return nil, nil
		}
	}
	return q.one(e)
}

// attribute evaluates an attribute, in which the attribute's own words are known.
func (q *equation) attribute(op *Op, n lang.Named) (lang.Val, *lang.Error) {
	if !slices.ContainsFunc(op.Attrs(), func(a AttrSpec) bool { return a.Name == n.Name }) {
		return nil, q.fail(n.Pos(), "%v", op.SetAttr(nil, n.Name, nil))
	}
	words := op.words(n.Name)
	v, err := lang.Eval(n.X, func(name string) (lang.Val, bool) {
		if v, ok := q.sc.Env(name); ok {
			return v, true
		}
		return name, slices.Contains(words, name)
	})
	if err == nil {
		return v, nil
	}
	e := q.wrap(err)
	if x, ok := n.X.(lang.Name); ok && len(words) > 0 {
		e.Msg = fmt.Sprintf("%s: %s= of %s must be one of %s, not %s", q.name, n.Name, op.Name, strings.Join(words, ", "),
			x.Name)
	}
	return nil, e
}

func (q *equation) apply(at int, opName string, in []*Value, attrs []attr, names []string) ([]*Value, *lang.Error) {
	op := q.Ops.Lookup(opName)
	if op == nil {
		return nil, q.fail(at, "the table of operators lacks %s", opName)
	}
	n := &Node{Op: op, In: in, Float: q.Float, Block: q.Block, Place: q.Place}
	if op.Attr != nil {
		n.Attr = op.Attr()
	}
	given := map[string]bool{}
	for _, a := range attrs {
		if err := op.SetAttr(n.Attr, a.name, a.val); err != nil {
			return nil, q.fail(a.at, "%v", err)
		}
		given[a.name] = true
	}
	for _, a := range op.Attrs() {
		if a.Required && !given[a.Name] {
			return nil, q.fail(at, "%s needs the attribute %s=", op.Name, a.Name)
		}
	}
	if err := q.Add(n, names, q.name); err != nil {
		return nil, q.fail(at, "%v", err)
	}
	return n.Out, nil
}

// Add infers a node's results, names them and appends the node. Without
// names they are called after the equation and the operator.
func (b *Builder) Add(n *Node, names []string, equation string) error {
	results, err := n.Op.Infer(n)
	if err != nil {
		return err
	}
	if names != nil && len(names) != len(results) {
		return fmt.Errorf("%s gives %d results, %d names are given", n.Op.Name, len(results), len(names))
	}
	n.ID = len(b.Graph.Nodes)
	b.Graph.Nodes = append(b.Graph.Nodes, n)
	base, _, _ := strings.Cut(equation, ",")
	for i, r := range results {
		name := base + "." + n.Op.Name
		if names != nil {
			name = names[i]
		}
		v := &Value{Name: b.unique(b.Prefix + name), Type: r.Type, Shape: r.Shape, Def: n, Index: i}
		n.Out = append(n.Out, b.Graph.AddValue(v))
	}
	n.Name = n.Out[0].Name
	return nil
}

func (b *Builder) unique(name string) string {
	if b.names == nil {
		b.names, b.taken = map[string]bool{}, map[string]int{}
		for _, v := range b.Graph.Values {
			b.names[v.Name] = true
		}
	}
	try := name
	for i := max(b.taken[name], 1) + 1; b.names[try]; i++ {
		try = name + strconv.Itoa(i)
		b.taken[name] = i
	}
	b.names[try] = true
	return try
}
