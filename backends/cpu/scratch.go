package cpu

import "greta/backends/cpu/simd"

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
