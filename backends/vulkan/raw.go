package vulkan

// The device below the contract of backends: any compute shader, memory of both
// sides, command buffers of any dispatches, times by timestamps. Microbenchmarks
// use it; programs do not.

// RawLimits are what microbenchmarks ask of a device.
type RawLimits struct {
	Name        string
	Location    string // PCI address, "" where the driver does not say
	Kind        Kind
	Subgroup    int // invocations
	Invocations int // of a workgroup, at most
	MaxBuffer   int // bytes that a shader can be given at once
	Free        int // bytes of memory
}

// RawShader is a compiled compute shader. Its main function takes storage buffers at
// bindings 0, 1, … and push constants of 32 bits, of which the first is the number of
// workgroups: a dispatch may be larger than was asked for, in two dimensions, and
// those beyond must do nothing.
type RawShader struct {
	Name string
	Code []byte // SPIR-V
	// Constants are the specialization constants 0, 1, …, at least one; by
	// convention the first is the size of a workgroup.
	Constants []uint32
}
