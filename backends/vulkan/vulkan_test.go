//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"greta/backends"
	"greta/backends/vulkan"
	"greta/ops/optest"
)

// open gives a device for a test. Where there is none the test is skipped,
// unless GRETA_REQUIRE_VULKAN is set.
func open(t testing.TB, opt vulkan.Options) *vulkan.Device {
	t.Helper()
	opt.Software = true
	opt.Device = os.Getenv("GRETA_VULKAN_DEVICE")
	dev, err := vulkan.New(opt)
	var none *vulkan.NoDevice
	if errors.As(err, &none) && os.Getenv("GRETA_REQUIRE_VULKAN") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// TestOperators runs the table of operators, with products by rows and by tiles.
func TestOperators(t *testing.T) {
	for name, tiled := range map[string]int{"rows": -1, "tiles": 1} {
		t.Run(name, func(t *testing.T) { optest.Run(t, open(t, vulkan.Options{Tiled: tiled})) })
	}
}

// TestPaths runs the table of operators with the paths of half precision, and the
// products again with each size of their tiles.
func TestPaths(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	if len(dev.Paths()) == 0 {
		t.Skip("the device has no fast paths")
	}
	for _, p := range dev.Paths() {
		t.Logf("%s: %s, code %s", p.Name, p.About, p.Code)
	}
	optest.Run(t, dev)
}

// TestGraphs runs random small graphs against the reference.
func TestGraphs(t *testing.T) {
	optest.RunGraphs(t, open(t, vulkan.Options{}), 60)
}

// TestDistant runs one case of every operator as on a card: the host reaches none of
// the device's memory, Step memory has two sides.
func TestDistant(t *testing.T) {
	dev := open(t, vulkan.Options{})
	dev.Stage(true)
	eachOperator(t, dev)
	optest.RunGraphs(t, dev, 10)
}

// eachOperator checks one case of every operator.
func eachOperator(t *testing.T, dev *vulkan.Device) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range optest.Cases() {
		op, _, _ := strings.Cut(c.Name, "/")
		if seen[op] {
			continue
		}
		seen[op] = true
		if err := optest.Check(dev, c); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}
