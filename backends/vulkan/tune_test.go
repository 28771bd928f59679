//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// TestRegDecode runs products of whole and of ragged tiles by the path regdecode alone, as a health check has it.
func TestRegDecode(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	i := slices.IndexFunc(dev.Paths(), func(p backends.Path) bool { return p.Name == "regdecode" })
	if i < 0 {
		t.Skip("not for this device")
	}
	path := dev.Paths()[i]
	for _, p := range dev.Paths() {
		if err := dev.SetPath(p.Name, p.Name == path.Name); err != nil {
			t.Fatal(err)
		}
	}
	var cases []optest.Case
	for _, typ := range []tensor.Type{tensor.Q4_0, tensor.Q8_0, tensor.Q4_K} {
		for _, s := range []struct{ rows, cols, n int }{{9, 256, 3}, {128, 256, 256}, {130, 512, 301}, {67, 2816, 1025},
			{512, 1280, 512}} {
			cases = append(cases,
				optest.Case{Name: fmt.Sprintf("regdecode/%s %dx%dx%d", typ, s.rows, s.cols, s.n), Eq: "y: linear(x, w)",
					Args: fmt.Sprintf("x float[%d, %d]; w %s[%d, %d]", s.rows, s.cols, typ, s.n, s.cols), Rel: 5e-6, Abs: 5e-5},
				optest.Case{Name: fmt.Sprintf("regdecode/%s %dx%dx%d residual", typ, s.rows, s.cols, s.n),
					Eq: "y: linear_residual(x, w, r, b)",
					Args: fmt.Sprintf("x float[%d, %d] +8; w %s[%d, %d]; r float[%d, %d]; b f32[%d]", s.rows, s.cols, typ, s.n, s.cols,
						s.rows, s.n, s.n), Rel: 5e-6, Abs: 5e-5})
		}
	}
	cases = append(cases, halvedCases(tensor.Q4_0, tensor.Q8_0, tensor.Q4_K)...)
	cases = append(cases, optest.Case{Name: "regdecode/steps of 128", Eq: "y: linear(x, w)",
		Args: "x float[70, 384]; w q4_0[300, 384]", Rel: 5e-6, Abs: 5e-5})
	for _, c := range cases {
		n, err := c.Bare(tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		if list := dev.Variants(n); !slices.Equal(list, []string{"regdecode=128x256"}) || !path.Takes(n) {
			t.Errorf("%s: variants %v", c.Name, list)
		}
	}
	if err := optest.Together(dev, cases, path.Rel, func(string) {}); err != nil {
		t.Error(err)
	}
	if !dev.Made("join") {
		t.Error("no product was halved: the number of units is not known")
	}
}

// TestVariants runs products with each tile of cooperative matrices, and asks
// for one that is not there.
func TestVariants(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	node := &graph.Node{Name: "y", Op: ops.Linear,
		In: []*graph.Value{{Name: "x", Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{70, 256}},
			{Name: "w", Kind: graph.Weight, Type: tensor.F16, Shape: tensor.Shape{90, 256}}},
		Out: []*graph.Value{{Name: "y", Type: tensor.F32, Shape: tensor.Shape{70, 90}}}}
	list := dev.Variants(node)
	if len(list) == 0 {
		t.Skip("the device has no matrices of 16 × 16 × 16")
	}
	dev.Choose(func(*graph.Node) string { return "tile=7" })
	if _, err := dev.Kernel(node); err == nil || !strings.Contains(err.Error(), "tile=7") {
		t.Errorf("an unknown variant gives the error %v", err)
	}
	for _, name := range list {
		t.Run(name, func(t *testing.T) {
			dev.Choose(func(n *graph.Node) string {
				if !slices.Contains(dev.Variants(n), name) {
					return ""
				}
				return name
			})
			tried := 0
			for _, c := range optest.Cases() {
				if !strings.HasPrefix(c.Name, "linear") {
					continue
				}
				node, err := c.Bare(dev.Info().Float)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(dev.Variants(node), name) {
					continue // TestOperators has it
				}
				var lacks *backends.Unsupported
				err = optest.Check(dev, c)
				if errors.As(err, &lacks) {
					continue // a type that is converted as it is loaded
				}
				if tried++; err != nil {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
			if tried == 0 {
				t.Error("no case has this variant")
			}
		})
	}
}
