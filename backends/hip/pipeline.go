package hip

import (
	"math"
	"slices"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// Products in half precision whose tiles the hardware copies: see pipeline.hip.

const (
	// epilogueColumns is what a tile costs beside its multiplications, in columns of epilogueSteps steps, and partColumns
	// what adding up the sums of k's parts does.
	epilogueColumns, partColumns, epilogueSteps = 18, 40, 64
	// partSteps is how many steps of k each part has at least.
	partSteps = 8
)

// decodes gives the shapes in which tiles of a type are made from its codes as they
// are multiplied.
func decodes(t tensor.Type) []gemmShape {
	switch t {
	case tensor.Q4_0, tensor.Q8_0, tensor.Q4_K:
		return decodeShapes
	case tensor.Q6_K: // wider tiles need more than a thread's registers
		return slices.DeleteFunc(slices.Clone(decodeShapes), func(s gemmShape) bool { return s.columns > 128 })
	}
	return nil
}

// clusterOf is how many blocks of a cluster a product of some rows takes: two
// where there are two tiles of rows for them.
func (s gemmShape) clusterOf(rows int) int {
	if s.parts > 0 {
		return s.parts
	}
	if tiles := ceil(rows, gemmRows); tiles%2 == 1 && tiles < 8 {
		return 1
	}
	return s.cluster
}

// whole says whether a cluster's tiles of a product's rows are all whole.
func (s gemmShape) whole(rows int) bool { return rows%s.rowsOf(rows) == 0 }

// rowsOf is how many of a product's rows a cluster has.
func (s gemmShape) rowsOf(rows int) int {
	if s.parts > 0 {
		return gemmRows
	}
	return s.clusterOf(rows) * gemmRows
}

// stepColumns is what a step of a tile takes, in columns of w that are multiplied meanwhile: those, or half of
// the rows of x and w that come to a multiprocessor, which takes 64 bytes a cycle.
func (s gemmShape) stepColumns(rows int) int {
	if s.decode > 0 { // w comes in codes
		return s.columns
	}
	return max(s.columns, (min(rows, gemmRows)+s.columns)/2)
}

// rounds is the time of a product in columns and steps of tiles that blocks take in turn.
func (dev *Device) rounds(s gemmShape, rows int, n []int, k int, paired bool) int {
	matrices := make([]halfMatrix, len(n))
	for i := range n {
		matrices[i].n = n[i]
	}
	tiles, _ := s.place(matrices, paired)
	all, fits := ceil(rows, s.rowsOf(rows))*tiles, max(dev.fits(s.clusterOf(rows)), 1)
	steps := ceil(k, gemmStep)
	if s.parts > 0 {
		if all > fits || steps < s.parts*partSteps {
			return math.MaxInt
		}
		return s.stepColumns(rows)*ceil(steps, s.parts) + (epilogueColumns+partColumns)*epilogueSteps
	}
	return ceil(all, fits) * (s.stepColumns(rows)*steps + epilogueColumns*epilogueSteps)
}

// pipeline multiplies by pipeline.hip.
func (b *binder) pipeline(shape gemmShape, options []string, x halfMatrix, matrices []halfMatrix, res *backends.Operand,
	pair pairing) {
	paired := pair.of != ""
	tiles, full := shape.place(matrices, paired)
	rows := b.dev.rows(x.n)
	cluster := shape.clusterOf(rows)
	full = full && !b.dev.invariant && shape.whole(x.n)
	groups := ceil(x.n, shape.rowsOf(rows))
	clusters := groups * tiles
	if shape.parts == 0 { // they stay, and take tile after tile
		clusters = min(b.dev.fits(cluster), clusters)
	}
	even := pair.out%8 == 0 && b.pointer(res)%8 == 0
	if res.Buffer != nil {
		r := rowsOf(res)
		even = even && r.stride%2 == 0 && r.cols%2 == 0
	}
	words := b.tensorMap(x, min(gemmRows, ceil(x.n, 8)*8))
	var halves []uint64
	for _, m := range matrices {
		even = even && m.n%2 == 0 && m.y%8 == 0
		if shape.decode == 0 {
			words = append(words, b.tensorMap(m, shape.columns/2)...)
		}
		if shape.decode > 0 {
			m.factor = b.rowFactors(m.packed)
		}
		halves = append(halves, uint64(m.factor), uint64(m.bias), uint64(m.y),
			uint64(uint32(m.n))|uint64(uint32(m.first))<<32)
	}
	if shape.decode > 0 {
		options = append(options, define("W_TYPE", weightNames[matrices[0].packed.Type]), "W_SCALAR=0")
	}
	if shape.parts > 0 {
		options = append(options, define("PARTS", shape.parts))
	}
	prog := newProgram("pipeline.hip", append([]string{define("DECODE", shape.decode), define("BN", shape.columns),
		define("STAGES", shape.stages), define("CLUSTER", cluster),
		onOff("FULL", full), onOff("EVEN", even)}, options...)...)
	d := b.start(prog, "pipeline", 256+128*max(shape.decode, 1), clusters*cluster, 1, 1)
	d.shared, d.cluster = shape.bytes()+16*shape.stages, cluster
	d.args.add(words...)
	d.ptr(x.factor).u32(ceil(x.k, gemmStep), x.n)
	d.args.add(halves...)
	d.u32(groups, tiles)
	b.residual(d, res)
	d.ptr(pair.out)
	if shape.decode == 0 {
		d.ptr(0)
		return
	}
	var codes []uint64
	for _, m := range matrices {
		words := b.weightWords(m.packed)
		if m.subs != 0 {
			words[1] = uint64(m.subs) - words[0] // the offset of a plane, which may be negative
		}
		codes = append(codes, words...)
	}
	d.args.add(codes...)
}

// tensorMap describes rows of halves to the hardware that copies tiles of them:
// boxes of rows by a step's elements, permuted as wgmma.h has it, zeros where the
// matrix ends.
func (b *binder) tensorMap(m halfMatrix, rows int) []uint64 {
	// What the driver reads and writes, the map at a multiple of 64 bytes.
	var v struct {
		room          [23]uint64
		sizes         [2]uint64
		strides       [1]uint64 // bytes, of all dimensions but the first
		box, elements [2]uint32
	}
	args := &v
	at := (uintptr(unsafe.Pointer(&args.room)) + 63) &^ 63
	args.sizes, args.strides = [2]uint64{uint64(m.k), uint64(m.n)}, [1]uint64{uint64(2 * m.row)}
	args.box, args.elements = [2]uint32{gemmStep, uint32(rows)}, [2]uint32{1, 1}
	const (
		words16, plain, swizzle128, promote256, zeros = 1, 0, 3, 3, 0
	)
	defer b.dev.enter()() // the driver asks for a context
	err := b.dev.d.call(fnTensorMap, "", at, words16, 2, m.at, uintptr(unsafe.Pointer(&args.sizes)),
		uintptr(unsafe.Pointer(&args.strides)),
		uintptr(unsafe.Pointer(&args.box)), uintptr(unsafe.Pointer(&args.elements)), plain, swizzle128, promote256, zeros)
	if err != nil {
		b.failf("%w", err)
	}
	first := (at - uintptr(unsafe.Pointer(&args.room))) / 8
	return append([]uint64{}, args.room[first:first+16]...)
}
