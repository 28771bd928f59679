//go:build !linux || !amd64

package mapped

// Abrupt does nothing where kernels leave faults to the runtime.
func Abrupt() {}

func enter(uintptr, mapping) {}
func leave(uintptr)          {}
