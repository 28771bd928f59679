package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/greta-project/greta/internal/memlimit"
)

// boundHeap makes garbage be collected before it takes the last tenth of what memory is left to the process. Where
// there is plenty that changes nothing; GOMEMLIMIT wins.
func boundHeap() {
	left := memlimit.Now().Bytes
	if left < 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + left/10*9)
}
