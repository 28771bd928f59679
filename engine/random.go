package engine

import "github.com/greta-project/greta/ops"

// Random numbers by counter: the number of a token is a function of its request's
// seed and of its position, not of what was drawn before, so that a text does not
// depend on when and beside whom it was computed. A device computes the same.

// Choice is the sampling of the i-th of several answers to one prompt: the first
// one's seed is the request's, each has its own.
func (o Sampling) Choice(i int) Sampling {
	if i > 0 {
		x := ops.Philox([4]uint32{uint32(i), 0, 0, 1}, [2]uint32{uint32(o.Seed), uint32(o.Seed >> 32)})
		o.Seed = uint64(x[0]) | uint64(x[1])<<32
	}
	return o
}
