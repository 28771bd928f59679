//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"greta/backends"
	"greta/backends/vulkan"
	"greta/engine"
	"greta/graph"
	"greta/ops/optest"
	"greta/tensor"
)

// TestFragments: rows as the registers of m64n…k16 want them. Lane l of a wave has in register i two columns from
// 2 (l % 4) + 8 (i / 2) on, of row l / 4 + 8 (i % 2), of 16 rows by 16 columns.
func TestFragments(t *testing.T) {
	dev := open(t, vulkan.Options{})
	for _, shape := range [][2]int{{1, 32}, {16, 64}, {19, 96}, {40, 1056}, {33, 20000}} {
		rows, cols := shape[0], shape[1]
		values := engine.Activations(rows*cols, 3)
		for i := range values {
			values[i] *= float32(1 + i/cols)
		}
		buf, err := dev.Alloc(4*len(values), backends.Arena)
		if err != nil {
			t.Fatal(err)
		}
		defer buf.Free()
		data := make([]byte, 0, 4*len(values))
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		stream, err := dev.Stream()
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if err := stream.Write(buf, 0, data); err != nil {
			t.Fatal(err)
		}
		words, scales, err := dev.Fragments(backends.Operand{Buffer: buf, Type: tensor.F32, Shape: tensor.Shape{rows, cols}, Stride: 4 * cols})
		if err != nil {
			t.Fatal(err)
		}
		blocks := (cols + 63) / 64 * 4
		for at, w := range words {
			tile, lane, reg := at/128, at%128/4, at%4
			row, col := tile/blocks*16+lane/4+8*(reg%2), tile%blocks*16+2*(lane%4)+8*(reg/2)
			for e := range 2 {
				if row >= rows {
					continue
				}
				want := float32(0)
				if col+e < cols {
					want = values[row*cols+col+e]
				}
				got := tensor.F16ToF32(uint16(w>>(16*e))) * scales[row]
				if math.Abs(float64(got-want)) > 5e-4*math.Abs(float64(want))+1e-6*float64(row+1) {
					t.Fatalf("%d×%d: row %d, column %d is %g, want %g", rows, cols, row, col+e, got, want)
				}
			}
		}
	}
}

// TestWgmma runs products of whole and of ragged tiles by both tiles of the path wgmma.
func TestWgmma(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	i := slices.IndexFunc(dev.Paths(), func(p backends.Path) bool { return p.Name == "wgmma" })
	if i < 0 {
		t.Skip("the device is no Hopper")
	}
	path := dev.Paths()[i]
	shapes := map[string][][3]int{ // rows of x, columns, rows of w
		"f16": {{65, 32, 1}, {80, 64, 2}, {72, 96, 130}, {128, 128, 128}, {129, 160, 129}, {70, 288, 300}, {300, 320, 515},
			{512, 1024, 1024}, {257, 4096, 127}, {1030, 352, 260}},
		"q4_0": {{65, 32, 1}, {72, 96, 130}, {129, 160, 129}, {300, 320, 515}, {512, 1024, 1024}, {257, 4096, 127}},
		"q8_0": {{65, 32, 1}, {72, 96, 130}, {129, 160, 129}, {300, 320, 515}, {512, 1024, 1024}, {257, 4096, 127}},
		"q4_K": {{65, 256, 1}, {72, 512, 130}, {300, 768, 515}, {512, 1024, 1024}, {257, 4096, 127}},
		"q5_K": {{65, 256, 1}, {72, 512, 130}, {300, 768, 515}, {512, 1024, 1024}, {257, 4096, 127}},
		"q6_K": {{65, 256, 1}, {72, 512, 130}, {300, 768, 515}, {512, 1024, 1024}, {257, 4096, 127}},
	}
	for typ, list := range shapes {
		t.Run(typ, func(t *testing.T) {
			var cases []optest.Case
			for _, s := range list {
				args := fmt.Sprintf("x float[%d, %d] +8; w %s[%d, %d]", s[0], s[1], typ, s[2], s[1])
				name := fmt.Sprintf("wgmma/%dx%dx%d", s[0], s[1], s[2])
				cases = append(cases,
					optest.Case{Name: name, Eq: "y: linear(x, w)", Args: args, Rel: 5e-6, Abs: 5e-5},
					optest.Case{Name: name + " bias", Eq: "y: linear(x, w, b)", Args: fmt.Sprintf("%s; b f16[%d]", args, s[2]), Rel: 5e-6, Abs: 5e-5},
					optest.Case{Name: name + " residual", Eq: "y: linear_residual(x, w, r, b)", Args: fmt.Sprintf("%s; r float[%d, %d]; b f32[%d]", args, s[0], s[2], s[2]), Rel: 5e-6, Abs: 5e-5},
					optest.Case{Name: name + " scaled", Eq: "y: linear_scaled(x, w, s)", Args: fmt.Sprintf("%s; s f32[%d]", args, s[2]), Rel: 5e-6, Abs: 5e-5})
			}
			cases = append(cases, optest.Case{Name: "wgmma/3d", Eq: "y: linear_residual(x, w, r)", Args: fmt.Sprintf("x float[3, 23, 256]; w %s[133, 256]; r float[3, 23, 133] +3", typ), Rel: 5e-6, Abs: 5e-5})
			tiles := []string{"wgmma=128x128", "wgmma=256x128"}
			if typ != "f16" {
				tiles = tiles[:1]
			}
			for _, v := range tiles {
				dev.Choose(func(n *graph.Node) string {
					if !path.Takes(n) {
						t.Errorf("the path does not take %v", n)
					}
					return v
				})
				for _, c := range cases {
					if err := optest.Together(dev, []optest.Case{c}, 2e-3, func(string) {}); err != nil {
						t.Errorf("%s: %v", v, err)
					}
				}
				if module := "wgmma_" + typ + "_" + v[len("wgmma="):len("wgmma=128")]; !dev.Made(module) {
					t.Errorf("%s: %s did not run", v, module)
				}
			}
		})
	}
	// Weights that lie in several parts, whose first rows are odd.
	dev.SetMaxAllocation(1<<16, 1<<12)
	dev.Choose(nil)
	for _, c := range []struct {
		typ        string
		rows, cols int
	}{{"f16", 515, 352}, {"q4_0", 1515, 352}, {"q6_K", 515, 512}} {
		parts := dev.Parts()
		big := optest.Case{Name: "wgmma/parts", Eq: "y: linear_residual(x, w, r, b)", Args: fmt.Sprintf("x float[140, %d]; w %s[%d, %d]; r float[140, %d]; b bf16[%d]",
			c.cols, c.typ, c.rows, c.cols, c.rows, c.rows), Rel: 5e-6, Abs: 5e-5}
		if err := optest.Together(dev, []optest.Case{big}, 2e-3, func(string) {}); err != nil {
			t.Error(err)
		}
		if dev.Parts() == parts {
			t.Errorf("%s: no weight was parted", c.typ)
		}
	}
}

// withoutWgmma leaves products of f16 to cooperative matrices.
func withoutWgmma(t *testing.T, dev *vulkan.Device) {
	t.Helper()
	for _, p := range dev.Paths() {
		if p.Name == "wgmma" {
			if err := dev.SetPath(p.Name, false); err != nil {
				t.Fatal(err)
			}
		}
	}
}
