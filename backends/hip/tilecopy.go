package hip

import (
	"fmt"
)

// Large products of f32 with plain multiply-adds: see tilecopy.hip.

// copyShape is a thread's sums of rows by columns, a step's elements, its stages
// and the blocks that shall share a multiprocessor.
type copyShape struct{ rows, columns, step, stages, blocks int }

var copyShapes = []copyShape{{16, 8, 32, 3, 1}, {16, 8, 16, 4, 1}, {8, 16, 16, 4, 1}, {8, 8, 32, 3, 2}}

func (s copyShape) String() string {
	return fmt.Sprintf("tile=%dx%d,step=%d,stages=%d,blocks=%d", 16*s.rows, 16*s.columns, s.step, s.stages, s.blocks)
}

// bytes is the shared memory of a block.
func (s copyShape) bytes() int { return s.stages * 16 * (s.rows + s.columns) * (4*s.step + 16) }

// copies multiplies by tilecopy.hip; false where operands are not as it needs them.
func (b *binder) copies(p product) bool {
	x := rowsOf(p.x)
	if !b.dev.usesCopies(b.dev.like(b.l.Node)) || b.loose(p.x) || b.scalar(p.w) || x.inner != 1 {
		return false
	}
	shape := copyShapes[0]
	for _, s := range copyShapes {
		if s.String() == p.variant {
			shape = s
		}
	}
	n := p.w.Shape[0]
	prog := newProgram("tilecopy.hip", define("TM", shape.rows), define("TN", shape.columns), define("BK", shape.step),
		define("STAGES", shape.stages), define("RESIDENT", shape.blocks), b.bias(p))
	d := b.start(prog, "tilecopy", 256, ceil(n, 16*shape.columns), ceil(p.columns, 16*shape.rows), 1)
	d.shared = shape.bytes()
	d.ptr(p.y, b.pointer(p.x)).u32(x.stride).ptr(b.pointer(p.w), uintptr(p.w.Stride/4)).u32(p.w.Shape[1], n, p.columns)
	d.ptr(b.dense(p.bias))
	b.residual(d, p.res)
	return true
}
