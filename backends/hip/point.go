package hip

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// Operators of single elements, norms, softmax.

var pointFile = newProgram("point.hip")

// gelu names the function of a node with a form.
func gelu(n *graph.Node, name string) string {
	if graph.Attr[ops.GELUAttr](n).Form == "erf" {
		return name + "_e"
	}
	return name + "_t"
}

func bindPoint(b *binder) {
	n, x := b.l.Node, b.in(0)
	name, p := n.Op.Name, 0.0
	switch name {
	case "gelu":
		name = gelu(n, name)
	case "scale":
		p = graph.Attr[ops.ScaleAttr](n).By
	case "softcap":
		p = graph.Attr[ops.SoftcapAttr](n).Cap
	}
	count := x.Shape.Elems()
	row, stride := spread(x)
	b.start(pointFile, name, 256, ceil(count, 256), 1, 1).
		ptr(b.out(0), b.pointer(x)).u32(count, row, stride).f32(p)
}

func bindPair(b *binder) {
	n, x, y := b.l.Node, b.in(0), b.in(1)
	name := n.Op.Name
	if name == "geglu" {
		name = gelu(n, name)
	}
	count := x.Shape.Elems()
	row, stride := spread(x)
	yrow, ystride := spread(y)
	every := 0
	if len(y.Shape) == 1 && len(x.Shape) > 1 {
		every = y.Shape[0]
	}
	b.start(pointFile, name, 256, ceil(count, 256), 1, 1).
		ptr(b.out(0), b.pointer(x)).u32(count, row, stride).
		ptr(b.pointer(y)).u32(yrow, ystride, int(plainTypes[y.Type])-1, every)
}

// normThreads is NORM_NT in norm.h.
const normThreads = 512

// normFile is layernorm and softmax for rows of d elements: threads by their length.
func normFile(d int) (p program, threads int) {
	threads = 128
	for threads < 1024 && d > 8*threads {
		threads *= 2
	}
	return newProgram("norm.hip", define("NT", threads)), threads
}

func bindNorm(b *binder) {
	n, x := b.l.Node, b.in(0)
	eps := graph.Attr[ops.NormAttr](n).Eps
	r := rowsOf(x)
	file, threads := normFile(r.cols)
	if n.Op.Name == "layernorm" {
		d := b.start(file, "layernorm", threads, r.n, 1, 1).ptr(b.out(0), b.pointer(x)).rows(r)
		for _, i := range []int{1, 2} {
			at, t := b.plain(b.in(i))
			d.ptr(at).u32(t)
		}
		d.f32(eps)
		return
	}
	d := b.start(file, "rmsnorm", normThreads, r.n, 1, 1)
	if n.Op.Name == "add_rmsnorm" {
		w, t := b.plain(b.in(2))
		d.ptr(b.out(1), b.pointer(x)).rows(r).ptr(b.pointer(b.in(1))).rows(rowsOf(b.in(1))).ptr(b.out(0), w).u32(t).f32(eps)
		return
	}
	w, t := b.plain(b.in(1))
	d.ptr(b.out(0), b.pointer(x)).rows(r).ptr(0).rows(rows{}).ptr(0, w).u32(t).f32(eps)
}

// normOnly starts the norm of an add_rmsnorm whose sum is there.
func (b *binder) normOnly() {
	sum := &b.l.Out[0]
	r := rowsOf(sum)
	file, _ := normFile(r.cols)
	w, t := b.plain(b.in(2))
	b.start(file, "rmsnorm", normThreads, r.n, 1, 1).ptr(b.out(1), b.pointer(sum)).rows(r).ptr(0).rows(rows{}).
		ptr(0, w).u32(t).f32(graph.Attr[ops.NormAttr](b.l.Node).Eps)
}

func bindSoftmax(b *binder) {
	r := rowsOf(b.in(0))
	file, threads := normFile(r.cols)
	b.start(file, "softmax", threads, r.n, 1, 1).ptr(b.out(0), b.pointer(b.in(0))).rows(r)
}
