//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

// SetVec fixes the shape of mat-vec workgroups: invocations, and rows (2 or 4).
func (d *Device) SetVec(size, rows int) { d.vec = [2]int{size, rows} }
