//go:build linux

package mapped

import (
	"fmt"
	"syscall"
	"unsafe"
)

// What the handler in assembly reads: where files lie, from and to, and the text
// that it writes, where and how long.
var (
	table  [512][4]uintptr
	count  uintptr
	before uintptr // the handler that was there
	texts  [512][]byte
)

func handlerPC() uintptr

// Abrupt is for programs that read mapped files by kernels in assembly, whose frames
// the runtime cannot walk: a fault there cannot become a panic. From then on a
// fault in a mapped file writes its message and ends the program with exit code
// 1 at once, wherever it happens.
func Abrupt() {
	mutex.Lock()
	defer mutex.Unlock()
	if before != 0 {
		return
	}
	type action struct{ handler, flags, restorer, mask uintptr }
	var old action
	const size = 8
	sigaction := func(set, get *action) bool {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGBUS),
			uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), size, 0, 0)
		return errno == 0
	}
	if !sigaction(nil, &old) || old.handler <= 1 { // none, or ignored
		return
	}
	before = old.handler
	for at, m := range mappings {
		enter(at, m)
	}
	set := old
	set.handler = handlerPC()
	sigaction(&set, nil)
}

// enter puts a file into the table. The caller holds the lock.
func enter(at uintptr, m mapping) {
	if before == 0 {
		return
	}
	i := 0
	for i < int(count) && table[i][1] != 0 {
		i++
	}
	if i == len(table) {
		return // so many files are not mapped at once; such a fault is the runtime's
	}
	e := &Shrunk{Path: m.path, Was: m.size, Is: -1}
	texts[i] = fmt.Appendf(nil, "greta: %v\n", e)
	table[i] = [4]uintptr{at, at + uintptr(m.size), uintptr(unsafe.Pointer(&texts[i][0])), uintptr(len(texts[i]))}
	count = max(count, uintptr(i)+1)
}

// leave takes a file out of the table. The caller holds the lock.
func leave(at uintptr) {
	for i := range table[:count] {
		if table[i][0] == at {
			table[i] = [4]uintptr{}
		}
	}
}
