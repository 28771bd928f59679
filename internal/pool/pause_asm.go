//go:build (amd64 || arm64) && !noasm

package pool

// pause executes n > 0 spin-wait hints: for ; n > 0; n-- { hint() }.
//
//go:noescape
func pause(n uint32)
