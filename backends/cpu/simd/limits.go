package simd

import "github.com/greta-project/greta/tensor"

// What the machine could do at most: the other side of the fractions that runs
// report. Reading is Kernels.Read; arithmetic is Peak.

// PeakFloats is the memory that a Peak wants, on a cache line.
const PeakFloats = unitTile / 4

// Peak is a loop of rounds, some nanoseconds each, of the multiply-adds that
// products with many rows are made of, on registers alone.
type Peak struct {
	Name string // of the instruction: "dot products of int8"
	// Products is how many such multiply-adds the product makes for one of its own.
	Products int
	loop     func(p []float32, n int) int
}

// Run runs n rounds and gives the number of multiply-adds that these were. p
// is PeakFloats of numbers of about one.
func (k *Peak) Run(p []float32, n int) int { return k.loop(p[:PeakFloats], n) }

// PeakOf gives the peak for products of many rows of activations with panels of type t.
// Rounded says that activations meet weights of bf16 in bf16.
func (k *Kernels) PeakOf(t tensor.Type, rounded bool) Peak {
	x, w := UnitParts(t), wideParts(t)
	rounded = rounded && t == tensor.BF16
	if rounded {
		x = 1
	}
	switch {
	case k.HasUnit():
		products := 0
		for i := range w {
			products += x - i
		}
		return Peak{"bf16 on the matrix unit", products, func(p []float32, n int) int { return k.a.TilePeak(ptr(p), n) }}
	case RoundsActivations(t) && k.pairs:
		return Peak{"matrix products of int8", 1, func(p []float32, n int) int { return k.p.DotPeak(ptr(p), n) }}
	case RoundsActivations(t):
		return Peak{"dot products of int8", 1, func(p []float32, n int) int { return k.p.DotPeak(ptr(p), n) }}
	case rounded && k.HasBF16():
		return Peak{"dot products of bf16", 1, func(p []float32, n int) int { return k.b.BF16Peak(ptr(p), n) }}
	}
	return Peak{"multiply-adds of f32", 1, func(p []float32, n int) int { return k.k.Peak(ptr(p), n) }}
}
