package hip

import (
	"fmt"
	"strings"

	"greta/backends"
	"greta/graph"
	"greta/tensor"
)

// Products in half precision on Hopper's tensor cores: see gemm.hip, halves.hip.

const (
	gemmRows, gemmStep = 128, 64 // BM and BK in gemm.hip
	gemmThreads        = 256
	roundKeep          = 12 // quads of a row that a thread keeps at most
)

// gemmShape is a tile's columns, its stages of shared memory, and the blocks
// that shall share a multiprocessor; lag is LAG in gemm.hip.
type gemmShape struct{ columns, stages, blocks, lag int }

var gemmShapes = []gemmShape{{128, 6, 1, 2}, {256, 4, 1, 1}, {128, 6, 1, 1}, {128, 3, 2, 1}}

func (s gemmShape) String() string {
	return fmt.Sprintf("tile=%dx%d,stages=%d,blocks=%d,lag=%d", gemmRows, s.columns, s.stages, s.blocks, s.lag)
}

// bytes is the shared memory of a block, with room to align it to 1024.
func (s gemmShape) bytes() int { return s.stages*(gemmRows+s.columns)*gemmStep*2 + 1024 }

// hasHalves says whether an architecture has the instructions of gemm.hip.
func hasHalves(arch string) bool { return arch == "sm_90" }

// usesHalves says whether a product goes to gemm.hip.
func (dev *Device) usesHalves(n *graph.Node) bool {
	return hasHalves(dev.info.Level) && dev.on(pathHalf) && takesMatrix(n)
}

// gemmVariants names the shapes, the one that suits a product first: as many
// rows of tiles as there are, the tile that leaves fewer multiprocessors idle.
func (dev *Device) gemmVariants(rows, n int) []string {
	best := gemmShapes[0]
	all := []string{best.String()}
	for _, s := range gemmShapes {
		if s != best {
			all = append(all, s.String())
		}
	}
	return all
}

// gemm multiplies many rows by several matrices, up to three, of one type.
func (b *binder) gemm(products []product, norm *normed, pair pairing) {
	first := products[0]
	t, k, rows := first.w.Type, first.w.Shape[1], first.columns
	kp := ceil(k, gemmStep) * gemmStep
	shape := b.gemmShape(first)
	// As stored where lines of 16 bytes can be read, else widened.
	bf16 := t == tensor.BF16
	direct := t == tensor.F16 || bf16
	total := 0
	for _, p := range products {
		direct = direct && !b.scalar(p.w)
		total += p.w.Shape[0]
	}
	size := func(n int) int { return ceil(2*n*kp+4*n, 256) * 256 } // rows and their factors
	need := size(rows)
	if !direct {
		for _, p := range products {
			need += size(p.w.Shape[0])
		}
	}
	work, err := b.dev.workspace(need)
	if err != nil {
		b.failf("%w", err)
	}
	b.works = true
	to16 := "f2h"
	if bf16 {
		to16 = "f2b"
	}
	from, threads := first.x, 256
	if norm != nil {
		from, threads = &norm.x, normThreads
	}
	common := []string{onOff("BF16", bf16), define("TO16", to16)}
	rounds := newProgram("halves.hip", append(common, "ROUND=1", onOff("NORM", norm != nil), "W_TYPE=W_F16", "W_SCALAR=0",
		onOff("X_SCALAR", b.loose(from)), define("KEEP", min(ceil(kp, 4*threads), roundKeep)))...)
	d := b.start(rounds, "round_rows", threads, rows, 1, 1)
	d.ptr(work, work+uintptr(2*rows*kp), b.pointer(from)).rows(rowsOf(from)).u32(kp)
	b.norm(d, norm)
	at := work + uintptr(size(rows))
	paired := pair.of != ""
	full := rows%gemmRows == 0 && kp == k
	tiles := 0
	var words []uint64
	for _, p := range products {
		n := p.w.Shape[0]
		w, factor, row := b.pointerOf(p.w), uintptr(0), p.w.Stride/2
		if !direct {
			prog := newProgram("halves.hip", append(common, "ROUND=0", "NORM=0", weightType(p.w), onOff("W_SCALAR", b.scalar(p.w)))...)
			d := b.start(prog, "widen", 256, ceil(n, 256/max(b.dev.wave, 32)), 1, 1).ptr(at, at+uintptr(2*n*kp))
			b.weights(d, p.w)
			d.u32(n, kp)
			w, factor, row = at, at+uintptr(2*n*kp), kp
			at += uintptr(size(n))
		}
		columns := shape.columns
		if paired {
			columns /= 2
		}
		y := p.y
		if paired && !pair.keep {
			y = 0
		}
		words = append(words, uint64(w), uint64(factor), uint64(b.dense(p.bias)), uint64(y), uint64(row), uint64(uint32(n))|uint64(uint32(tiles))<<32)
		full = full && n%columns == 0
		if paired {
			tiles = ceil(n, columns)
		} else {
			tiles += ceil(n, columns)
		}
	}
	prog := newProgram("gemm.hip", define("BN", shape.columns), define("STAGES", shape.stages), define("RESIDENT", shape.blocks), define("LAG", shape.lag),
		define("MATS", len(products)), onOff("PAIRED", paired), define("PAIRED_OF", "of_"+pairName(pair.of)),
		onOff("MMA_BF16", bf16), b.bias(first), onOff("FULL", full))
	d = b.start(prog, "gemm", gemmThreads, ceil(rows, gemmRows)*tiles, 1, 1)
	d.shared = shape.bytes()
	d.ptr(work, work+uintptr(2*rows*kp)).u32(kp, rows, k)
	if !direct {
		d.args.values[d.args.at[len(d.args.at)-1]] = uint64(kp) // rows are padded
	}
	d.args.add(words...)
	d.u32(ceil(rows, gemmRows), tiles)
	b.residual(d, first.res)
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
	w, t := b.plain(&n.w)
	d.ptr(w).u32(t).f32(n.eps).ptr(n.h)
}

// pointerOf is pointer for weights as they are stored, 0 for packed ones.
func (b *binder) pointerOf(w *backends.Operand) uintptr {
	if w.Type.IsBlock() {
		return 0
	}
	return b.pointer(w)
}

func (b *binder) gemmShape(p product) gemmShape {
	name := p.variant
	if name == "" {
		name = b.dev.gemmVariants(p.columns, p.w.Shape[0])[0]
	}
	for _, s := range gemmShapes {
		if s.String() == name {
			return s
		}
	}
	b.failf("no variant %q of a product, there are %v", name, gemmShapes)
	return gemmShapes[0]
}

// Variants names the configurations of a product's kernel.
func (dev *Device) Variants(n *graph.Node) []string {
	switch {
	case !strings.HasPrefix(n.Op.Name, "linear") || n.Op.Name == "linear_id":
		return nil
	case dev.usesF8Vec(n):
		return names(f8VecShapes)
	case dev.usesVec(n):
		var all []string
		for _, s := range dev.vecShapes(n.In[1].Type, n.In[1].Shape[1]) {
			all = append(all, s.String())
		}
		return all
	case dev.usesF8(n):
		return names(f8Shapes())
	case dev.usesHalves(n):
		return dev.gemmVariants(n.In[0].Shape.Rows(), n.In[1].Shape[0])
	}
	return nil
}

// Choose sets what is asked for the variant of each node; nil: the default.
func (dev *Device) Choose(of func(*graph.Node) string) { dev.choose = of }

// variant gives what was chosen for a node.
func (dev *Device) variant(n *graph.Node) (string, error) {
	if dev.choose == nil {
		return "", nil
	}
	name := dev.choose(n)
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
