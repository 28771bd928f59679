package cpu_test

import (
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops/optest"
)

// TestChunksOfRecurrences: chunks and, on a device whose results are invariant, steps give what float64 gives, for as
// many tokens as chunks have, one more, one less and others, and for decays that keep all, little or nothing.
func TestChunksOfRecurrences(t *testing.T) {
	lengths := []int{1, 16, 65}
	if testfiles.Exhaustive() {
		lengths = []int{1, 15, 16, 17, 63, 64, 65, 95, 128, 129, 130}
	}
	for _, opts := range [][]cpu.Option{nil, {cpu.Invariant}} {
		dev, err := cpu.New(2, opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		for _, n := range lengths {
			for _, decays := range []string{"-0.001", "-0", "-12", "-0.5 %3", "%1"} {
				for _, c := range optest.LongRecurrences(n, decays) {
					if err := optest.Once(dev, c); err != nil {
						t.Errorf("invariant %v: %s: %v", dev.Invariant(), c.Name, err)
					}
				}
			}
			if testing.Short() && n > 1 {
				break
			}
		}
	}
}
