// Package op measures operators one by one: any operator or fused operator, on
// any device, at given sizes or at those that a model's steps have. The result is
// compared with a float64 reference in the same run, over the whole output.
package op

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Case is one operator at one set of sizes: a node of its own, whose operands
// nothing computes.
type Case struct {
	Node *graph.Node
	// Strides are the bytes between rows of each operand; 0: the rows are dense.
	Strides []int
	// First is the position of the first token, where the operator has positions.
	First int
	// Params are the sizes, types and attributes, by which results are compared.
	Params map[string]string
	// Kernel runs the case instead of what the device chooses; nil: that.
	Kernel backends.Kernel
	// Steps counts how often a model's step launches this: "pp512": 32.
	Steps map[string]int
}

// Name is the operator with its parameters: "linear k=4096 m=1 n=4096 type=f16".
func (c *Case) Name() string {
	var b strings.Builder
	b.WriteString(c.Node.Op.Name)
	for _, k := range slices.Sorted(maps.Keys(c.Params)) {
		b.WriteString(" " + k + "=" + c.Params[k])
	}
	return b.String()
}

// Request asks for operators at sizes.
type Request struct {
	Sizes map[string]int    // by the name of a signature's dimension in lower case; "m" are the leading rows
	Type  tensor.Type       // of weight matrices; Invalid: f16
	KV    tensor.Type       // of caches; Invalid: f16
	Attrs map[string]string // attributes, as model files write them
	With  []string          // optional operands that are given; norms have their weight anyway
	At    int               // position of the first token; below 0: such that the last fills the cache
	Float tensor.Type       // of activations
}

// defaults are the sizes of Llama-2-7B, and of Mixtral where experts come in.
var defaults = map[string]int{
	"m": 1, "s": 1, "n": 4096, "k": 4096, "d": 4096, "h": 32, "g": 32, "dh": 128, "dv": 128,
	"c": 2048, "v": 32000, "e": 8, "u": 2, "a": 1, "r": 1, "f": 64, "l": 2, "z": 1, "j": 1, "p": 64, "to": 32, "b": 16,
}

// required are values for attributes that have no default.
var required = map[string]string{"k": "2", "cap": "30", "by": "2", "p": "1.5", "to": "32",
	"iters": "20"}

// Dims lists the sizes that an operator takes, in the order of its signature.
func Dims(op *graph.Op) []string {
	var names []string
	for _, o := range op.Sig.In {
		for _, d := range dimNames(o) {
			if _, err := strconv.Atoi(d); err != nil && !slices.Contains(names, d) {
				names = append(names, d)
			}
		}
	}
	for _, o := range op.Sig.Out {
		for _, d := range o.Dims {
			if name, ok := strings.CutPrefix(d, "@"); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// dimNames are the sizes of an operand: rows before a star are m; where nothing
// but a star is said, the last size is n.
func dimNames(o graph.Operand) []string {
	var names []string
	for i, d := range o.Dims {
		d = strings.TrimSuffix(d, "?")
		switch {
		case d[0] != '*':
			names = append(names, strings.ToLower(d))
		case len(o.Dims) == 1:
			names = append(names, "m", "n")
		case i > 0:
			names = append(names, "n")
		default:
			names = append(names, "m")
		}
	}
	return names
}

// New builds the case of an operator.
// It is in one piece: each part of a request is read in the order of the operator's signature.
func New(op *graph.Op, r Request) (*Case, error) {
	dims := Dims(op)
	for name := range r.Sizes {
		if !slices.Contains(dims, name) {
			return nil, fmt.Errorf("%s has no size %s; it has %s: %s", op.Name, name, strings.Join(dims, ", "), op.Sig)
		}
	}
	if op.Kind == graph.Update {
		if _, ok := r.Sizes["n"]; !ok && slices.Contains(dims, "n") {
			r.Sizes = maps.Clone(r.Sizes)
			if r.Sizes == nil {
				r.Sizes = map[string]int{}
			}
			r.Sizes["n"] = defaults["c"]
		}
	}
	size := func(name string) int {
		n, ok := r.Sizes[name]
		switch {
		case ok:
			return n
		case name == "g" && r.Sizes["h"] > 0:
			return r.Sizes["h"]
		case name == "dv" && r.Sizes["dh"] > 0:
			return r.Sizes["dh"]
		case name == "f" && r.Sizes["dh"] > 0:
			return r.Sizes["dh"] / 2
		case name == "to" && r.Sizes["g"] == 0:
			return defaults["g"]
		case (op == ops.Draw || op == ops.Filter) && name == "w": // a bit for each of v
			return (cmp.Or(r.Sizes["v"], defaults["v"]) + 31) / 32
		case op == ops.Sinkhorn && name == "n": // streams
			return 4
		case op == ops.Pool && name == "b": // the first row and that behind the last
			return 2
		}
		return defaults[name]
	}
	g := &graph.Graph{Name: op.Name}
	b := &graph.Builder{Graph: g, Ops: ops.Table, Float: r.Float, Block: -1}
	n := &graph.Node{Op: op, Float: r.Float, Block: -1}
	if err := r.attributes(op, n, size); err != nil {
		return nil, err
	}
	for _, o := range op.Sig.In {
		if o.Optional && !slices.Contains(r.With, o.Name) && o.Name != "w" {
			n.In = append(n.In, nil)
			continue
		}
		v := &graph.Value{Name: o.Name, Kind: kindOf(o)}
		for _, d := range dimNames(o) {
			k, err := strconv.Atoi(d)
			if err != nil {
				k = size(d)
			}
			if k < 1 || k > math.MaxInt32 {
				return nil, fmt.Errorf("%s: size %s=%d: it must be positive and below 2^31", op.Name, d, k)
			}
			v.Shape = append(v.Shape, k)
		}
		v.Type = r.typeOf(o, v)
		if _, err := v.Shape.Bytes(v.Type); err != nil {
			return nil, fmt.Errorf("%s: operand %s: %w", op.Name, o.Name, err)
		}
		n.In = append(n.In, g.AddValue(v))
	}
	for _, name := range r.With {
		if !slices.ContainsFunc(op.Sig.In, func(o graph.Operand) bool { return o.Name == name && o.Optional }) {
			return nil, fmt.Errorf("%s has no optional operand %s: %s", op.Name, name, op.Sig)
		}
	}
	for len(n.In) > op.Sig.Required() && n.In[len(n.In)-1] == nil {
		n.In = n.In[:len(n.In)-1]
	}
	if op == ops.Attention && len(n.In) > 5 { // a span's k and v hold the step's own rows
		n.In[1].Shape[0], n.In[2].Shape[0] = n.In[0].Shape[0], n.In[0].Shape[0]
	}
	if elems := ops.SlotElems(n); elems > 0 { // a recurrence's state has the size that its other operands say
		n.In[0].Shape = tensor.Shape{2, elems + 1}
	}
	if err := b.Add(n, nil, op.Name); err != nil {
		return nil, err
	}
	c := &Case{Node: n, Strides: make([]int, len(n.In)), First: r.At}
	if limit := c.positions(); limit > 0 {
		tokens := c.tokens()
		if r.At < 0 {
			c.First = max(0, limit-tokens)
		}
		if c.First+tokens > limit && op.Name != "rope" {
			return nil, fmt.Errorf("%s: %d tokens from position %d on do not fit a cache of %d", op.Name, tokens, c.First, limit)
		}
	}
	if ops.SlotElems(n) > 0 { // its state is that before the first position
		c.First = 0
	}
	c.Params = c.params()
	return c, nil
}

// attributes sets those that are given, those that sizes name, and stand-ins for
// those without a default.
func (r *Request) attributes(op *graph.Op, n *graph.Node, size func(string) int) error {
	if op.Attr != nil {
		n.Attr = op.Attr()
	}
	given := maps.Clone(r.Attrs)
	if given == nil {
		given = map[string]string{}
	}
	for _, a := range op.Attrs() {
		if !a.Required || given[a.Name] != "" {
			continue
		}
		switch k, ok := r.Sizes[a.Name]; {
		case ok:
			given[a.Name] = strconv.Itoa(k)
		case a.Name == "sizes": // of split: two halves
			given[a.Name] = fmt.Sprintf("[%d, %d]", size("n")/2, size("n")-size("n")/2)
		case a.Name == "shape": // of view: flat
			given[a.Name] = fmt.Sprintf("[%d]", size("m")*size("n"))
		default:
			given[a.Name] = required[a.Name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		e, err := lang.Parse(given[name])
		if err != nil {
			return fmt.Errorf("attribute %s=%s: %w", name, given[name], err)
		}
		// A word stands for itself.
		v, err := lang.Eval(e, func(word string) (lang.Val, bool) { return word, true })
		if err != nil {
			return fmt.Errorf("attribute %s=%s: %w", name, given[name], err)
		}
		if err := op.SetAttr(n.Attr, name, v); err != nil {
			return err
		}
	}
	return nil
}

// kindOf says where an operand of a signature comes from in models.
func kindOf(o graph.Operand) graph.Kind {
	switch o.Name {
	case "w", "b", "factors":
		return graph.Weight
	case "k", "v", "cache", "state":
		return graph.State
	}
	return graph.Input
}

func (r *Request) typeOf(o graph.Operand, v *graph.Value) tensor.Type {
	or := func(t, d tensor.Type) tensor.Type {
		if t == tensor.Invalid {
			return d
		}
		return t
	}
	switch {
	case o.Type == "i32":
		return tensor.I32
	case o.Name == "state":
		return or(r.Float, tensor.F32)
	case v.Kind == graph.State:
		return or(r.KV, tensor.F16)
	case v.Kind == graph.Weight && len(v.Shape) > 1 && o.Name == "w":
		return or(r.Type, tensor.F16)
	case v.Kind == graph.Weight:
		return tensor.F32
	}
	return or(r.Float, tensor.F32)
}

// HasType and HasKV say whether an operator has an operand whose type Request's
// Type, or KV, gives.
func HasType(op *graph.Op) bool {
	return slices.ContainsFunc(op.Sig.In, func(o graph.Operand) bool { return o.Name == "w" && len(o.Dims) > 1 })
}

// HasKV is described with HasType.
func HasKV(op *graph.Op) bool {
	return slices.ContainsFunc(op.Sig.In, func(o graph.Operand) bool { return kindOf(o) == graph.State })
}

// HasPositions says whether an operator has positions, of which Request's At is the first.
func HasPositions(op *graph.Op) bool {
	return slices.ContainsFunc(op.Sig.In, func(o graph.Operand) bool { return o.Name == "pos" })
}

// operand gives a node's operand by its name in the signature, nil without.
func operand(n *graph.Node, name string) *graph.Value {
	for i, o := range n.Op.Sig.In {
		if o.Name == name && i < len(n.In) {
			return n.In[i]
		}
	}
	return nil
}

// positions is the number of positions of the cache, 0 without positions;
// rope, which has no cache, could go to any.
func (c *Case) positions() int {
	if operand(c.Node, "pos") == nil {
		return 0
	}
	for _, name := range []string{"cache", "k"} {
		if v := operand(c.Node, name); v != nil {
			if table := operand(c.Node, "table"); table != nil { // of pages that lie anywhere
				return table.Shape[1] * v.Shape[1]
			}
			return v.Shape[0]
		}
	}
	return defaults["c"]
}

// tokens is the number of positions that the case computes.
func (c *Case) tokens() int { return operand(c.Node, "pos").Shape.Elems() }

// kv is the number of cache positions that the last token sees.
func (c *Case) kv() int {
	if c.positions() == 0 {
		return 0
	}
	return c.First + c.tokens()
}

// params describes a node by the names of its signature.
func (c *Case) params() map[string]string {
	n := c.Node
	p := map[string]string{}
	for i, v := range n.In {
		if v == nil {
			continue
		}
		o := n.Op.Sig.In[i]
		dimParams(p, o, v.Shape)
		switch {
		case o.Name == "w" && len(v.Shape) > 1:
			p["type"] = v.Type.String()
		case v.Kind == graph.Weight && v.Type != tensor.F32:
			p["type_"+o.Name] = v.Type.String()
		case v.Kind == graph.State:
			p["kv"] = v.Type.String()
		}
		if o.Optional && o.Name != "w" {
			p["with"] = strings.TrimPrefix(p["with"]+"+"+o.Name, "+")
		}
		if s := c.Strides[i]; s != 0 && len(v.Shape) > 0 && v.Shape[0] > 1 && s != v.Type.RowBytes(v.Shape[1:].Elems()) {
			p["ld_"+o.Name] = strconv.Itoa(s) // bytes from row to row, where that is not a row
		}
	}
	if n.Float != tensor.F32 && n.Float != tensor.Invalid {
		p["float"] = n.Float.String()
	}
	if n.Op.Attr != nil {
		plain := n.Op.Attr()
		for _, a := range n.Op.Attrs() {
			v, _ := graph.AttrVal(n.Attr, a.Name)
			d, _ := graph.AttrVal(plain, a.Name)
			if at, ok := n.Attr.(*ops.AttentionAttr); ok && a.Name == "scale" && at.Scale > 0 {
				d = (&ops.AttentionAttr{}).ScaleOf(n.In[0].Shape.Last())
			}
			if text := lang.Format(v); a.Name != "eps" && (a.Required || text != lang.Format(d)) {
				p[a.Name] = strings.ReplaceAll(text, ", ", "x")
			}
		}
	}
	if c.positions() > 0 {
		p["at"] = strconv.Itoa(c.First)
	}
	return p
}

// dimParams names the sizes of an operand; several leading dimensions become
// one parameter, "3x5".
func dimParams(p map[string]string, o graph.Operand, shape tensor.Shape) {
	names := dimNames(o)
	lead := len(shape) - len(names)
	for i, name := range names {
		at, span := i, 1
		if star := slices.IndexFunc(o.Dims, func(d string) bool { return d[0] == '*' }); star >= 0 {
			switch {
			case i == star && lead > 0:
				span += lead
			case i > star:
				at += lead
			}
		}
		if at < 0 || at+span > len(shape) { // fewer sizes than names: no rows before
			continue
		}
		var parts []string
		for _, k := range shape[at : at+span] {
			parts = append(parts, strconv.Itoa(k))
		}
		text := strings.Join(parts, "x")
		if old, ok := p[name]; ok && old != text { // mix of add: the other operand's rows
			name += "_" + o.Name
		}
		p[name] = text
	}
}

// FromShape makes a launch of a model's step a case of its own.
func FromShape(s engine.Shape, first int) *Case {
	n := s.Node
	g := &graph.Graph{Name: n.Op.Name}
	own := &graph.Node{Op: n.Op, Float: n.Float, Attr: n.Attr, Name: n.Op.Name, Block: -1}
	c := &Case{Node: own, Strides: make([]int, len(n.In)), First: first, Steps: map[string]int{}}
	for i, v := range n.In {
		if v == nil {
			own.In = append(own.In, nil)
			continue
		}
		kind := v.Root().Kind
		if kind == graph.Computed {
			kind = graph.Input
		}
		own.In = append(own.In, g.AddValue(&graph.Value{Name: n.Op.Sig.In[i].Name, Kind: kind, Type: v.Type, Shape: v.Shape}))
		c.Strides[i] = s.Strides[i]
	}
	for i, v := range n.Out {
		own.Out = append(own.Out, g.AddValue(&graph.Value{Name: fmt.Sprintf("out%d", i), Type: v.Type, Shape: v.Shape,
			Def: own, Index: i}))
	}
	g.Nodes = []*graph.Node{own}
	c.Params = c.params()
	return c
}

// Step is a step of a model: its name, tokens, and the position of the first.
type Step struct {
	Name   string // "pp512", "tg"
	Tokens int
	First  int
}

// FromModel lists the distinct launches of a model's steps as the engine lowers
// them for the device, in the order in which they come first, with how often each
// step has them.
func FromModel(opt engine.Options, steps []Step) ([]*Case, error) {
	var all []*Case
	known := map[string]*Case{}
	for _, st := range steps {
		shapes, err := engine.Shapes(opt, st.Tokens, 1)
		if err != nil {
			return nil, err
		}
		for _, s := range shapes {
			c := FromShape(s, st.First)
			key := fmt.Sprint(c.Name(), c.Node.AttrText())
			if known[key] == nil {
				known[key] = c
				all = append(all, c)
			}
			known[key].Steps[st.Name]++
		}
	}
	return all, nil
}
