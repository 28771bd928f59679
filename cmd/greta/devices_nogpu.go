//go:build nogpu

package main

func gpuDevices() []deviceLine { return nil }
