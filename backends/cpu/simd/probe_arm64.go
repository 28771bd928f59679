//go:build arm64 && !noasm

package simd

// machineProbe puts a level's compiled loops in place of those in Go.
func machineProbe(level string, p *Probe) {
	switch level {
	case "i8mm", "dotprod":
		p.k, p.Name, p.Vector = &dotprodProbeKernels, "dotprod", 16
	case "neon":
		p.k, p.Name, p.Vector = &neonProbeKernels, "neon", 16
	}
}
