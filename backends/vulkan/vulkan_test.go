//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"errors"
	"os"
	"testing"

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

// TestGraphs runs random small graphs against the reference.
func TestGraphs(t *testing.T) {
	optest.RunGraphs(t, open(t, vulkan.Options{}), 60)
}
