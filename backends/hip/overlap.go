package hip

import "unsafe"

// Launches that start while the one before them ends: programmatic dependent
// launch of NVIDIA's driver, from Hopper on. begin_next and wait_previous in
// prelude.h are its other half. And launches in clusters of blocks.

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block [3]uint32
	shared, _   uint32
	stream      uintptr
	attributes  uintptr
	count, _    uint32
}

// launchAttribute is CUlaunchAttribute: a number and a value of up to 64 bytes.
type launchAttribute struct {
	id, _ uint32
	value [16]uint32
}

const (
	attributeCluster       = 4 // blocks of a cluster along x, y and z
	attributeSerialization = 6 // programmatic stream serialization
)

// earlyLaunch is what launchWith passes, kept by the device: pinned, and read
// by the driver during the call only.
type earlyLaunch struct {
	config     launchConfig
	attributes [2]launchAttribute
}

// launchWith launches a dispatch in clusters, where it says so; early: it may
// start before the kernel before it on the stream has ended.
func (dev *Device) launchWith(what string, f uintptr, p *dispatch, early bool, stream, params uintptr) error {
	e, count := dev.early, uint32(0)
	if early {
		e.attributes[count] = launchAttribute{id: attributeSerialization, value: [16]uint32{1}}
		count++
	}
	if p.cluster > 1 {
		e.attributes[count] = launchAttribute{id: attributeCluster, value: [16]uint32{uint32(p.cluster), 1, 1}}
		count++
	}
	e.config = launchConfig{
		grid: [3]uint32{uint32(p.grid[0]), uint32(p.grid[1]), uint32(p.grid[2])}, block: [3]uint32{uint32(p.block), 1, 1},
		shared: uint32(p.shared), stream: stream, attributes: uintptr(unsafe.Pointer(&e.attributes)), count: count,
	}
	return dev.d.call(fnLaunchConfig, what, uintptr(unsafe.Pointer(&e.config)), f, params, 0)
}
