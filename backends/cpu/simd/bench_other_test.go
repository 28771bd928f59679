//go:build !linux

package simd

import (
	"testing"
	"time"
)

var began = time.Now()

func bigMemory(_ *testing.B, n int) []byte { return make([]byte, n) }

// threadTime is the time of the clock, where that of the thread is not to be had.
func threadTime(*testing.B) time.Duration { return time.Since(began) }
