package hip

import (
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Products with one row of x: decoding. See vec.hip.

const (
	vecThreads = 512
	// vecShared bounds the shared memory of x: two blocks shall fit a multiprocessor.
	vecShared = 100 << 10
)

// mixedTypes are those of which one launch can have two: x is rounded alike for them. The first
// lays x out, so q6_K comes last.
var mixedTypes = []tensor.Type{tensor.Q4_K, tensor.Q5_K, tensor.Q6_K}

// mixes says whether matrices of two types, with rows of k elements, can be in one launch.
func (dev *Device) mixes(t, u tensor.Type, k int) bool {
	if !slices.Contains(mixedTypes, t) || !slices.Contains(mixedTypes, u) || !dev.usesInt8(t) {
		return false
	}
	if slices.Index(mixedTypes, t) > slices.Index(mixedTypes, u) {
		t, u = u, t
	}
	s := dev.vecShapes(t, k)[0] // what vec takes, too
	return s.stages > 0 && s.draw == 0 && mixedShared(t, u, k, s) <= vecMost
}

// vecBytes is the shared memory of a row of k elements.
func vecBytes(t tensor.Type, k int, eight bool) int {
	if !eight {
		return 4 * ceil(k, 32) * 32
	}
	sums := 32
	switch t {
	case tensor.Q8_0, tensor.MXFP4:
		return k + 4*(k/32)
	case tensor.Q4_K, tensor.Q5_K, tensor.Q6_K:
		sums = 16
	}
	return k + 4*(k/32) + 4*(k/sums)
}

// vecUnroll is how many units of each of two rows a lane has under way.
func vecUnroll(t tensor.Type) int {
	switch t {
	case tensor.F32, tensor.F16, tensor.BF16, tensor.Q4_0, tensor.Q4_1, tensor.Q8_0, tensor.MXFP4:
		return 4
	case tensor.Q4_K, tensor.Q5_K, tensor.Q6_K:
		return 2
	}
	return 1
}

// vecShape is a configuration of vec.hip: stages of a wave's ring, by how much their
// chunks are larger than the least, and from how many kinds of counters pairs of rows are
// drawn (DRAW in vec.hip, 0: they are dealt out); or, without
// rings, the units of each row that a lane has under way. blocks is for how many
// blocks a multiprocessor shall have registers; with alone a block asks for so much
// shared memory that a second one finds no room.
type vecShape struct {
	stages, chunk, draw, alone int
	unroll, blocks             int
}

func (s vecShape) String() string {
	if s.stages > 0 {
		return fmt.Sprintf("stages=%d,chunk=%d,draw=%d,alone=%d,blocks=%d", s.stages, s.chunk, s.draw, s.alone, s.blocks)
	}
	return fmt.Sprintf("unroll=%d,blocks=%d", s.unroll, s.blocks)
}

// vecShapes are the configurations of a product with one row, the default first.
func (dev *Device) vecShapes(t tensor.Type, k int) []vecShape {
	var all []vecShape
	if hasHalves(dev.info.Level) && k%8 == 0 {
		for _, s := range []vecShape{
			{2, 2, 0, 1, 0, 1}, {2, 2, 0, 0, 0, 1}, {2, 2, 1, 1, 0, 1}, {2, 2, 0, 1, 0, 2}, {2, 2, 0, 0, 0, 2},
			{2, 2, 1, 0, 0, 1}, {3, 2, 0, 1, 0, 1}, {3, 2, 1, 1, 0, 1},
			{2, 1, 0, 1, 0, 1}, {3, 1, 0, 1, 0, 1}, {5, 1, 0, 1, 0, 1}, {5, 1, 1, 1, 0, 1}, {5, 1, 2, 1, 0, 1},
			{2, 2, 2, 1, 0, 1},
		} {
			if ringShared(t, k, s, dev.usesInt8(t)) > vecMost {
				continue
			}
			if s == vecDefault(t) {
				all = append([]vecShape{s}, all...)
			} else {
				all = append(all, s)
			}
		}
	}
	unroll := vecUnroll(t)
	all = append(all, vecShape{unroll: unroll, blocks: 1})
	for n := 1; n <= 8; n *= 2 {
		if n != unroll {
			all = append(all, vecShape{unroll: n, blocks: 1})
		}
		all = append(all, vecShape{unroll: n, blocks: 2})
	}
	return all
}

// vecDefault is the ring that did best: narrow weights and 8-bit floats come in short rows, of
// which a wave has many under way; of wide ones rows are drawn.
func vecDefault(t tensor.Type) vecShape {
	if elems, bytes := t.Block(); !isF8(t) && bytes*8 >= 8*elems {
		return vecShape{stages: 5, chunk: 1, draw: 2, alone: 1, blocks: 1}
	}
	return vecShape{stages: 2, chunk: 2, blocks: 2}
}

// ringShared is the shared memory of a block with rings.
func ringShared(t tensor.Type, k int, s vecShape, eight bool) int {
	n := vecThreads/32*s.stages*s.chunk*2*vecChunk(t) + vecBytes(t, k, eight)
	if s.alone > 0 {
		n = max(n, vecAlone)
	}
	return n
}

// mixedShared is ringShared for products with two types, always with x in eight bits: a stage has
// room for the least chunks of the second.
func mixedShared(t, second tensor.Type, k int, s vecShape) int {
	more := max(0, vecChunk(second)-s.chunk*vecChunk(t))
	return ringShared(t, k, s, true) + vecThreads/32*s.stages*2*more
}

// vecAlone is more than half of a multiprocessor's shared memory.
const vecAlone = 116 << 10

// vecMost is the shared memory of a block of Hopper's, less what kernels have besides.
const vecMost = 224 << 10

// chunkBlocks is the least CHUNK in vec.hip: blocks of a row, or lines of 16 bytes of a plain one.
func chunkBlocks(t tensor.Type) int {
	elems, _ := t.Block()
	switch {
	case elems == 256:
		return 8
	case t == tensor.Q8_0:
		return 32
	}
	return 64
}

// apartRows says whether the rows of a pair come to a ring one after the other, for
// products with x in eight bits: those of q8_0, whose scales are copies of 64 bytes
// otherwise. A multiprocessor begins a copy every 9 ns, whatever its size; but x is read
// for each row then, by which other types lost more.
func apartRows(t tensor.Type) bool { return t == tensor.Q8_0 }

// vecChunk is the bytes of a row's part of a stage.
func vecChunk(t tensor.Type) int {
	if !t.IsBlock() {
		return 16 * chunkBlocks(t)
	}
	_, bytes := t.Block()
	return bytes * chunkBlocks(t)
}

// vecShape finds the configuration that is asked for, the default for "".
func (b *binder) vecShape(t tensor.Type, k int, name string) vecShape {
	all := b.dev.vecShapes(t, k)
	for _, s := range all {
		if name == "" || s.String() == name {
			return s
		}
	}
	b.failf("no variant %q of a product, there are %v", name, all)
	return all[0]
}

// normed is an RMSNorm that a product does itself.
type normed struct {
	x, w backends.Operand
	h    uintptr // where the result goes as well, 0: nowhere
	eps  float64
}

// pairing is a function of two products: silu(a)·b, gelu(a)·b.
type pairing struct {
	of   string // as point.hip names it, "" for none
	out  uintptr
	keep bool // the products themselves are wanted too
}

// vec multiplies one row by several matrices, up to three, of one type or of two of mixedTypes.
// In one piece: what the options of one program say stands in the order in which the program reads
// them.
func (b *binder) vec(products []product, norm *normed, pair pairing) {
	products = slices.Clone(products)
	sorting.Sort(products, func(p, q product) int {
		return slices.Index(mixedTypes, p.w.Type) - slices.Index(mixedTypes, q.w.Type)
	})
	first := products[0]
	t, k := first.w.Type, first.w.Shape[1]
	x := first.x
	if norm != nil {
		x = &norm.x
	}
	at := b.pointer(x)
	loose, scalar := at%16 != 0 || k%4 != 0, false
	for _, p := range products {
		scalar = scalar || b.scalar(p.w)
	}
	eight := b.dev.usesInt8(t) && !loose
	shape := b.vecShape(t, k, first.variant)
	if scalar {
		shape = vecShape{unroll: 1, blocks: 1}
	}
	if first.variant == "" && len(products) == 3 && shape.stages > 0 {
		shape.blocks = 2 // q, k and v leave registers for attention's blocks, which begin beside theirs
	}
	if shape.stages > 0 && ringShared(t, k, shape, eight) > vecMost {
		shape = vecShape{unroll: vecUnroll(t), blocks: 1} // x takes more room than where it is rounded
	}
	waves := vecThreads / max(b.dev.wave, 32)
	blocks := max(b.dev.units, 1)
	if shape.stages == 0 {
		blocks *= shape.blocks
	}
	pairs := 0
	var words []uint64
	for _, p := range products {
		n := p.w.Shape[0]
		words = append(words, b.weightWords(p.w)...)
		y := p.y
		if pair.of != "" && !pair.keep {
			y = 0
		}
		words = append(words, uint64(y), uint64(b.dense(p.bias)))
		if b.factors(p) > 0 {
			words = append(words, uint64(b.dense(p.scale)))
		}
		words = append(words, uint64(uint32(n))|uint64(uint32(pairs))<<32)
		if pair.of != "" {
			pairs = n
		} else {
			pairs += ceil(n, 2)
		}
	}
	if pairs <= blocks*waves {
		shape.draw = 0 // each wave has one at most
	}
	chunk := max(shape.chunk, 1) * chunkBlocks(t)
	apart := eight && apartRows(t) && shape.stages > 0
	if apart {
		chunk *= 2 // of one row
	}
	round := isF8(t) && k == 16*chunk*shape.stages
	prog := newProgram("vec.hip", define("W_TYPE", weightNames[t]), onOff("W_SCALAR", scalar), onOff("X_SCALAR", loose),
		onOff("INT8", eight), define("MATS", len(products)), onOff("PAIRED", pair.of != ""),
		define("PAIRED_OF", "of_"+pairName(pair.of)),
		onOff("NORM", norm != nil), onOff("NORM_F32", b.plainNorm(norm)), define("TURNS", ceil(k, 4*vecThreads)),
		define("BLOCKS", shape.blocks), onOff("STREAM", shape.stages > 0),
		define("STAGES", shape.stages), define("DRAW", shape.draw), onOff("APART", apart), onOff("ROUND", round),
		define("CHUNK", chunk), define("UNROLL", shape.unroll), b.bias(first))
	if b.factors(first) > 0 {
		prog += " SCALED=1"
	}
	second := slices.IndexFunc(products, func(p product) bool { return p.w.Type != t })
	if second > 0 {
		if shape.stages == 0 || !eight { // see mixes
			b.failf("products of two types without rings, or without x in eight bits")
		}
		t2 := products[second].w.Type
		prog += newProgram("", define("W_TYPE2", weightNames[t2]), define("FIRST", second), define("CHUNK2", chunkBlocks(t2)))
	}
	d := b.start(prog, "vec", vecThreads, min(ceil(pairs, waves), blocks), 1, 1)
	d.shared = vecBytes(t, k, eight)
	if shape.stages > 0 {
		d.shared = ringShared(t, k, shape, eight)
	}
	if second > 0 {
		d.shared = mixedShared(t, products[second].w.Type, k, shape)
	}
	d.ptr(at).u32(k)
	d.args.add(words...)
	d.u32(pairs).ptr(b.pointer(first.res))
	b.norm(d, norm)
	d.ptr(pair.out)
	counter, err := b.dev.ticket()
	if err != nil {
		b.failf("%w", err)
	}
	d.ptr(counter)
	d.late = len(d.args.values)
	d.u32(0)
}

// plainNorm says whether a norm's weights can be loaded as quads of f32.
func (b *binder) plainNorm(norm *normed) bool {
	return norm != nil && norm.w.Buffer != nil && norm.w.Type == tensor.F32 && b.dense(&norm.w)%16 == 0
}

// pairName names a function of pairs in pair.h.
func pairName(of string) string {
	if of == "" {
		return "swiglu"
	}
	return of
}

// pairOf gives the function of a node that multiplies by an activation.
func pairOf(n *graph.Node) string {
	switch n.Op {
	case ops.SwiGLU:
		return "swiglu"
	case ops.GeGLU:
		return gelu(n, "geglu")
	}
	return ""
}
