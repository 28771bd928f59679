package hip

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Products in half precision on Hopper's tensor cores: see gemm.hip, halves.hip.

const (
	gemmRows, gemmStep = 128, 64 // BM and BK in gemm.hip
	gemmThreads        = 256
	roundKeep          = 12 // quads of a row that a thread keeps at most
	// decodedRows are those up to which block formats are decoded into the tiles of products, by each of them,
	// instead of widened once: by what either takes of 512 rows, and slower for q4_0 with 4096. q6_K is only
	// where clusters share the work.
	decodedRows = 1536
)

// gemmShape is a tile's columns, its stages of shared memory, and the blocks
// that shall share a multiprocessor; lag is LAG in gemm.hip. With a cluster it is
// a shape of pipeline.hip, and the most blocks of a cluster; decode is its DECODE. With parts a cluster's blocks divide
// k into so many.
type gemmShape struct{ columns, stages, blocks, lag, cluster, decode, parts int }

var (
	gemmShapes = []gemmShape{{columns: 128, stages: 6, blocks: 1, lag: 2}, {columns: 256, stages: 4, blocks: 1, lag: 1},
		{columns: 128, stages: 6, blocks: 1, lag: 1}, {columns: 128, stages: 3, blocks: 2, lag: 1}}
	pipelineShapes = []gemmShape{ // of two that take as long the first
		{columns: 128, stages: 7, cluster: 2}, {columns: 176, stages: 5, cluster: 2}, {columns: 192, stages: 5, cluster: 2},
		{columns: 256, stages: 4, cluster: 2},
		{columns: 128, stages: 7, cluster: 1}, {columns: 176, stages: 5, cluster: 1}, {columns: 192, stages: 5, cluster: 1},
		{columns: 256, stages: 4, cluster: 1},
	}
	// narrowShapes are for up to gemmRows rows: a product then has a tile of w for each of more multiprocessors, whose
	// number decides how fast w is read.
	narrowShapes = []gemmShape{{columns: 64, stages: 8, cluster: 1}, {columns: 32, stages: 10, cluster: 1}}
	// partShapes are for products whose tiles are fewer than half of the multiprocessors.
	partShapes = []gemmShape{
		{columns: 128, stages: 7, cluster: 2, parts: 2}, {columns: 64, stages: 8, cluster: 2, parts: 2},
		{columns: 192, stages: 5, cluster: 2, parts: 2},
		{columns: 128, stages: 7, cluster: 4, parts: 4}, {columns: 64, stages: 8, cluster: 4, parts: 4},
	}
	decodeShapes = []gemmShape{
		{columns: 128, stages: 6, cluster: 2, decode: 2}, {columns: 128, stages: 6, cluster: 2, decode: 1},
		{columns: 176, stages: 5, cluster: 2, decode: 2}, {columns: 192, stages: 5, cluster: 2, decode: 2},
		{columns: 128, stages: 6, cluster: 1, decode: 2}, {columns: 128, stages: 6, cluster: 1, decode: 1},
		{columns: 176, stages: 5, cluster: 1, decode: 2}, {columns: 192, stages: 5, cluster: 1, decode: 2},
	}
)

func (s gemmShape) String() string {
	if s.decode > 0 {
		return fmt.Sprintf("decode=%dx%d,stages=%d,groups=%d,cluster=%d", gemmRows, s.columns, s.stages, s.decode, s.cluster)
	}
	if s.parts > 0 {
		return fmt.Sprintf("pipeline=%dx%d,stages=%d,parts=%d", gemmRows, s.columns, s.stages, s.parts)
	}
	if s.cluster > 0 {
		return fmt.Sprintf("pipeline=%dx%d,stages=%d,cluster=%d", gemmRows, s.columns, s.stages, s.cluster)
	}
	return fmt.Sprintf("tile=%dx%d,stages=%d,blocks=%d,lag=%d", gemmRows, s.columns, s.stages, s.blocks, s.lag)
}

// bytes is the shared memory of a block, with room to align it to 1024.
func (s gemmShape) bytes() int { return s.stages*(gemmRows+s.columns)*gemmStep*2 + 1024 }

// gemmShapesFor gives the shapes of a product of some rows with matrices of a type
// and n rows of k each, the one that suits it first.
func (dev *Device) gemmShapesFor(t tensor.Type, rows int, n []int, k int, paired bool) []gemmShape {
	if !dev.overlaps || !dev.d.has(fnTensorMap) {
		return gemmShapes
	}
	fit := func(shapes []gemmShape) []gemmShape {
		return slices.DeleteFunc(slices.Clone(shapes), func(s gemmShape) bool { return dev.fits(s.cluster) == 0 })
	}
	shapes, decoded := fit(pipelineShapes), fit(decodes(t))
	if rows <= gemmRows {
		shapes = append(shapes, fit(narrowShapes)...)
	}
	shapes = append(shapes, fit(partShapes)...)
	from := shapes
	if len(decoded) > 0 && rows <= decodedRows && (t != tensor.Q6_K || decoded[0].clusterOf(rows) == 2) {
		from = decoded
	}
	best := slices.MinFunc(from, func(a, b gemmShape) int {
		return cmp.Compare(dev.rounds(a, rows, n, k, paired), dev.rounds(b, rows, n, k, paired))
	})
	all := []gemmShape{best}
	for _, s := range slices.Concat(shapes, decoded, gemmShapes) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// gemm multiplies many rows by several matrices, up to three, of one type.
func (b *binder) gemm(products []product, norm *normed, pair pairing) {
	first := products[0]
	t, k, rows := first.w.Type, first.w.Shape[1], first.columns
	kp := ceil(k, gemmStep) * gemmStep
	shape := b.gemmShape(products, pair.of != "")
	// As stored where lines of 16 bytes can be read, else widened.
	bf16 := t == tensor.BF16
	direct := t == tensor.F16 || bf16
	for _, p := range products {
		direct = direct && !b.scalar(p.w)
	}
	size := func(n int) int { return ceil(2*n*kp+4*n, 256) * 256 } // rows and their factors
	work, err := b.dev.workspace(size(rows))
	if err != nil {
		b.failf("%w", err)
	}
	b.works = true
	to16 := "f2h"
	if bf16 {
		to16 = "f2b"
	}
	common := []string{onOff("BF16", bf16), define("TO16", to16)}
	var matrices []halfMatrix
	for _, p := range products {
		m := halfMatrix{at: b.pointerOf(p.w), row: p.w.Stride / 2, n: p.w.Shape[0], k: k, bias: b.dense(p.bias), y: p.y,
			packed: p.w}
		if pair.of != "" && !pair.keep {
			m.y = 0
		}
		matrices = append(matrices, m)
	}
	switch {
	case shape.decode > 0 && t == tensor.Q4_K:
		b.subscales(matrices)
	case shape.decode == 0 && !direct:
		b.widen(matrices, t, kp, common)
	}
	from, threads := first.x, 256
	if norm != nil {
		from, threads = &norm.x, normThreads
	}
	rounds := newProgram("halves.hip", append(common, "ROUND=1", onOff("NORM", norm != nil), "W_TYPE=W_F16", "W_SCALAR=0",
		onOff("X_SCALAR", b.loose(from)), define("KEEP", min(ceil(kp, 4*threads), roundKeep)))...)
	d := b.start(rounds, "round_rows", threads, rows, 1, 1)
	d.ptr(work, work+uintptr(2*rows*kp), b.pointer(from)).rows(rowsOf(from)).u32(kp)
	b.norm(d, norm)
	x := halfMatrix{at: work, factor: work + uintptr(2*rows*kp), row: kp, n: rows, k: kp}
	options := []string{define("MATS", len(products)), onOff("PAIRED", pair.of != ""),
		define("PAIRED_OF", "of_"+pairName(pair.of)),
		onOff("MMA_BF16", bf16), b.bias(first)}
	if shape.cluster > 0 {
		b.pipeline(shape, options, x, matrices, first.res, pair)
	} else {
		b.halves(shape, options, x, matrices, first.res, pair)
	}
}

// widen makes rows of halves of matrices of another type, padded to kp columns, with
// their factors.
func (b *binder) widen(matrices []halfMatrix, t tensor.Type, kp int, common []string) {
	size := func(m *halfMatrix) int { return 2*m.n*kp + 4*m.n }
	b.inArea(matrices, size, func(m *halfMatrix, at uintptr) *dispatch {
		prog := newProgram("halves.hip", append(common, "ROUND=0", "NORM=0", define("W_TYPE", weightNames[t]),
			onOff("W_SCALAR", b.scalar(m.packed)))...)
		factor := at + uintptr(2*m.n*kp)
		d := b.start(prog, "widen", 256, ceil(m.n, 256/max(b.dev.wave, 32)), 1, 1).ptr(at, factor)
		b.weights(d, m.packed)
		d.u32(m.n, kp)
		m.at, m.factor, m.row, m.k = at, factor, kp, kp // rows are padded
		return d
	})
}

// subscales makes what decode.h multiplies codes of q4_K by.
func (b *binder) subscales(matrices []halfMatrix) {
	blocks := func(m *halfMatrix) int { return m.n * m.k / 256 }
	prog := newProgram("halves.hip", "BF16=0", "TO16=f2h", "ROUND=0", "NORM=0", define("W_TYPE", weightNames[tensor.Q4_K]),
		"W_SCALAR=0")
	b.inArea(matrices, func(m *halfMatrix) int { return 32 * blocks(m) }, func(m *halfMatrix, at uintptr) *dispatch {
		d := b.start(prog, "subscales", 256, ceil(blocks(m), 256), 1, 1).ptr(at, b.rowFactors(m.packed))
		b.weights(d, m.packed)
		d.u32(m.n)
		m.subs = at
		return d
	})
}

// inArea launches for each matrix what fills so many bytes of the area that products of so many matrices read;
// whether it starts soon is the last of its arguments.
func (b *binder) inArea(matrices []halfMatrix, size func(*halfMatrix) int,
	launch func(m *halfMatrix, at uintptr) *dispatch) {
	all := 0
	for i := range matrices {
		all += ceil(size(&matrices[i]), 256) * 256
	}
	number := 1
	if len(matrices) > 1 {
		number = 2
	}
	at, err := b.dev.area(number, all)
	if err != nil {
		b.failf("%w", err)
	}
	for i := range matrices {
		m := &matrices[i]
		d := launch(m, at)
		d.area, d.soon = number, len(d.args.values)
		d.u32(0)
		at += uintptr(ceil(size(m), 256) * 256)
	}
}

// Weights are widened, or their scales made, in one of two areas, that of single matrices and that of several,
// so that what the product before reads is left alone where the two take turns, as in
// the blocks of a model: then they are widened while launches before still run. That
// needs each product to let launches begin no earlier than its own wait ends, as then
// the product before it, whose area may be the one that is written, has ended.

// area gives the memory of an area, 1 or 2, of n bytes at least.
func (dev *Device) area(number, n int) (uintptr, error) {
	all := &dev.areas[number-1]
	if k := len(*all); k > 0 && (*all)[k-1].size >= n {
		return (*all)[k-1].at, nil
	}
	b, err := dev.alloc(n, "widened weights")
	if err != nil {
		return 0, err
	}
	*all = append(*all, b)
	return b.at, nil
}

// widenSoon lets launches that widen weights start at once, where the last ones of the
// program before them did not use the same area.
func (dev *Device) widenSoon(levels [][]*bound) {
	last := 0
	for _, level := range levels {
		for _, b := range level {
			before := last
			for _, p := range b.parts {
				if p.area == 0 {
					continue
				}
				if last = p.area; last != before && dev.overlaps {
					p.args.values[p.soon] = 1
				}
			}
		}
	}
}

// halfMatrix is rows of halves: their address and elements from one to the next,
// with factors or 0.
type halfMatrix struct {
	at, factor uintptr
	row, n, k  int
	bias, y    uintptr           // of a matrix of weights
	packed     *backends.Operand // as it is stored
	subs       uintptr           // scales and offsets of its blocks' parts (q4_K), where they are multiplied as stored
	first      int               // its first tile
}

// place numbers the tiles of matrices, the same ones of a pair, and says how many
// there are, and whether they are whole.
func (s gemmShape) place(matrices []halfMatrix, paired bool) (tiles int, full bool) {
	full = true
	columns := s.columns
	if paired {
		columns /= 2
	}
	for i := range matrices {
		m := &matrices[i]
		full = full && m.n%columns == 0
		if paired {
			tiles = 0
		}
		m.first = tiles
		tiles += ceil(m.n, columns)
	}
	return tiles, full
}

// halves multiplies by gemm.hip.
func (b *binder) halves(shape gemmShape, options []string, x halfMatrix, matrices []halfMatrix, res *backends.Operand,
	pair pairing) {
	tiles, full := shape.place(matrices, pair.of != "")
	k := matrices[0].k
	full = full && !b.dev.invariant && x.n%gemmRows == 0 && k == x.k
	prog := newProgram("gemm.hip", append([]string{define("BN", shape.columns), define("STAGES", shape.stages),
		define("RESIDENT", shape.blocks),
		define("LAG", shape.lag), onOff("FULL", full)}, options...)...)
	d := b.start(prog, "gemm", gemmThreads, ceil(x.n, gemmRows)*tiles, 1, 1)
	d.shared = shape.bytes()
	d.ptr(x.at, x.factor).u32(x.k, x.n, k)
	var words []uint64
	for _, m := range matrices {
		words = append(words, uint64(m.at), uint64(m.factor), uint64(m.bias), uint64(m.y), uint64(m.row),
			uint64(uint32(m.n))|uint64(uint32(m.first))<<32)
	}
	d.args.add(words...)
	d.u32(ceil(x.n, gemmRows), tiles)
	b.residual(d, res)
	d.ptr(pair.out)
}

// loose says whether rows of f32 cannot be read 16 bytes at a time.
func (b *binder) loose(o *backends.Operand) bool {
	r := rowsOf(o)
	return b.pointer(o)%16 != 0 || r.stride%4 != 0 || r.cols%4 != 0
}

// norm passes what a norm inside a launch needs.
func (b *binder) norm(d *dispatch, n *normed) {
	if n == nil {
		d.ptr(0).u32(0).f32(0).ptr(0)
		return
	}
	b.waits = b.waits || n.w.Changes()
	w, t := b.plain(&n.w)
	d.ptr(w).u32(t).f32(n.eps).ptr(n.h)
}

// pointerOf is pointer for weights as they are stored, 0 for packed ones.
func (b *binder) pointerOf(w *backends.Operand) uintptr {
	if w.Type.IsBlock() {
		return 0
	}
	b.waits = b.waits || w.Changes()
	return b.pointer(w)
}

func (b *binder) gemmShape(products []product, paired bool) gemmShape {
	var n []int
	for _, p := range products {
		n = append(n, p.w.Shape[0])
	}
	name := products[0].variant
	all := b.dev.gemmShapesFor(products[0].w.Type, b.dev.rows(products[0].columns), n,
		products[0].w.Shape[1], paired)
	for _, s := range all {
		if name == "" || s.String() == name {
			return s
		}
	}
	b.failf("no variant %q of a product, there are %v", name, all)
	return all[0]
}

// Choose sets what is asked for the variant of each node; nil: the default.
func (dev *Device) Choose(of func(*graph.Node) string) { dev.asked = of }

// variant gives what was chosen for a node.
func (dev *Device) variant(n *graph.Node) (string, error) {
	if dev.asked == nil {
		return "", nil
	}
	name := dev.asked(dev.like(n))
	if name == "" {
		return "", nil
	}
	all := dev.Variants(n)
	for _, v := range all {
		if v == name {
			return name, nil
		}
	}
	return "", fmt.Errorf("hip: %v has no variant %q, but %q", n, name, all)
}
