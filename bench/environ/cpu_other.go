//go:build !linux

package environ

func affinity() int { return 0 }

func cpuSeconds() float64 { return 0 }
