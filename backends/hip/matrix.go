package hip

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Products on matrix cores: activations are divided in parts of half precision
// first, see matrix.hip.

const (
	matrixRows = 128 // of a block's tile
	matrixStep = 32
)

// matrixColumns is BN in matrix.hip.
func (v vendor) matrixColumns(t tensor.Type, scalar, rounded bool) int {
	if v == nvidia && !scalar && (t == tensor.F16 || rounded && t == tensor.BF16) {
		return 128
	}
	return 64
}

// matrixParts gives the number of parts of an activation that meets a type, and the padded length of a row of k.
func matrixParts(t tensor.Type, k int) (parts, kp int) {
	parts = 2
	if t == tensor.BF16 {
		parts = 3
	}
	return parts, ceil(k, matrixStep) * matrixStep
}

// matrixScratch is the memory of the parts, of a scale per row and of the sums of
// every 16 elements.
func matrixScratch(n *graph.Node) int {
	parts, kp := matrixParts(n.In[1].Type, n.In[1].Shape.Last())
	rows := n.In[0].Shape.Rows()
	return 2*parts*rows*kp + 4*rows + 4*rows*kp/16
}

func (b *binder) matrix(p product) {
	n := p.w.Shape[0]
	parts, kp := matrixParts(p.w.Type, p.w.Shape[1])
	scalar := b.scalar(p.w)
	columns := b.dev.d.vendor().matrixColumns(p.w.Type, scalar, false)
	k, weights := p.w.Shape[1], b.weightWords(p.w)
	fp8 := b.dev.matrixFP8(b.dev.like(b.l.Node))
	if fp8 && scalar {
		b.failf("weights of %s at an address that is no multiple of 16", p.w.Type)
	}
	if fp8 { // counted in pairs, as if they were halves
		columns = b.dev.d.vendor().matrixColumns(tensor.F16, false, false)
		k, parts, kp = k/2, 1, ceil(k/2, matrixStep)*matrixStep
		weights[4], weights[5] = weights[4]/2, weights[5]/2
	}
	full := !b.dev.invariant && p.columns%matrixRows == 0 && n%columns == 0 && kp == k
	options := []string{define("W_TYPE", weightNames[p.w.Type]), onOff("W_SCALAR", scalar), b.bias(p), onOff("FULL", full)}
	if fp8 {
		options = append(options, "FP8=1")
	}
	prog := newProgram("matrix.hip", options...)
	at := b.scratch()
	scale := at + uintptr(2*parts*p.columns*kp)
	sums := scale + uintptr(4*p.columns)
	b.start(prog, "divide", 256, p.columns, 1, 1).
		ptr(at, scale, sums, b.pointer(p.x)).rows(rowsOf(p.x)).u32(p.columns, kp)
	d := b.start(prog, "matrix", 256, ceil(n, columns), ceil(p.columns, matrixRows), 1)
	d.ptr(p.y, at, scale, sums).u32(kp, p.columns)
	d.args.add(weights...)
	d.u32(n)
	d.ptr(b.dense(p.bias))
	b.residual(d, p.res)
}

// Products with each token's own experts, of many rows: moe.hip puts rows in the order of experts, matrix.hip
// multiplies tiles of one expert's.

const (
	groupRows    = 64   // of a tile
	mostExperts  = 1024 // that a plan is made for
	groupedPairs = 3    // rows an expert, on average, from which they are grouped
)

// takesGroups says whether rows are grouped by experts.
func takesGroups(n *graph.Node) bool {
	if n.Op != ops.LinearID || n.In[1].Type == tensor.F32 {
		return false
	}
	experts := n.In[1].Shape[0]
	return experts <= mostExperts && n.In[2].Shape.Elems() >= groupedPairs*experts
}

func (dev *Device) usesGroups(n *graph.Node) bool {
	return takesGroups(n) && !dev.invariant && dev.usesMatrixCores(n)
}

// groups gives the tiles at most of a plan, and its bytes.
func groups(n *graph.Node) (tiles, bytes int) {
	pairs := n.In[2].Shape.Elems()
	tiles = pairs/groupRows + min(pairs, n.In[1].Shape[0])
	return tiles, 4*ceil(pairs, 4)*4 + 16*tiles
}

// groupScratch is a plan, and behind it the parts of activations.
func groupScratch(n *graph.Node) int {
	_, plan := groups(n)
	return plan + matrixScratch(n)
}

func bindGroups(b *binder) {
	n := b.l.Node
	x, w, e := b.in(0), b.in(1), b.in(2)
	p := product{w: w, bias: b.named("b")}
	rows, pairs := x.Shape.Rows(), e.Shape.Elems()
	scalar, rounded := b.scalar(w), hasHalves(b.dev.info.Level) && b.dev.on(pathHalf)
	columns := b.dev.d.vendor().matrixColumns(w.Type, scalar, rounded)
	parts, kp := matrixParts(w.Type, w.Shape[2])
	if rounded {
		parts = 1
	}
	tiles, plan := groups(n)
	at := b.scratch() // 16-byte aligned, as the plan is
	scale := at + uintptr(plan+2*parts*rows*kp)
	sums := scale + uintptr(4*rows)
	prog := newProgram("matrix.hip", define("W_TYPE", weightNames[w.Type]), onOff("W_SCALAR", scalar), b.bias(p), "FULL=0",
		"IDS=1", onOff("ROUNDED", rounded))
	b.status(b.start(routeFile, "group", 1024, 1, 1, 1).ptr(at, b.dense(e)).u32(pairs, w.Shape[0], groupRows, tiles))
	b.start(prog, "divide", 256, rows, 1, 1).ptr(at+uintptr(plan), scale, sums, b.pointer(x)).rows(rowsOf(x)).u32(rows, kp)
	d := b.start(prog, "matrix", 256, ceil(w.Shape[1], columns), tiles, 1)
	d.ptr(b.out(0), at+uintptr(plan), scale, sums).u32(kp, rows)
	d.args.add(b.weightWords(w)...)
	d.u32(w.Shape[1]).ptr(b.dense(p.bias))
	b.residual(d, b.named("r"))
	d.ptr(at).u32(pairs, e.Shape[1]/x.Shape[1])
}
