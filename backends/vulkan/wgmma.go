//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"greta/tensor"
)

// Products by Hopper's asynchronous matrix instructions: see wgmma.hip.

// Up to wgmmaRows rows of x tiles of matrix.comp of half as many leave fewer units idle, and
// are faster.
const wgmmaRows = 64

// wgmmaSteps are the types of weights that it multiplies, with what their rows have a multiple of in columns.
var wgmmaSteps = map[tensor.Type]int{tensor.F16: 32, tensor.Q4_0: 32, tensor.Q8_0: 32, tensor.Q4_K: 256, tensor.Q5_K: 256, tensor.Q6_K: 256}

// The tiles, of which the smaller has two thirds of the larger's time for half of its rows. Of block formats there is the
// smaller one: with the larger there are no registers left to decode in.
var wgmmaVariants = []matrixVariant{
	{"wgmma=128x128", "wgmma_%s_128", 128, 128, 0, false},
	{"wgmma=256x128", "wgmma_%s_256", 256, 128, 0, false},
}

// wgmmaThreads are those of a block: eight waves that multiply, and those that bring w, as wgmma.hip has them.
func wgmmaThreads(t tensor.Type) int {
	switch t {
	case tensor.Q4_0, tensor.Q8_0, tensor.Q4_K:
		return 32 * (8 + 8)
	}
	return 32 * (8 + 4)
}

// takesWgmma says whether wgmma.hip multiplies so many rows by weights of a type, whose rows have so many columns.
func takesWgmma(t tensor.Type, cols, rows int) bool {
	step := wgmmaSteps[t]
	return step > 0 && cols%step == 0 && rows > wgmmaRows
}

// tiles is how many tiles so many rows of x and of w have.
func (v *matrixVariant) tiles(rows, n int) int {
	return (rows + v.rows - 1) / v.rows * ((n + v.cols - 1) / v.cols)
}

// wgmmaTiles names the tiles for so many rows of x and of w, whose type is t, first those whose rounds take less time.
func (d *Device) wgmmaTiles(t tensor.Type, rows, n int) []string {
	if t.IsBlock() {
		return []string{wgmmaVariants[0].name}
	}
	units := max(d.p.units, 1)
	rounds := func(v *matrixVariant) int { return (v.tiles(rows, n) + units - 1) / units }
	small, large := &wgmmaVariants[0], &wgmmaVariants[1]
	if 3*rounds(large) <= 2*rounds(small) {
		small, large = large, small
	}
	return []string{small.name, large.name}
}

// wgmma multiplies a piece of w.
func (b *bind) wgmma(p product, part piece) {
	x := b.convert(fragments, p.x)
	if x == nil {
		return
	}
	v, n := b.variant, p.x.Shape.Rows()
	c := b.call(fmt.Sprintf(v.module, p.w.Type))
	woff, boff, btype, r, y := b.scaledOperands(c, p, *x, part)
	first := uint32(part.first)
	even := (y.off|y.stride|r.off|r.stride|first|uint32(part.count)|uint32(p.w.Rows()))%2 == 0
	c.push = []uint32{uint32(n), uint32(part.count), uint32(p.w.Shape.Last()), woff, uint32(p.w.Stride), x.pitch / 4, boff + first, btype,
		r.off + first, r.stride, r.inner, y.off + first, y.stride, y.inner, uint32(p.w.Rows()), flag(even), flag(p.r != nil)}
	b.launch(c, "wgmma_product", v.tiles(n, part.count), wgmmaThreads(p.w.Type))
}
