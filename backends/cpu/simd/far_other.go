//go:build !amd64 || noasm

package simd

const canFar = false
