package cpu_test

import (
	"fmt"
	"testing"

	"greta/backends/cpu"
	"greta/ops/optest"
)

// TestOperators runs the table of operators at one and at several threads.
func TestOperators(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			dev, err := cpu.New(threads)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			optest.Run(t, dev)
		})
	}
}

// TestGraphs runs random small graphs against the reference.
func TestGraphs(t *testing.T) {
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	optest.RunGraphs(t, dev, 100)
}
