//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"slices"
	"strings"
	"testing"

	"greta/backends"
	"greta/backends/vulkan"
	"greta/graph"
	"greta/ops"
	"greta/ops/optest"
	"greta/tensor"
)

// TestVariants runs products with each tile of cooperative matrices, and asks
// for one that is not there.
func TestVariants(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	node := &graph.Node{Name: "y", Op: ops.Linear,
		In:  []*graph.Value{{Name: "x", Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{70, 256}}, {Name: "w", Kind: graph.Weight, Type: tensor.F16, Shape: tensor.Shape{90, 256}}},
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
			for _, c := range optest.Cases() {
				if strings.HasPrefix(c.Name, "linear") {
					if err := optest.Check(dev, c); err != nil {
						t.Errorf("%s: %v", c.Name, err)
					}
				}
			}
		})
	}
}
