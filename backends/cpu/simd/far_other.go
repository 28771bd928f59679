//go:build !amd64 || noasm

package simd

var fars = []Far{FarOff}
