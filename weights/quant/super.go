package quant

// The two ways in which k-quants share scales over a super-block of 256: each
// sub-block has a small integer scale, and in the affine formats a small
// integer offset, counted in one f16 unit per super-block.

import (
	"math"
	"slices"
)

// affineFit is a super-block as y = d·scale[s]·q − m·low[s].
type affineFit struct {
	d, m       float32
	scale, low [16]byte // the first 256 / sub are used
	q          [256]byte
	err        float32 // squared, over the super-block
}

// fitAffineBlock finds units, scales and codes for x in sub-blocks of sub
// elements, codes 0 … n, scales and offsets 0 … top, and stores the units as f16.
func fitAffineBlock(x, w []float32, sub, n, top int, dBytes, mBytes []byte) affineFit {
	var scales, lows [16]float32
	subs := 256 / sub
	for s := range subs {
		d, m := fitAffine(x[s*sub:(s+1)*sub], part(w, s, sub), n, true)
		scales[s], lows[s] = d, -m
	}
	var f affineFit
	f.d = putUnit(dBytes, slices.Max(scales[:])/float32(top))
	f.m = putUnit(mBytes, slices.Max(lows[:])/float32(top))
	f.fit(x, w, &scales, &lows, sub, n, top)
	// The units suit the largest sub-block; refit them to all, by least squares.
	var again affineFit
	d, m := f.units(x, w, sub)
	again.d, again.m = putUnit(dBytes, d), putUnit(mBytes, m)
	if again.d > 0 && again.m >= 0 {
		again.fit(x, w, &scales, &lows, sub, n, top)
		if again.err < f.err {
			return again
		}
	}
	putUnit(dBytes, f.d)
	putUnit(mBytes, f.m)
	return f
}

// fit finds scales, offsets and codes for the units d and m.
func (f *affineFit) fit(x, w []float32, scales, lows *[16]float32, sub, n, top int) {
	levels, limit := float32(n), float32(top)
	invD, invM := reciprocal(f.d), reciprocal(f.m)
	for s := range 256 / sub {
		xs, ws := x[s*sub:(s+1)*sub], part(w, s, sub)
		highest := slices.Max(xs)
		best := float32(-1)
		// Rounding scale and offset to integers moves the optimum: look around.
		sc := int(nearest(scales[s]*invD, 0, limit))
		mn := int(nearest(lows[s]*invM, 0, limit))
		for b := max(mn-1, 0); b <= min(mn+1, top); b++ {
			low := float32(f.m * float32(b))
			try := func(a int) {
				if err := affineError(xs, ws, f.d*float32(a), low, levels); best < 0 || err < best {
					best, f.scale[s], f.low[s] = err, byte(a), byte(b)
				}
			}
			for a := max(sc-1, 0); a <= min(sc+1, top); a++ {
				try(a)
			}
			// A coarse offset can push elements off the end: reach for the highest.
			if cover := int(nearest((highest+low)/levels*invD, 0, limit)); cover > sc+1 {
				try(cover)
				try(cover - 1)
			}
		}
		f.err += best
		inv, low := reciprocal(f.d*float32(f.scale[s])), float32(f.m*float32(f.low[s]))
		for i, v := range xs {
			f.q[s*sub+i] = nearest((v+low)*inv, 0, levels)
		}
	}
}

// units gives the d and m that minimise Σ(x − d·a + m·b)², a being scale·q and
// b the offset: the normal equations of two unknowns.
func (f *affineFit) units(x, w []float32, sub int) (d, m float32) {
	var aa, bb, ab, xa, xb float64
	for i, v := range x {
		s := i / sub & 15
		a, b := float64(int(f.scale[s])*int(f.q[i])), float64(f.low[s])
		if w != nil { // weighted sums
			r := math.Sqrt(float64(w[i]))
			a, b, v = float64(a*r), float64(b*r), float32(float64(v)*r)
		}
		aa += float64(a * a)
		ab += float64(a * b)
		bb += float64(b * b)
		xa += float64(float64(v) * a)
		xb += float64(float64(v) * b)
	}
	if det := float64(aa*bb) - float64(ab*ab); det > 0 {
		d = float32((float64(xa*bb) - float64(xb*ab)) / det)
		m = float32((float64(xa*ab) - float64(xb*aa)) / det)
		return d, m
	}
	if aa > 0 {
		return float32(xa / aa), 0
	}
	return f.d, f.m
}

// symmetricFit is a super-block in 16 sub-blocks as y = d·scale[s]·(q − n).
type symmetricFit struct {
	scale [16]int8
	q     [256]byte
}

// fitSymmetricBlock finds unit, scales and codes for x, codes 0 … 2n − 1 and
// scales −top … top − 1, and stores the unit as f16.
func fitSymmetricBlock(x, w []float32, n, top int, dBytes []byte) (f symmetricFit) {
	var scales [16]float32
	for s := range scales {
		scales[s] = fitSymmetric(x[s*16:(s+1)*16], part(w, s, 16), n)
	}
	lo, hi := float32(-n), float32(n-1)
	d := putUnit(dBytes, extreme(scales[:])/float32(-top))
	inv := reciprocal(d)
	for s := range scales {
		xs := x[s*16 : (s+1)*16]
		sc := int(nearest(scales[s]*inv, float32(-top), float32(top-1))) - top
		best := float32(-1)
		for a := max(sc-1, -top); a <= min(sc+1, top-1); a++ {
			if err := symmetricError(xs, part(w, s, 16), d*float32(a), lo, hi); best < 0 || err < best {
				best, f.scale[s] = err, int8(a)
			}
		}
		inv := reciprocal(d * float32(f.scale[s]))
		for i, v := range xs {
			f.q[s*16+i] = nearest(v*inv, lo, hi)
		}
	}
	return f
}

// part gives those of the weights that are of sub-block s; nil: there are none.
func part(w []float32, s, sub int) []float32 {
	if w == nil {
		return nil
	}
	return w[s*sub : (s+1)*sub]
}
