//go:build amd64 && !noasm

package simd

import "golang.org/x/sys/cpu"

// machineLevels lists the compiled levels that this processor and its
// operating system can run, best first.
func machineLevels() []Kernels {
	var all []Kernels
	x := &cpu.X86
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ {
			all = append(all, Kernels{Name: "avx512", VNNI: x.HasAVX512VNNI, BF16: x.HasAVX512BF16, k: avx512Kernels, mr: 32, nr: 12})
		}
		all = append(all, Kernels{Name: "avx2", k: avx2Kernels, mr: 16, nr: 6})
	}
	return all
}
