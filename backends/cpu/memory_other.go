//go:build !linux

package cpu

import (
	"runtime"

	"github.com/greta-project/greta/tensor"
)

// allocate takes memory from Go's heap, aligned to 8 bytes at least.
func allocate(bytes int) ([]byte, func([]byte) error, error) {
	return tensor.Bytes(make([]uint64, (bytes+7)/8))[:bytes], func([]byte) error { return nil }, nil
}

func processorName() string { return runtime.GOARCH }
