package hip

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// Choice and mixture of experts, and what moves rows.

var (
	routeFile = newProgram("moe.hip")
	pickFile  = newProgram("pick.hip")
)

// longRow is from where a row is searched by many threads, as a vocabulary is.
const longRow = 2048

// pickMost is Info.Picks: a choice is a search of the row.
const pickMost = 40

func bindTopK(b *binder) {
	a := graph.Attr[ops.TopKAttr](b.l.Node)
	mode := map[string]int{"none": 0, "before": 1, "after": 2}[a.Softmax]
	r := rowsOf(b.in(0))
	groups := 0
	if a.Groups > 1 {
		groups = a.Groups
	}
	if mode == 0 && groups == 0 && r.cols >= longRow {
		b.start(pickFile, "pick", 1024, r.n, 1, 1).ptr(b.out(0), b.out(1), b.pointer(b.in(0))).rows(r).u32(a.K)
		return
	}
	b.start(routeFile, "topk", 128, r.n, 1, 1).ptr(b.out(0), b.out(1), b.pointer(b.in(0))).rows(r).
		u32(a.K, mode, groups, a.Keep, flagged(a.By == "top2"))
}

// checkGroups says whether a choice in groups can be made.
func checkGroups(n *graph.Node) error {
	if g := graph.Attr[ops.TopKAttr](n).Groups; g > 128 {
		return fmt.Errorf("a choice in %d groups; 128 at most are possible", g)
	}
	return nil
}

func bindMix(b *binder) {
	x, p := b.in(0), b.in(1)
	s, u, n := x.Shape[0], x.Shape[1], x.Shape[2]
	b.start(routeFile, "mix", 128, ceil(n, 128), s, 1).
		ptr(b.out(0), b.pointer(x)).u32(x.Stride/4).ptr(b.pointer(p)).u32(p.Stride/4, s, u, n)
}

func bindRows(b *binder) {
	x, at := b.in(0), b.in(1)
	d := b.start(routeFile, "rows", 128, at.Shape.Elems(), 1, 1).
		ptr(b.out(0), b.pointer(x)).u32(x.RowElems(), x.Stride/4, x.Rows()).ptr(b.dense(at))
	b.status(d)
}

func bindPool(b *binder) {
	x, ends := b.in(0), b.in(1)
	d := b.start(routeFile, "pool", 128, ceil(x.RowElems(), 32), ends.Rows(), 1).
		ptr(b.out(0), b.pointer(x)).u32(x.Stride/4, x.RowElems(), x.Rows()).ptr(b.dense(ends))
	b.status(d)
}

func bindSplit(b *binder) {
	x := b.in(0)
	r := rowsOf(x)
	from := 0
	for i := range b.l.Out {
		width := b.l.Out[i].Shape.Last()
		b.start(routeFile, "columns", 128, r.n, ceil(width, 128), 1).
			ptr(b.out(i), b.pointer(x)).rows(r).u32(from, width)
		from += width
	}
}

// bindView copies a tensor with gaps into a dense one.
func bindView(b *binder) {
	x := b.in(0)
	n := x.RowElems()
	b.start(routeFile, "columns", 128, x.Rows(), ceil(n, 128), 1).
		ptr(b.out(0), b.pointer(x)).rows(rows{cols: n, inner: 1, stride: x.Stride / 4}).u32(0, n)
}
