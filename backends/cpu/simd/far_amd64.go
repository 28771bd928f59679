//go:build !noasm

package simd

var fars = []Far{FarOff, FarPages, FarLines, FarAll}
