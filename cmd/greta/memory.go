package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/greta-project/greta/internal/memlimit"
)

// earlyPercent is the collector's percentage until a model is loaded: what the beginning makes is a few megabytes that
// mostly stay, and collecting them again and again took a sixth of the time to a small model's first token.
const earlyPercent = 400

// settleHeap gives the collector its usual percentage back.
var settleHeap = func() {}

// boundHeap makes garbage be collected before it takes the last tenth of what memory is left to the process. Where
// there is plenty that changes nothing; GOMEMLIMIT wins.
func boundHeap() {
	if os.Getenv("GOGC") == "" {
		usual := debug.SetGCPercent(earlyPercent)
		settleHeap = sync.OnceFunc(func() { debug.SetGCPercent(usual) })
	}
	left := memlimit.Now().Bytes
	if left < 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + left/10*9)
}
