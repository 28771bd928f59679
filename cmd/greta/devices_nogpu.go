//go:build nogpu

package main

import "greta/backends"

func gpuDevices() []deviceLine { return nil }

// roofs are a device's, 0 where unknown.
func roofs(dev backends.Device) (readGBs, gflops float64) {
	info := dev.Info()
	return info.ReadGBs, info.GFlops
}
