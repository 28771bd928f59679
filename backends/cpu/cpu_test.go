package cpu_test

import (
	"fmt"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/ops/optest"
)

// TestOperators runs the table of operators at one and at several threads, with
// activations rounded for block formats and bf16 and without.
func TestOperators(t *testing.T) {
	for _, c := range []struct {
		threads int
		opts    []cpu.Option
		name    string
	}{{1, nil, "rounding"}, {3, nil, "rounding"}, {2, []cpu.Option{cpu.Exact}, "exact"}} {
		t.Run(fmt.Sprintf("threads=%d,%s", c.threads, c.name), func(t *testing.T) {
			dev, err := cpu.New(c.threads, c.opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			exact := len(c.opts) > 0
			if r := dev.Rounding(); r.Quant == exact || r.BF16 && exact {
				t.Errorf("a device with exact activations %v rounds %+v", exact, r)
			}
			optest.Run(t, dev)
		})
	}
}

// TestLate: operands that the graph computes in each step are read in each step.
func TestLate(t *testing.T) {
	dev, err := cpu.New(2, cpu.Exact)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	optest.RunLate(t, dev)
}

// TestGraphs runs random small graphs against the reference. Activations are
// exact, since rounded ones can make a network choose other experts.
func TestGraphs(t *testing.T) {
	dev, err := cpu.New(2, cpu.Exact)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	optest.RunGraphs(t, dev, 100)
}
