//go:build !noasm

package simd

const canFar = true
