package hip_test

import (
	"fmt"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/internal/testkit"
)

// TestInvariant: on a device that was opened so, a sequence's logits do not depend on what runs beside it, with exact
// products and with those of half precision.
func TestInvariant(t *testing.T) {
	for _, half := range []backends.Choice{backends.On, backends.Off} {
		t.Run(fmt.Sprint("half ", half), func(t *testing.T) {
			testkit.InCompany(t, 16, testing.Short(), func(t *testing.T) backends.Device {
				t.Parallel() // most of the time goes to compiling
				dev := openWith(t, hip.Options{FP16: half, Invariant: true})
				t.Cleanup(func() { closing(t, dev) })
				return dev
			})
		})
	}
}
