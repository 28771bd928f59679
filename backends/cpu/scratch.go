package cpu

import (
	"runtime"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/tensor"
)

// Scratch memory belongs to the device and is shared by all launches, since
// they run one after another. It grows while programs are bound, never while
// they run: a launch keeps the slice that it was given.

// workerScratch gives worker i at least n floats that start on a cache line.
func (d *Device) workerScratch(i, n int) []float32 {
	for len(d.perWorker) <= i {
		d.perWorker = append(d.perWorker, nil)
	}
	if len(d.perWorker[i]) < n {
		d.perWorker[i] = simd.AlignedFloats(n)
	}
	return d.perWorker[i]
}

// shared gives at least n floats that all workers of a launch see.
func (d *Device) shared(n int) []float32 {
	if len(d.common) < n {
		d.common = simd.AlignedFloats(n)
	}
	return d.common
}

// pages is memory for floats that starts on a cache line, where it is large in huge pages,
// which Go's heap does not have. It lasts as long as something refers to it.
type pages struct{ data []float32 }

func newPages(floats int) *pages {
	if 4*floats < hugeFrom/4 {
		return &pages{simd.AlignedFloats(floats)}
	}
	data, free, err := allocate((4*floats + hugeFrom - 1) / hugeFrom * hugeFrom)
	if err != nil {
		return &pages{simd.AlignedFloats(floats)}
	}
	p := &pages{tensor.View[float32](data)}
	runtime.AddCleanup(p, func(data []byte) { _ = free(data) }, data)
	return p
}
