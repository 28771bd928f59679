//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// TestHalvedBlocks: the tiles of a round that is partly filled are halved where there is a unit for each half.
func TestHalvedBlocks(t *testing.T) {
	for _, c := range []struct{ tiles, blocks, across, cols, units, want int }{
		{344, 43, 4, 4096, 132, 0},  // gate and up of Llama-2-7B, 512 rows: 80 tiles are left
		{192, 16, 4, 4096, 132, 15}, // q, k, v
		{64, 16, 4, 11008, 132, 16}, // down
		{132, 33, 4, 4096, 132, 0},  // nothing is left
		{192, 14, 4, 4096, 132, 0},  // others' tiles last as long
		{64, 16, 4, 1000, 132, 0},   // too few columns
		{64, 16, 4, 4096, 0, 0},
	} {
		if n := vulkan.HalvedBlocks(c.tiles, c.blocks, c.across, c.cols, c.units); n != c.want {
			t.Errorf("%+v: %d blocks", c, n)
		}
	}
	for cols, want := range map[int]int{4096: 2048, 11008: 5632, 1152: 512} {
		if got := vulkan.Half(cols); got != want {
			t.Errorf("the second half of %d columns begins at %d", cols, got)
		}
	}
}

// TestLeftRows: what a round that is partly filled has is left to narrower tiles, where they need no second round.
func TestLeftRows(t *testing.T) {
	for _, c := range []struct{ tiles, rows, across, units, cols, narrow, want int }{
		{344, 11008, 4, 132, 256, 192, 5120}, // up of Llama-2-7B behind gate, 512 rows: 80 tiles become 108
		{464, 11008, 4, 132, 192, 128, 3136}, // 68 become 100
		{264, 4096, 4, 132, 192, 128, 0},     // nothing is left
		{344, 11008, 4, 132, 256, 128, 0},    // 80 would become 160
		{172, 11008, 4, 132, 256, 192, 2560},
		{64, 4096, 4, 132, 256, 192, 0},  // all of it
		{344, 4096, 4, 132, 256, 192, 0}, // others' tiles last as long
		{344, 11008, 4, 0, 256, 192, 0},
	} {
		if n := vulkan.LeftRows(c.tiles, c.rows, c.across, c.units, c.cols, c.narrow); n != c.want {
			t.Errorf("%+v: %d rows", c, n)
		}
	}
}

// halvedCases are products of which some tiles are halved, or left to narrower ones, with and
// without what is added to results.
func halvedCases(types ...tensor.Type) (cases []optest.Case) {
	for _, typ := range types {
		for _, s := range []struct{ rows, cols, n int }{{40, 1024, 160}, {70, 1536, 132}, {40, 1536, 160}, {40, 512, 1600}} {
			cases = append(cases,
				optest.Case{Name: fmt.Sprintf("halves/%s %dx%dx%d", typ, s.rows, s.cols, s.n), Eq: "y: linear(x, w)",
					Args: fmt.Sprintf("x float[%d, %d]; w %s[%d, %d]", s.rows, s.cols, typ, s.n, s.cols), Rel: 5e-6, Abs: 5e-5},
				optest.Case{Name: fmt.Sprintf("halves/%s %dx%dx%d residual", typ, s.rows, s.cols, s.n),
					Eq: "y: linear_residual(x, w, r, b)",
					Args: fmt.Sprintf("x float[%d, %d] +8; w %s[%d, %d]; r float[%d, %d]; b f32[%d]", s.rows, s.cols, typ, s.n, s.cols,
						s.rows, s.n, s.n), Rel: 5e-6, Abs: 5e-5})
		}
	}
	return cases
}

// halving opens a device that chooses tiles which can be halved or left to narrower ones.
func halving(t *testing.T) *vulkan.Device {
	t.Helper()
	dev := open(t, vulkan.Options{FP16: backends.On})
	if !slices.ContainsFunc(dev.Paths(), func(p backends.Path) bool { return p.Name == "matrix" }) {
		t.Skip("the device has no matrices")
	}
	dev.Choose(func(n *graph.Node) string {
		for _, name := range []string{"regdecode=128x256", "tile=128x192"} {
			if slices.Contains(dev.Variants(n), name) {
				return name
			}
		}
		return ""
	})
	return dev
}

// TestHalves runs products of which some tiles are halved, on software devices too.
func TestHalves(t *testing.T) {
	dev := halving(t)
	for _, units := range []int{5, 6, 7} {
		dev.SetUnits(units)
		if err := optest.Together(dev, halvedCases(tensor.F16, tensor.Q4_0, tensor.Q8_0, tensor.Q4_K), 2e-3,
			func(string) {}); err != nil {
			t.Errorf("%d units: %v", units, err)
		}
	}
	if !dev.Made("join") {
		t.Error("no product was halved")
	}
}

// TestHalvesOfSteps: a step whose last tiles are halved gives what its launches give one by one without.
func TestHalvesOfSteps(t *testing.T) {
	dev := halving(t)
	prompt := make([]int32, 40)
	for i := range prompt {
		prompt[i] = int32(7 * i % 500)
	}
	if err := dev.SetPath("int8dot", false); err != nil { // whose bytes may round the other way
		t.Fatal(err)
	}
	for _, dtype := range []tensor.Type{tensor.F16, tensor.Q4_0, tensor.Q8_0, tensor.Q4_K} {
		for _, units := range []int{5, 150} {
			t.Run(fmt.Sprintf("%s/%d", dtype, units), func(t *testing.T) {
				dev.SetUnits(units)
				s := session(t, dev, func(o *engine.Options) {
					o.DType, o.Context, o.Chunk = dtype, 64, 64
					o.Set = map[string]string{"L": "2", "D": "1024", "H": "8", "G": "8", "F": "1792", "V": "500"}
				})
				got, err := s.Prefill(context.Background(), prompt)
				if err != nil {
					t.Fatal(err)
				}
				dev.SetUnits(0)
				want := oneByOne(t, dev, s, len(prompt))
				if r := relative(got, want); !(r <= 2e-3) {
					t.Errorf("differs by %.2e (relative L2)", r)
				}
			})
		}
	}
}
