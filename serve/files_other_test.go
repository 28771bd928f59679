//go:build !linux

package serve

func mostFiles() int { return 900 }
