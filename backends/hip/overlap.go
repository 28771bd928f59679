package hip

import "unsafe"

// Launches that start while the one before them ends: programmatic dependent
// launch of NVIDIA's driver, from Hopper on. begin_next and wait_previous in
// prelude.h are its other half.

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

const attributeSerialization = 6 // programmatic stream serialization

// earlyLaunch is what launchEarly passes, kept by the device: pinned, and read
// by the driver during the call only.
type earlyLaunch struct {
	config    launchConfig
	attribute launchAttribute
}

// launchEarly launches a dispatch that may start before the kernel before it on
// the stream has ended.
func (dev *Device) launchEarly(what string, f uintptr, p *dispatch, stream, params uintptr) error {
	e := dev.early
	e.attribute.id, e.attribute.value[0] = attributeSerialization, 1
	e.config = launchConfig{
		grid: [3]uint32{uint32(p.grid[0]), uint32(p.grid[1]), uint32(p.grid[2])}, block: [3]uint32{uint32(p.block), 1, 1},
		shared: uint32(p.shared), stream: stream, attributes: uintptr(unsafe.Pointer(&e.attribute)), count: 1,
	}
	return dev.d.call(fnLaunchConfig, what, uintptr(unsafe.Pointer(&e.config)), f, params, 0)
}
