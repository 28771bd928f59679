//go:build !(amd64 || arm64) || noasm

package cpu

import "unsafe"

// prefetch is a hint that this build cannot give.
func prefetch(unsafe.Pointer, int, int) {}
