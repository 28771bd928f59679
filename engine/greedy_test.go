package engine_test

import (
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/ops"
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

// noting is choosing that notes whether its kernels of draw, filter, adjust and logprob are wanted.
type noting struct {
	choosing
	draws, filters, adjusts, thinks bool
}

func (d *noting) Kernel(n *graph.Node) (backends.Kernel, error) {
	d.draws, d.filters = d.draws || n.Op == ops.Draw, d.filters || n.Op == ops.Filter
	d.adjusts, d.thinks = d.adjusts || n.Op == ops.Adjust, d.thinks || n.Op == ops.Logprob
	return d.Device.Kernel(n)
}

// TestDrawn: what a device draws, under masks and with filters too, is what the host draws from all logits.
func TestDrawn(t *testing.T) {
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	noted := &noting{choosing: choosing{dev}}
	testkit.Drawn(t, dev, noted, tensor.F16, true)
	if !noted.draws || !noted.filters || !noted.adjusts || !noted.thinks {
		t.Errorf("on the device draws: %v, filters: %v, penalties: %v, log-probabilities: %v", noted.draws, noted.filters,
			noted.adjusts, noted.thinks)
	}
}

// TestFiltered: what a device's filters leave, and what is drawn of it, is what the host's sampler chooses.
func TestFiltered(t *testing.T) {
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	rows := 12
	if testfiles.Exhaustive() {
		rows = 48
	}
	testkit.Filtered(t, dev, rows)
}
