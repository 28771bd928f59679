//go:build amd64 && !noasm

package simd

import (
	"encoding/binary"

	"golang.org/x/sys/cpu"
)

// machineLevels lists the compiled levels that this processor and its
// operating system can run, best first.
func machineLevels() []Kernels {
	var all []Kernels
	x := &cpu.X86
	far := map[string]Far{"GenuineIntel": FarPages, "AuthenticAMD": FarLines}[vendor()]
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		narrow := &avx2PanelKernels
		if x.HasAVXVNNI {
			narrow = &avxvnniPanelKernels
		}
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ {
			k := Kernels{Name: "avx512", k: avx512Kernels, p: narrow, c: &avx512CompactKernels, mr: 32, nr: 12, tile: 128, deep: 4 * blockK, far: far}
			if x.HasAVX512VNNI { // there are processors of AVX-512 without dot products of bytes
				k.p, k.w = &avx512PanelKernels, &avx512WideKernels
			}
			if x.HasAVX512BF16 {
				k.b = &avx512Bf16Kernels
				if x.HasAVX512VNNI && x.HasAMXTile && x.HasAMXBF16 && grantTiles() {
					unit := k
					unit.Name, unit.a = "amx", &amxAmxKernels
					all = append(all, unit)
				}
			}
			all = append(all, k)
		}
		all = append(all, Kernels{Name: "avx2", k: avx2Kernels, p: narrow, c: &avx2CompactKernels, mr: 16, nr: 6, tile: 128, deep: blockK, far: far})
	}
	return all
}

// vendor gives the processor's maker, as CPUID spells it.
func vendor() string {
	b, c, d := cpuid0()
	le := binary.LittleEndian
	return string(le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, b), d), c))
}

// cpuid0 gives the registers EBX, ECX and EDX of CPUID's leaf 0.
func cpuid0() (b, c, d uint32)
