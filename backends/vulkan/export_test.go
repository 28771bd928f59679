//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

// SetMaxRange makes the device's storage ranges smaller than they are.
func (d *Device) SetMaxRange(bytes uint32) { d.p.limits.MaxStorageBufferRange = bytes }

// ForgetBarriers makes recorders leave out the barriers between dispatches.
func (d *Device) ForgetBarriers() { d.careless = true }

// SetTile fixes the size of tiles: 32, 64 or 128.
func (d *Device) SetTile(n int) { d.tile = n }
