//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/fusion"
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

// foldBindings is the number of storage buffers of the kernels with most; an attention with sinks has one more.
const foldBindings = 16

// foldWindow is over how many launches a result must lie where it is, so that a fold may
// read it later than its launch does: from the query's product to attention.
const foldWindow = 8

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
	return l.Node.Op == ops.Linear && l.Named("b") == nil
}

// findGate looks whether launch i is the activation of two products right before it.
func (d *Device) findGate(p *backends.Program, i int, f *folds) {
	pair, ok := fusion.PairOf(p.Launches, i)
	if !ok || min(pair.Gate, pair.Up) != i-2 || max(pair.Gate, pair.Up) != i-1 {
		return
	}
	g := gate{&p.Launches[pair.Gate], &p.Launches[pair.Up]}
	form, ok := d.vecForm(g.gate)
	other, ok2 := d.vecForm(g.up)
	w, u, x := &g.gate.In[1], &g.up.In[1], &g.gate.In[0]
	if !ok || !ok2 || form != other || !plainLinear(g.gate) || !plainLinear(g.up) || w.Stride != u.Stride ||
		w.Rows()%2 != 0 {
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
	for _, o := range []*backends.Operand{&g.gate.Out[0], &g.up.Out[0]} {
		if o.Overlaps(x) || !backends.ReadOnlyBy(p.Launches, i-1, o, func(j, _ int) bool { return j == i }) {
			return
		}
	}
	// What the products read must not be where the result goes: x, or the operand of a
	// norm that is folded into them.
	z, made := &p.Launches[i].Out[0], backends.LastWriter(p.Launches[:i-2], x)
	if z.Overlaps(x) || made >= 0 && z.Overlaps(&p.Launches[made].In[0]) {
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
		if n.Node.Op == ops.RMSNorm && n.In[0].Same(y) && y.Shape.Rows() == 1 {
			w, o, last := at(n.In, 1), &n.Out[0], j
			if w == nil || w.Buffer == nil || w.Changes() || w.Type != tensor.F32 || !w.Dense() || w.Offset%4 != 0 {
				return
			}
			if !backends.ReadOnlyBy(p.Launches, j, o, func(k, operand int) bool {
				last = k
				return operand == 0 && d.chains(&p.Launches[k]) && p.Launches[k].In[0].Same(o)
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
	q, k, v := &l.In[0], &l.In[1], &l.In[2]
	if q.Shape[0] != 1 || d.fewUnits(l.Node, k, v) == 0 || ops.BesideSinks(l.Node) != "" ||
		ops.Beyond(l.Node) != "" && int(d.p.limits.MaxPerStageDescriptorStorageBuffers) <= foldBindings {
		return
	}
	n, ok := fusion.NewestOf(p.Launches, i)
	if !ok {
		return
	}
	for j := min(n.Key, n.Value) + 1; j < i; j++ {
		for in := range p.Launches[j].In {
			o := &p.Launches[j].In[in]
			if j > n.Key && o.Overlaps(k) || j > n.Value && j != n.Key && o.Overlaps(v) {
				return
			}
		}
	}
	r := fresh{q: &p.Launches[n.Query], k: &p.Launches[n.Key], v: &p.Launches[n.Value]}
	for from, o := range map[int]*backends.Operand{n.Query: &r.q.In[0], n.Key: &r.k.In[1], n.Value: &r.v.In[1]} {
		if o.Offset%4 != 0 || o.Type != tensor.F32 || backends.LastWriter(p.Launches[from:i+1], o) >= 0 {
			return
		}
	}
	if at(r.q.In, 2).Changes() {
		return // such factors are read by rope.comp alone
	}
	var err error
	if r.table, r.pairs, r.scale, err = (&bind{d: d, l: r.q}).frequencies(q.Shape[2], at(r.q.In, 2)); err != nil {
		return // the launch by itself says what is wrong
	}
	f.fresh[i] = r
	f.into[n.Query], f.into[n.Key], f.into[n.Value] = i, i, i
}
