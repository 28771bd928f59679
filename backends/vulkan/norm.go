//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// rowGroup is the number of invocations for a row of n elements.
func (d *Device) rowGroup(n int) uint32 {
	size := 32
	for size < 1024 && size < d.p.Invocations && size*4 < n {
		size *= 2
	}
	if d.p.MinSubgroup > 0 {
		size = min(size, 256*d.p.MinSubgroup) // reduce.glsl has room for 256 subgroups
	}
	return uint32(min(size, d.p.Invocations))
}

func bindNorm(b *bind) error {
	l := b.l
	add, layer := l.Node.Op == ops.AddRMSNorm, l.Node.Op == ops.LayerNorm
	if l.Node.Op == ops.RMSNorm && b.foldsNorm() {
		b.copies.norms = append(b.copies.norms, folded{b.number, &l.Out[0], &l.In[0], &l.In[1],
			graph.Attr[ops.NormAttr](l.Node).Eps})
		return nil
	}
	if b.d.normsWide(l) {
		return b.normWide(add, layer)
	}
	c := b.call("norm")
	x := b.floats(c, &l.In[0], false)
	var r, sum rows
	w, bias := at(l.In, 1), at(l.In, 2)
	y := &l.Out[0]
	if add {
		r = b.floats(c, &l.In[1], false)
		w, bias, y = at(l.In, 2), nil, &l.Out[1]
	} else {
		b.none(c)
	}
	if !layer {
		bias = nil
	}
	woff, wtype := b.vector(c, w)
	boff, btype := b.vector(c, bias)
	if add {
		sum = b.floats(c, &l.Out[0], true)
	} else {
		b.none(c)
	}
	vy := b.floats(c, y, true)
	c.spec = []uint32{b.d.rowGroup(int(x.cols)), flag(layer), flag(add), wtype, btype}
	c.push = []uint32{x.n, x.cols, x.inner, x.off, x.stride, r.off, r.stride, sum.off, sum.stride, vy.off, vy.stride,
		woff, boff, bits(graph.Attr[ops.NormAttr](l.Node).Eps)}
	b.run(c, min(int(x.n), 32768), 1)
	return nil
}

// folded is a norm y of x that its readers compute themselves.
type folded struct {
	launch  int
	y, x, w *backends.Operand
	eps     float64
}

// norm finds the folded norm that gives an operand, which the launch at hand computes then; nil: none does.
func (b *bind) norm(o *backends.Operand) *folded {
	c := b.copies
	for i := len(c.norms) - 1; i >= 0; i-- {
		if n := &c.norms[i]; n.y.Buffer == o.Buffer && n.y.Offset == o.Offset {
			if _, ok := c.normed[n.launch]; !ok {
				if c.normed == nil {
					c.normed = map[int]int{}
				}
				c.normed[n.launch] = b.number
			}
			return n
		}
	}
	return nil
}

// foldsNorm says whether a norm of one row need not be run: all that reads it in the
// program are products of one row with plain weights, which norm on the way,
// and what it reads is still there when they run.
func (b *bind) foldsNorm() bool {
	x, w, y := &b.l.In[0], at(b.l.In, 1), &b.l.Out[0]
	if b.program == nil || b.d.rows(x.Shape.Rows()) != 1 || x.Shape.Last()%8 != 0 || x.Offset%16 != 0 ||
		w == nil || w.Buffer == nil || w.Type != tensor.F32 || w.Offset%16 != 0 || !w.Dense() {
		return false
	}
	all, last := b.program.Launches, b.number
	return backends.ReadOnlyBy(all, b.number, y, func(i, operand int) bool {
		last = i
		l := &all[i]
		k, ok := l.Kernel.(*kernel)
		return ok && operand == 0 && isLinear(l.Node) && l.In[0].Offset == y.Offset &&
			l.In[0].Shape.Elems() == y.Shape.Elems() && l.In[0].Shape.Last() == y.Shape.Last() &&
			!l.In[1].Type.IsBlock() && b.d.formOf(k.on, &l.In[1], 1) == ""
	}) && last > b.number && backends.LastWriter(all[b.number+1:last+1], x) < 0
}

// normsWide says whether norm_wide.comp computes a norm.
func (d *Device) normsWide(l *backends.Launch) bool {
	cols := l.In[0].Shape.Last()
	return cols%4 == 0 && cols <= 16*int(d.rowGroup(cols)) && wholeRows(l.In, l.Out)
}

// wholeRows says whether the f32 rows of a norm can be read 16 bytes at a time.
func wholeRows(lists ...[]backends.Operand) bool {
	for _, list := range lists {
		for i := range list {
			if o := &list[i]; o.Buffer != nil && len(o.Shape) > 1 && (o.Offset%16 != 0 || o.Stride%16 != 0) {
				return false
			}
		}
	}
	return true
}

// manyRows is the number of rows from which on small workgroups fill a device, and are faster.
const manyRows = 128

// normWide runs norm_wide.comp.
func (b *bind) normWide(add, layer bool) error {
	l := b.l
	c := b.call("norm_wide")
	x := b.floats(c, &l.In[0], false)
	var r, sum rows
	w, bias := at(l.In, 1), at(l.In, 2)
	y := &l.Out[0]
	lacks := b.lacking()
	switch {
	case add:
		r = b.floats(c, &l.In[1], false)
		w, bias, y = at(l.In, 2), nil, &l.Out[1]
	case lacks.sums != nil: // all of x, which is made whole on the way
		b.lacked(c, lacks)
		r = rows{stride: uint32(lacks.count)}
	default:
		b.none(c)
	}
	if !layer {
		bias = nil
	}
	woff, wtype := b.vector(c, w)
	boff, btype := b.vector(c, bias)
	switch {
	case add:
		sum = b.floats(c, &l.Out[0], true)
	case lacks.sums != nil:
		sum, add = b.floats(c, &l.In[0], true), true
	default:
		b.none(c)
	}
	vy := b.floats(c, y, true)
	kind, pitch, store := uint32(0), uint32(0), true
	for _, f := range forms {
		if to := b.written(f, y, int(x.cols), nil); to != nil {
			b.temporary(c, to.data, true)
			b.temporary(c, to.scales, true)
			kind, pitch, store = f.number(), to.pitch, !b.unread(to, y)
		}
	}
	if kind == 0 {
		b.none(c)
		b.none(c)
	}
	group := b.d.rowGroup(int(x.cols))
	for b.d.rows(int(x.n)) >= manyRows && group > 64 && x.cols <= 8*group { // an invocation has four vectors at most
		group /= 2
	}
	c.spec = []uint32{group, flag(layer), flag(add), wtype, btype, kind, flag(store)}
	c.push = []uint32{x.n, x.cols / 4, x.inner, x.off / 4, x.stride / 4, r.off / 4, r.stride / 4, sum.off / 4,
		sum.stride / 4,
		vy.off / 4, vy.stride / 4, woff, boff, bits(graph.Attr[ops.NormAttr](l.Node).Eps), pitch}
	b.run(c, min(int(x.n), 32768), 1)
	return nil
}

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

var _ backends.Device = (*Device)(nil)
