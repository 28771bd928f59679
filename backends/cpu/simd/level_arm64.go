//go:build arm64 && !noasm

package simd

import "golang.org/x/sys/cpu"

// machineLevels lists the compiled levels that this processor can run, best
// first. The NEON kernels need nothing beyond ARMv8.0, which every arm64
// processor that Go runs on has; the others differ from them in products of bytes.
func machineLevels() []Kernels {
	level := func(name string, p *panelKernels) Kernels {
		return Kernels{Name: name, k: neonKernels, p: p, mr: 8, nr: 12, tile: 128, deep: blockK}
	}
	all := []Kernels{level("neon", &neonPanelKernels)}
	if cpu.ARM64.HasASIMDDP {
		all = append([]Kernels{level("dotprod", &dotprodPanelKernels)}, all...)
		if cpu.ARM64.HasI8MM {
			k := level("i8mm", &i8mmPanelKernels)
			k.pairs = true
			all = append([]Kernels{k}, all...)
		}
	}
	return all
}
