package models

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/hfclass"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Options say for which step, weights and types a graph is built.
type Options struct {
	Weights Weights                          // nil: synthetic
	Set     map[string]string                // parameters given by name, as expressions
	S       int                              // tokens in the step; 0: 1
	C       int                              // context length; 0: S
	R       int                              // rows of logits wanted; 0: 1
	Float   tensor.Type                      // element type of activations; Invalid: F32
	KV      tensor.Type                      // element type of states; Invalid: F32
	DType   tensor.Type                      // type of weight matrices; Invalid: as stored, F16 where synthetic
	Seen    func(l *graph.Load, gguf string) // told of each weight that is read, and what GGUF calls it; may be nil
	Mix     TypeChooser                      // types of synthetic weight matrices by their names, before DType; nil: none
	// Narrow gives a type to matrices whose rows of n elements are no blocks of t, DType; nil: they are refused.
	Narrow func(t, stored tensor.Type, n int) tensor.Type
	// Keep gives the type of a weight whatever else is asked for, by the tensor that it is read from, the first of
	// several; Invalid: none. nil: as one that gives none.
	Keep func(tensor string) tensor.Type

	unread hfclass.Unread // what the class that config.json means does not read of it, and what is absent for that
}

// TypeChooser gives the matrices of a model types of their own, as GGUF files of mixed types have
// them. size tells the model's sizes by GGUF's keys behind the architecture ("block_count"), has
// whether it has a tensor of a name. The result is asked for each matrix by the name of its tensor in GGUF
// files and its shape; Invalid leaves a matrix in F32.
type TypeChooser func(size func(key string) (int64, bool), has func(tensor string) bool) func(tensor string,
	shape tensor.Shape) tensor.Type

func (o *Options) defaults() {
	if o.Weights != nil && o.Weights.Dialect() == "hf" && o.unread == nil {
		o.unread = hfclass.UnreadOf(o.Weights.Meta)
	}
	for _, d := range []struct {
		n  *int
		is int
	}{{&o.S, 1}, {&o.C, max(1, o.S)}, {&o.R, 1}} {
		if *d.n == 0 {
			*d.n = d.is
		}
	}
	for _, t := range []*tensor.Type{&o.Float, &o.KV} {
		if *t == tensor.Invalid {
			*t = tensor.F32
		}
	}
}

// String prints a parameter as dump does: D = 4096 (gguf llama.embedding_length).
func (p Param) String() string {
	return fmt.Sprintf("%s = %s (%s)", p.Name, lang.Format(p.Value), p.Origin)
}

func (f *File) stem() string { return strings.TrimSuffix(filepath.Base(f.path), ".yaml") }

// standalone is the block's number when the file is run alone.
func (f *File) standalone() int {
	if f.block {
		return 0
	}
	return -1
}

// builder makes one graph.
type builder struct {
	errs
	o      Options
	g      *graph.Graph
	eq     *graph.Builder
	loads  map[string]*graph.Value      // weights by what they load, so that tied ones are one
	scales map[*graph.Value]*graph.Load // the factors of weights that have some
	names  map[string]bool              // of weights and states
	pushed map[*graph.Value]*graph.Node // states' versions that an update has replaced
	mix    func(tensor string, shape tensor.Shape) tensor.Type
	known  knownNames
}

// instance is one use of a file: the model, or one of its blocks.
type instance struct {
	*builder
	*scope
	f      *File
	prefix string
	vals   map[string]*graph.Value
	failed map[string]bool // names whose definition failed: what uses them is skipped
}

// Build makes the verified graph of one step. The error is Errors where the file,
// or how it fits the weights, is at fault: all that was found at once.
func (f *File) Build(o Options) (*graph.Graph, error) {
	o.defaults()
	if o.Mix != nil && o.Weights != nil {
		return nil, fmt.Errorf("%s: types are chosen for synthetic weights; those of %s have their own", f.path,
			o.Weights.Path())
	}
	b := &builder{o: o, g: &graph.Graph{Name: f.name}, loads: map[string]*graph.Value{},
		scales: map[*graph.Value]*graph.Load{}, names: map[string]bool{}, pushed: map[*graph.Value]*graph.Node{},
		known: knownNames{tensors: map[string]bool{}, keys: map[string]bool{}}}
	for _, n := range []struct {
		name string
		v    int
	}{{"S", o.S}, {"C", o.C}, {"R", o.R}} {
		if n.v < 1 || n.v >= maxSize {
			return nil, fmt.Errorf("%s: %s, %s, is %d: it must be positive and below 2^31", f.path, n.name, builtinDoc[n.name],
				n.v)
		}
	}
	b.eq = &graph.Builder{Graph: b.g, Ops: ops.Table, Float: o.Float, Block: -1}
	f.checkSet(&b.errs, o.Set)
	top := newScope(&b.errs, f, &b.o, f.standalone(), nil)
	if o.Mix != nil {
		b.mix = o.Mix(top.size, f.names)
	}
	in := b.instance(f, top, "")
	in.inputs()
	in.run()
	f.addLate(&b.errs)
	for _, name := range f.out {
		if v := in.vals[name.string]; v != nil && v.Root().Kind == graph.Computed {
			b.g.Outputs = append(b.g.Outputs, v)
		} else if v != nil && !(f.block && len(f.out) > 1) { // of a block alone what it hands on is left out
			b.add(f.fail(name, 0, "the result %s is %s itself (%s): nothing computes it", name.string, v.Root().Name,
				v.Root().Kind))
		}
	}
	if err := b.err(); err != nil {
		return nil, err
	}
	b.g.Prune()
	if err := f.unread(b); err != nil {
		return nil, err
	}
	if err := f.reaches(b); err != nil {
		return nil, err
	}
	b.foldSums()
	b.markNorms()
	if err := b.applyScales(); err != nil {
		return nil, err
	}
	if err := b.g.Verify(); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return b.g, nil
}

// instance starts the use of a file: parameters, weights and states.
func (b *builder) instance(f *File, s *scope, prefix string) *instance {
	in := &instance{builder: b, scope: s, f: f, prefix: prefix, vals: map[string]*graph.Value{}, failed: map[string]bool{}}
	s.all()
	b.known.add(s)
	for i := range f.weights {
		w := &f.weights[i]
		if !f.read[w.name.string] { // only whether it is there matters
			continue
		}
		v, ok := in.weight(w)
		if !ok {
			in.failed[w.name.string] = true
			continue
		}
		in.vals[w.name.string] = v
	}
	for _, d := range f.state {
		if v, of := in.stateOf(d); of {
			if in.vals[d.name.string] = v; v == nil {
				in.failed[d.name.string] = true
			}
			continue
		}
		shape, ok := in.shape(d.name.string, d.dims, b.o.KV)
		if !ok {
			in.failed[d.name.string] = true
			continue
		}
		t := b.o.KV
		if d.typ == "f32" { // a recurrence's, which sums up: as activations are
			t = b.o.Float
		}
		in.vals[d.name.string] = b.g.AddValue(&graph.Value{Name: b.unique(prefix + d.name.string), Kind: graph.State, Type: t,
			Shape: shape})
	}
	return in
}

// stateOf gives the latest version of another block's state where a declaration says so.
func (in *instance) stateOf(d decl) (*graph.Value, bool) {
	if d.of == nil {
		return nil, false
	}
	v, ok := in.eval(d.of.text, d.of.tree, d.name.string+": ")
	if !ok {
		return nil, true
	}
	number, whole := lang.Int(v)
	if whole && number == in.block {
		return nil, false
	}
	name := fmt.Sprintf("blk.%d.%s", number, d.name.string)
	for _, state := range in.g.States {
		if state.Name != name || !whole {
			continue
		}
		latest := state
		for in.pushed[latest] != nil {
			latest = in.pushed[latest].Out[0]
		}
		return latest, true
	}
	in.scope.add(in.f.fail(d.of.text, d.of.tree.Pos(), "%s: of: is %s: no block of that number before block %d has a "+
		"state %s",
		d.name.string, lang.Format(v), in.block, d.name.string))
	return nil, true
}

func (b *builder) unique(name string) string {
	for b.names[name] {
		name += "'"
	}
	b.names[name] = true
	return name
}

// shape computes sizes: positive whole numbers whose product fits in memory.
func (in *instance) shape(name string, dims []expr, t tensor.Type) (tensor.Shape, bool) {
	shape, ok := tensor.Shape{}, true
	for _, d := range dims {
		v, got := in.eval(d.text, d.tree, name+": ")
		if !got {
			ok = false
			continue
		}
		n, whole := lang.Int(v)
		if !whole || n < 1 || n >= maxSize {
			in.scope.add(in.f.fail(d.text, d.tree.Pos(), "%s: the size %s is %s: a size must be a whole number, positive and "+
				"below 2^31", name, d.show(), lang.Format(v)))
			ok = false
		}
		shape = append(shape, n)
	}
	if ok && len(dims) > 0 {
		if _, err := shape.Bytes(tensor.F64); err != nil {
			in.scope.add(in.f.fail(dims[0].text, 0, "%s: %v", name, err))
			ok = false
		}
	}
	return shape, ok
}

// show prints the size's own expression where it is one word, else nothing longer than the list.
func (e expr) show() string {
	if n, ok := e.tree.(lang.Name); ok {
		return n.Name
	}
	return strings.TrimSpace(e.string)
}

// inputs makes the inputs of a graph.
func (in *instance) inputs() {
	for _, d := range in.f.in {
		t := inputType(d.typ, in.o().Float)
		shape, ok := in.shape(d.name.string, d.dims, t)
		if !ok {
			in.failed[d.name.string] = true
			continue
		}
		in.vals[d.name.string] = in.g.AddValue(&graph.Value{Name: in.unique(d.name.string), Kind: graph.Input, Type: t,
			Shape: shape})
	}
}

func (in *instance) o() *Options { return &in.builder.o }

func inputType(name string, float tensor.Type) tensor.Type {
	if name == "i32" {
		return tensor.I32
	}
	return float
}

// weight makes a weight's value; nil where its condition does not hold, or where it is optional and not there.
func (in *instance) weight(w *weightDecl) (*graph.Value, bool) {
	src, name, o := in.o().Weights, w.name.string, in.o()
	if !in.when(w) || w.optional && !in.present(w) {
		return nil, true
	}
	if w.numbers != nil {
		return in.numbers(w)
	}
	shape, ok := in.shape(name, w.shape, tensor.F32)
	if !ok {
		return nil, false
	}
	fail := func(format string, args ...any) (*graph.Value, bool) {
		in.scope.add(in.f.fail(w.name, 0, format, args...))
		return nil, false
	}
	load := &graph.Load{Tensors: []string{in.prefix + name}, Type: tensor.F16}
	var scale *graph.Load
	if src != nil {
		w := in.named(w)
		p, found := w.find(src, max(0, in.block))
		if !found {
			return fail("%s", w.missing(src, max(0, in.block)))
		}
		var err error
		if load, err = p.load(src, name, max(0, in.block), shape); err != nil {
			return fail("%v", err)
		}
		if scale, err = scaleOf(src, load.Tensors[0], load.Type, p.orient(shape)[0]); err != nil {
			return fail("%v", err)
		}
		if scale != nil && (load.Transpose || load.Add != 0 || len(shape) != 2) {
			return fail("tensor %s of %s has factors in %s, which only a matrix of its own that is neither transposed nor "+
				"added to can have; take the checkpoint in bf16 or f16", load.Tensors[0], src.Path(), scale.Tensors[0])
		}
	}
	if o.Seen != nil {
		o.Seen(load, w.ggufName(in.block))
	}
	t, err := in.weightType(w, load, shape)
	if err != nil {
		return fail("%v", err)
	}
	if src == nil {
		load.Type = t
	}
	if err := t.CheckRow(shape.Last()); err != nil {
		return fail("weight %s %v: %v", name, shape, err)
	}
	key := fmt.Sprint(load.Tensors, load.Add, load.Transpose)
	if v := in.loads[key]; v != nil && v.Shape.Equal(shape) {
		return v, true
	}
	v := in.g.AddValue(&graph.Value{Name: in.unique(in.prefix + name), Kind: graph.Weight, Type: t, Shape: shape,
		Load: load})
	in.loads[key] = v
	if scale != nil {
		in.scales[v] = scale
	}
	return v, true
}

// weightType is the type that a weight is computed in.
func (in *instance) weightType(w *weightDecl, load *graph.Load, shape tensor.Shape) (tensor.Type, error) {
	o, t, kept := in.o(), load.Type, tensor.Invalid
	if o.Keep != nil {
		kept = o.Keep(load.Tensors[0])
	}
	switch {
	case len(shape) == 1 || w.bias || t.IsInt() || o.DType == tensor.Invalid && t == tensor.F64:
		return tensor.F32, nil
	case kept != tensor.Invalid:
		return kept, nil
	case in.mix != nil:
		gguf := w.ggufName(in.block)
		if gguf == "" {
			return t, fmt.Errorf("weight %s has no gguf: name, by which a mix of types chooses its own; take one type for all",
				w.name.string)
		}
		if t = in.mix(gguf, shape); t == tensor.Invalid {
			t = tensor.F32
		}
	case o.DType == tensor.Invalid:
	case o.Narrow != nil && o.DType.CheckRow(shape.Last()) != nil:
		t = o.Narrow(o.DType, t, shape.Last())
	default:
		t = o.DType
	}
	return t, nil
}

// numbers makes the value of a weight whose elements an expression gives; nil where it is optional and they are absent.
func (in *instance) numbers(w *weightDecl) (*graph.Value, bool) {
	name := w.name.string
	v, ok := in.eval(w.numbers.text, w.numbers.tree, name+": ")
	if !ok || v == nil && w.optional {
		return nil, ok
	}
	shape, ok := in.shape(name, w.shape, tensor.F32)
	if !ok {
		return nil, false
	}
	list, is := v.([]lang.Val)
	if !is || len(list) != shape.Elems() || len(list) == 0 {
		in.scope.add(in.f.fail(w.numbers.text, 0, "%s: a list of %d numbers is wanted for %v, not %s", name, shape.Elems(),
			shape, lang.Format(v)))
		return nil, false
	}
	load := &graph.Load{Type: tensor.F32}
	for _, e := range list {
		x, is := e.(float64)
		if !is {
			in.scope.add(in.f.fail(w.numbers.text, 0, "%s: a list of numbers is wanted, not %s", name, lang.Format(v)))
			return nil, false
		}
		load.Numbers = append(load.Numbers, x)
	}
	return in.g.AddValue(&graph.Value{Name: in.unique(in.prefix + name), Kind: graph.Weight, Type: tensor.F32,
		Shape: shape, Load: load}), true
}

// load checks a pattern's tensors against the declared shape.
func (p pattern) load(src Weights, name string, block int, shape tensor.Shape) (*graph.Load, error) {
	load := &graph.Load{Add: p.add, Transpose: p.transpose}
	want, count := p.orient(shape), 1
	if p.stacked() {
		if count = shape[0]; len(shape) < 2 || count > maxNodes {
			return nil, fmt.Errorf("weight %s %v: a stack of experts has a dimension for them and others behind it", name, shape)
		}
		want = p.orient(shape[1:])
	}
	for e := range count {
		tname := p.at(block, e)
		t, have, ok := src.Lookup(tname)
		switch {
		case !ok:
			return nil, fmt.Errorf("weight %s %v: %s has no tensor %s, but it has %s", name, shape, src.Path(), tname,
				p.at(block, 0))
		case !have.Equal(want) && !stackedRows(have, want) && (p.transpose || !squeezed(have).Equal(squeezed(want))):
			return nil, fmt.Errorf("weight %s: tensor %s of %s has the shape %v, but %v is wanted", name, tname, src.Path(),
				have, want)
		case !t.IsFloat() && !t.IsBlock() && t != tensor.I64 && t != tensor.I32:
			return nil, fmt.Errorf("weight %s: tensor %s of %s holds %s; a float type, a block format, i32 or i64 is wanted",
				name, tname, src.Path(), t)
		case e > 0 && t != load.Type:
			return nil, fmt.Errorf("weight %s: the experts' tensors of %s differ in type: %s is %s, %s is %s", name, src.Path(),
				load.Tensors[0], load.Type, tname, t)
		}
		load.Type = t
		load.Tensors = append(load.Tensors, tname)
	}
	return load, nil
}

// stackedRows says whether a tensor [E*N, K] is wanted as [E, N, K], which changes nothing about where elements lie.
func stackedRows(have, want tensor.Shape) bool {
	return len(have) == 2 && len(want) == 3 && have[0] == want[0]*want[1] && have[1] == want[2]
}

// squeezed leaves out sizes of one, which change nothing about where elements lie: checkpoints keep a convolution's
// weights as [D, 1, K] and a number as [].
func squeezed(s tensor.Shape) tensor.Shape {
	out := tensor.Shape{}
	for _, n := range s {
		if n != 1 {
			out = append(out, n)
		}
	}
	return out
}

// run builds the body. An equation that uses a name whose own equation failed
// is left out without a word.
func (in *instance) run() {
	for i := range in.f.body {
		eq := &in.f.body[i]
		follows := eq.broken
		eq.mentions(func(n lang.Name) { follows = follows || in.failed[n.Name] })
		if follows || !in.build(eq) {
			for _, n := range eq.names {
				in.failed[n.string] = true
			}
		}
		if len(in.g.Nodes) > maxNodes {
			return
		}
	}
}

// values is the scope of an equation: only declared names are tensors.
func (in *instance) values() graph.Scope { return graph.Scope{Values: in.vals, Env: in.lookup} }

func (in *instance) build(eq *equation) bool {
	if eq.repeat != nil {
		return in.repeat(eq)
	}
	names := make([]string, len(eq.names))
	for i, n := range eq.names {
		names[i] = n.string
	}
	vals, ok := in.equation(eq, names, eq.rhs.tree)
	if !ok {
		return false
	}
	for i, n := range names {
		in.vals[n] = vals[i]
	}
	return true
}

// equation builds nodes for one expression, and checks what the graph alone
// could say only without a place: sizes that overflow, states updated twice.
func (in *instance) equation(eq *equation, names []string, tree lang.Expr) ([]*graph.Value, bool) {
	n := eq.rhs.node
	in.eq.Prefix, in.eq.Block = in.prefix, in.block
	if in.prefix == "" && !in.f.block {
		in.eq.Block = -1
	}
	in.eq.Place = fmt.Sprintf("%s:%d:%d", in.f.path, n.Line, n.Column)
	in.bad = false
	first := len(in.g.Nodes)
	vals, err := in.eq.Equation(names, tree, in.values())
	follows := in.bad
	in.bad = false
	if err != nil {
		if !follows {
			in.scope.add(in.f.wrap(eq.rhs.text, err, ""))
		}
		return nil, false
	}
	fail := func(format string, args ...any) bool {
		in.scope.add(in.f.fail(eq.rhs.text, tree.Pos(), "%s: %s", eq.string, fmt.Sprintf(format, args...)))
		return false
	}
	ok := true
	for _, node := range in.g.Nodes[first:] {
		ok = in.checkState(node, fail) && ok
		for _, v := range node.Out {
			if _, err := v.Shape.Bytes(tensor.F64); err != nil {
				ok = fail("%s: %v", node.Op.Name, err)
			}
		}
	}
	if len(in.g.Nodes) > maxNodes {
		ok = fail("the graph has more than %d operations", maxNodes)
	}
	return vals, ok
}

// checkState refuses a second update of a state's version, and reads of a
// version that an update has replaced.
func (in *instance) checkState(n *graph.Node, fail func(string, ...any) bool) bool {
	for _, v := range n.In {
		if by := in.pushed[v]; by != nil && v != nil {
			return fail("%s: %s has been replaced: %s pushed to it and gives the version to use", n.Op.Name, v.Name, by.Name)
		}
	}
	if n.Op.Kind == graph.Update {
		if root := n.In[0].Root(); root.Kind != graph.State {
			return fail("%s: %s is no state: declare it under state:", n.Op.Name, n.In[0])
		}
		in.pushed[n.In[0]] = n
	}
	return true
}

func (f *File) inputNames() string {
	var names []string
	for _, d := range f.in {
		names = append(names, d.name.string)
	}
	return strings.Join(names, ", ")
}

// markBiases finds the weights that no product reads as its matrix, nor an embedding as its table: like biases of one
// dimension they are f32, and stay so where matrices are converted.
func (f *File) markBiases() {
	matrix := map[string]bool{}
	var mark func(e lang.Expr)
	mark = func(e lang.Expr) {
		walk(e, func(n lang.Name) {
			if matrix[n.Name] {
				return
			}
			matrix[n.Name] = true
			for _, eq := range f.body { // one name for another, or a choice
				if eq.repeat == nil && slices.ContainsFunc(eq.names, func(t text) bool { return t.string == n.Name }) {
					mark(eq.rhs.tree)
				}
			}
		})
	}
	for _, eq := range f.body {
		calls(eq.rhs.tree, func(c lang.Call) {
			op := ops.Table.Lookup(c.Func)
			if op == nil || !ops.IsProduct(op) && op != ops.Embed && op != ops.PerHead {
				return
			}
			if len(c.Args) > 1 {
				mark(c.Args[1])
			}
			for _, n := range c.Named {
				if n.Name == "w" {
					mark(n.X)
				}
			}
		})
	}
	for i := range f.weights {
		f.weights[i].bias = !matrix[f.weights[i].name.string]
	}
}

// foldSums adds numbers to weights as they are read instead of in each step: 1 + w, of norms whose weights are stored
// minus one, is then a weight that every backend's norm takes.
func (b *builder) foldSums() {
	folded := map[string]*graph.Value{}
	for _, n := range b.g.Nodes {
		for i, v := range n.In {
			if v == nil || v.Def == nil || v.Def.Op != ops.Affine {
				continue
			}
			a, w := graph.Attr[ops.AffineAttr](v.Def), v.Def.In[0]
			if a.By != 1 || w.Kind != graph.Weight || len(w.Shape) != 1 || len(w.Load.Numbers) > 0 {
				continue
			}
			key := fmt.Sprint(w.ID, a.Plus)
			if folded[key] == nil {
				load := *w.Load
				load.Add += a.Plus
				folded[key] = b.g.AddValue(&graph.Value{Name: b.unique(w.Name + ".plus"), Kind: graph.Weight, Type: w.Type,
					Shape: w.Shape, Load: &load})
			}
			n.In[i] = folded[key]
		}
	}
	if len(folded) > 0 {
		b.g.Prune()
	}
}

// markNorms finds the weights that multiply a normalised or rotated tensor:
// synthetic values for them lie around one.
func (b *builder) markNorms() {
	for _, n := range b.g.Nodes {
		for i, v := range n.In {
			if v != nil && v.Def != nil && v.Def.Op == ops.Affine { // stored minus one
				v = v.Def.In[0]
			}
			if v == nil || v.Kind != graph.Weight {
				continue
			}
			operand := n.Op.Sig.In[i].Name
			norm := (n.Op == ops.RMSNorm || n.Op == ops.LayerNorm) && operand == "w"
			v.Load.Norm = v.Load.Norm || norm || n.Op == ops.RoPE && operand == "factors"
		}
	}
}

// Unused lists the tensors of the source that no weight of the graph reads.
func Unused(g *graph.Graph, w Weights) []string {
	used := map[string]bool{}
	for _, v := range g.Weights {
		for _, t := range v.Load.Tensors {
			used[t] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(w.Names()), func(n string) bool { return used[n] })
}
