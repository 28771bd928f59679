package engine_test

import (
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/tensor"
)

// choosing is a device that chooses tokens and takes programs of several steps.
type choosing struct{ backends.Device }

func (d choosing) Info() backends.Info {
	i := d.Device.Info()
	i.Queued, i.Chain, i.Picks = true, 256, 40
	return i
}

// TestGreedy: tokens that are computed several at once are those of single steps, wherever a text ends.
func TestGreedy(t *testing.T) {
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	testkit.Multistep(t, choosing{dev}, tensor.F16, map[string]string{"L": "2", "D": "64", "H": "4", "F": "96",
		"V": "500"}, testing.Short())
}
