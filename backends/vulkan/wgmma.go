//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import "greta/tensor"

// Products of f16 by Hopper's asynchronous matrix instructions: see wgmma.hip.

// wgmmaStep is what columns of w come in, wgmmaThreads are those of a block. Up to wgmmaRows rows of x tiles of matrix.comp
// of half as many leave fewer units idle, and are faster.
const wgmmaStep, wgmmaThreads, wgmmaRows = 32, 384, 64

// The tiles, of which the smaller has two thirds of the larger's time for half of its rows.
var wgmmaVariants = []matrixVariant{
	{"wgmma=128x128", "wgmma_128", 128, 128, 0, false},
	{"wgmma=256x128", "wgmma_256", 256, 128, 0, false},
}

// takesWgmma says whether wgmma.hip multiplies so many rows by weights of a type, whose rows have so many columns.
func takesWgmma(t tensor.Type, cols, rows int) bool {
	return t == tensor.F16 && cols%wgmmaStep == 0 && rows > wgmmaRows
}

// tiles is how many tiles so many rows of x and of w have.
func (v *matrixVariant) tiles(rows, n int) int {
	return (rows + v.rows - 1) / v.rows * ((n + v.cols - 1) / v.cols)
}

// wgmmaTiles names the tiles for so many rows of x and of w, first those whose rounds take less time.
func (d *Device) wgmmaTiles(rows, n int) []string {
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
	c := b.call(v.module)
	woff, boff, btype, r, y := b.scaledOperands(c, p, *x, part)
	first := uint32(part.first)
	even := (y.off|y.stride|r.off|r.stride|first|uint32(part.count)|uint32(p.w.Rows()))%2 == 0
	c.push = []uint32{uint32(n), uint32(part.count), uint32(p.w.Shape.Last()), woff, uint32(p.w.Stride), x.pitch / 4, boff + first, btype,
		r.off + first, r.stride, r.inner, y.off + first, y.stride, y.inner, uint32(p.w.Rows()), flag(even), flag(p.r != nil)}
	b.launch(c, "wgmma_product", v.tiles(n, part.count), wgmmaThreads)
}
