package engine_test

import (
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
)

// TestInvariant: on a processor that was opened so, a sequence's logits do not depend on what runs beside it.
func TestInvariant(t *testing.T) {
	threads := 0
	testkit.InCompany(t, 16, !testfiles.Exhaustive(), func(t *testing.T) backends.Device {
		threads = threads%3 + 1
		dev, err := cpu.New(threads, cpu.Invariant)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return dev
	})
}
