//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Folds of a step of one token. A stage of such a step takes longer to begin and to end
// than its work, so what a neighbour can do on the way has no dispatch of its own:
//
//   - an RMSNorm that products of bytes read: the product that computes its operand, or the embedding of
//     the token, also writes the bytes of y g with sums of squares (matvecq.comp, CHAIN; embed.comp);
//   - gate, up and their SwiGLU or GeGLU: one kernel (GATE);
//   - rope, rope_push and push before an attention (attention_few.comp, FRESH).
//
// They are found before the program is bound, from launches, operands and their ranges
// alone; a launch that is folded binds to nothing.

// folds are those of a program, by the number of the launch that does the work.
type folds struct {
	into  map[int]int  // of a launch that is folded into another: that one
	norms map[int]int  // the norm behind a product, or behind an embedding
	gates map[int]gate // of the launch of the activation
	fresh map[int]fresh
	read  int // the last launch that reads the bytes of the last norm, -1: none
}

// folded says whether a launch is folded into another.
func (f *folds) folded(i int) bool {
	_, ok := f.into[i]
	return ok
}

// owner is the launch that does the work of launch i.
func (f *folds) owner(i int) int {
	if into, ok := f.into[i]; ok {
		return into
	}
	return i
}

// norm gives the norm behind a product, or behind an embedding; -1: none is folded into it.
func (f *folds) norm(i int) (int, bool) {
	if f != nil {
		if n, ok := f.norms[i]; ok {
			return n, true
		}
	}
	return -1, false
}

// gate is a pair of products whose results go into one activation.
type gate struct{ gate, up *backends.Launch }

// fresh are the launches that give an attention its query and the newest rows of its caches.
type fresh struct {
	q, k, v *backends.Launch
	table   *buffer // of frequencies
	pairs   int
	scale   float64
}

// findFolds looks for them.
func (d *Device) findFolds(p *backends.Program) *folds {
	f := &folds{into: map[int]int{}, norms: map[int]int{}, gates: map[int]gate{}, fresh: map[int]fresh{}, read: -1}
	if d.plain || d.opt.Invariant || int(d.p.limits.MaxPerStageDescriptorStorageBuffers) < foldBindings {
		return f
	}
	for i := range p.Launches {
		switch p.Launches[i].Node.Op {
		case ops.SwiGLU, ops.GeGLU:
			d.findGate(p, i, f)
		case ops.Attention:
			d.findFresh(p, i, f)
		}
	}
	for i := range p.Launches {
		d.findNorm(p, i, f)
	}
	return f
}

// foldBindings is the number of storage buffers of the kernels with most.
const foldBindings = 16

// foldWindow is over how many launches a result must lie where it is, so that a fold may
// read it later than its launch does: from the query's product to attention.
const foldWindow = 8

// readers calls ok for each launch behind i that reads some of o, with the operand's
// number, until o is overwritten; false as soon as ok says so, or where none reads.
func readers(p *backends.Program, i int, o *backends.Operand, ok func(j, operand int) bool) bool {
	found := false
	all := backends.Readers(p.Launches, i, o, func(j, operand int) bool {
		found = true
		return ok(j, operand)
	})
	return all && found
}

// kept says whether no launch in [from, to) writes some of o.
func kept(p *backends.Program, from, to int, o *backends.Operand) bool {
	for j := from; j < to; j++ {
		if p.Launches[j].Writes(o) {
			return false
		}
	}
	return true
}

// inside says whether a result is memory of the arena, which nobody looks at afterwards.
func inside(o *backends.Operand) bool {
	b, ok := o.Buffer.(*buffer)
	return ok && b.use == backends.Arena
}

// same says whether two operands are the same elements of one row.
func same(a, b *backends.Operand) bool {
	return a.Buffer == b.Buffer && a.Offset == b.Offset && a.Type == b.Type && a.Shape.Elems() == b.Shape.Elems()
}

// vecForm says in which form a launch reads its activations, if it is a product of
// one row by a weight in one piece.
func (d *Device) vecForm(l *backends.Launch) (form, bool) {
	k, ok := l.Kernel.(*kernel)
	if !ok || !isLinear(l.Node) || l.In[0].Shape.Rows() != 1 {
		return "", false
	}
	w := (&bind{d: d}).placed(&l.In[1])
	return d.formOf(k.on, w, 1), len((&bind{d: d}).pieces(w)) == 1
}

// chainTypes are the formats for which matvecq.comp is compiled as a link of a chain.
var chainTypes = map[tensor.Type]bool{tensor.Q4_0: true, tensor.Q5_1: true, tensor.Q8_0: true, tensor.Q4_K: true,
	tensor.Q5_K: true, tensor.Q6_K: true}

// chains says whether a launch is a product of bytes that can be one.
func (d *Device) chains(l *backends.Launch) bool {
	form, ok := d.vecForm(l)
	return ok && form == dots && chainTypes[l.In[1].Type]
}

// plainLinear says whether a launch is a product and nothing more: no bias, no residual.
func plainLinear(l *backends.Launch) bool {
	return l.Node.Op == ops.Linear && (at(l.In, 2) == nil || at(l.In, 2).Buffer == nil)
}

// findGate looks whether launch i is the activation of two products right before it.
func (d *Device) findGate(p *backends.Program, i int, f *folds) {
	if i < 2 {
		return
	}
	l, g := &p.Launches[i], gate{&p.Launches[i-2], &p.Launches[i-1]}
	if !isProduct(g.gate.Node) || !isProduct(g.up.Node) {
		return
	}
	if !same(&g.gate.Out[0], &l.In[0]) {
		g.gate, g.up = g.up, g.gate
	}
	form, ok := d.vecForm(g.gate)
	other, ok2 := d.vecForm(g.up)
	w, u, x := &g.gate.In[1], &g.up.In[1], &g.gate.In[0]
	if !ok || !ok2 || form != other || !plainLinear(g.gate) || !plainLinear(g.up) || w.Type != u.Type ||
		w.Stride != u.Stride ||
		w.Rows() != u.Rows() || w.Rows()%2 != 0 || !same(x, &g.up.In[0]) || !same(&g.gate.Out[0], &l.In[0]) ||
		!same(&g.up.Out[0], &l.In[1]) {
		return
	}
	switch {
	case form == dots && chainTypes[w.Type]:
	case form == "" && (w.Type == tensor.F16 || w.Type == tensor.BF16):
		cols := w.Shape.Last()
		if aligned(w, cols, w.Stride) == 0 || aligned(u, cols, u.Stride) == 0 || x.Offset%16 != 0 {
			return
		}
	default:
		return
	}
	for n, o := range []*backends.Operand{&g.gate.Out[0], &g.up.Out[0]} {
		if !inside(o) || o.Overlaps(x) || !readers(p, i-1, o, func(j, operand int) bool { return j == i && operand == n }) {
			return
		}
	}
	// What the products read must not be where the result goes: x, or the operand of a
	// norm that is folded into them.
	z := &l.Out[0]
	for j := i - 3; j >= 0 && !z.Overlaps(x); j-- {
		if p.Launches[j].Writes(x) {
			if z.Overlaps(&p.Launches[j].In[0]) {
				return
			}
			break
		}
	}
	if z.Overlaps(x) {
		return
	}
	f.gates[i], f.into[i-2], f.into[i-1] = g, i, i
}

// findNorm looks whether launch i is a product, or an embedding, behind which comes a norm that only
// products of bytes read.
func (d *Device) findNorm(p *backends.Program, i int, f *folds) {
	l := &p.Launches[i]
	if f.folded(i) || !d.chains(l) && !d.embedsOne(l) {
		return
	}
	y := &l.Out[0]
	if y.Shape.Last()%32 != 0 {
		return
	}
	for j := i + 1; j < len(p.Launches); j++ {
		n := &p.Launches[j]
		if n.Node.Op == ops.RMSNorm && same(&n.In[0], y) && n.In[0].Shape.Rows() == 1 &&
			n.In[0].Shape.Last() == y.Shape.Last() {
			w, o, last := at(n.In, 1), &n.Out[0], j
			if w == nil || w.Buffer == nil || w.Type != tensor.F32 || !w.Dense() || w.Offset%4 != 0 || !inside(o) {
				return
			}
			if !readers(p, j, o, func(k, operand int) bool {
				last = k
				return operand == 0 && d.chains(&p.Launches[k]) && same(&p.Launches[k].In[0], o)
			}) {
				return
			}
			if _, gated := f.gates[last+1]; gated && f.folded(last) {
				last++
			}
			// The bytes lie in one place: those before them must have been read.
			if f.read >= i {
				return
			}
			f.norms[i], f.into[j], f.read = j, i, last
			return
		}
		if n.Writes(y) {
			return
		}
	}
}

// findFresh looks for the launches right before attention i that rotate its query and
// write the newest rows of its caches.
func (d *Device) findFresh(p *backends.Program, i int, f *folds) {
	l := &p.Launches[i]
	q, k, v, pos := &l.In[0], &l.In[1], &l.In[2], &l.In[3]
	if q.Shape[0] != 1 || d.fewUnits(l.Node, k, v) == 0 || !inside(q) || ops.Beyond(l.Node) != "" {
		return
	}
	// before finds the launch that wrote o last.
	before := func(o *backends.Operand) int {
		for j := i - 1; j >= 0; j-- {
			if p.Launches[j].Writes(o) {
				return j
			}
		}
		return -1
	}
	jq, jk, jv := before(q), before(k), before(v)
	if jq < 0 || jk < 0 || jv < 0 {
		return
	}
	r := fresh{q: &p.Launches[jq], k: &p.Launches[jk], v: &p.Launches[jv]}
	if r.q.Node.Op != ops.RoPE || r.k.Node.Op != ops.RoPEPush || r.v.Node.Op != ops.Push || !same(&r.q.Out[0], q) ||
		!same(&r.k.In[0], k) || !same(&r.v.In[0], v) {
		return
	}
	for _, o := range []*backends.Operand{&r.q.In[1], &r.k.In[2], &r.v.In[2]} {
		if !same(o, pos) {
			return
		}
	}
	if !readers(p, jq, q, func(j, _ int) bool { return j == i }) {
		return
	}
	for j := min(jk, jv) + 1; j < i; j++ {
		for n := range p.Launches[j].In {
			o := &p.Launches[j].In[n]
			if j > jk && o.Overlaps(k) || j > jv && j != jk && o.Overlaps(v) {
				return
			}
		}
	}
	for _, x := range []struct {
		from int
		o    *backends.Operand
	}{{jq, &r.q.In[0]}, {jk, &r.k.In[1]}, {jv, &r.v.In[1]}} {
		if x.o.Offset%4 != 0 || x.o.Type != tensor.F32 || !kept(p, x.from, i+1, x.o) {
			return
		}
	}
	if a, c := graph.Attr[ops.RoPEAttr](r.q.Node), graph.Attr[ops.RoPEAttr](r.k.Node); a.Layout != c.Layout {
		return
	}
	var err, err2 error
	var other fresh
	r.table, r.pairs, r.scale, err = (&bind{d: d, l: r.q}).frequencies(q.Shape[2], at(r.q.In, 2))
	other.table, other.pairs, other.scale, err2 = (&bind{d: d, l: r.k}).frequencies(q.Shape[2], at(r.k.In, 3))
	if err != nil || err2 != nil || r.table != other.table || r.pairs != other.pairs || r.scale != other.scale {
		return // the launches by themselves say what is wrong
	}
	f.fresh[i] = r
	f.into[jq], f.into[jk], f.into[jv] = i, i, i
}
