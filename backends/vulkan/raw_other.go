//go:build !linux || !(amd64 || arm64) || nogpu

package vulkan

// Raw is never made in this build, nor is what it gives.
type Raw struct{}

// RawMemory is never made in this build.
type RawMemory struct{}

// RawLaunch is never made in this build.
type RawLaunch struct{}

// RawCommands are never made in this build.
type RawCommands struct{}

// Raw fails in this build.
func (*Device) Raw() (*Raw, error) { return nil, errNone }

// Close does nothing.
func (*Raw) Close() error { return nil }

// Limits are none.
func (*Raw) Limits() RawLimits { return RawLimits{} }

// Alloc fails in this build.
func (*Raw) Alloc(int, bool) (*RawMemory, error) { return nil, errNone }

// Bind fails in this build.
func (*Raw) Bind(RawShader, int, []*RawMemory, []uint32) (*RawLaunch, error) { return nil, errNone }

// Record fails in this build.
func (*Raw) Record([]*RawLaunch, int, bool) (*RawCommands, error) { return nil, errNone }

// RecordCopies fails in this build.
func (*Raw) RecordCopies(_, _ *RawMemory, _, _ int) (*RawCommands, error) { return nil, errNone }

// Size is 0.
func (*RawMemory) Size() int { return 0 }

// Host is nil.
func (*RawMemory) Host() []byte { return nil }

// Free does nothing.
func (*RawMemory) Free() error { return nil }

// Write fails in this build.
func (*RawMemory) Write(int, []byte) error { return errNone }

// Read fails in this build.
func (*RawMemory) Read(int, []byte) error { return errNone }

// Run fails in this build.
func (*RawCommands) Run() (device, host float64, err error) { return 0, 0, errNone }

// Close does nothing.
func (*RawCommands) Close() error { return nil }
