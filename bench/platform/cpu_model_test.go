package platform

import (
	"math"
	"testing"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/tensor"
)

// TestCPUModel: the roofs of known cores at a known clock, in operations a clock from the makers'
// manuals, by level and type.
func TestCPUModel(t *testing.T) {
	const ghz = 2
	for _, c := range []struct {
		name   string
		vector int
		double bool
		f32    float64 // operations a clock of one core
		load   float64 // bytes a clock
	}{
		{"Golden Cove, two units of 512 bits", 64, false, 64, 128},
		{"Zen 4, 512 bits in two turns", 64, true, 32, 64},
		{"Haswell and later, two units of 256 bits", 32, false, 32, 64},
		{"Cortex-X, four units of 128 bits", 16, false, 32, 48},
	} {
		m := &CPUModel{kernels: &simd.Kernels{}, probe: simd.Probe{Vector: c.vector}, double: c.double, threads: 1,
			hz: ghz * 1e9}
		if got := m.flops(1, 4); math.Abs(got-ghz*c.f32) > 1e-9 {
			t.Errorf("%s: %v GFLOP/s of f32, %v is expected", c.name, got, ghz*c.f32)
		}
		if got := m.flops(1, 8); math.Abs(got-ghz*c.f32/2) > 1e-9 {
			t.Errorf("%s: %v GFLOP/s of f64, %v is expected", c.name, got, ghz*c.f32/2)
		}
		if got := m.firstLevel(1, false); math.Abs(got-ghz*c.load) > 1e-9 {
			t.Errorf("%s: %v GB/s, %v is expected", c.name, got, ghz*c.load)
		}
		for typ, times := range map[tensor.Type]float64{tensor.F32: 1, tensor.F16: 1, tensor.BF16: 2, tensor.Q4_0: 4} {
			if got := m.products(typ, true); math.Abs(got-times*ghz*c.f32) > 1e-9 {
				t.Errorf("%s: products with %v: %v GFLOP/s, %v is expected", c.name, typ, got, times*ghz*c.f32)
			}
		}
		if got := m.products(tensor.BF16, false); math.Abs(got-ghz*c.f32) > 1e-9 {
			t.Errorf("%s: products with bf16 in f32: %v GFLOP/s", c.name, got)
		}
	}
}

// TestCPURoofsBite: ten times what this processor can do is refused, on every level that it
// has, in arithmetic and from caches; what it can do is not.
func TestCPURoofsBite(t *testing.T) {
	for _, level := range []string{"amx", "avx512", "avx2", "i8mm", "dotprod", "neon", "go"} {
		m, err := ModelCPU(level, 1)
		if err != nil {
			continue // not on this machine
		}
		for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_K} {
			x := m.Roofs(false, typ)
			if !(x.GFlops > 0) || !(x.MostGBs > 0) {
				t.Fatalf("%s, %v: %+v", level, typ, x)
			}
			for times, want := range map[float64]record.Verdict{0.9: record.OK, 10: record.Refused} {
				for what, r := range map[string]record.Result{
					"arithmetic": {Flops: times * x.GFlops * 1e9}, "caches": {Bytes: times * x.MostGBs * 1e9},
				} {
					r.Bench, r.Clock, r.Samples, r.Roofs = "op/linear", record.HostClock, []float64{1, 1, 1}, x
					r.Check = record.Check{Against: "float64", Limit: 1e-5}
					if guard.Finish(&r); r.Verdict != want {
						t.Errorf("%s, %v: %v times the roof of %s: %s %s", level, typ, times, what, r.Verdict, r.Reason)
					}
				}
			}
		}
	}
}
