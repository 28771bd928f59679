//go:build arm64 && !noasm

package simd

import "golang.org/x/sys/cpu"

// machineProbe puts a level's compiled loops in place of those in Go.
func machineProbe(level string, p *Probe) {
	switch {
	case level == "neon" && cpu.ARM64.HasASIMDDP:
		p.k, p.Name, p.Vector = &dotprodProbeKernels, "dotprod", 16
	case level == "neon":
		p.k, p.Name, p.Vector = &neonProbeKernels, "neon", 16
	}
}
