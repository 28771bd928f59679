package hip

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/tensor"
)

// Products with weights of 8-bit floats, which lie packed as [K/16, N, 16]: see f8.hip.

const (
	// f8Step is the elements by which packed rows are padded: two steps of f8.hip.
	f8Step = 128
	// f8Spare is the bytes behind a packed weight that a tile's last rows may read.
	f8Spare = 256 * 16
	// f8Copying is the threads of f8.hip that do not multiply.
	f8Copying = 128
)

// isF8 says whether a type is one of the 8-bit floats.
func isF8(t tensor.Type) bool { return t >= tensor.F8E4M3 && t <= tensor.F8E5M2FNUZ }

// f8Size is the bytes of a packed weight.
func f8Size(_ tensor.Type, shape tensor.Shape) int {
	return ceil(shape.Last(), f8Step)*f8Step*shape.Rows() + f8Spare
}

// packF8 moves rows [from, to) to [K/16, N, 16]: 16 elements of a row together, then
// those of the next row. What pads K is zero, in all four types.
func packF8(dst, src []byte, t tensor.Type, shape tensor.Shape, from, to int) error {
	k, rows := shape.Last(), shape.Rows()
	if len(dst) < f8Size(t, shape) || len(src) < rows*k || from < 0 || to > rows {
		return fmt.Errorf("hip: packing rows %d to %d of %s%v from %d to %d bytes", from, to, t, shape, len(src), len(dst))
	}
	const together = 16 // rows, for whole lines of the cache
	for r0 := from; r0 < to; r0 += together {
		for c := range ceil(k, f8Step) * f8Step / 16 {
			for r := r0; r < min(r0+together, to); r++ {
				line := dst[(c*rows+r)*16:][:16]
				n := 0
				if c*16 < k {
					n = copy(line, src[r*k+c*16:r*k+min(k, c*16+16)])
				}
				clear(line[n:])
			}
		}
	}
	return nil
}

// f8Shape is a configuration of f8.hip's product: waves along the rows (m) and the columns
// (n) of y, the units of 16 that each of them multiplies, steps of 16 elements in a
// stage, stages of shared memory, and the blocks that share a tile's elements; and whether fp8
// instructions multiply.
type f8Shape struct {
	warpsM, warpsN, unrollK, repeatM, repeatN int
	stages, split                             int
	fp8                                       bool
}

// f8Shapes are the configurations.
var f8Shapes = []f8Shape{
	{1, 8, 4, 8, 2, 6, 1, false},
	{1, 12, 4, 8, 1, 6, 1, false},
	{1, 8, 4, 8, 1, 8, 1, false},
	{1, 12, 4, 4, 1, 8, 1, false},
	{1, 8, 4, 4, 1, 8, 1, false},
	{1, 8, 4, 4, 1, 8, 2, false},
	{1, 8, 4, 8, 1, 8, 2, false},
	{1, 8, 4, 4, 2, 8, 1, false},
	{1, 8, 4, 2, 2, 8, 4, false},
	{1, 8, 4, 1, 2, 8, 4, false},
	{1, 8, 8, 8, 2, 3, 1, false},
}

// fp8Shapes are those with fp8 instructions: stages of 128 elements.
var fp8Shapes = []f8Shape{
	{1, 8, 8, 8, 2, 4, 1, true},
	{1, 12, 8, 8, 1, 5, 1, true},
	{1, 8, 8, 8, 1, 6, 1, true},
	{1, 8, 8, 4, 1, 8, 1, true},
	{1, 8, 8, 4, 1, 8, 2, true},
	{1, 8, 8, 2, 2, 5, 4, true},
	{1, 8, 8, 1, 2, 6, 4, true},
}

// f8ShapesFor gives the configurations for a product of some rows with a weight of a type, n rows of k elements,
// the one that suits it first.
func (dev *Device) f8ShapesFor(t tensor.Type, rows, n, k int) []f8Shape {
	all := slices.Clone(f8Shapes)
	if dev.usesFP8(t) {
		all = slices.Clone(fp8Shapes)
	}
	sorting.Sort(all, func(a, b f8Shape) int {
		return cmp.Compare(dev.f8Time(a, rows, n, k), dev.f8Time(b, rows, n, k))
	})
	return all
}

// f8Time is about the time of a product, µs, without the rounding of x. The constants are of 55 products of
// 16 to 8192 rows on an H100: what they choose took at most 5 % more than the fastest configuration.
func (dev *Device) f8Time(s f8Shape, rows, n, k int) float64 {
	const (
		step    = 0.1     // of 64 elements of k,
		element = 1.65e-5 // and of each element of y in one:
		least   = 0.24    // together no less than this
		ends    = 4       // before a tile's first step and behind its last one
		sharing = 1.5     // of a tile by blocks,
		handing = 1.75e-4 // and of an element of one's part to the one that adds them
	)
	tile := float64(s.rows() * s.columns())
	each := max(least, step+element*tile)
	if s.fp8 {
		each *= 0.55
	}
	t := each*float64(ceil(ceil(k, 64), s.split)) + ends
	if s.split > 1 {
		t += sharing + handing*tile
	}
	items := ceil(rows, s.rows()) * ceil(n, s.columns()) * s.split
	return t * float64(ceil(items, max(dev.units, 1)))
}

func (s f8Shape) String() string {
	return fmt.Sprintf("warps_m=%d,warps_n=%d,unroll_k=%d,repeat_m=%d,repeat_n=%d,stages=%d,split=%d", s.warpsM, s.warpsN,
		s.unrollK, s.repeatM, s.repeatN, s.stages, s.split)
}

// program is f8.hip for a type of weight.
func (s f8Shape) program(w, bias string, out tensor.Type, pair string) program {
	return newProgram("f8.hip", "ROWS=0", onOff("FP8", s.fp8), w, "W_SCALAR=0", "MMA_BF16=0", define("WARPS_N", s.warpsN),
		define("UNROLL_K", s.unrollK), define("REPEAT_M", s.repeatM),
		define("REPEAT_N", s.repeatN), define("STAGES", s.stages), define("SPLITS", s.split), "RESIDENT=1", bias,
		"OUT=T_"+strings.ToUpper(out.String()),
		onOff("PAIRED", pair != ""), define("PAIRED_OF", "of_"+pairName(pair)))
}

// rows and columns of a block's tile of y.
func (s f8Shape) rows() int    { return 16 * s.warpsM * s.repeatM }
func (s f8Shape) columns() int { return 16 * s.warpsN * s.repeatN }

// columnsOf are those of y that a tile gives: of a pair half of them.
func (s f8Shape) columnsOf(paired bool) int {
	if paired {
		return s.columns() / 2
	}
	return s.columns()
}

// bytes is the shared memory of a block, with room to align it to 1024.
func (s f8Shape) bytes() int {
	slot, steps := s.rows()*128+4*(s.columns()*16+32), 4
	if s.fp8 {
		slot, steps = s.rows()*128+8*s.columns()*16, 8
	}
	return s.stages*s.unrollK/steps*slot + 1024
}

// packsF8 says whether a weight can be packed.
func packsF8(w *graph.Value) bool { return isF8(w.Type) && w.Kind == graph.Weight }

// packedF8 gives a packed weight's address.
func (b *binder) packedF8(o *backends.Operand) uintptr {
	at, err := b.dev.where(o.Buffer, o.Offset, f8Size(o.Type, o.Shape))
	if err != nil {
		b.failf("%w", err)
	}
	if at%16 != 0 {
		b.failf("weights at an address that is no multiple of 16")
	}
	return at
}

// names gives the names of a kernel's configurations.
func names[T fmt.Stringer](all []T) []string {
	var out []string
	for _, s := range all {
		out = append(out, s.String())
	}
	return out
}

// f8Shape is the configuration of a product.
func (dev *Device) f8Shape(p *product) f8Shape {
	all := dev.f8ShapesFor(p.w.Type, dev.rows(p.columns), p.w.Shape[0], p.w.Shape[1])
	for _, s := range all {
		if s.String() == p.variant {
			return s
		}
	}
	return all[0]
}

// f8Pair is that of a pair, which two times the rows of all waves multiply. It has the products' split, as parts that
// are added differ from one sum in the last bits. Not where two products and a launch for the function are faster.
func (dev *Device) f8Pair(p *product) (f8Shape, bool) {
	const launch, element = 3, 12 / 3e6 // µs; two elements read and one written, at 3 TB/s
	one, n, k, rows := dev.f8Shape(p), p.w.Shape[0], p.w.Shape[1], dev.rows(p.columns)
	for _, s := range dev.f8ShapesFor(p.w.Type, rows, 2*n, k) {
		if s.repeatN == 2 && s.split == one.split {
			return s, dev.f8Time(s, rows, 2*n, k) <= 2*dev.f8Time(one, rows, n, k)+launch+element*float64(rows*n)
		}
	}
	return one, false
}

// f8 multiplies rows by packed weights of 8-bit floats, which share them: they are rounded once, after their norm if
// there is one. Of a pair only the function of both is stored.
func (b *binder) f8(products []product, norm *normed, pair pairing) {
	first, second := products[0], products[len(products)-1]
	paired := pair.of != ""
	if paired {
		products = products[:1]
	}
	rows, kp := first.columns, ceil(first.w.Shape[1], f8Step)*f8Step
	line := 2 * kp // bytes of a row of x
	var shapes []f8Shape
	places, parts := 0, 0
	for _, p := range products {
		s := b.dev.f8Shape(&p)
		if paired {
			s, _ = b.dev.f8Pair(&p)
		}
		shapes = append(shapes, s)
		tiles := ceil(rows, s.rows())
		places = max(places, tiles*s.rows())
		if s.split > 1 {
			parts = max(parts, 4*tiles*ceil(p.w.Shape[0], s.columnsOf(paired))*s.split*s.rows()*s.columns())
		}
		if s.fp8 {
			line = kp
		}
	}
	bytes := ceil(places*line+4*places, 256) * 256
	work, err := b.dev.workspace(bytes + parts)
	if err != nil {
		b.failf("%w", err)
	}
	b.works = true
	factor := work + uintptr(places*line)
	x := first.x
	if norm != nil {
		x = &norm.x
	}
	d := b.start(newProgram("f8.hip", "ROWS=1", onOff("FP8", shapes[0].fp8), onOff("NORM", norm != nil),
		onOff("X_F16", x.Type == tensor.F16), onOff("X_SCALAR", b.loose(x)),
		define("KEEP", min(ceil(kp, 4*normThreads), roundKeep))), "f8_rows", normThreads, places, 1, 1)
	d.ptr(work, factor, b.pointer(x)).rows(rowsOf(x)).u32(rows, places, kp)
	b.norm(d, norm)
	for i, p := range products {
		s, n := shapes[i], p.w.Shape[0]
		rowTiles, columnTiles := ceil(rows, s.rows()), ceil(n, s.columnsOf(paired))
		blocks := rowTiles * columnTiles
		if s.split == 1 && b.dev.units > 0 {
			blocks = min(blocks, b.dev.units) // they take tile after tile
		}
		d := b.start(s.program(define("W_TYPE", weightNames[p.w.Type]), b.bias(p), p.out, pair.of), "f8_gemm",
			32*s.warpsN+f8Copying, blocks, s.split, 1)
		d.shared = s.bytes()
		d.ptr(work, factor).u32(places, rows).ptr(b.packedF8(p.w)).u32(n, n,
			line/128).ptr(b.dense(p.scale)).u32(b.factors(p)).ptr(b.dense(p.bias))
		b.residual(d, p.res)
		y := p.y
		if paired {
			y = pair.out
		}
		d.ptr(y).u32(rowTiles, columnTiles)
		counters := uintptr(0)
		if s.split > 1 {
			if counters, err = b.dev.zeroed(rowTiles * columnTiles); err != nil {
				b.failf("%w", err)
			}
			b.common = append(b.common, span{counters, counters + 1, true})
		}
		d.ptr(work+uintptr(bytes), counters)
		if !paired {
			d.ptr(0, 0, 0)
			continue
		}
		d.ptr(b.packedF8(second.w), b.dense(second.scale), b.dense(second.bias))
		if b.factors(second) != b.factors(p) {
			b.failf("one matrix of a pair has factors")
		}
	}
}

// factors is how many factors of rows there are, of f32: 0 or one a row.
func (b *binder) factors(p product) int {
	if p.scale.Buffer == nil {
		return 0
	}
	if p.scale.Type != tensor.F32 {
		b.failf("factors of %s, not f32", p.scale.Type)
	}
	return p.w.Shape[0]
}

// f8Packing is the layout of weights of 8-bit floats.
var f8Packing = &backends.Packing{ID: "k16", Size: f8Size, Pack: packF8, Unit: 1}
