//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"fmt"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/internal/testkit"
)

// TestInvariant: on a device that was opened so, a sequence's logits do not depend on what runs beside it: with
// products in f32 by tiles and past w, and with those of half precision that the device has.
func TestInvariant(t *testing.T) {
	whole(t)
	for _, c := range []struct {
		half  backends.Choice
		tiled int
	}{{backends.Off, -1}, {backends.Off, 1}, {backends.On, 0}} {
		t.Run(fmt.Sprint("half ", c.half, "/tiled ", c.tiled), func(t *testing.T) {
			opt := vulkan.Options{FP16: c.half, Tiled: c.tiled, Invariant: true}
			testkit.InCompany(t, 8, false, func(t *testing.T) backends.Device { return open(t, opt) })
		})
	}
}
