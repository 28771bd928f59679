// Package mapped turns a fault in a mapped file into an error that names the
// file. A file that is cut short while it is mapped has no bytes behind its new
// end: reading them is a fault, which would end the program without a word.
package mapped

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"unsafe"
)

// Shrunk says that a mapped file has become shorter than it was when it was opened.
type Shrunk struct {
	Path string
	Was  int   // bytes when it was mapped
	Is   int64 // bytes now; negative where that is not known
}

func (e *Shrunk) Error() string {
	now := "is shorter now"
	if e.Is >= 0 {
		now = fmt.Sprintf("has %d bytes now", e.Is)
	}
	return fmt.Sprintf("%s: the file had %d bytes when it was opened and %s: it was changed while it was read; "+
		"fetch or copy it again, and start again when that is done", e.Path, e.Was, now)
}

type mapping struct {
	path string
	size int
}

var (
	mutex    sync.Mutex
	mappings = map[uintptr]mapping{} // by address
)

// Handler is given the first fault of the program, in whichever goroutine; it is
// not expected to return. Without one the goroutine panics with *Shrunk.
var Handler func(*Shrunk)

// Add notes where a file lies in memory.
func Add(data []byte, path string) {
	if len(data) == 0 {
		return
	}
	mutex.Lock()
	mappings[address(data)] = mapping{path, len(data)}
	enter(address(data), mappings[address(data)])
	mutex.Unlock()
}

// Remove forgets a file that is unmapped.
func Remove(data []byte) {
	if len(data) == 0 {
		return
	}
	mutex.Lock()
	delete(mappings, address(data))
	leave(address(data))
	mutex.Unlock()
}

func address(data []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(data))) }

// Watch makes faults of this goroutine panics, which Recover meets. A goroutine
// that may read mapped files begins with both: Watch(), then defer Recover().
func Watch() { debug.SetPanicOnFault(true) }

// Recover is to be deferred where Watch was called. A fault in a file that Add
// noted goes to Handler; every other panic goes on.
func Recover() {
	p := recover()
	if p == nil {
		return
	}
	fault, ok := p.(interface{ Addr() uintptr })
	if !ok {
		panic(p)
	}
	e := find(fault.Addr())
	if e == nil {
		panic(p)
	}
	if Handler != nil {
		Handler(e)
	}
	panic(e)
}

// find gives the file that lies at an address, nil where none does.
func find(at uintptr) *Shrunk {
	mutex.Lock()
	defer mutex.Unlock()
	for from, m := range mappings {
		if at < from || at-from >= uintptr(m.size) {
			continue
		}
		e := &Shrunk{Path: m.path, Was: m.size, Is: -1}
		if st, err := os.Stat(m.path); err == nil {
			e.Is = st.Size()
		}
		return e
	}
	return nil
}
