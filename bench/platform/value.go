package platform

import (
	"math"

	"github.com/x448/float16"
)

// The numbers that kernels compute with: common.hip and common.glsl have the same
// formulas.

func mix(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	return x ^ x>>16
}

// value is the i-th random whole number of a seed, from 1 to 256.
func value(i, seed uint32) uint32 { return mix(i+seed*0x9e3779b9)>>24 + 1 }

// bf16 widens the bits of one.
func bf16(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// f16 widens the bits of one.
func f16(b uint16) float64 { return float64(float16.Frombits(b).Float32()) }
