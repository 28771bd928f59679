package quant

// The searches of search.go with a weight for the error of each element, by an importance matrix. They are apart, so
// that those without weights stay as fast, and the bytes that they write the same.

import (
	"math"

	"github.com/greta-project/greta/tensor"
)

// EncodeWeighted is Encode with the importance of a row's elements, rowElems numbers that are not negative: the sum of
// importance·error² over each block is made small. Plain types do not depend on it.
func EncodeWeighted(t tensor.Type, dst []byte, src []float32, rowElems int, importance []float32) error {
	if err := checkEncode(t, len(dst), len(src), rowElems); err != nil {
		return err
	}
	block, bytes := t.Block()
	if block == 1 || importance == nil {
		return encode(t, dst, src, 0)
	}
	if i := refused(t, src); i >= 0 {
		return refusal(t, src[i], i)
	}
	for at := 0; at < len(src); at += block {
		w := importance[at%rowElems:][:block]
		sum := float32(0)
		for _, v := range w {
			sum += v
		}
		if !(sum > 0) {
			w = nil
		}
		encodeBlock(t, dst[at/block*bytes:][:bytes], src[at:at+block], w)
	}
	return nil
}

// fitSymmetricWeighted is fitSymmetric.
func fitSymmetricWeighted(x, w []float32, n int) float32 {
	e := extreme(x)
	if abs(e) < tiny {
		return 0
	}
	lo, hi := float64(-n), float64(n-1)
	best, d := 0.0, 0.0
	try := func(inv float64) {
		var xq, qq float64
		for i, v := range x {
			q := max(lo, min(hi, math.Floor(float64(float64(v)*inv)+0.5)))
			xq += float64(float64(w[i]) * float64(float64(v)*q))
			qq += float64(float64(w[i]) * float64(q*q))
		}
		if qq > 0 && float64(xq*xq)/qq > best {
			best, d = float64(xq*xq)/qq, xq/qq
		}
	}
	for i := -10; i <= 10; i++ {
		r := (float64(n) + float64(0.1*float64(i))) / float64(e)
		try(-r)
		try(r)
	}
	return float32(d)
}

// fitAffineWeighted is fitAffine.
func fitAffineWeighted(x, w []float32, n int, clip bool) (d, m float32) {
	lowest, highest := x[0], x[0]
	var sw, sx, sxx float64
	for i, v := range x {
		lowest, highest = min(lowest, v), max(highest, v)
		sw += float64(w[i])
		sx += float64(float64(w[i]) * float64(v))
		sxx += float64(float64(w[i]) * float64(float64(v)*float64(v)))
	}
	if clip {
		lowest = min(lowest, 0)
	}
	width := float64(highest - lowest)
	if width < tiny {
		return 0, lowest
	}
	best := math.Inf(1)
	for i := -10; i <= 10; i++ {
		inv := (float64(n) + float64(0.1*float64(i))) / width
		var sq, sqq, xq float64
		for i, v := range x {
			q := min(float64(n), math.Floor(float64(float64(v-lowest)*inv)+0.5))
			sq += float64(float64(w[i]) * q)
			sqq += float64(float64(w[i]) * float64(q*q))
			xq += float64(float64(w[i]) * float64(float64(v)*q))
		}
		low, scale := float64(lowest), 0.0
		if det := float64(sw*sqq) - float64(sq*sq); det > 1e-12*sw*sqq {
			low = (float64(sqq*sx) - float64(sq*xq)) / det
			scale = (float64(sw*xq) - float64(sx*sq)) / det
		}
		if clip && low >= 0 && sqq > 0 {
			low, scale = 0, xq/sqq
		}
		err := sxx - float64(2*float64(scale*xq)) - float64(2*float64(low*sx)) + float64(scale*float64(scale*sqq)) +
			float64(low*float64(low*sw)) + float64(2*float64(scale*float64(low*sq)))
		if scale > 0 && err < best {
			best, d, m = err, float32(scale), float32(low)
		}
	}
	if math.IsInf(best, 1) {
		return fitAffine(x, nil, n, clip)
	}
	return d, m
}

// weightedError is symmetricError and affineError: the error of rounding x + m to d·q, q in lo … hi.
func weightedError(x, w []float32, d, m, lo, hi float32) float32 {
	inv := reciprocal(d)
	var sum float32
	for i, v := range x {
		v += m
		e := v - float32(d*(float32(nearest(v*inv, lo, hi))+lo))
		sum += float32(w[i] * float32(e*e))
	}
	return sum
}

// fitIQ4Weighted is fitIQ4.
func fitIQ4Weighted(x, w []float32) float32 {
	e := extreme(x)
	if abs(e) < tiny {
		return 0
	}
	best, d := 0.0, 0.0
	try := func(inv float32) {
		var xq, qq float64
		for i, v := range x {
			q := float64(iq4Levels[iq4Code(v*inv)&15])
			xq += float64(float64(w[i]) * float64(float64(v)*q))
			qq += float64(float64(w[i]) * float64(q*q))
		}
		if qq > 0 && float64(xq*xq)/qq > best {
			best, d = float64(xq*xq)/qq, xq/qq
		}
	}
	for i := -9; i <= 9; i++ {
		try(float32(2*i-127) / e)
		try(float32(2*i+113) / e)
	}
	return float32(d)
}

func iq4WeightedError(x, w []float32, d float32) float32 {
	inv := reciprocal(d)
	var sum float32
	for i, v := range x {
		e := v - float32(d*iq4Levels[iq4Code(v*inv)&15])
		sum += float32(w[i] * float32(e*e))
	}
	return sum
}
