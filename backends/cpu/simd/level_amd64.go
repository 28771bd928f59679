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
	far, fars := processor().far(x.HasAVX512F), []Far{FarOff, FarPages, FarLines, FarAll}
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		narrow := &avx2PanelKernels
		if x.HasAVXVNNI {
			narrow = &avxvnniPanelKernels
		}
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ {
			k := Kernels{Name: "avx512", k: avx512Kernels, p: narrow, c: &avx512CompactKernels, mr: 32, nr: 12, tile: 128,
				deep: 4 * blockK, far: far, fars: fars}
			if x.HasAVX512VNNI { // there are processors of AVX-512 without dot products of bytes
				k.p, k.w = &avx512PanelKernels, &avx512WideKernels
			}
			if x.HasAVX512VBMI {
				k.h = &avx512CompactF16Kernels
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
		if far == FarAll { // next best there
			far = FarPages
		}
		all = append(all, Kernels{Name: "avx2", k: avx2Kernels, p: narrow, c: &avx2CompactKernels, mr: 16, nr: 6, tile: 128,
			deep: blockK, far: far, fars: fars[:3]})
	}
	return all
}

// maker is who made a processor, as CPUID spells it, and its family.
type maker struct {
	vendor string
	family uint32
}

func processor() maker {
	_, b, c, d := cpuid(0)
	le := binary.LittleEndian
	m := maker{vendor: string(le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, b), d), c))}
	version, _, _, _ := cpuid(1)
	if m.family = version >> 8 & 15; m.family == 15 {
		m.family += version >> 20 & 255
	}
	return m
}

// far is how products of one row of activations ask for weights where nothing else is said,
// on a processor with or without AVX-512: Zen 3 and Zen 4 are of one family.
func (m maker) far(avx512 bool) Far {
	switch {
	case m.vendor == "GenuineIntel", m.vendor == "AuthenticAMD" && !avx512: // up to Zen 3
		return FarPages
	case m.vendor == "AuthenticAMD" && m.family >= 26: // Zen 5
		return FarAll
	case m.vendor == "AuthenticAMD":
		return FarLines
	}
	return FarOff
}

// cpuid gives the registers EAX, EBX, ECX and EDX of a leaf of CPUID.
func cpuid(leaf uint32) (a, b, c, d uint32)
