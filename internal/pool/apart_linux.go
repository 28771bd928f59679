package pool

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// currentCPU gives the number of the CPU that the calling thread runs on, -1 where it is unknown.
func currentCPU() int {
	var cpu uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return -1
	}
	return int(cpu)
}

// leave moves the calling thread from a CPU to another one that it may run on, if there is any; it
// may come back.
func leave(cpu int) {
	runtime.LockOSThread() // all of it is about one thread
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil || !all.IsSet(cpu) || all.Count() < 2 {
		return
	}
	others := all
	others.Clear(cpu)
	if unix.SchedSetaffinity(0, &others) == nil {
		_ = unix.SchedSetaffinity(0, &all) // what was allowed a moment ago
	}
}
