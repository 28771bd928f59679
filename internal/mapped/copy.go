package mapped

import (
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	copyLeast = 512 << 10 // below it starting another goroutine costs more than it brings
	copyMost  = 16        // goroutines: memory gives no more
	pageBytes = 4096
)

// Copy copies as many bytes as both have and says how many. Many are copied by as many goroutines as
// can run at a time: pages of a mapped file come one fault at a time. What goes wrong in one of them,
// such as a fault in a file that has become shorter, is a panic of the caller, as it is of copy.
func Copy(dst, src []byte) int {
	size := min(len(src), len(dst))
	if n := min(size/copyLeast, runtime.GOMAXPROCS(0), copyMost); n > 1 {
		copyParts(dst, src, size, (size/n+pageBytes-1)&^(pageBytes-1))
		return size
	}
	return copy(dst, src)
}

func copyParts(dst, src []byte, size, each int) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[any]
	for from := 0; from < size; from += each {
		wg.Go(func() {
			Watch()
			defer func() {
				if p := recover(); p != nil {
					failed.Store(&p)
				}
			}()
			copy(dst[from:size], src[from:min(from+each, size)])
		})
	}
	wg.Wait()
	if p := failed.Load(); p != nil {
		panic(*p)
	}
}
