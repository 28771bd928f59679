//go:build !linux

package platform

import "unsafe"

// takeMemory gives memory on a line of the cache.
func takeMemory(bytes int) ([]byte, error) {
	m := make([]byte, bytes+64)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(m))) % 64)
	return m[off : off+bytes], nil
}

func giveBack([]byte) {}

// pinThread leaves the thread to the system, which has no common way to hold it.
func pinThread(int) func() { return func() {} }
