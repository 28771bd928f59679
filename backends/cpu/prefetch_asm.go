//go:build (amd64 || arm64) && !noasm

package cpu

// prefetch asks for each cache line of b to be brought to the second level,
// without waiting: for i := 0; i < len(b); i += 64 { hint(&b[i]) }.
//
//go:noescape
func prefetch(b []byte)
