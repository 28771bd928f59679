package cpu_test

import (
	"fmt"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops/optest"
)

// TestOperators runs the table of operators at one and at several threads, with
// activations rounded for block formats and bf16 and without; the second and third way of those in every third case.
func TestOperators(t *testing.T) {
	for way, c := range []struct {
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
			var cases []optest.Case
			for i, c := range optest.Cases() {
				if way == 0 || i%3 == way || testfiles.Exhaustive() {
					cases = append(cases, c)
				}
			}
			optest.RunCases(t, dev, cases)
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
	optest.RunLate(t, dev, !testfiles.Exhaustive())
}

// TestGraphs runs random small graphs against the reference. Activations are
// exact, since rounded ones can make a network choose other experts.
func TestGraphs(t *testing.T) {
	dev, err := cpu.New(2, cpu.Exact)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	n := 40
	if testfiles.Exhaustive() {
		n = 100
	}
	optest.RunGraphs(t, dev, n)
}
