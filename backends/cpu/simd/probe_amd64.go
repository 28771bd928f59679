//go:build amd64 && !noasm

package simd

import "golang.org/x/sys/cpu"

// machineProbe puts a level's compiled loops in place of those in Go.
func machineProbe(level string, p *Probe) {
	x := &cpu.X86
	if level == "amx" { // a unit for products beside the vectors
		level = "avx512"
	}
	switch {
	case level == "avx512" && x.HasAVX512VNNI:
		p.k, p.Name, p.Vector = &avx512ProbeKernels, "avx512", 64
		if x.HasAVX512BF16 {
			p.b = &avx512ProbeBF16Kernels
		}
	case (level == "avx512" || level == "avx2") && x.HasAVXVNNI:
		p.k, p.Name, p.Vector = &avxvnniProbeKernels, "avxvnni", 32
	case level == "avx512" || level == "avx2":
		p.k, p.Name, p.Vector = &avx2ProbeKernels, "avx2", 32
	}
}
