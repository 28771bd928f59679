package quant

// The searches for scales that the encoders share. All minimise the sum of
// squared errors over a block: without knowledge of the activations, which
// would weigh the elements, that is the expected error of a dot product.
//
// A scale fixes the rounding, and the rounding fixes by least squares a better
// scale. Neither is convex in the other, so a handful of scales around the one
// that just covers the range are tried and the best is kept.
//
// Products are converted before sums here too: the bytes that encoders write
// do not depend on whether a machine fuses the two.

import "math"

// tiny is half of the smallest f16: a block with nothing above it is taken as
// zeros, and one whose spread is below it as constant.
const tiny = 1.0 / (1 << 25)

func reciprocal(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// nearest rounds t to the nearest integer within lo … hi and counts from lo.
func nearest(t, lo, hi float32) byte {
	if t < lo {
		t = lo
	}
	if t > hi {
		t = hi
	}
	return byte(int32(t - lo + 0.5))
}

// extreme gives the element of largest magnitude, with its sign.
func extreme(x []float32) float32 {
	var e, amax float32
	for _, v := range x {
		if a := abs(v); a > amax {
			e, amax = v, a
		}
	}
	return e
}

// fitSymmetric finds d so that d·q, q in −n … n−1, is close to x. d may be
// negative: that gives the side with the larger element the longer range.
func fitSymmetric(x, w []float32, n int) float32 {
	if w != nil {
		return fitSymmetricWeighted(x, w, n)
	}
	e := extreme(x)
	if abs(e) < tiny {
		return 0
	}
	lo, hi := int32(-n), int32(n-1)
	bias := float32(n) + 2.5
	var best float64 // (Σxq)²/Σq², what the fit takes from Σx²
	var d float32
	try := func(inv float32) {
		var xq float32
		var qi int32
		for _, v := range x {
			// |v·inv| ≤ n + 1, so the biased value is positive and rounds by truncation.
			q := max(lo, min(hi, int32(float32(v*inv)+bias)+(lo-2)))
			xq += float32(v * float32(q))
			qi += q * q
		}
		if qi == 0 {
			return
		}
		qq := float32(qi)
		if gain := float64(xq) * float64(xq) / float64(qq); gain > best {
			best, d = gain, xq/qq
		}
	}
	// The extreme element falls on ±(n − 1 … n + 1): range against resolution.
	// The side of the extreme matters only while levels are few.
	for i := -10; i <= 10; i++ {
		r := (float32(n) + float32(0.1*float32(i))) / e
		try(-r)
		if n <= 8 && i <= 0 {
			try(r)
		}
	}
	return d
}

// fitAffine finds d ≥ 0 and m so that d·q + m, q in 0 … n, is close to x.
// With clip, m is at most 0, as the k-quants store it.
func fitAffine(x, w []float32, n int, clip bool) (d, m float32) {
	if w != nil {
		return fitAffineWeighted(x, w, n, clip)
	}
	lowest, highest := x[0], x[0]
	var sx, sxx float64
	for _, v := range x {
		lowest, highest = min(lowest, v), max(highest, v)
		sx += float64(v)
		sxx += float64(float64(v) * float64(v))
	}
	if clip {
		lowest = min(lowest, 0)
	}
	width := highest - lowest
	if width < tiny {
		return 0, lowest
	}
	// Sums over x − lowest: smaller numbers, less cancellation.
	count, base := float64(len(x)), float64(lowest)
	sxx += float64(base * (float64(count*base) - 2*sx))
	sx -= float64(count * base)
	best := math.Inf(1)
	top, levels := float32(n), int32(n)
	for i := -10; i <= 10; i++ {
		inv := (top + float32(0.1*float32(i))) / width
		var iq, iqq int32
		var sxq float32
		for _, v := range x {
			v -= lowest
			q := min(levels, int32(float32(v*inv)+0.5))
			iq += q
			iqq += q * q
			sxq += float32(v * float32(q))
		}
		sq, sqq, xq := float64(iq), float64(iqq), float64(sxq)
		// The normal equations; det is 0 where all codes are the same, which the
		// scale alone then meets.
		low, scale := -base, 0.0
		if det := float64(count*sqq) - float64(sq*sq); det > 0 {
			low = (float64(sqq*sx) - float64(sq*xq)) / det
			scale = (float64(count*xq) - float64(sx*sq)) / det
		}
		if clip && low+base >= 0 {
			low = -base
			scale = (xq - float64(low*sq)) / sqq
		}
		// Σ(x − scale·q − low)², multiplied out.
		err := sxx
		err -= float64(scale * (2*xq - float64(scale*sqq)))
		err -= float64(low * (2*sx - float64(count*low) - 2*float64(scale*sq)))
		if scale > 0 && err < best {
			best, d, m = err, float32(scale), float32(low+base)
		}
	}
	return d, m
}

// symmetricError is the squared error of rounding x to d·q, q in lo … hi.
func symmetricError(x, w []float32, d, lo, hi float32) float32 {
	if w != nil {
		return weightedError(x, w, d, 0, lo, hi)
	}
	inv := reciprocal(d)
	var sum float32
	for _, v := range x {
		e := v - float32(d*(float32(nearest(v*inv, lo, hi))+lo))
		sum += float32(e * e)
	}
	return sum
}

// affineError is the squared error of rounding x to d·q − m, q in 0 … hi.
func affineError(x, w []float32, d, m, hi float32) float32 {
	if w != nil {
		return weightedError(x, w, d, m, 0, hi)
	}
	inv := reciprocal(d)
	var sum float32
	for _, v := range x {
		v += m
		e := v - float32(d*float32(nearest(v*inv, 0, hi)))
		sum += float32(e * e)
	}
	return sum
}
