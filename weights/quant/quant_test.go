package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
)

// Largest relative errors, ‖decoded − x‖ / ‖x‖, for inputs of three shapes:
// normal, uniform in ±1, and the cubes of normals (heavy tails).
var errorBounds = map[tensor.Type][3]float64{
	tensor.F64: {0, 0, 0}, tensor.F32: {0, 0, 0},
	tensor.F16: {0.00022, 0.00022, 0.00022}, tensor.BF16: {0.0018, 0.0018, 0.0018},
	tensor.F8E4M3: {0.029, 0.028, 0.029}, tensor.F8E4M3FNUZ: {0.029, 0.028, 0.029},
	tensor.F8E5M2: {0.056, 0.055, 0.056}, tensor.F8E5M2FNUZ: {0.056, 0.055, 0.056},
	tensor.Q8_0: {0.0057, 0.004, 0.009}, tensor.Q5_0: {0.042, 0.032, 0.061}, tensor.Q5_1: {0.035, 0.030, 0.045},
	tensor.Q4_0: {0.083, 0.067, 0.112}, tensor.Q4_1: {0.072, 0.065, 0.087},
	tensor.IQ4_NL: {0.075, 0.078, 0.091}, tensor.IQ4_XS: {0.076, 0.079, 0.093},
	tensor.Q2_K: {0.272, 0.30, 0.248}, tensor.Q3_K: {0.148, 0.14, 0.154}, tensor.Q4_K: {0.072, 0.066, 0.088},
	tensor.Q5_K: {0.036, 0.032, 0.047}, tensor.Q6_K: {0.0178, 0.016, 0.025},
	tensor.TQ1_0: {0.44, 0.34, 0.60}, tensor.TQ2_0: {0.44, 0.34, 0.60},
	tensor.MXFP4: {0.113, 0.1, 0.136}, tensor.NF4: {0.093, 0.092, 0.11}, tensor.F8E4M3_B32: {0.025, 0.025, 0.018},
}

func TestRoundTripError(t *testing.T) {
	const rows = 37 // odd, and more than one chunk of EncodeParallel
	n := rows * 512
	r := rand.New(rand.NewPCG(7, 7))
	var inputs [3][]float32
	inputs[0] = normal(n, 2)
	for range n {
		inputs[1] = append(inputs[1], 2*r.Float32()-1)
		v := r.NormFloat64()
		inputs[2] = append(inputs[2], float32(v*v*v))
	}
	for i := range inputs[0] {
		inputs[0][i] *= 50 // 8-bit floats have no room for small numbers
	}
	for _, typ := range floatTypes() {
		bounds, ok := errorBounds[typ]
		if !ok {
			t.Errorf("%s has no error bounds: a line of errorBounds says how far each input may come back off", typ)
			for i, x := range inputs {
				t.Logf("%s, input %d: relative error %.6f", typ, i, relativeError(roundTrip(t, typ, x, 512), x))
			}
			continue
		}
		for i, x := range inputs {
			if got := relativeError(roundTrip(t, typ, x, 512), x); !(got <= bounds[i]) {
				t.Errorf("%s, input %d: relative error %.6f, expected at most %g", typ, i, got, bounds[i])
			}
		}
	}
}

// Values that a format holds come back as they were: encoding what was decoded
// decodes to the same again. The k-quants and iq4 share integer scales, and
// their searches may settle elsewhere.
func TestIdempotence(t *testing.T) {
	x := normal(64*256, 3)
	for _, typ := range []tensor.Type{
		tensor.F64, tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ,
		tensor.Q8_0, tensor.Q4_0, tensor.Q5_0, tensor.TQ1_0, tensor.TQ2_0,
	} {
		once := roundTrip(t, typ, x, 256)
		twice := roundTrip(t, typ, once, 256)
		for i := range once {
			if once[i] != twice[i] {
				t.Fatalf("%s: element %d decoded to %g, then to %g", typ, i, once[i], twice[i])
			}
		}
	}
	// An offset near zero is found only up to the rounding of its sums.
	for _, typ := range []tensor.Type{tensor.Q4_1, tensor.Q5_1} {
		once := roundTrip(t, typ, x, 256)
		if e := relativeError(roundTrip(t, typ, once, 256), once); e > 1e-6 {
			t.Errorf("%s: the second round trip moves values by %g", typ, e)
		}
	}
}

func TestZeros(t *testing.T) {
	for _, zero := range []float32{0, float32(math.Copysign(0, -1))} {
		x := constant(768, zero)
		for _, typ := range floatTypes() {
			for i, v := range roundTrip(t, typ, x, 256) {
				if v != 0 {
					t.Fatalf("%s: element %d of zeros is %g", typ, i, v)
				}
			}
		}
	}
}

// Constant blocks have one magnitude, which every format meets to within the
// rounding of its f16 scales and integer factors.
func TestConstants(t *testing.T) {
	bound := map[tensor.Type]float64{
		tensor.F8E4M3: 1.0 / 16, tensor.F8E4M3FNUZ: 1.0 / 16, tensor.F8E5M2: 1.0 / 8, tensor.F8E5M2FNUZ: 1.0 / 8,
		tensor.BF16: 1.0 / 256, tensor.MXFP4: 1.0 / 5, // its scales are powers of two, its levels a third apart
	}
	for _, typ := range floatTypes() {
		limit, ok := bound[typ]
		if !ok {
			limit = 1.0 / 512 // small scales are f16 denormals
		}
		for _, v := range []float32{1, -1, 0.1, -3.7, 200.5, -0.02} {
			x := constant(256, v)
			if e := relativeError(roundTrip(t, typ, x, 256), x); e > limit {
				t.Errorf("%s: constant %g: relative error %.5f, expected at most %.5f", typ, v, e, limit)
			}
		}
	}
}

// The largest accepted magnitudes, alone among zeros, alternating, and beside
// small values, neither overflow nor lose their sign.
func TestExtremes(t *testing.T) {
	inputs := map[string]func(i int) float32{
		"alone":       func(i int) float32 { return pick(i == 77, -MaxBlockValue, 0) },
		"alternating": func(i int) float32 { return pick(i%2 == 0, MaxBlockValue, -MaxBlockValue) },
		"positive":    func(i int) float32 { return pick(i%3 == 0, MaxBlockValue, 1) },
		"negative":    func(i int) float32 { return pick(i%3 == 0, -MaxBlockValue, -1e-7) },
	}
	for name, f := range inputs {
		x := make([]float32, 512)
		for i := range x {
			x[i] = f(i % 256)
		}
		for _, typ := range floatTypes() {
			if !typ.IsBlock() {
				continue
			}
			y := roundTrip(t, typ, x, 256)
			if e := relativeError(y, x); !(e < 0.13) {
				t.Errorf("%s, %s: relative error %.4f, expected below 0.13", typ, name, e)
			}
		}
	}
}

// Numbers that f16 scales can hardly resolve: f32 denormals become zero, and
// and numbers around 2^-24 err by no more than that and their own size.
func TestDenormals(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, size := range []float64{1e-45, 1e-40, 1e-38, 1e-30, 1e-9, 3e-8, 6e-8, 1e-7, 1e-6} {
		x := make([]float32, 256)
		for i := range x {
			x[i] = float32((2*r.Float64() - 1) * size)
		}
		for _, typ := range floatTypes() {
			if !typ.IsBlock() {
				continue
			}
			limit := size + 1.0/(1<<24)
			for i, v := range roundTrip(t, typ, x, 256) {
				if e := math.Abs(float64(v) - float64(x[i])); !(e <= limit) {
					t.Fatalf("%s, values up to %g: element %d is %g, expected %g ± %g", typ, size, i, v, x[i], limit)
				}
			}
		}
	}
}

// q8_0 rounds to the nearest of its levels also where its scale is a coarse
// f16 denormal.
func TestQ8NearestEverywhere(t *testing.T) {
	for e := -30; e <= 15; e++ {
		x := normal(32, uint64(100+e))
		scale := float32(math.Ldexp(20, e))
		var amax float64
		for i := range x {
			x[i] *= scale
			amax = max(amax, math.Abs(float64(x[i])))
		}
		step := max(amax/127*(1+1.0/1024), 1.0/(1<<24))
		if amax/127 < 1.0/(1<<14) {
			step = amax/127 + 1.0/(1<<24) // the scale is denormal and may be rounded up
		}
		for i, v := range roundTrip(t, tensor.Q8_0, x, 32) {
			if d := math.Abs(float64(v) - float64(x[i])); d > 0.51*step {
				t.Fatalf("2^%d: element %d is %g, expected %g ± %g", e, i, v, x[i], 0.51*step)
			}
		}
	}
}

func TestTernaryIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, d := range []float32{1, 0.0234375, -3} { // all exact in f16
		x := make([]float32, 5*256)
		for i := range x {
			x[i] = float32(r.IntN(3)-1) * d
		}
		for _, typ := range []tensor.Type{tensor.TQ1_0, tensor.TQ2_0} {
			for i, v := range roundTrip(t, typ, x, 256) {
				if v != x[i] {
					t.Fatalf("%s: element %d is %g, expected %g", typ, i, v, x[i])
				}
			}
		}
	}
}

func TestEncodeParallelIsTheSame(t *testing.T) {
	x := normal(41*1024, 6)
	for _, typ := range floatTypes() {
		want := make([]byte, typ.RowBytes(len(x)))
		if err := Encode(typ, want, x, 1024); err != nil {
			t.Fatal(err)
		}
		for _, workers := range []int{0, 1, 3, 100} {
			got := make([]byte, len(want))
			if err := EncodeParallel(typ, got, x, 1024, workers); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %d workers write other bytes", typ, workers)
			}
		}
	}
}

func TestRefusedValues(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, typ := range floatTypes() {
		for _, c := range []struct {
			bad   float32
			block string // what a block format says; plain types that hold the value say nothing
			f16   string
			bf16  string
		}{
			{nan, "is NaN", "", ""},
			{inf, "is +Inf", "", ""},
			{-inf, "is -Inf", "", ""},
			{65504, "", "", ""},
			{65536, "is 65536, beyond the range", "is 65536, beyond the range", ""},
			{-3.4e38, "is -3.4e+38, beyond the range", "is -3.4e+38, beyond the range", "is -3.4e+38, beyond the range"},
		} {
			want := ""
			switch {
			case typ.IsBlock():
				want = c.block
			case typ == tensor.F16:
				want = c.f16
			case typ == tensor.BF16:
				want = c.bf16
			}
			x := normal(40*1024, 8)
			x[20_001], x[39_999] = c.bad, c.bad
			dst := make([]byte, typ.RowBytes(len(x)))
			for how, err := range map[string]error{
				"one":      Encode(typ, dst, x, 1024),
				"parallel": EncodeParallel(typ, dst, x, 1024, 3),
			} {
				switch {
				case want == "" && err != nil:
					t.Errorf("%s, %s, %g: %v", typ, how, c.bad, err)
				case want != "" && (err == nil || !strings.Contains(err.Error(), "element 20001 "+want)):
					t.Errorf("%s, %s, %g: error %v, expected element 20001 %s", typ, how, c.bad, err, want)
				}
			}
		}
	}
}

func TestArguments(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	b := func(n int) []byte { return make([]byte, n) }
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"integers", Decode(tensor.I32, f(4), b(16)), "cannot decode i32"},
		{"unknown type", Decode(tensor.Type(200), f(4), b(16)), "cannot decode type(200)"},
		{"invalid type", DecodeF64(tensor.Invalid, nil, nil), "cannot decode invalid"},
		{"half a block", Decode(tensor.Q4_0, f(16), b(18)), "16 elements of q4_0: not a multiple of its block of 32"},
		{"short source", Decode(tensor.Q6_K, f(512), b(419)), "only 419 bytes are given"},
		{"short source, wide", DecodeF64(tensor.F64, make([]float64, 3), b(23)), "only 23 bytes are given"},
		{"longer source", Decode(tensor.Q4_0, f(32), b(19)), ""},
		{"nothing", Decode(tensor.Q4_0, nil, nil), ""},
		{"encode integers", Encode(tensor.I8, b(4), f(4), 4), "cannot encode to i8"},
		{"row not in blocks", Encode(tensor.Q4_K, b(1000), f(576), 288), "blocks of 256, but a row has 288"},
		{"part of a row", Encode(tensor.F16, b(1000), f(33), 32), "33 elements are not whole rows of 32"},
		{"no row", Encode(tensor.F16, b(1000), f(33), 0), "rows of 0 elements"},
		{"negative row", EncodeParallel(tensor.F16, b(1000), f(33), -1, 2), "rows of -1 elements"},
		{"short destination", Encode(tensor.Q8_0, b(67), f(64), 64), "need 68 bytes, but the destination has 67"},
		{"encode nothing", EncodeParallel(tensor.Q8_0, nil, nil, 64, 0), ""},
	} {
		if c.want == "" && c.err != nil || c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("%s: error %v, expected %q", c.name, c.err, c.want)
		}
	}
}

// Decoding allocates nothing: kernels call it per row.
func TestDecodeAllocatesNothing(t *testing.T) {
	src, dst, wide := make([]byte, 8*512), make([]float32, 512), make([]float64, 512)
	for _, typ := range floatTypes() {
		if n := testing.AllocsPerRun(10, func() { Decode(typ, dst, src); DecodeF64(typ, wide, src) }); n != 0 {
			t.Errorf("%s: %g allocations", typ, n)
		}
	}
}

// Any bytes decode to something, to the same in both widths.
func FuzzDecode(f *testing.F) {
	for _, typ := range floatTypes() {
		_, n := typ.Block()
		f.Add(uint8(typ), bytes.Repeat([]byte{0xff, 0x7c, 0x00, 0x81}, n))
	}
	f.Fuzz(func(t *testing.T, typ uint8, src []byte) {
		typed := tensor.Type(typ)
		block, size := typed.Block()
		if size == 0 {
			size = 1
		}
		n := min(len(src)/size, 8) * block
		dst, wide := make([]float32, n), make([]float64, n)
		err := Decode(typed, dst, src)
		if (err == nil) != Supported(typed) {
			t.Fatalf("%s: %v", typed, err)
		}
		if err := DecodeF64(typed, wide, src); err == nil {
			for i, v := range wide {
				if float32(v) != dst[i] && !(v != v && dst[i] != dst[i]) {
					t.Fatalf("%s: element %d is %g in float32 and %g in float64", typed, i, dst[i], v)
				}
			}
		}
	})
}

// Any finite numbers encode without a panic, to something no farther off than
// zeros would be.
func FuzzEncode(f *testing.F) {
	f.Add(uint8(tensor.Q4_K), []byte{1, 2, 3, 0x40, 0xff, 0xff, 0x7f, 0x47})
	f.Add(uint8(tensor.IQ4_XS), []byte{0, 0, 0, 0x80, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, typ uint8, data []byte) {
		typed := tensor.Type(typ)
		if !typed.IsBlock() || len(data) < 4 {
			return
		}
		x := make([]float32, 256)
		for i := range x {
			Decode(tensor.F32, x[i:i+1], data[4*(i%(len(data)/4)):])
		}
		b := make([]byte, typed.RowBytes(len(x)))
		if err := Encode(typed, b, x, len(x)); err != nil {
			if !Encodable(typed) {
				return
			}
			for _, v := range x {
				if !(math.Abs(float64(v)) <= MaxBlockValue) {
					return
				}
			}
			t.Fatal(err)
		}
		y := make([]float32, len(x))
		if err := Decode(typed, y, b); err != nil {
			t.Fatal(err)
		}
		var squares, errors float64
		for i, v := range x {
			squares += float64(v) * float64(v)
			errors += (float64(v) - float64(y[i])) * (float64(v) - float64(y[i]))
		}
		// f16 denormal scales and offsets are off by up to 2^-25 each, and integer factors repeat that.
		if slack := 256 * math.Ldexp(1, -30); errors > squares+slack*slack*256 {
			t.Fatalf("%s: squared error %g for squares of %g: %v", typed, errors, squares, x)
		}
	})
}

func constant(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

func pick(first bool, a, b float32) float32 {
	if first {
		return a
	}
	return b
}
