// Package tensor holds what every other room of greta speaks of: element
// types, shapes and host tensors. It imports nothing of the project.
package tensor

import "fmt"

// Type is an element type, or a block format whose elements come in groups
// that share scales.
type Type uint8

// Element types and block formats. The block formats are GGML's but for the last two; their layout
// is documented in weights/quant.
const (
	Invalid Type = iota
	F64
	F32
	F16
	BF16
	F8E4M3     // OCP e4m3fn: no infinities, NaN is S.1111.111, max 448
	F8E5M2     // OCP e5m2: IEEE-like, infinities and NaNs, max 57344
	F8E4M3FNUZ // bias 8, no negative zero, NaN is 0x80, max 240
	F8E5M2FNUZ // bias 16, no negative zero, NaN is 0x80, max 57344
	I64
	I32
	I16
	I8
	U8
	Bool
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_NL
	IQ4_XS
	TQ1_0
	TQ2_0
	IQ1_S
	IQ1_M
	IQ2_XXS
	IQ2_XS
	IQ2_S
	IQ3_XXS
	IQ3_S
	MXFP4
	NVFP4
	NF4        // bitsandbytes' four bits; no type of GGUF's
	F8E4M3_B32 // e4m3 with an f32 scale each 32; no type of GGUF's
	numTypes
)

var types = [numTypes]struct {
	name         string
	elems, bytes int
}{
	Invalid: {"invalid", 1, 0},
	F64:     {"f64", 1, 8}, F32: {"f32", 1, 4}, F16: {"f16", 1, 2}, BF16: {"bf16", 1, 2},
	F8E4M3: {"f8e4m3", 1, 1}, F8E5M2: {"f8e5m2", 1, 1},
	F8E4M3FNUZ: {"f8e4m3fnuz", 1, 1}, F8E5M2FNUZ: {"f8e5m2fnuz", 1, 1},
	I64: {"i64", 1, 8}, I32: {"i32", 1, 4}, I16: {"i16", 1, 2}, I8: {"i8", 1, 1}, U8: {"u8", 1, 1}, Bool: {"bool", 1, 1},
	Q4_0: {"q4_0", 32, 18}, Q4_1: {"q4_1", 32, 20}, Q5_0: {"q5_0", 32, 22}, Q5_1: {"q5_1", 32, 24}, Q8_0: {"q8_0", 32, 34},
	Q2_K: {"q2_K", 256, 84}, Q3_K: {"q3_K", 256, 110}, Q4_K: {"q4_K", 256, 144}, Q5_K: {"q5_K", 256, 176},
	Q6_K:   {"q6_K", 256, 210},
	IQ4_NL: {"iq4_nl", 32, 18}, IQ4_XS: {"iq4_xs", 256, 136}, TQ1_0: {"tq1_0", 256, 54}, TQ2_0: {"tq2_0", 256, 66},
	IQ1_S: {"iq1_s", 256, 50}, IQ1_M: {"iq1_m", 256, 56}, IQ2_XXS: {"iq2_xxs", 256, 66}, IQ2_XS: {"iq2_xs", 256, 74},
	IQ2_S: {"iq2_s", 256, 82}, IQ3_XXS: {"iq3_xxs", 256, 98}, IQ3_S: {"iq3_s", 256, 110},
	MXFP4: {"mxfp4", 32, 17}, NVFP4: {"nvfp4", 64, 36}, NF4: {"nf4", 64, 36}, F8E4M3_B32: {"f8e4m3_b32", 32, 36},
}

// Types lists every valid type in a fixed order.
func Types() []Type {
	var all []Type
	for t := Invalid + 1; t < numTypes; t++ {
		all = append(all, t)
	}
	return all
}

// String gives the name used in model files, reports and flags.
func (t Type) String() string {
	if t >= numTypes {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return types[t].name
}

// ParseType is the inverse of String; upper and lower case are the same. 8-bit
// floats may be written as safetensors has them too: "F8_E4M3".
func ParseType(s string) (Type, bool) {
	if len(s) > 3 && equalFold(s[:3], "f8_") {
		s = s[:2] + s[3:]
	}
	for t := Invalid + 1; t < numTypes; t++ {
		if equalFold(types[t].name, s) {
			return t, true
		}
	}
	return Invalid, false
}

func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if 'A' <= x && x <= 'Z' {
			x += 'a' - 'A'
		}
		if 'A' <= y && y <= 'Z' {
			y += 'a' - 'A'
		}
		if x != y {
			return false
		}
	}
	return true
}

// Block gives the number of elements that are stored together and the bytes
// that they take: 1 element for plain types, 32 or 256 for block formats.
func (t Type) Block() (elems, bytes int) {
	if t >= numTypes {
		return 1, 0
	}
	return types[t].elems, types[t].bytes
}

// IsBlock says whether elements come in blocks with shared scales.
func (t Type) IsBlock() bool { e, _ := t.Block(); return e > 1 }

// IsFloat says whether t is a plain floating-point type.
func (t Type) IsFloat() bool { return F64 <= t && t <= F8E5M2FNUZ }

// IsInt says whether t is a plain integer type.
func (t Type) IsInt() bool { return I64 <= t && t <= U8 }

// RowBytes gives the bytes of n consecutive elements. n must be a multiple of
// the block; CheckRow says whether it is.
func (t Type) RowBytes(n int) int {
	e, b := t.Block()
	return n / e * b
}

// CheckRow reports an error when rows of n elements cannot be held in t.
func (t Type) CheckRow(n int) error {
	if e, _ := t.Block(); n%e != 0 {
		return fmt.Errorf("%s holds rows in blocks of %d, but a row has %d elements", t, e, n)
	}
	return nil
}
