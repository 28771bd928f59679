//go:build !noasm

package simd

import (
	"sync"
	"syscall"
)

// grantTiles asks the kernel for the matrix unit's registers, which a process
// has not by itself: 8 KiB that grow each frame of a signal. Linux refuses where a
// thread's signal stack is too small for that; Go's are 32 KiB. The grant holds for
// all threads, those to come included. See arch/x86/xstate.rst in the kernel's
// documentation.
var grantTiles = sync.OnceValue(func() bool {
	const (
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18     // the state component
	)
	_, _, err := syscall.Syscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
})
