package hip

import (
	"fmt"

	"greta/graph"
)

// Products of one row with packed weights of 8-bit floats: see f8vec.hip.

// f8VecRows is how many rows a block takes together.
const f8VecRows = 8

// f8VecShape is a configuration: lines that a lane has under way, and the blocks that
// share a multiprocessor.
type f8VecShape struct{ ahead, blocks int }

var f8VecShapes = []f8VecShape{{8, 1}, {4, 1}, {16, 1}, {4, 2}, {8, 2}, {6, 2}}

func (s f8VecShape) String() string { return fmt.Sprintf("ahead=%d,blocks=%d", s.ahead, s.blocks) }

// usesF8Vec says whether a product goes to f8vec.hip: x must fit shared memory, with
// room for sums.
func (dev *Device) usesF8Vec(n *graph.Node) bool {
	w := n.In[1]
	return n.In[0].Shape.Rows() == 1 && !halfF8(n) && len(w.Shape) == 2 && packsF8(w) && dev.f8VecBytes(w.Shape[1], 16) <= dev.f8VecMost()
}

// f8VecMost bounds the shared memory of a block.
func (dev *Device) f8VecMost() int {
	if dev.d.vendor() == amd {
		return 64 << 10
	}
	return vecShared
}

// f8VecBytes is the shared memory of a block that takes some groups of rows of k elements.
func (dev *Device) f8VecBytes(k, groups int) int {
	waves := vecThreads / max(dev.wave, 32)
	return 4*ceil(k, f8Step)*f8Step + 4*waves*f8VecRows*groups
}

// f8vec multiplies one row by several packed matrices, up to three, of one type.
func (b *binder) f8vec(products []product, norm *normed, pair pairing) {
	first := products[0]
	k := first.w.Shape[1]
	x := first.x
	if norm != nil {
		x = &norm.x
	}
	s := f8VecShapes[0]
	for _, o := range f8VecShapes {
		if o.String() == first.variant {
			s = o
		}
	}
	at := b.pointer(x)
	prog := newProgram("f8vec.hip", weightType(first.w), "W_SCALAR=0", onOff("X_SCALAR", at%16 != 0 || k%4 != 0), define("MATS", len(products)),
		onOff("PAIRED", pair.of != ""), define("PAIRED_OF", "of_"+pairName(pair.of)), onOff("NORM", norm != nil), define("AHEAD", s.ahead), define("BLOCKS", s.blocks), b.bias(first))
	groups := 0
	var words []uint64
	for _, p := range products {
		n := p.w.Shape[0]
		y := p.y
		if pair.of != "" && !pair.keep {
			y = 0
		}
		words = append(words, uint64(b.packedF8(p.w)), uint64(b.dense(p.scale)), uint64(y), uint64(b.dense(p.bias)), uint64(16*n), uint64(b.factors(p)), uint64(uint32(n))|uint64(uint32(groups))<<32)
		if pair.of != "" {
			groups = ceil(n, f8VecRows)
		} else {
			groups += ceil(n, f8VecRows)
		}
	}
	blocks, each := min(groups, max(b.dev.units, 1)*s.blocks), 1
	if pair.of != "" {
		each = 2
	}
	for b.dev.f8VecBytes(k, each*ceil(groups, blocks)) > b.dev.f8VecMost() {
		blocks *= 2
	}
	d := b.start(prog, "f8_vec", vecThreads, blocks, 1, 1)
	d.shared = b.dev.f8VecBytes(k, each*ceil(groups, blocks))
	d.ptr(at).u32(k)
	d.args.add(words...)
	d.u32(groups).ptr(b.pointer(first.res))
	b.norm(d, norm)
	d.ptr(pair.out)
}
