//go:build !(amd64 || arm64) || noasm

package pool

import "sync/atomic"

var idle atomic.Uint32

// pause passes some time, as the spin-wait hints of other builds do.
func pause(n uint32) {
	for range n * 16 {
		idle.Load()
	}
}
