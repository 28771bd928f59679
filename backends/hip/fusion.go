package hip

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/fusion"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Launches of a captured program that become one: products that share their
// input, the norm before them, the function of two products behind them, and
// rotations and stores of one step. Every result is the one that the launches
// alone give, bit for bit, but for what merge finds; what nothing reads is not stored.

// joinWindow is the places by which a launch moves at most when it is joined: from a
// block's third product to its norm, past rotations and stores of the others.
const joinWindow = 8

// fuser joins the launches of a program.
type fuser struct {
	dev     *Device
	p       *backends.Program
	singles []*bound
	alone   bool            // each launch runs by itself, but for what is merged
	levels  [][]int         // of a step
	made    map[int]*merged // by the launch that stands for all
	norms   map[int]bool    // launches of add_rmsnorm whose sums others give
}

// join gives the program's bound launches by level, some of them joined, and the levels
// with which its steps begin. Nothing moves from one step to another. alone: only what is merged is joined.
func (dev *Device) join(p *backends.Program, singles []*bound, alone bool) (all [][]*bound, begins []int, err error) {
	per, ok := p.EqualSteps()
	if !ok {
		return nil, nil, fmt.Errorf("%s: %d launches are not those of %d equal steps", p.Name, len(singles), p.Steps)
	}
	for from := 0; from < len(singles); from += per {
		j := &fuser{dev: dev, p: p, singles: singles, alone: alone || dev.alone, made: map[int]*merged{},
			norms: map[int]bool{}}
		order := j.merge(from, from+per)
		spans := make([][]span, len(order))
		for k, i := range order {
			spans[k] = j.spans(i)
		}
		j.levels = levelsOf(spans)
		for _, level := range j.levels {
			for k := range level {
				level[k] = order[level[k]]
			}
		}
		levels, err := j.step()
		if err != nil {
			return nil, nil, err
		}
		begins = append(begins, len(all))
		all = append(all, levels...)
	}
	return all, begins, nil
}

// step gives the bound launches of the fuser's levels.
func (j *fuser) step() (all [][]*bound, err error) {
	if j.alone {
		for _, level := range j.levels {
			var bounds []*bound
			for _, i := range level {
				b, err := j.single(i)
				if err != nil {
					return nil, err
				}
				bounds = append(bounds, b)
			}
			all = append(all, bounds)
		}
		return all, nil
	}
	for l := 0; l < len(j.levels); l++ {
		level, skip, err := j.level(l)
		if err != nil {
			return nil, err
		}
		all = append(all, level)
		l += skip
	}
	return all, nil
}

// level gives a level's launches, and how many further levels they include.
func (j *fuser) level(l int) (all []*bound, skip int, err error) {
	if b, n, err := j.products(l); b != nil || err != nil {
		return []*bound{b}, n, err
	}
	if b, err := j.attention(l); b != nil || err != nil {
		return []*bound{b}, 1, err
	}
	left := slices.Clone(j.levels[l])
	for len(left) > 0 {
		group := j.alike(left)
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(group, i) })
		var b *bound
		if len(group) > 1 {
			b, err = j.bind(group, group, func(b *binder) { j.group(b, group) })
		} else {
			b, err = j.single(group[0])
		}
		if err != nil {
			return nil, 0, err
		}
		all = append(all, b)
	}
	return all, 0, nil
}

// alike gives the launches, from the first on, that can be one with it.
func (j *fuser) alike(level []int) []int {
	group := []int{level[0]}
	var types []tensor.Type // of a product's matrices: two at most
	for _, i := range level[1:] {
		if len(group) == 3 || !j.sameProduct(group[0], i) && !j.sameRotation(group[0], i) {
			continue
		}
		if j.several(i) != nil {
			if types == nil {
				types = []tensor.Type{j.p.Launches[group[0]].In[1].Type}
			}
			if t := j.p.Launches[i].In[1].Type; !slices.Contains(types, t) {
				if len(types) == 2 {
					continue
				}
				types = append(types, t)
			}
		}
		group = append(group, i)
	}
	return group
}

func (j *fuser) node(i int) *graph.Node { return j.p.Launches[i].Node }

// several is the choice of a product whose kernel can have several matrices, nil for others.
func (j *fuser) several(i int) *choice {
	if l := &j.p.Launches[i]; takesLinear(l.Node) && l.Named("r") == nil {
		if c := l.Kernel.(*kernel).choice; c.several != nil {
			return c
		}
	}
	return nil
}

// sameProduct says whether two products share their input and their kind of matrix.
func (j *fuser) sameProduct(one, two int) bool {
	c := j.several(one)
	if c == nil || c != j.several(two) {
		return false
	}
	x, y := &j.p.Launches[one], &j.p.Launches[two]
	if !c.packsF8 && x.Kernel.(*kernel).variant != y.Kernel.(*kernel).variant || !x.In[0].Same(&y.In[0]) {
		return false
	}
	v, w := &x.In[1], &y.In[1]
	if v.Type != w.Type && !j.mixable(x, y) || v.Shape[1] != w.Shape[1] || !v.Type.IsBlock() && v.Stride != w.Stride {
		return false
	}
	a, b := x.Named("b"), y.Named("b")
	return scaled(x.Node) == scaled(y.Node) && (a == nil) == (b == nil) && (a == nil || a.Type == b.Type)
}

// mixable says whether a launch of vec.hip can have the matrices of two products of different types.
func (j *fuser) mixable(x, y *backends.Launch) bool {
	v, w := &x.In[1], &y.In[1]
	return x.Kernel.(*kernel).choice.mixes && j.dev.mixes(v.Type, w.Type, v.Shape.Last()) && !scaled(x.Node) &&
		!scaled(y.Node) &&
		j.byDefault(x) && j.byDefault(y) && (&binder{dev: j.dev}).pointer(&x.In[0])%16 == 0
}

// byDefault says whether a product's variant is the default, named or not.
func (j *fuser) byDefault(l *backends.Launch) bool {
	name, w := l.Kernel.(*kernel).variant, &l.In[1]
	return name == "" || name == j.dev.vecShapes(w.Type, w.Shape.Last())[0].String()
}

// sameRotation says whether two launches rotate or store rows of the same tokens.
func (j *fuser) sameRotation(a, b int) bool {
	pos := func(i int) *backends.Operand {
		l := &j.p.Launches[i]
		switch l.Node.Op {
		case ops.RoPE:
			return &l.In[1]
		case ops.RoPEPush, ops.Push:
			return &l.In[2]
		}
		return nil
	}
	x, y := pos(a), pos(b)
	return x != nil && y != nil && x.Same(y)
}

// group binds a group that alike found.
func (j *fuser) group(b *binder, group []int) {
	if c := j.several(group[0]); c != nil {
		c.several(b, j.operands(b, group), nil, pairing{})
		return
	}
	launches := make([]*backends.Launch, len(group))
	for k, i := range group {
		launches[k] = &j.p.Launches[i]
	}
	b.rotations(launches, group)
}

func (j *fuser) operands(b *binder, group []int) []product {
	var all []product
	for _, i := range group {
		one := &binder{dev: b.dev, l: &j.p.Launches[i], number: i}
		all = append(all, one.product())
		if one.err != nil {
			b.failf("%v: %w", j.node(i), one.err)
		}
	}
	return all
}

// products joins a level of products that share their input with the norm before
// and the function behind them, if there are any.
func (j *fuser) products(l int) (*bound, int, error) {
	skip, before := 0, -1
	var rows normOperands
	if first := j.levels[l]; len(first) == 1 && l+1 < len(j.levels) {
		if n, ok := j.normOf(first[0]); ok {
			rows, before, skip = n, first[0], 1
		}
	}
	level := j.levels[l+skip]
	c := j.several(level[0])
	if group := j.alike(level); len(group) != len(level) || c == nil {
		return nil, 0, nil
	}
	launches := slices.Clone(level)
	if before >= 0 {
		if j.loose(rows.x) || !rows.out.Same(&j.p.Launches[level[0]].In[0]) {
			return nil, 0, nil
		}
		launches = append([]int{before}, launches...)
	}
	after := -1
	if i, ok := j.only(l + skip + 1); ok {
		if p, ok := fusion.PairOf(j.p.Launches, i); ok && sameSet(level, p.Gate, p.Up) &&
			j.apart(append(slices.Clone(launches), i)) {
			if pair := []int{p.Gate, p.Up}; !c.packsF8 || j.pairsF8(i, pair) {
				after, level = i, pair
			}
		}
	}
	if after >= 0 {
		launches = append(launches, after)
		skip++
	}
	if before >= 0 && !j.apart(launches) {
		return nil, 0, nil
	}
	if before < 0 && after < 0 {
		return nil, 0, nil // a group like any other
	}
	b, err := j.bind(level, launches, func(b *binder) {
		var norm *normed
		if before >= 0 {
			norm = j.norm(b, before, launches)
		}
		var pair pairing
		if after >= 0 {
			f := &j.p.Launches[after]
			pair = pairing{of: pairOf(f.Node), out: b.dense(&f.Out[0]), keep: j.kept(after, level)}
		}
		c.several(b, j.operands(b, level), norm, pair)
	})
	return b, skip, err
}

// pairsF8 says whether f8.hip stores the function of two products, in place of them.
func (j *fuser) pairsF8(after int, level []int) bool {
	b := &binder{dev: j.dev}
	all := j.operands(b, level)
	_, faster := j.dev.f8Pair(&all[0])
	return b.err == nil && faster && all[0].out == tensor.F32 && !j.kept(after, level)
}

// kept says whether the products of a pair are wanted beside the function of both.
func (j *fuser) kept(after int, level []int) bool {
	f, own := &j.p.Launches[after], []int{after}
	return !j.dead(&f.In[0], level[0], own) || !j.dead(&f.In[1], level[1], own)
}

// attention joins a token's rotations and stores with the attention that reads them.
func (j *fuser) attention(l int) (*bound, error) {
	i, ok := j.only(l + 1)
	if !ok || j.dev.attendBlock(j.node(i)) == 0 {
		return nil, nil
	}
	n, ok := fusion.NewestOf(j.p.Launches, i)
	if !ok || !sameSet(j.levels[l], n.Query, n.Key, n.Value) || !j.apart(append(slices.Clone(j.levels[l]), i)) {
		return nil, nil
	}
	f := folding{&j.p.Launches[n.Query], &j.p.Launches[n.Key], &j.p.Launches[n.Value], n.Key}
	folds := false
	b, err := j.bind([]int{i}, j.levels[l], func(b *binder) { folds = b.attend(&f) })
	if !folds && err == nil {
		b = nil
	}
	return b, err
}

// only is the launch of a level that has no other.
func (j *fuser) only(l int) (int, bool) {
	if l >= len(j.levels) || len(j.levels[l]) != 1 {
		return 0, false
	}
	return j.levels[l][0], true
}

// sameSet says whether a level is some launches, and no others.
func sameSet(level []int, launches ...int) bool {
	return slices.Equal(slices.Sorted(slices.Values(level)), slices.Sorted(slices.Values(launches)))
}

// loose says whether a norm inside a product cannot read its rows, or not hold them.
func (j *fuser) loose(o *backends.Operand) bool {
	return (&binder{dev: j.dev}).loose(o) || o.Shape.Last() > roundKeep*4*normThreads
}

// norm gives the norm that a product does itself.
func (j *fuser) norm(b *binder, i int, launches []int) *normed {
	o, _ := j.normOf(i)
	n := &normed{x: *o.x, eps: graph.Attr[ops.NormAttr](j.node(i)).Eps}
	if o.w != nil {
		n.w = *o.w
	}
	if !j.dead(o.out, i, launches) {
		n.h = b.dense(o.out)
	}
	return n
}

// normOperands are what an RMSNorm reads and gives; w is nil where it has no weights.
type normOperands struct{ x, w, out *backends.Operand }

// normOf gives those of launch i, which may be the norm of a sum that another launch gives; ok is false for others.
func (j *fuser) normOf(i int) (n normOperands, ok bool) {
	l := &j.p.Launches[i]
	switch {
	case l.Node.Op == ops.RMSNorm:
		n = normOperands{x: &l.In[0], out: &l.Out[0]}
		if len(l.In) > 1 {
			n.w = &l.In[1]
		}
		return n, true
	case j.norms[i]:
		return normOperands{&l.Out[0], &l.In[2], &l.Out[1]}, true
	}
	return n, false
}

// single is a launch by itself, with those for which it stands, or without what another one does of it.
func (j *fuser) single(i int) (*bound, error) {
	switch m := j.made[i]; {
	case m != nil:
		return j.bind(m.launches, m.launches, m.bind)
	case j.norms[i]:
		return j.bind([]int{i}, nil, (*binder).normOnly)
	}
	return j.singles[i], nil
}

// apart says whether launches, in order, can run at once: what one of them writes
// is read by the others only as its result is handed on, and what they read from
// before no one of them overwrites.
func (j *fuser) apart(launches []int) bool {
	b := &binder{dev: j.dev}
	var inner []span // results that are handed on
	for _, i := range launches[:len(launches)-1] {
		for o := range j.p.Launches[i].Out {
			inner = append(inner, b.span(&j.p.Launches[i].Out[o], true))
		}
	}
	for _, i := range launches {
		for k := range j.p.Launches[i].In {
			read := b.span(&j.p.Launches[i].In[k], false)
			if slices.ContainsFunc(inner, func(s span) bool { return s.from == read.from && s.to == read.to }) {
				continue
			}
			for _, w := range launches {
				for o := range j.p.Launches[w].Out {
					if s := b.span(&j.p.Launches[w].Out[o], true); s.from < read.to && read.from < s.to {
						return false
					}
				}
			}
		}
	}
	return true
}

// dead says whether nothing but some launches reads the result of launch i, which lies in the arena.
func (j *fuser) dead(o *backends.Operand, i int, but []int) bool {
	return backends.ReadOnlyBy(j.p.Launches, i, o, func(k, _ int) bool { return slices.Contains(but, k) })
}

// bind binds launches as one, which is named and counted after the first; all are what it does.
func (j *fuser) bind(group, all []int, with func(*binder)) (*bound, error) {
	b := &binder{dev: j.dev, l: &j.p.Launches[group[0]], number: group[0]}
	with(b)
	one, err := b.bound()
	if err == nil {
		one.joined = slices.DeleteFunc(slices.Clone(all), func(i int) bool { return i == group[0] })
	}
	return one, err
}
