//go:build !(amd64 || arm64) || noasm

package cpu

// prefetch is a hint that this build cannot give.
func prefetch([]byte) {}
