package hip

import (
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// The chosen experts of one token, with weights in blocks and activations of eight bits (experts.hip): their first
// products with the function of these are one launch, and their second ones with the weighing, the sum, and what is
// added to it. A sum over all experts at once has other bits than one of sums: what is merged so stays merged where
// launches run one by one (eager.go).

const (
	expertsThreads = 256       // NT in experts.hip
	expertsPlaces  = 64        // PLACES
	expertsShared  = 100 << 10 // of x at most: two blocks shall fit a multiprocessor
)

// merged are launches that run as one, by their numbers in the program, the one that stands for all first, and what
// binds them. place is the last one's number: there they run. sums is the launch of an add_rmsnorm whose sum they give
// too, -1 where there is none: its norm is left, behind them.
type merged struct {
	launches    []int
	place, sums int
	bind        func(b *binder)
}

// merge finds launches of a step that become one whatever else is joined, and gives the order in which the step's
// launches run then: what is merged where its last launch stood, by the one that stands for all.
func (j *fuser) merge(from, to int) (order []int) {
	member := map[int]bool{}
	at := map[int]*merged{} // by place
	for i := from; i < to && !j.dev.alone; i++ {
		if j.node(i).Op != ops.LinearID {
			continue
		}
		for _, m := range []*merged{j.firstExperts(i), j.secondExperts(i)} {
			if m == nil || m.launches[0] < from || m.place >= to || at[m.place] != nil || !j.movable(m) ||
				slices.ContainsFunc(m.launches, func(k int) bool { return member[k] }) {
				continue
			}
			for _, k := range m.launches {
				member[k] = true
			}
			if m.sums >= 0 {
				j.norms[m.sums] = true
			}
			j.made[m.launches[0]], at[m.place] = m, m
		}
	}
	for i := from; i < to; i++ {
		if m := at[i]; m != nil {
			order = append(order, m.launches[0])
		}
		if !member[i] {
			order = append(order, i)
		}
	}
	return order
}

// movable says whether launches can run where the last of them stands.
func (j *fuser) movable(m *merged) bool {
	for _, i := range m.launches {
		for k := i + 1; k < m.place; k++ {
			if !slices.Contains(m.launches, k) && conflict(j.singles[i].spans, j.singles[k].spans) {
				return false
			}
		}
	}
	return true
}

// spans are what a launch touches, with those for which it stands.
func (j *fuser) spans(i int) []span {
	m := j.made[i]
	if m == nil {
		return j.singles[i].spans
	}
	var all []span
	for _, k := range m.launches {
		all = append(all, j.singles[k].spans...)
	}
	if m.sums >= 0 {
		all = append(all, j.singles[m.sums].spans...)
	}
	return all
}

// leaf is a product's result as an operand of a function: output i is row i·step + from of an expert's matrix.
type leaf struct{ product, step, from int }

// mostUnits is how many units of a row a lane has under way at most, and unitElems how many elements a unit has.
func mostUnits(t tensor.Type) int {
	if elems, _ := t.Block(); elems == 256 {
		return 2
	}
	return 8
}

func unitElems(t tensor.Type) int {
	switch t {
	case tensor.Q8_0:
		return 16
	case tensor.Q6_K:
		return 64
	}
	return 32
}

// takesOne says whether experts.hip computes a node, where x may have eight bits. An invariant device takes one token
// as it takes many.
func (dev *Device) takesOne(n *graph.Node) bool {
	return n.Op == ops.LinearID && n.In[2].Shape[0] == 1 && n.In[2].Shape[1] <= expertsPlaces && !dev.invariant &&
		hasHalves(dev.info.Level) && int8Types[n.In[1].Type] &&
		vecBytes(n.In[1].Type, n.In[0].Shape.Elems(), true) <= expertsShared
}

// usesExperts says whether experts.hip computes a product with a token's experts, but for how its operands lie.
func (dev *Device) usesExperts(n *graph.Node) bool {
	return dev.takesOne(n) && dev.usesInt8(n.In[1].Type)
}

// takesExperts says whether experts.hip computes a launch.
func (dev *Device) takesExperts(l *backends.Launch) bool {
	k := l.Kernel.(*kernel)
	b := &binder{dev: dev, l: l}
	return l.Node.Op == ops.LinearID && k.own == nil && k.choice.name == "experts" && l.In[0].Dense() &&
		b.pointer(&l.In[0])%16 == 0 && b.err == nil
}

// bindExperts binds a product by itself.
func bindExperts(b *binder) {
	if !b.dev.takesExperts(b.l) {
		bindLinearID(b)
		return
	}
	b.first(b.l, b.l, leaf{step: 1}, leaf{step: 1}, "a", &b.l.Out[0])
}

// expertsProgram is that of rows of k elements of w, so many of which a wave has, beside x of so many elements.
func (dev *Device) expertsProgram(w, bias *backends.Operand, rows, x int, more ...string) (s expertsShape) {
	units := ceil(ceil(w.Shape[2], unitElems(w.Type)), max(dev.wave, 32)) // a lane's
	unroll := ceil(units, ceil(units, mostUnits(w.Type)))
	s.blocks = 3
	if rows*unroll > 8 {
		s.blocks = 2
	}
	options := []string{define("W_TYPE", weightNames[w.Type]), "W_SCALAR=0", define("UNROLL", unroll),
		define("BLOCKS", s.blocks), (&binder{dev: dev}).bias(product{bias: bias})}
	s.program, s.shared = newProgram("experts.hip", append(options, more...)...), vecBytes(w.Type, x, true)
	return s
}

// expertsShape is how a launch of experts.hip looks: blocks on a multiprocessor, bytes of shared memory.
type expertsShape struct {
	program        program
	blocks, shared int
}

// grid is how many blocks a launch has for so many turns of waves.
func (s expertsShape) grid(dev *Device, turns int) int {
	return min(ceil(turns, expertsThreads/max(dev.wave, 32)), dev.units*s.blocks)
}

// stack passes a struct Stack.
func (b *binder) stack(d *dispatch, l *backends.Launch, f leaf) {
	w := &l.In[1]
	own := &binder{dev: b.dev, l: l}
	d.args.add(append(own.weightWords(w), uint64(own.dense(own.named("b"))),
		uint64(uint32(f.step))|uint64(uint32(f.from))<<32, uint64(uint32(w.Shape[1])))...)
	if own.err != nil {
		b.failf("%v: %w", l.Node, own.err)
	}
	b.waits = b.waits || own.waits
}

// first computes a function of the rows of products one and two, which are the same where f and g are.
func (b *binder) first(one, two *backends.Launch, f, g leaf, of string, out *backends.Operand) {
	w, x, e := &one.In[1], &one.In[0], &one.In[2]
	rows := 1
	if f != g {
		rows = 2
	}
	places, n := e.Shape.Elems(), out.Shape.Elems()/e.Shape.Elems()
	shape := b.dev.expertsProgram(w, (&binder{l: one}).named("b"), rows, x.Shape.Elems(), onOff("PAIRED", f != g),
		"SHARED=0", define("OF(a,b)", of))
	d := b.start(shape.program, "first", expertsThreads, shape.grid(b.dev, places*n), 1, 1)
	d.shared = shape.shared
	d.ptr(b.dense(out), b.pointer(x)).u32(w.Shape[2], x.Shape.Elems())
	b.stack(d, one, f)
	b.stack(d, two, g)
	d.ptr(b.dense(e)).u32(w.Shape[0], places, n)
	b.status(d)
}

// functionOf finds the function that launch i's operand is of experts' products: its text, the products, and the
// launches between. They read nothing but each other's results and one row.
type functionOf struct {
	j        *fuser
	leaves   []leaf
	launches []int
}

// text is an operand of launch i as a text of C.
func (f *functionOf) text(i int, o *backends.Operand) (string, bool) {
	all := f.j.p.Launches
	w := backends.LastWriter(all[:i], o)
	if w < 0 || len(all[w].Out) == 0 {
		return "", false
	}
	l := &all[w]
	switch {
	case l.Node.Op == ops.LinearID && l.Out[0].Buffer == o.Buffer && l.Out[0].Offset == o.Offset &&
		l.Out[0].Shape.Elems() == o.Shape.Elems():
		return f.leaf(leaf{w, 1, 0})
	case l.Node.Op == ops.Slice && sameElements(&l.Out[0], o):
		a, x := graph.Attr[ops.SliceAttr](l.Node), &l.In[0]
		p := backends.LastWriter(all[:w], x)
		if p < 0 || all[p].Node.Op != ops.LinearID || !sameElements(&all[p].Out[0], x) || l.Out[0].Shape.Last() != 1 ||
			backends.Axis(a.Axis, x.Shape) != len(x.Shape)-1 || all[p].Out[0].Shape.Last()%x.Shape.Last() != 0 {
			return "", false
		}
		f.add(w)
		return f.leaf(leaf{p, x.Shape.Last(), a.From})
	case l.Node.Op == ops.Split:
		from := 0
		for n := range l.Out {
			if sameElements(&l.Out[n], o) {
				p := backends.LastWriter(all[:w], &l.In[0])
				if p < 0 || all[p].Node.Op != ops.LinearID || !sameElements(&all[p].Out[0], &l.In[0]) ||
					l.Out[n].Shape.Last()*len(l.Out) != l.In[0].Shape.Last() {
					return "", false
				}
				f.add(w)
				return f.leaf(leaf{p, 1, from})
			}
			from += l.Out[n].Shape.Last()
		}
		return "", false
	case !sameElements(&l.Out[0], o):
		return "", false
	}
	return f.call(w)
}

// call is what a launch of single elements gives.
func (f *functionOf) call(w int) (string, bool) {
	l := &f.j.p.Launches[w]
	name, params, ok := elementFunction(l.Node)
	if !ok || !pointwise(l) {
		return "", false
	}
	text := name + "("
	for k := range l.In {
		if l.In[k].Shape.Elems() != l.Out[0].Shape.Elems() {
			return "", false
		}
		arg, ok := f.text(w, &l.In[k])
		if !ok {
			return "", false
		}
		if k > 0 {
			text += ","
		}
		text += arg
	}
	for _, p := range params {
		text += fmt.Sprintf(",u2f(0x%08xu)", math.Float32bits(float32(p)))
	}
	f.add(w)
	return text + ")", true
}

func (f *functionOf) add(i int) {
	if !slices.Contains(f.launches, i) {
		f.launches = append(f.launches, i)
	}
}

// leaf is the name of a product's result.
func (f *functionOf) leaf(l leaf) (string, bool) {
	at := slices.Index(f.leaves, l)
	if at < 0 {
		at = len(f.leaves)
		f.leaves = append(f.leaves, l)
	}
	f.add(l.product)
	return string(rune('a' + at)), at < 2
}

func sameElements(a, b *backends.Operand) bool {
	return a.Buffer == b.Buffer && a.Offset == b.Offset && a.Type == b.Type && a.Dense() && b.Dense() &&
		a.Shape.Elems() == b.Shape.Elems()
}

// elementFunction names the function of experts.hip for a node, with its parameters.
func elementFunction(n *graph.Node) (name string, params []float64, ok bool) {
	if pair := pairOf(n); pair != "" {
		return "of_" + pair, nil, true
	}
	switch n.Op {
	case ops.GELU:
		if graph.Attr[ops.GELUAttr](n).Form == "erf" {
			return "gelu_erf", nil, true
		}
		return "gelu_tanh", nil, true
	case ops.Scale:
		return "of_scale", []float64{graph.Attr[ops.ScaleAttr](n).By}, true
	case ops.Sigmoid:
		return "g_sigmoid", nil, true
	}
	switch n.Op.Name {
	case "affine", "clamp":
		p, q := ops.UnaryParams(n)
		return "of_" + n.Op.Name, []float64{p, q}, true
	case "silu", "relu", "relu2", "softplus", "add", "mul":
		return "of_" + n.Op.Name, nil, true
	case "tanh":
		return "g_tanh", nil, true
	}
	return "", nil, false
}

// firstExperts finds the launches that give launch i, experts' second product, its rows.
func (j *fuser) firstExperts(i int) *merged {
	l := &j.p.Launches[i]
	f := &functionOf{j: j}
	text, ok := f.text(i, &l.In[0])
	if !ok || len(f.leaves) == 0 {
		return nil
	}
	slices.Sort(f.launches)
	fa, fb := f.leaves[0], f.leaves[len(f.leaves)-1]
	a, b := &j.p.Launches[fa.product], &j.p.Launches[fb.product]
	bias, other := (&binder{l: a}).named("b"), (&binder{l: b}).named("b")
	if !j.dev.takesExperts(a) || !j.dev.takesExperts(b) || !a.In[0].Same(&b.In[0]) || !a.In[2].Same(&b.In[2]) ||
		!a.In[2].Same(&l.In[2]) || a.In[0].Shape.Elems() != a.In[1].Shape[2] || a.In[1].Type != b.In[1].Type ||
		a.In[1].Shape[2] != b.In[1].Shape[2] || (bias.Buffer == nil) != (other.Buffer == nil) ||
		bias.Buffer != nil && bias.Type != other.Type || !j.within(f.launches, &l.In[0], i) {
		return nil
	}
	return &merged{f.launches, slices.Max(f.launches), -1, func(bd *binder) {
		bd.first(a, b, fa, fb, text, &l.In[0])
	}}
}

// within says whether nothing but some launches, and launch i, reads what these give, of which only out is stored, and
// whether they can run at once.
func (j *fuser) within(launches []int, out *backends.Operand, i int) bool {
	for _, k := range launches {
		for n := range j.p.Launches[k].Out {
			o, but := &j.p.Launches[k].Out[n], launches
			if k == launches[len(launches)-1] {
				but = append(slices.Clone(launches), i)
			}
			if !j.dead(o, k, but) {
				return false
			}
		}
	}
	return j.clear(launches, out)
}

// clear says whether a result can be stored while some launches read what others gave them.
func (j *fuser) clear(launches []int, out *backends.Operand) bool {
	for n, k := range launches {
		for in := range j.p.Launches[k].In {
			o := &j.p.Launches[k].In[in]
			w := backends.LastWriter(j.p.Launches[:k], o)
			if o.Overlaps(out) && !slices.Contains(launches[:n], w) {
				return false
			}
		}
	}
	return true
}

// addition is what is added to experts' sum.
type addition struct {
	launches []int
	shared   *backends.Launch    // a product of all tokens' own matrix
	beside   []*backends.Operand // and what stands beside
	out      *backends.Operand
	sums     int // the add_rmsnorm whose sum this is, -1: none
}

// secondExperts finds what becomes of launch i, experts' product, as one launch with it.
func (j *fuser) secondExperts(i int) *merged {
	l := &j.p.Launches[i]
	p := j.reader(i, &l.Out[0])
	if !j.dev.takesExperts(l) || l.In[0].Shape[1] != l.In[2].Shape[1] || p < 0 || j.node(p).Op != ops.Mix ||
		!sameElements(&j.p.Launches[p].In[0], &l.Out[0]) || !j.p.Launches[p].In[1].Dense() {
		return nil
	}
	a := &addition{launches: []int{i, p}, out: &j.p.Launches[p].Out[0], sums: -1}
	for j.more(a, l) {
	}
	all := a.launches
	if a.sums >= 0 {
		all = append(slices.Clone(all), a.sums)
	}
	if !j.clear(all, a.out) {
		return nil
	}
	k, places, m := l.In[1].Shape[2], l.In[2].Shape.Elems(), 0
	if a.shared != nil {
		m = a.shared.In[1].Shape[1]
	}
	bias := (&binder{l: l}).named("b")
	shape := j.dev.expertsProgram(&l.In[1], bias, 1, places*k+m, "PAIRED=0", onOff("SHARED", m > 0), "OF(a,b)=a")
	if shape.shared > expertsShared {
		return nil
	}
	weights := &j.p.Launches[p].In[1]
	return &merged{a.launches, slices.Max(all), a.sums, func(bd *binder) {
		n := l.In[1].Shape[1]
		d := bd.start(shape.program, "second", expertsThreads, shape.grid(j.dev, n), 1, 1)
		d.shared = shape.shared
		d.ptr(bd.pointer(a.out)).u32(n).ptr(bd.pointer(&l.In[0]), bd.pointer(weights)).u32(k)
		bd.stack(d, l, leaf{i, 1, 0})
		d.ptr(bd.dense(&l.In[2])).u32(l.In[1].Shape[0], places)
		if a.shared != nil {
			d.args.add(bd.weightWords(&a.shared.In[1])...)
			d.ptr(bd.pointer(&a.shared.In[0]))
		} else {
			d.args.add(make([]uint64, 6)...)
			d.ptr(0)
		}
		d.u32(m)
		for n := range 2 {
			if n < len(a.beside) {
				d.ptr(bd.pointer(a.beside[n]))
			} else {
				d.ptr(0)
			}
		}
		bd.status(d)
	}}
}

// reader is the one launch that reads launch i's result, which lies in the arena, -1 where there are others.
func (j *fuser) reader(i int, o *backends.Operand) int {
	one := -1
	if !backends.ReadOnlyBy(j.p.Launches, i, o, func(k, _ int) bool {
		if one < 0 {
			one = k
		}
		return k == one
	}) {
		return -1
	}
	return one
}

// more adds the launch that reads what there is, where it adds something to it.
func (j *fuser) more(a *addition, of *backends.Launch) bool {
	k := j.reader(a.launches[len(a.launches)-1], a.out)
	if k < 0 {
		return false
	}
	l := &j.p.Launches[k]
	other := -1
	switch {
	case l.Node.Op == ops.LinearResidual && a.shared == nil:
		w, x := &l.In[1], &l.In[0]
		bd := &binder{dev: j.dev, l: l}
		r := l.Named("r")
		if r == nil || !sameElements(r, a.out) || l.Named("b") != nil && l.Named("b").Buffer != nil ||
			w.Type != of.In[1].Type || w.Shape[1]%32 != 0 || x.Shape.Rows() != 1 || bd.scalar(w) || bd.pointer(x)%16 != 0 {
			return false
		}
		a.shared = l
	case (l.Node.Op == ops.Add || l.Node.Op == ops.AddRMSNorm) && len(a.beside) < 2:
		if other = otherThan(l, a.out); other < 0 {
			return false
		}
	default:
		return false
	}
	if other >= 0 {
		a.beside = append(a.beside, &l.In[other])
	}
	a.out = &l.Out[0]
	if l.Node.Op == ops.AddRMSNorm {
		a.sums = k
		return false
	}
	a.launches = append(a.launches, k)
	return true
}

// otherThan is the operand of an addition beside o, in the same shape and f32, -1 where there is none.
func otherThan(l *backends.Launch, o *backends.Operand) int {
	for n := range 2 {
		x, y := &l.In[n], &l.In[1-n]
		if sameElements(x, o) && y.Type == tensor.F32 && y.Dense() && y.Shape.Elems() == o.Shape.Elems() {
			return 1 - n
		}
	}
	return -1
}

// pointwise says whether a launch is a function of point.hip or general.hip.
func pointwise(l *backends.Launch) bool {
	k, ok := l.Kernel.(*kernel)
	return ok && k.own == nil && (k.choice.name == "point" || k.choice.name == "general") && len(l.Out) == 1
}
