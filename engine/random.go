package engine

// Random numbers by counter: the number of a token is a function of its request's
// seed and of its position, not of what was drawn before, so that a text does not
// depend on when and beside whom it was computed. A device computes the same.

// philox is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", 2011).
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		a, b := uint64(counter[0])*0xd2511f53, uint64(counter[2])*0xcd9e8d57
		counter = [4]uint32{uint32(b>>32) ^ counter[1] ^ key[0], uint32(b), uint32(a>>32) ^ counter[3] ^ key[1], uint32(a)}
		key[0] += 0x9e3779b9
		key[1] += 0xbb67ae85
	}
	return counter
}

// uniform is the number in [0, 1) by which the token at a position is drawn. Its first 32 bits are
// the first word of Philox4x32-10 with the seed as key and the position as counter (low words first),
// the next 21 the highest of the second word.
func uniform(seed uint64, position int) float64 {
	p := uint64(position)
	x := philox([4]uint32{uint32(p), uint32(p >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64(uint64(x[0])<<21|uint64(x[1]>>11)) / (1 << 53)
}

// Choice is the sampling of the i-th of several answers to one prompt: the first
// one's seed is the request's, each has its own.
func (o Sampling) Choice(i int) Sampling {
	if i > 0 {
		x := philox([4]uint32{uint32(i), 0, 0, 1}, [2]uint32{uint32(o.Seed), uint32(o.Seed >> 32)})
		o.Seed = uint64(x[0]) | uint64(x[1])<<32
	}
	return o
}
