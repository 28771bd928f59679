//go:build (amd64 || arm64) && !noasm

package cpu

import "unsafe"

// prefetch asks for so many lines of the cache, from p on and from each of the next
// three places that lie so many bytes apart, to be brought to the second level, without
// waiting: for i := range 64 * lines { hint(p+i), hint(p+apart+i), … }.
//
//go:noescape
func prefetch(p unsafe.Pointer, lines, apart int)
