package quant

// The two ways of the k-quants to share scales over a super-block of 256: each
// sub-block has a small integer scale, and for the affine formats a small
// integer offset, counted in one f16 unit per super-block.

// affineFit is a super-block as y = d·scale[s]·q − m·low[s].
type affineFit struct {
	scale, low [16]byte // the first 256 / sub are used
	q          [256]byte
}

// fit finds scales and codes for x in sub-blocks of sub elements, codes 0 … n
// and scales and offsets 0 … top, and stores the units d and m as f16.
func (f *affineFit) fit(x []float32, sub, n, top int, dBytes, mBytes []byte) {
	var scales, lows [16]float32
	var maxScale, maxLow float32
	subs := 256 / sub
	for s := range subs {
		d, m := fitAffine(x[s*sub:(s+1)*sub], n, true)
		scales[s], lows[s] = d, -m
		maxScale, maxLow = max(maxScale, d), max(maxLow, -m)
	}
	levels, limit := float32(n), float32(top)
	d := putHalf(dBytes, maxScale/limit)
	m := putHalf(mBytes, maxLow/limit)
	for s := range subs {
		xs := x[s*sub : (s+1)*sub]
		// Rounding scale and offset to integers moves the optimum: look around.
		sc := int(nearest(scales[s]*reciprocal(d), 0, limit))
		mn := int(nearest(lows[s]*reciprocal(m), 0, limit))
		best := float32(-1)
		for a := max(sc-1, 0); a <= min(sc+1, top); a++ {
			for b := max(mn-1, 0); b <= min(mn+1, top); b++ {
				if err := affineError(xs, d*float32(a), m*float32(b), levels); best < 0 || err < best {
					best, f.scale[s], f.low[s] = err, byte(a), byte(b)
				}
			}
		}
		inv, low := reciprocal(d*float32(f.scale[s])), m*float32(f.low[s])
		for i, v := range xs {
			f.q[s*sub+i] = nearest((v+low)*inv, 0, levels)
		}
	}
}

// symmetricFit is a super-block in 16 sub-blocks as y = d·scale[s]·(q − n).
type symmetricFit struct {
	scale [16]int8
	q     [256]byte
}

// fit finds scales and codes for x, codes 0 … 2n − 1 and scales −top … top − 1,
// and stores the unit d as f16.
func (f *symmetricFit) fit(x []float32, n, top int, dBytes []byte) {
	var scales [16]float32
	for s := range scales {
		scales[s] = fitSymmetric(x[s*16:(s+1)*16], n)
	}
	lo, hi := float32(-n), float32(n-1)
	d := putHalf(dBytes, extreme(scales[:])/float32(-top))
	inv := reciprocal(d)
	for s := range scales {
		xs := x[s*16 : (s+1)*16]
		sc := int(nearest(scales[s]*inv, float32(-top), float32(top-1))) - top
		best := float32(-1)
		for a := max(sc-1, -top); a <= min(sc+1, top-1); a++ {
			if err := symmetricError(xs, d*float32(a), lo, hi); best < 0 || err < best {
				best, f.scale[s] = err, int8(a)
			}
		}
		inv := reciprocal(d * float32(f.scale[s]))
		for i, v := range xs {
			f.q[s*16+i] = nearest(v*inv, lo, hi)
		}
	}
}
