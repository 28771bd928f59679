//go:build arm64 && !noasm

package simd

// machineLevels lists the compiled levels. The NEON kernels need nothing
// beyond ARMv8.0, which every arm64 processor that Go runs on has.
func machineLevels() []Kernels {
	return []Kernels{{Name: "neon", k: neonKernels, mr: 8, nr: 12}}
}
