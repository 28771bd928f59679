//go:build arm64 && !noasm

package simd

import "golang.org/x/sys/cpu"

// machineLevels lists the compiled levels. The NEON kernels need nothing
// beyond ARMv8.0, which every arm64 processor that Go runs on has; dot
// products of bytes are used where there are some.
func machineLevels() []Kernels {
	k := Kernels{Name: "neon", k: neonKernels, p: &neonPanelKernels, mr: 8, nr: 12, tile: 128}
	if cpu.ARM64.HasASIMDDP {
		k.p = &dotprodPanelKernels
	}
	return []Kernels{k}
}
