//go:build !linux

package simd

import "testing"

func bigMemory(_ *testing.B, n int) []byte { return make([]byte, n) }
