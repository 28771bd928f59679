//go:build !linux

package pool

// Elsewhere nothing tells which CPU a thread runs on, or moves it.

func currentCPU() int { return -1 }
func leave(int)       {}
