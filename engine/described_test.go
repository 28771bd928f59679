package engine

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
)

// describedCPU is the processor as golden texts describe it: its pure Go level, two threads.
func describedCPU() (backends.Device, error) { return cpu.NewLevel("go", 2) }
