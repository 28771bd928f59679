package hip

import (
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Products on matrix cores: activations are divided in parts of half precision
// first, see matrix.hip.

const (
	matrixRows = 128 // of a block's tile
	matrixStep = 32
)

// matrixColumns is BN in matrix.hip.
func (v vendor) matrixColumns(t tensor.Type, scalar bool) int {
	if v == nvidia && t == tensor.F16 && !scalar {
		return 128
	}
	return 64
}

// matrixParts gives the number of parts of an activation and the padded length of a row.
func matrixParts(n *graph.Node) (parts, kp int) {
	parts = 2
	if n.In[1].Type == tensor.BF16 {
		parts = 3
	}
	return parts, ceil(n.In[1].Shape[1], matrixStep) * matrixStep
}

// matrixScratch is the memory of the parts, of a scale per row and of the sums of
// every 16 elements.
func matrixScratch(n *graph.Node) int {
	parts, kp := matrixParts(n)
	rows := n.In[0].Shape.Rows()
	return 2*parts*rows*kp + 4*rows + 4*rows*kp/16
}

func (b *binder) matrix(p product) {
	n := p.w.Shape[0]
	parts, kp := matrixParts(b.l.Node)
	scalar := b.scalar(p.w)
	columns := b.dev.d.vendor().matrixColumns(p.w.Type, scalar)
	k, weights := p.w.Shape[1], b.weightWords(p.w)
	fp8 := b.dev.matrixFP8(b.dev.like(b.l.Node))
	if fp8 && scalar {
		b.failf("weights of %s at an address that is no multiple of 16", p.w.Type)
	}
	if fp8 { // counted in pairs, as if they were halves
		columns = b.dev.d.vendor().matrixColumns(tensor.F16, false)
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
